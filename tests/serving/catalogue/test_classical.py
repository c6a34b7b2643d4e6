"""The classical solvers behind the gateway: what they solve, and what they refuse."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

from physics import burgers, kuramoto_sivashinsky, navier_stokes
from physics.numerics.grid import relative_l2
from schema.card import Card
from serving.classical import ClassicalSolvers, Worker
from tests.refusals import refused


@pytest.fixture
def solvers() -> Iterator[ClassicalSolvers]:
    made = ClassicalSolvers()
    yield made
    made.close()


@pytest.fixture
def card() -> Card:
    """Return the card of a model of Burgers' equation."""
    tensor = {"dtype": "FP32", "axes": ["batch", "x"], "units": "1", "meaning": "velocity", "positive": False}
    return Card.model_validate(
        {
            "model": "burgers",
            "version": 1,
            "format": "onnx",
            "title": "Burgers",
            "problem": "burgers",
            "inputs": [{**tensor, "name": "initial"}],
            "outputs": [{**tensor, "name": "final"}],
            "grid": {"axes": ["x"], "minimum": 64, "maximum": 8192, "declared": [512], "points": "left"},
            "limits": {"batch": 8},
            "training": {},
            "checkpoint": {},
        }
    )


async def test_burgers_is_solved_also_where_an_integration_overflows(solvers: ClassicalSolvers, card: Card) -> None:
    initial = np.stack([burgers.example(512, 1), 1000 * burgers.example(512, 2)]).astype(np.float32)
    found, _ = await solvers.solve(card, {"initial": initial}, "reference")
    assert np.isfinite(found["final"]).all()
    assert relative_l2(found["final"][:1], burgers.solve(initial[:1]))[0] < 1e-6


@pytest.mark.parametrize(("problem", "axes"), [("kuramoto_sivashinsky", ("x",)), ("navier_stokes", ("row", "column"))])
async def test_trajectories_are_solved_with_the_step_of_the_card(
    solvers: ClassicalSolvers, problem: str, axes: tuple[str, ...]
) -> None:
    number = {"kuramoto_sivashinsky": "length", "navier_stokes": "viscosity"}[problem]
    state = {"dtype": "FP32", "units": "1", "meaning": "state", "positive": False}
    card = Card.model_validate(
        {
            "model": problem,
            "version": 1,
            "format": "onnx",
            "title": problem,
            "problem": problem,
            "inputs": [{**state, "name": "initial", "axes": ["batch", *axes]}],
            "parameters": [{"name": number, "meaning": number, "units": "1"}],
            "outputs": [{**state, "name": "u", "axes": ["batch", "frame", *axes]}],
            "grid": {"axes": axes, "minimum": 8, "maximum": 512, "declared": [16], "points": "left"},
            "frames": {"step": 0.5, "history": 1, "states": ["initial"], "trained": 4, "maximum": 10_000},
            "limits": {"batch": 8},
            "training": {},
            "checkpoint": {},
        }
    )
    wave = np.sin(2 * np.pi * np.arange(16) / 16, dtype=np.float32)
    initial = (wave if len(axes) == 1 else wave + wave[:, None])[None].repeat(2, 0)
    numbers = np.array([20.0, 30.0] if number == "length" else [1e-3, 1e-2], np.float32)
    inputs = {"initial": initial, number: numbers, "frame": np.zeros((2, 3), np.int32)}
    found, _ = await solvers.solve(card, inputs, "reference")
    module = {"kuramoto_sivashinsky": kuramoto_sivashinsky, "navier_stokes": navier_stokes}[problem]
    np.testing.assert_allclose(found["u"], module.solve(initial, 3, 0.5, numbers), rtol=1e-5, atol=1e-6)
    with refused("body-too-large", match="in each of 9000 frames"):
        await solvers.solve(card, {**inputs, "frame": np.zeros((2, 9000), np.int32)}, "reference")


async def test_what_the_solver_does_not_solve_is_refused_with_the_reason(solvers: ClassicalSolvers, card: Card) -> None:
    initial = 1e6 * burgers.example(512, 7)[None].astype(np.float32)
    with refused("unsolvable", match="the classical solver failed: 2048 points do not resolve the solution") as caught:
        await solvers.solve(card, {"initial": initial}, "reference")
    assert (caught.value.status, caught.value.kind) == (422, "unsolvable")


async def test_the_solver_of_a_derivative_is_not_that_of_its_problem(solvers: ClassicalSolvers, card: Card) -> None:
    product = Card.model_validate(
        card.model_dump() | {"model": "burgers_vjp", "product": {"of": "burgers", "kind": "vjp"}}
    )
    with refused("no-reference", match=r'^the derivative "burgers_vjp" has no classical solver; there are solvers for'):
        await solvers.solve(product, {"initial": np.ones((1, 64), np.float32)}, "reference")


class Endless:
    """A function that iterates until it is ended from outside."""

    def __init__(self) -> None:
        self.began, self.ended = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.began.set()
        try:
            while True:
                time.sleep(0.001)
        finally:
            self.ended.set()


async def test_a_solve_whose_client_has_left_ends_and_frees_its_thread() -> None:
    worker, endless = Worker(), Endless()
    solving = asyncio.create_task(worker.run(endless))
    await asyncio.to_thread(endless.began.wait, 10)
    solving.cancel()
    assert await asyncio.to_thread(endless.ended.wait, 10)
    assert await asyncio.wait_for(worker.run(abs, -1), 10) == 1
    worker.close()


async def test_closing_ends_a_solve_and_does_not_wait_for_it() -> None:
    worker, endless = Worker(), Endless()
    solving = asyncio.create_task(worker.run(endless))
    await asyncio.to_thread(endless.began.wait, 10)
    worker.close()
    with refused("unavailable", match="shutting down"):
        await asyncio.wait_for(solving, 10)
    assert endless.ended.is_set()


async def test_one_purpose_does_not_wait_for_another(
    solvers: ClassicalSolvers, card: Card, monkeypatch: pytest.MonkeyPatch
) -> None:
    endless, inputs = Endless(), {"initial": burgers.example(512, 1)[None].astype(np.float32)}
    with monkeypatch.context() as patched:
        patched.setattr("serving.classical._solve", lambda *_: endless())
        waiting = asyncio.create_task(solvers.solve(card, inputs, "reference"))
        await asyncio.to_thread(endless.began.wait, 10)
    await asyncio.wait_for(solvers.example(card, 512, 1), 30)
    await asyncio.wait_for(solvers.solve(card, inputs, "tolerance"), 30)
    waiting.cancel()


def test_solvers_multiply_matrices_on_one_thread() -> None:
    program = "import json, serving.classical, threadpoolctl; print(json.dumps(threadpoolctl.threadpool_info()))"
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, env=environment)
    assert {pool["num_threads"] for pool in json.loads(done.stdout)} == {1}
