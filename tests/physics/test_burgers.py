"""The Burgers solver agrees with exact solutions, converges with order four, and has the equation's invariants."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from physics import burgers
from physics.numerics.grid import relative_l2

Field = NDArray[np.float64]


def relative(found: Field, expected: Field) -> float:
    return float(relative_l2(found[None], expected[None])[0])


def test_it_agrees_with_a_cole_hopf_solution() -> None:
    """Cole and Hopf: u = -2 nu phi_x / phi, where phi = 2 + exp(-nu k^2 t) cos(k x) solves the heat equation."""
    nu, k, x = 0.02, 2 * np.pi, np.arange(256) / 256

    def exact(t: float) -> Field:
        decay = np.exp(-nu * k**2 * t)
        return np.asarray(2 * nu * k * decay * np.sin(k * x) / (2 + decay * np.cos(k * x)))

    assert relative(burgers.solve(exact(0.0), time=0.7, viscosity=nu), exact(0.7)) < 1e-10


def test_a_steep_front_agrees_with_the_cole_hopf_integral() -> None:
    """The known hard case u_0 = -sin(pi x) on [-1, 1], nu = 0.01/pi, at t = 0.99, where the front is 0.01 wide."""
    nu, time, points = 0.01 / np.pi, 0.99, 4096
    x = -1 + 2 * np.arange(points) / points
    found = burgers.solve(-np.sin(np.pi * x), time, nu, step=5e-4, length=2.0, resolution=points)
    assert np.abs(found - cole_hopf(x, time, nu)).max() < 1e-8


def cole_hopf(x: Field, time: float, nu: float) -> Field:
    """Integrate u_0(y) against exp(-F(x - y)) by Gauss-Hermite quadrature, for u_0 = -sin(pi y)."""
    nodes, weights = np.polynomial.hermite.hermgauss(200)
    y = x[:, None] - np.sqrt(4 * nu * time) * nodes
    exponent = -np.cos(np.pi * y) / (2 * np.pi * nu)
    kernel = weights * np.exp(exponent - exponent.max(axis=1, keepdims=True))
    return np.asarray(-(kernel * np.sin(np.pi * y)).sum(axis=1) / kernel.sum(axis=1))


def test_it_converges_with_order_four_in_time() -> None:
    initial, steps = np.sin(2 * np.pi * np.arange(128) / 128), np.array([0.05, 0.025, 0.0125, 0.00625])
    reference = burgers.solve(initial, viscosity=0.05, step=5e-4, resolution=128)
    errors = [relative(burgers.solve(initial, viscosity=0.05, step=h, resolution=128), reference) for h in steps]
    slope, _ = np.polyfit(np.log(steps), np.log(errors), 1)
    assert slope == pytest.approx(4, abs=0.3)


def test_the_defaults_agree_with_finer_ones() -> None:
    initial, final = burgers.sample(1)
    assert relative(final, burgers.solve(initial, step=1 / 800, resolution=4096)) < 1e-8


def test_the_amplitude_is_that_of_the_published_sawtooth() -> None:
    finals = burgers.solve(np.stack([burgers.example(512, seed) for seed in range(4)]), step=0.01)
    assert (finals.std(axis=1) > 0.05).all()
    assert (finals.std(axis=1) < 0.3).all()


@given(seed=st.integers(0, 2**32), points=st.sampled_from([511, 512, 600]), shift=st.integers(1, 500))
@settings(max_examples=6, deadline=None)
def test_mass_is_conserved_and_shifts_commute_with_the_solver(seed: int, points: int, shift: int) -> None:
    initial = 0.3 + burgers.example(points, seed)  # with a mean, the wave travels
    final, moved = burgers.solve(np.stack([initial, np.roll(initial, shift)]), time=0.3)
    assert final.mean() == pytest.approx(initial.mean(), abs=1e-10)
    np.testing.assert_allclose(moved, np.roll(final, shift), atol=1e-10)


def test_reflection_with_change_of_sign_is_a_symmetry() -> None:
    initial = burgers.example(256, 3)
    reflected = -np.roll(initial[::-1], 1)
    found = burgers.solve(np.stack([initial, reflected]), time=0.5)
    np.testing.assert_allclose(found[1], -np.roll(found[0][::-1], 1), atol=1e-11)


def test_the_solver_is_invariant_under_a_moving_frame() -> None:
    initial = burgers.example(256, 4)
    still, moving = burgers.solve(np.stack([initial, initial + 1.0]), time=1.0, step=5e-4)
    np.testing.assert_allclose(moving - 1.0, still, atol=1e-8)


def test_a_batch_is_solved_row_by_row() -> None:
    initial = np.stack([burgers.example(128, seed) for seed in range(3)])
    rows = [burgers.solve(row, time=0.1) for row in initial]
    np.testing.assert_allclose(burgers.solve(initial, time=0.1), rows, atol=1e-13)


@given(given_points=st.integers(3, 40), more=st.integers(0, 40))
@settings(deadline=None)
def test_interpolation_to_a_finer_grid_and_back_changes_nothing(given_points: int, more: int) -> None:
    values = np.random.default_rng(given_points).standard_normal(given_points)
    if given_points % 2 == 0:
        # The highest frequency of an even grid is the only one that does not survive.
        values -= np.mean(values[::2] - values[1::2]) / 2 * (-1.0) ** np.arange(given_points)
    finer = burgers.interpolate(values, given_points + more)
    np.testing.assert_allclose(burgers.interpolate(finer, given_points), values, atol=1e-12)


def test_interpolation_passes_through_the_points() -> None:
    values = np.random.default_rng(0).standard_normal(10)
    np.testing.assert_allclose(burgers.interpolate(values, 30)[::3], values, atol=1e-13)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"initial": np.ones((2, 2, 2))}, r'but got \(2, 2, 2\) for "initial"'),
        ({"initial": np.array([1.0, np.nan])}, r"initial\[1\] is not finite"),
        ({"initial": np.ones(8), "time": 0.0}, "expected a positive number but got 0.0 for time"),
        ({"initial": np.ones(8), "viscosity": -1.0}, "for viscosity"),
        ({"initial": np.ones(8), "step": np.inf}, "for step"),
    ],
)
def test_invalid_arguments_are_named(arguments: dict[str, Field | float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        burgers.solve(**arguments)
