"""A few steps of conjugate gradients converge to the discrete solution at the rate of the condition number."""

from __future__ import annotations

import numpy as np
import pytest

from physics import darcy
from physics.numerics import volumes
from physics.numerics.grid import relative_l2


def test_the_error_falls_at_the_rate_of_the_condition_number() -> None:
    """With a between 3 and 12 the error falls by (sqrt(4) - 1) / (sqrt(4) + 1) = 1/3 a step, or faster."""
    coefficient = darcy.example(43, seed=1)
    exact = darcy.solve(coefficient)
    errors = [
        relative_l2(volumes.solve_early_stopped(coefficient, steps)[None], exact[None])[0] for steps in range(2, 9)
    ]
    rates = np.divide(errors[1:], errors[:-1])
    assert np.exp(np.log(rates).mean()) < 1 / 3 + 0.05
    assert errors[-1] < 1e-3


@pytest.mark.parametrize("shape", [(5, 5), (12, 31)])
def test_one_step_is_exact_for_a_constant(shape: tuple[int, int]) -> None:
    coefficient = np.full(shape, 6.0)
    np.testing.assert_allclose(volumes.solve_early_stopped(coefficient, 1), darcy.solve(coefficient), rtol=1e-5)


@pytest.mark.parametrize("value", [1.0, 2.0, 6.0, 1e-3])
@pytest.mark.parametrize("shape", [(2, 2), (9, 9), (12, 31)])
def test_steps_beyond_the_solution_change_nothing(shape: tuple[int, int], value: float) -> None:
    coefficient = np.full(shape, value)
    found = volumes.solve_early_stopped(coefficient, 40)
    np.testing.assert_allclose(found, darcy.solve(coefficient), rtol=1e-5)
    assert not volumes.solve_early_stopped(coefficient, 2, source=0.0).any()
