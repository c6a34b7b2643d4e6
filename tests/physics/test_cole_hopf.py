"""The closed form of Burgers' equation agrees with the spectral integration."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from physics import burgers, cole_hopf
from physics.numerics.grid import relative_l2


@pytest.mark.parametrize(("viscosity", "time"), [(0.01, 1.0), (0.03, 0.1), (0.005, 2.0), (0.03, 2.0)])
@pytest.mark.parametrize("mean", [0.0, 0.7])
def test_it_agrees_with_the_spectral_solution(viscosity: float, time: float, mean: float) -> None:
    initial = burgers.example(512, seed=3) + mean
    truth = burgers.solve(initial, time, viscosity, step=5e-4)
    assert relative_l2(cole_hopf.solve(initial, time, viscosity)[None], truth[None])[0] < 1e-6


def test_single_precision_and_128_points_are_enough() -> None:
    initial = burgers.example(1024, seed=4)
    found = cole_hopf.solve(initial, resolution=128, dtype=np.float32)
    assert relative_l2(found[None], burgers.solve(initial)[None])[0] < 1e-5


@pytest.mark.parametrize("points", [96, 512, 8192])
def test_the_resolution_is_doubled_until_the_solution_is_converged(points: int) -> None:
    initial = burgers.example(points, seed=5)
    assert relative_l2(cole_hopf.converged(initial)[None], burgers.solve(initial)[None])[0] < 1e-7


def test_velocities_at_which_the_integration_overflows_have_a_solution() -> None:
    initial = 1000 * burgers.example(512, seed=6)
    with pytest.raises(FloatingPointError), np.errstate(all="ignore"):
        burgers.solve(initial)
    found, finer = cole_hopf.converged(initial), cole_hopf.solve(initial, resolution=4096)
    assert relative_l2(found[None], finer[None])[0] < 1e-6


def test_fronts_that_no_resolution_resolves_are_refused() -> None:
    with pytest.raises(ArithmeticError, match="2048 points do not resolve the solution"):
        cole_hopf.converged(1e6 * burgers.example(512, seed=7))
    with pytest.raises(ValueError, match="not finite"):
        cole_hopf.converged(np.array([1.0, np.nan]))


@pytest.mark.parametrize("mean", [0.0, 1e-10])
@pytest.mark.parametrize("size", [1e-4, 1e-5, 1e-10, 1e-30])
def test_weak_waves_are_as_exact_as_strong_ones(size: float, mean: float) -> None:
    initial = mean + size * burgers.example(128, seed=8)
    found, truth = cole_hopf.converged(initial), burgers.solve(initial)
    assert relative_l2(found[None], truth[None])[0] < 1e-7


def test_a_velocity_that_is_the_same_everywhere_stays() -> None:
    for velocity in (0.0, -2.0, 1e-9):
        np.testing.assert_allclose(cole_hopf.converged(np.full(16, velocity)), velocity, rtol=1e-13)


def test_waves_that_have_decayed_take_no_memory() -> None:
    """So large a viscosity would take eight million keys, of which a block's weights are 17 GB."""
    initial = 0.5 + burgers.example(128, seed=9)
    np.testing.assert_allclose(cole_hopf.converged(initial, viscosity=1e6), initial.mean(), rtol=1e-13)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"initial": np.ones((2, 16))}, r"expected one field \(point\) but got \(2, 16\)"),
        ({"initial": np.ones(1)}, "at least 2 points"),
        ({"initial": np.array([1.0, np.nan, 0.0])}, "not finite"),
        ({"viscosity": 0.0}, "a positive number but got 0.0 for viscosity"),
        ({"time": -1.0}, "a positive number but got -1.0 for time"),
        ({"length": 0.0}, "a positive number but got 0.0 for length"),
    ],
)
def test_what_has_no_solution_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cole_hopf.solve(**{"initial": burgers.example(16, seed=0)} | changes)
