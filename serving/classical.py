"""The classical solvers of `physics` as a backend of the gateway: sampled inputs, reference solutions, true errors.

They use the gateway's own processor, so they are bounded: each purpose has one thread, at most `MAX_WAITING` requests
wait for it, and one request holds no more points than the model's largest grid. A solve that is not waited for any
more ends at its next call of a Python function, so that a client that has left keeps no thread busy.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from prometheus_client import Histogram

from physics import registry
from physics.registry import Classical
from schema.card import FRAME, Card
from serving import timing
from serving.errors import Problem
from serving.quality import NETWORK, Quality

Batches = Mapping[str, NDArray[np.float32]]
Solutions = tuple[dict[str, NDArray[np.float32]], NDArray[np.float32]]

logger = logging.getLogger(__name__)
Result = TypeVar("Result")
Purpose = Literal["example", "reference", "tolerance", "shadow"]
MAX_WAITING = 64  # `predict` continues inputs out of distribution here, and its requests have a time limit
NICENESS = 19  # the lowest priority, of what no request waits for
RETRY_SECONDS = 2  # a solve on the largest grid takes about half a second


class AbandonedError(BaseException):
    """Ends a solve that is not waited for any more; no solver may take it for a fault of its own."""


class Worker:
    """One thread that solves, and a bounded number of requests that wait for it."""

    def __init__(self, niceness: int = 0) -> None:
        self._thread = ThreadPoolExecutor(1, "classical", _lower, (niceness,))
        self._waiting = 0
        self._closed = threading.Event()

    def close(self) -> None:
        """End what waits and what runs, without waiting for it."""
        self._closed.set()
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def run(self, function: Callable[..., Result], *args: Any) -> Result:
        """Call a function in the thread; it ends early when the caller is cancelled."""
        if self._waiting >= MAX_WAITING:
            detail = f"{self._waiting} requests wait for the classical solver"
            raise Problem("overloaded", detail, retry_after=RETRY_SECONDS)
        abandoned = threading.Event()

        def check(*_: object) -> None:
            if abandoned.is_set() or self._closed.is_set():
                raise AbandonedError

        def work() -> Result:
            # Solvers iterate in Python, so that every iteration passes here; they need not know of it.
            before = sys.getprofile()
            sys.setprofile(check)
            try:
                return function(*args)
            finally:
                sys.setprofile(before)

        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except AbandonedError:
            raise Problem("unavailable", "the service is shutting down") from None
        finally:
            abandoned.set()
            self._waiting -= 1


class ClassicalSolvers:
    """Predicts with the equations instead of a model."""

    def __init__(self) -> None:
        # Solvers that take seconds have a thread of their own, so that no other reference waits for an inversion.
        names = ("example", "reference", "tolerance", "slow")
        self._workers = {name: Worker() for name in names} | {"shadow": Worker(NICENESS)}
        self._verifying: asyncio.Task[None] | None = None

    def close(self) -> None:
        if self._verifying is not None:
            self._verifying.cancel()
        for worker in self._workers.values():
            worker.close()

    @staticmethod
    def knows(card: Card) -> bool:
        return card.problem in registry.problems() and card.product is None

    def samples(self, card: Card) -> bool:
        return self.knows(card) and registry.problem(card.problem).example is not None

    def solves(self, card: Card) -> bool:
        """Return whether there is a solver that solves the model's problem to rounding."""
        return self.knows(card) and registry.problem(card.problem).exact and len(card.outputs) == 1

    async def example(self, card: Card, points: int, seed: int) -> dict[str, NDArray[np.float32]]:
        """Sample an input of the model's training distribution, by its name.

        The same seed is the same field, on every grid of so many points per axis.
        """
        sampler = registry.problem(card.problem).example if self.knows(card) else None
        if sampler is None:
            sampled = ", ".join(sorted(name for name, problem in registry.problems().items() if problem.example))
            raise Problem("no-example", f"{_what(card)} has no sampler; there are samplers for {sampled}")
        if not card.grid.minimum <= points <= card.grid.maximum:
            detail = f"grid is {points}; the model takes {card.grid.minimum} to {card.grid.maximum} points"
            raise Problem("invalid-parameter", detail)
        field = await self._workers["example"].run(sampler, points, seed)
        return {card.inputs[0].name: field.astype(np.float32)}

    async def solve(self, card: Card, inputs: Batches, purpose: Purpose) -> Solutions:
        """Return solutions `[B, (frame), *grid]` by output name, and their error bounds `[B]`, NaN where there is none.

        Inputs are `[B, *grid]` by name; the shape of `frame` says how many frames. No purpose waits for another one.
        """
        if not self.knows(card):
            known = ", ".join(sorted(registry.problems()))
            raise Problem("no-reference", f"{_what(card)} has no classical solver; there are solvers for {known}")
        problem, batch = registry.problem(card.problem), inputs[card.inputs[0].name]
        largest = problem.largest or card.grid.maximum ** len(card.grid.axes)
        frames: dict[str, Any] = {}
        if problem.trajectories and card.frames is not None:
            frames = {"frames": inputs[FRAME].shape[1], "interval": card.frames.step}
        if batch.size * frames.get("frames", 1) > largest:
            every = f" in each of {frames['frames']} frames" if frames else ""
            points = f"{math.prod(batch.shape)} points{every}"
            raise Problem("body-too-large", f"{points}; the classical solver takes at most {largest} in one call")
        worker = self._workers["slow" if problem.slow and purpose != "shadow" else purpose]
        try:
            fields, bounds, seconds = await worker.run(_solve, problem, card, inputs, frames)
        except (ArithmeticError, ValueError) as error:
            raise Problem("unsolvable", f"the classical solver failed: {error}") from error
        if purpose != "shadow":
            timing.spend("solver", seconds)
        return {card.outputs[0].name: fields}, bounds

    def verify(self, card: Card, inputs: Batches, outputs: Batches, quality: Quality, errors: Histogram) -> None:
        """Measure the true error of one sample in the background, one at a time; no response waits."""
        if (self._verifying is not None and not self._verifying.done()) or not self.solves(card):
            return
        index, name = random.randrange(len(quality.by)), card.outputs[0].name  # noqa: S311  a sample
        output = outputs[name][index].astype(np.float64)
        if quality.by[index] != NETWORK or not np.isfinite(output).all():  # a failure is counted as one
            return
        one = {each: array[index : index + 1].copy() for each, array in inputs.items()}

        async def verify() -> None:
            try:
                solutions, _ = await self.solve(card, one, "shadow")
            except Problem as problem:
                logger.debug("%s is not verified: %s", card.model, problem.detail)
                return
            solution = solutions[name][0].astype(np.float64)
            size = max(float(np.linalg.norm(solution)), np.finfo(float).tiny)
            error = float(np.linalg.norm(output - solution)) / size
            if math.isfinite(error):  # one that is not would make every later sum so
                errors.labels(card.model).observe(error)

        self._verifying = asyncio.create_task(verify())


def _solve(
    problem: Classical, card: Card, inputs: Batches, frames: Mapping[str, Any]
) -> tuple[NDArray[np.float32], NDArray[np.float32], float]:
    """Return solutions, their error bounds, and the processor seconds of the solver."""
    lead, *others = card.names
    fields: list[NDArray[np.float32]] = []
    bounds: list[float] = []
    seconds = 0.0
    for index, field in enumerate(inputs[lead]):
        about = {name: inputs[name][index] for name in others}
        started = time.thread_time()
        fields.append(problem.solve(field, card.outputs[0].points, **about, **frames).astype(np.float32))
        seconds += time.thread_time() - started
        bounds.append(np.nan if problem.bound is None else problem.bound(field, fields[-1], **about))
    return np.stack(fields), np.array(bounds, np.float32), seconds


def _lower(niceness: int) -> None:
    """Lower the priority of the current thread; Linux has one per thread."""
    if niceness and sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness)


def _what(card: Card) -> str:
    if card.product is None:
        return f'the problem "{card.problem}"'
    return f'the {"refinement" if card.product.kind == "refined" else "derivative"} "{card.model}"'
