"""The classical solvers behind the gateway: what they solve, and what they refuse."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from physics import burgers
from physics.norms import relative_l2
from serving.catalogue.card import Card
from serving.catalogue.classical import ClassicalSolvers
from serving.problem_details import Unsolvable

if TYPE_CHECKING:
    from collections.abc import Iterator


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
    found = await solvers.predict(card, {"initial": initial}, 0, "")
    assert np.isfinite(found["final"]).all()
    assert relative_l2(found["final"][:1], burgers.solve(initial[:1]))[0] < 1e-6


async def test_what_the_solver_does_not_solve_is_refused_with_the_reason(solvers: ClassicalSolvers, card: Card) -> None:
    initial = 1e6 * burgers.example(512, 7)[None].astype(np.float32)
    with pytest.raises(
        Unsolvable, match="the classical solver failed: 2048 points do not resolve the solution"
    ) as caught:
        await solvers.predict(card, {"initial": initial}, 0, "")
    assert (caught.value.status, caught.value.kind) == (422, "unsolvable")
