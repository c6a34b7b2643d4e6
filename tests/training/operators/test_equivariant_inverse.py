"""The released inverse operator: materials of any scale, the distance to a multiple of the pressure, known noise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import physics.darcy
from physics.numerics.grid import coarsen
from tests.training.operators.pressures import misfits, pressure
from training import checkpoint
from training.operators import Operator
from training.operators.darcy_inverse import EquivariantInverseOperator
from training.problems.darcy_inverse import OUTPUT_GRID

RELEASED = Path(__file__).parents[3] / "checkpoints" / "darcy_inverse"
LOW, HIGH = physics.darcy.LOW, physics.darcy.HIGH


@pytest.fixture(scope="module")
def operator() -> Operator:
    return checkpoint.load_operator(RELEASED).operator


def explained(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the pressure on 141 x 141 points for the shares of the more permeable material there."""
    harmonic = 1 / ((1 - shares) / LOW + shares / HIGH)
    return physics.darcy.solve(np.sqrt((LOW + (HIGH - LOW) * shares) * harmonic))


@torch.no_grad()
def test_the_misfit_is_the_least_distance_to_a_multiple_of_the_forward_solution(operator: Operator) -> None:
    assert isinstance(operator, EquivariantInverseOperator)
    solution = pressure(141, 1)
    coefficient, misfit = operator.with_quality(solution)
    assert torch.equal(coefficient, operator(solution))
    assert coefficient.shape == (1, *OUTPUT_GRID)
    forward = explained(operator.shares(*operator.canonical(solution))[0].double().numpy())
    measured = solution[0].double().numpy()
    nearest = forward * (forward * measured).sum() / (forward**2).sum()
    distance = np.linalg.norm(nearest - measured) / np.linalg.norm(measured)
    assert misfit.item() == pytest.approx(distance, rel=0.05)


@pytest.mark.parametrize("factor", [3e-4, 7e3])
@torch.no_grad()
def test_a_multiple_of_the_pressure_has_the_inverse_multiple_of_the_permeability(
    operator: Operator, factor: float
) -> None:
    solution = pressure(141, 4)
    for noise in ([], [torch.tensor([2e-5])]):
        one, misfit = operator.with_quality(solution, *noise)
        other, same = operator.with_quality(factor * solution, *(factor * each for each in noise))
        torch.testing.assert_close(factor * other, one, rtol=1e-4, atol=0)
        torch.testing.assert_close(same, misfit, rtol=1e-3, atol=0)


@torch.no_grad()
def test_a_negative_noise_is_not_known(operator: Operator) -> None:
    solution, unknown = pressure(85, 6).expand(2, -1, -1), torch.tensor([-1.0, 1e-4])
    found, expected = operator(solution, unknown), operator(solution)
    torch.testing.assert_close(found[0], expected[0])
    assert (found[1] - expected[1]).norm() > 1e-4 * expected[1].norm()


@torch.no_grad()
def test_a_pressure_of_zero_has_a_finite_output_and_a_misfit_that_marks_it(operator: Operator) -> None:
    coefficient, misfit = operator.with_quality(torch.zeros(1, 29, 37))
    assert torch.isfinite(coefficient).all()
    assert 1e3 < misfit.item() < float("inf")


@torch.no_grad()
def test_the_scale_of_a_noisy_pressure_is_found(operator: Operator) -> None:
    solution, truth = pressure(141, 5), coarsen(physics.darcy.example(421, 5), OUTPUT_GRID, 0.5 / 421)
    rng = np.random.default_rng(0)
    noisy = solution * (1 + 0.003 * torch.from_numpy(rng.standard_normal(solution.shape)).float())
    found = operator(noisy / 10)[0].double().numpy()
    assert np.linalg.norm(found - 10 * truth) < 0.04 * np.linalg.norm(10 * truth)


@pytest.mark.parametrize("points", [85, 421])
@torch.no_grad()
def test_the_misfit_of_a_pressure_like_the_trained_ones_is_small(operator: Operator, points: int) -> None:
    assert operator.with_quality(pressure(points, 2))[1].item() < 0.02


@torch.no_grad()
def test_a_pressure_that_the_output_does_not_explain_has_a_large_misfit(operator: Operator) -> None:
    clean, rough, foreign = misfits(operator, 60.0)
    assert rough > 3 * clean
    assert foreign > 10 * clean
