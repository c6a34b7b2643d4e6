"""The inverse operator of blocks: its misfit is the distance between the measured pressure and that of its output."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import physics.darcy
from tests.training.operators.pressures import pressure
from training import recipes
from training.operators import Operator, build
from training.problems.darcy_inverse import OUTPUT_GRID

LOW, HIGH = physics.darcy.LOW, physics.darcy.HIGH


@pytest.fixture(scope="module")
def operator() -> Operator:
    torch.manual_seed(0)
    made = build(recipes.read_fields(recipes.find("darcy_inverse-tiny")).operator).eval()
    made.fit_normalisers(
        torch.cat([pressure(141, seed) for seed in range(2)]), torch.tensor([LOW, HIGH]).expand(2, 36, 2)
    )
    return made


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


@torch.no_grad()
def test_a_pressure_of_zero_has_a_finite_output_and_a_misfit_that_marks_it(operator: Operator) -> None:
    coefficient, misfit = operator.with_quality(torch.zeros(1, 29, 37))
    assert torch.isfinite(coefficient).all()
    assert misfit.item() > 1e3
