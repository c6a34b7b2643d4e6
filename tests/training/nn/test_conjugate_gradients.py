"""The iterations in a network converge to the solution of the equation, at the theoretical rate."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch

import physics.darcy
from physics.numerics.fields import neumann_field
from physics.numerics.grid import WALL
from training.nn.elliptic.certified_gradients import ConjugateGradients
from training.operators.darcy import DarcyConfig, DarcyOperator, Iterate, wall_factor

POINTS = 29


def permeability(samples: int) -> torch.Tensor:
    rng = np.random.default_rng(3)
    return torch.from_numpy(np.stack([physics.darcy.permeability(neumann_field(POINTS, rng)) for _ in range(samples)]))


def iterate(coefficient: torch.Tensor, steps: int, wall: float = WALL) -> torch.Tensor:
    solution: torch.Tensor = ConjugateGradients(POINTS, steps, wall).double()(coefficient)[0]
    return solution


def relative(x: torch.Tensor, y: torch.Tensor) -> float:
    return float((x - y).norm() / y.norm())


@pytest.mark.parametrize("wall", [WALL, 0.5 / POINTS])
def test_the_iteration_converges_to_the_solution_of_the_finite_volumes(wall: float) -> None:
    coefficient = permeability(3)
    exact = [physics.darcy.solve(field.numpy(), wall=wall) for field in coefficient]
    # The geometry is kept in single precision.
    assert relative(iterate(coefficient, 30, wall), torch.from_numpy(np.stack(exact))) < 1e-6


def test_the_error_decreases_at_the_theoretical_rate() -> None:
    coefficient = permeability(2)
    exact = iterate(coefficient, 40)
    errors = [relative(iterate(coefficient, steps), exact) for steps in range(1, 9)]
    assert all(after < before for before, after in pairwise(errors))
    assert (errors[-1] / errors[0]) ** (1 / 7) < (4**0.5 - 1) / (4**0.5 + 1)


def test_a_constant_permeability_is_solved_in_one_step() -> None:
    coefficient = torch.full((1, POINTS, POINTS), 5.0, dtype=torch.float64)
    solution, residual = ConjugateGradients(POINTS, 1, WALL).double()(coefficient)
    assert relative(solution, iterate(coefficient, 9)) < 1e-6
    assert residual.abs().max() < 1e-6 * solution.abs().max()


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_steps_after_convergence_keep_the_solution(scale: float) -> None:
    coefficient = torch.full((2, POINTS, POINTS), scale)
    coefficient[1] = scale * permeability(1)[0]
    solution, residual = ConjugateGradients(POINTS, 60, WALL)(coefficient)
    assert torch.isfinite(residual).all()
    assert relative(solution.double(), iterate(coefficient.double(), 40)) < 1e-4


def corrected() -> DarcyOperator:
    torch.manual_seed(0)
    return DarcyOperator(DarcyConfig(working=POINTS, middle=21, tokens=15, channels=12, layers=1, steps=3))


def test_a_network_of_zero_weights_returns_the_iterate() -> None:
    operator, coefficient = corrected().double(), permeability(2)
    for parameter in operator.head.parameters():
        torch.nn.init.zeros_(parameter)
    torch.testing.assert_close(operator(coefficient), iterate(coefficient, 3))


def test_the_correction_is_standardised_by_the_error_of_the_iterate() -> None:
    operator, coefficient = corrected().double(), permeability(6)
    solution = iterate(coefficient, 40)
    operator.fit_normalisers(coefficient, solution)
    index = torch.arange(POINTS)
    lacking = (solution - iterate(coefficient, 3)) / wall_factor(index, index, torch.float64)
    torch.testing.assert_close(operator.output_normaliser(lacking).std(correction=0).item(), 1.0, rtol=1e-3, atol=0)


def test_cells_of_a_coarser_grid_have_the_mean_of_arithmetic_and_harmonic_average() -> None:
    stripes = torch.full((1, 2 * POINTS - 1, 2 * POINTS - 1), 3.0, dtype=torch.float64)
    stripes[:, ::2] = 12.0
    variation = Iterate(POINTS, 1).double().solve(stripes)[2]
    # Arithmetic 7.5 times the mean of the inverses, (1/3 + 1/12)/2, is 1.5625, in the middle of the field.
    torch.testing.assert_close(variation[0, 5:-5, 5:-5], torch.full_like(variation[0, 5:-5, 5:-5], 0.5625))


def test_a_gradient_reaches_every_parameter_of_a_correcting_network() -> None:
    operator = corrected()
    operator(torch.rand(2, POINTS, POINTS) + 1).square().mean().backward()
    gradients = {name: parameter.grad for name, parameter in operator.named_parameters()}
    assert [name for name, gradient in gradients.items() if gradient is None or not gradient.any()] == []
