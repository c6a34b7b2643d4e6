"""The Kuramoto-Sivashinsky solver agrees with exponax, converges with order four, and has the equation's invariants."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from physics import kuramoto_sivashinsky as equation
from physics.numerics.grid import relative_l2

X = 2 * np.pi * np.arange(64) / 64
WAVE = np.cos(X) + 0.6 * np.sin(2 * X) - 0.4 * np.cos(3 * X + 1)


def after(initial: NDArray[np.float64], time: float, step: float = 0.025, length: float = 22.0) -> NDArray[np.float64]:
    return equation.solve(initial[None], 1, time, length, step)[0, 0]


def relative(found: NDArray[np.float64], expected: NDArray[np.float64]) -> float:
    return float(relative_l2(found[None], expected[None])[0])


def test_it_agrees_with_exponax() -> None:
    """exponax.npz was made by `python tests/golden/exponax_trajectories.py`."""
    with np.load(Path("tests/golden/exponax.npz")) as golden:
        assert relative(after(golden["wave"], 10.0, 0.01), golden["wave_after_10"]) < 1e-7


def test_small_waves_grow_and_decay_as_the_linear_equation_says() -> None:
    for number in (1, 3, 6):
        k = 2 * np.pi * number / 22
        expected = 1e-8 * np.exp((k**2 - k**4) * 2.0) * np.sin(number * X)
        assert relative(after(1e-8 * np.sin(number * X), 2.0), expected) < 1e-6


def test_it_converges_with_order_four_in_time() -> None:
    """On 32 points, where steps of 0.025 resolve the fastest decay: with larger ones the order is lower."""
    steps, coarse = np.array([0.025, 0.0125, 0.00625]), WAVE[::2]
    reference = after(coarse, 2.0, 0.001)
    slope, _ = np.polyfit(np.log(steps), np.log([relative(after(coarse, 2.0, h), reference) for h in steps]), 1)
    assert slope == pytest.approx(4, abs=0.4)


def test_it_converges_in_space() -> None:
    smooth = 2 * np.pi * np.arange(128) / 128
    twice = after(np.cos(smooth) + 0.6 * np.sin(2 * smooth) - 0.4 * np.cos(3 * smooth + 1), 4.0)
    assert relative(after(WAVE, 4.0), twice[::2]) < 1e-6


def test_shifts_and_reflections_of_solutions_are_solutions_and_the_mean_stays() -> None:
    end = after(WAVE, 4.0)
    assert relative(after(np.roll(WAVE, 9), 4.0), np.roll(end, 9)) < 1e-10
    mirrored = -np.roll(WAVE[::-1], 1)
    assert relative(after(mirrored, 4.0), -np.roll(end[::-1], 1)) < 1e-10
    assert after(WAVE + 0.3, 4.0).mean() == pytest.approx(WAVE.mean() + 0.3, abs=1e-12)


def test_a_batch_of_periods_is_solved_like_each_alone() -> None:
    lengths = np.array([18.0, 30.0])
    both = equation.solve(np.stack([WAVE, WAVE]), 2, 1.0, lengths)
    for found, length in zip(both, lengths, strict=True):
        np.testing.assert_allclose(found, equation.solve(WAVE[None], 2, 1.0, length)[0], atol=1e-12)


def test_samples_are_on_the_attractor_and_repeatable() -> None:
    u, length = equation.sample(3, 4, frames=2, points=64)
    assert u.shape == (4, 3, 64)
    assert ((length >= equation.LENGTHS[0]) & (length <= equation.LENGTHS[1])).all()
    assert 0.5 < u.std() < 2.5
    np.testing.assert_array_equal(equation.sample(3, 4, frames=2, points=64)[0], u)


@pytest.mark.parametrize("bad", [{"initial": np.zeros(4)}, {"length": -1.0}, {"frames": 0}, {"length": np.ones(3)}])
def test_wrong_arguments_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="expected"):
        equation.solve(**{"initial": np.zeros((2, 8)), "frames": 1} | bad)  # type: ignore[arg-type]


def test_an_overflow_is_named() -> None:
    with pytest.raises(FloatingPointError, match="smaller"), np.errstate(all="ignore"):
        equation.solve(1e6 * WAVE[None], 1, 10.0, step=1.0)


@pytest.mark.parametrize("size", [20.0, 50.0])
def test_a_trajectory_from_a_large_state_takes_the_steps_that_it_needs(size: float) -> None:
    """With the usual steps a state 50 times as large as one of the attractor is a tenth off, and nothing says so."""
    found = equation.trajectory(size * WAVE, 1, 0.5)[0]
    assert relative(found, after(size * WAVE, 0.5, step=equation.STEP / 50)) < 2e-4
    np.testing.assert_array_equal(equation.trajectory(WAVE, 1, 0.5)[0], after(WAVE, 0.5))
    with pytest.raises(ArithmeticError, match="needs steps of"):
        equation.trajectory(1e4 * WAVE, 1, 0.5)
