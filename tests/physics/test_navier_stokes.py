"""The Navier-Stokes solver agrees with exact solutions and exponax, converges with order four, and keeps invariants."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from physics import navier_stokes as equation
from physics.numerics.grid import relative_l2

Field = NDArray[np.float64]
X = 2 * np.pi * np.arange(32) / 32


def unforced(points: int) -> Field:
    return np.zeros((points, points))


def after(initial: Field, time: float, viscosity: float = 2e-3, step: float = 0.02) -> Field:
    return equation.solve(initial[None], 1, time, viscosity, step, unforced)[0, 0]


def relative(found: Field, expected: Field) -> float:
    return float(relative_l2(found[None], expected[None])[0])


def vortices(points: int = 32) -> Field:
    x = 2 * np.pi * np.arange(points) / points
    return np.sin(x)[:, None] * np.cos(2 * x) + 0.5 * np.cos(2 * x[:, None] - x + 1) + 0.3 * np.sin(3 * x)[:, None]


def test_it_agrees_with_exponax() -> None:
    """exponax.npz was made by `python tests/golden/exponax_trajectories.py`; its vorticity has the opposite sign."""
    with np.load(Path("tests/golden/exponax.npz")) as golden:
        assert relative(-after(-golden["vortices"], 2.0, step=0.01), golden["vortices_after_2"]) < 1e-5


def test_taylor_green_vortices_decay_exactly() -> None:
    initial = np.sin(3 * X)[:, None] * np.sin(3 * X)
    decay = np.exp(-2e-3 * 2 * (6 * np.pi) ** 2 * 1.5)
    assert relative(after(initial, 1.5), decay * initial) < 1e-12


def test_the_source_is_balanced_by_viscosity() -> None:
    """The source is a shear, which moves itself nowhere: the steady state is f / (nu |2 pi (1, 1)|^2)."""
    nu = 0.05
    steady = equation.forcing(32) / (nu * 8 * np.pi**2)
    found = equation.solve(steady[None], 1, 3.0, nu)[0, 0]
    assert relative(found, steady) < 1e-12
    assert relative(equation.solve(0 * steady[None], 1, 8.0, nu)[0, 0], steady) < 1e-6


def test_a_trajectory_takes_steps_that_resolve_a_fast_flow() -> None:
    fast = 100 * vortices()
    found, fine = equation.trajectory(fast, 2, 0.1, 2e-3), equation.solve(fast[None], 2, 0.1, 2e-3, step=5e-4)[0]
    assert relative(found[-1], fine[-1]) < 1e-3
    with pytest.raises(ArithmeticError, match=r"a speed of .* needs steps of"):
        equation.trajectory(1e6 * vortices(), 1, 1.0)


def test_it_converges_with_order_four_in_time() -> None:
    steps = np.array([0.1, 0.05, 0.025])
    reference = after(vortices(), 1.0, step=0.005)
    errors = [relative(after(vortices(), 1.0, step=h), reference) for h in steps]
    slope, _ = np.polyfit(np.log(steps), np.log(errors), 1)
    assert slope == pytest.approx(4, abs=0.4)


def test_finer_grids_have_the_same_solution() -> None:
    assert relative(after(vortices(48), 1.0, 5e-3), after(vortices(96), 1.0, 5e-3)[::2, ::2]) < 1e-5


def test_energy_and_enstrophy_decay_without_a_source_and_the_mean_stays() -> None:
    frames = equation.solve(vortices()[None] + 0.2, 6, 0.5, 1e-3, source=unforced)[0]
    enstrophy = ((frames - frames.mean(axis=(1, 2), keepdims=True)) ** 2).mean(axis=(1, 2))
    assert (np.diff(enstrophy) < 0).all()
    np.testing.assert_allclose(frames.mean(axis=(1, 2)), 0.2, atol=1e-12)


def test_inviscid_flow_keeps_its_energy() -> None:
    """Nearly: the viscosity is 1e-12, and the time too short for small scales."""
    kx, ky = equation.wave_numbers(32)
    squares = kx**2 + ky**2
    squares[0, 0] = 1

    def energy(omega: Field) -> float:
        weight = np.where(np.arange(17) % 16 == 0, 1, 2)
        return float((weight * np.abs(np.fft.rfft2(omega)) ** 2 / squares)[squares > 1].sum())

    assert energy(after(vortices(), 0.5, 1e-12)) == pytest.approx(energy(vortices()), rel=1e-7)


def test_initial_fields_have_the_distribution_of_the_benchmark() -> None:
    omega = equation.initial_vorticity(np.random.default_rng(0), 400, 32)
    kx, ky = equation.wave_numbers(32)
    variance = 7**3 * (np.square(kx[:16]) + np.square(ky) + 49) ** -2.5
    found = np.mean(np.abs(np.fft.rfft2(omega) / 32**2) ** 2, axis=0)
    assert found[1, 0] == pytest.approx(variance[1, 0], rel=0.2)
    assert found[2, 3] == pytest.approx(variance[2, 3], rel=0.2)
    assert np.abs(omega.mean(axis=(1, 2))).max() < 1e-12


def test_samples_have_viscosities_within_the_range() -> None:
    omega, nu = equation.sample(1, 3, frames=2, points=16, resolution=32)
    assert omega.shape == (3, 3, 16, 16)
    assert ((nu >= equation.VISCOSITIES[0]) & (nu <= equation.VISCOSITIES[1])).all()


@pytest.mark.parametrize("bad", [{"initial": np.zeros((2, 8))}, {"viscosity": 0.0}, {"viscosity": np.ones(3)}])
def test_wrong_arguments_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="expected"):
        equation.solve(**{"initial": np.zeros((2, 8, 8)), "frames": 1} | bad)  # type: ignore[arg-type]


def test_an_overflow_is_named() -> None:
    with pytest.raises(FloatingPointError, match="smaller"), np.errstate(all="ignore"):
        equation.solve(1e8 * vortices()[None], 2, 10.0, step=10.0)


def test_a_resolution_that_holds_other_points_is_refused() -> None:
    with pytest.raises(ValueError, match="multiple of 12 points but got 16"):
        equation.sample(0, 1, frames=1, points=12, resolution=16)
    trajectories, _ = equation.sample(0, 1, frames=1, points=8, resolution=16)
    assert trajectories.shape == (1, 2, 8, 8)
