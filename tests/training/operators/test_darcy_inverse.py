"""The inverse operator: its misfit is the distance between the measured pressure and that of its output."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import physics.darcy
from tests.training.operators.pressures import misfits, pressure
from training import checkpoint
from training.operators import Operator
from training.problems.darcy_inverse import OUTPUT_GRID

RELEASED = Path(__file__).parents[3] / "checkpoints" / "darcy_inverse"
LOW, HIGH = physics.darcy.LOW, physics.darcy.HIGH


@pytest.fixture(scope="module")
def operator() -> Operator:
    return checkpoint.load_operator(RELEASED).operator


def explained(means: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the pressure on 141 x 141 points of blocks of four points each, the first of which has three."""
    harmonic = 1 / ((HIGH - means) / (HIGH - LOW) / LOW + (means - LOW) / (HIGH - LOW) / HIGH)
    block = (np.arange(141) + 1) // 4
    return physics.darcy.solve(np.sqrt(means * harmonic)[np.ix_(block, block)])


@torch.no_grad()
def test_the_misfit_is_the_distance_to_the_forward_solution(operator: Operator) -> None:
    solution = pressure(141, 1)
    coefficient, misfit = operator.with_quality(solution)
    assert torch.equal(coefficient, operator(solution))
    assert coefficient.shape == (1, *OUTPUT_GRID)
    measured = solution[0].double().numpy()
    distance = np.linalg.norm(explained(coefficient[0].double().numpy()) - measured) / np.linalg.norm(measured)
    assert misfit.item() == pytest.approx(distance, rel=0.05)


@pytest.mark.parametrize("points", [85, 113, 141, 421])
@torch.no_grad()
def test_the_misfit_of_a_pressure_like_the_trained_ones_is_small(operator: Operator, points: int) -> None:
    assert operator.with_quality(pressure(points, 2))[1].item() < 0.02


@torch.no_grad()
def test_a_pressure_that_the_output_does_not_explain_has_a_large_misfit(operator: Operator) -> None:
    clean, rough, foreign = misfits(operator, 4.0)
    assert rough > 3 * clean
    assert foreign > 0.3
