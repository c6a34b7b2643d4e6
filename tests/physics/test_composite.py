"""Both halves of every composite: their derivatives are slopes, and each direction is the transpose of the other."""

from __future__ import annotations

import numpy as np
import pytest

from physics import darcy
from physics.posterior.composites import BASIS, TRUTH, Composite, composites, posterior, pressures, simulated
from physics.posterior.prior import LogNormal

GRID, STEP = (9, 12), 1e-6
RNG = np.random.default_rng(4)
EVERY = [pytest.param(composite, id=name) for name, composite in composites().items()]


@pytest.mark.parametrize("composite", EVERY)
def test_the_first_half(composite: Composite) -> None:
    made = composite.on(GRID)
    x, along = RNG.standard_normal((2, composite.sizes[0]))
    field, weights = made.inputs(x), RNG.standard_normal(GRID)
    assert field.shape == GRID
    assert (field > 0).all()
    tangent = made.push_inputs(x, along)
    slope = (made.inputs(x + STEP * along) - made.inputs(x - STEP * along)) / (2 * STEP)
    np.testing.assert_allclose(tangent, slope, rtol=1e-6, atol=1e-6 * np.abs(slope).max())
    assert made.pull_inputs(x, weights) @ along == pytest.approx((weights * tangent).sum())


@pytest.mark.parametrize("composite", EVERY)
def test_the_second_half(composite: Composite) -> None:
    made = composite.on(GRID)
    x, along = RNG.standard_normal((2, composite.sizes[0]))
    output, moved = 0.01 * RNG.standard_normal((2, *GRID))
    weights = RNG.standard_normal(composite.sizes[1])
    ends = [made.outputs(x + sign * STEP * along, output + sign * STEP * moved) for sign in (1, -1)]
    assert ends[0].shape == (composite.sizes[1],)
    tangent = made.push_outputs(x, output, (along, moved))
    np.testing.assert_allclose(tangent, (ends[0] - ends[1]) / (2 * STEP), rtol=1e-5, atol=1e-7)
    own, cotangent = made.pull_outputs(x, None if composite.linear else output, weights)
    assert own @ along + (cotangent * moved).sum() == pytest.approx(weights @ tangent)


def test_the_simulated_measurements_are_those_of_a_permeability_of_the_prior() -> None:
    data, noise = simulated()
    rng = np.random.default_rng(TRUTH)
    truth = BASIS.sample(1, rng)[0]
    made = pressures((43, 43))
    exact = made.outputs(truth, darcy.solve(made.inputs(truth)))
    distances = (np.array(data) - exact) / noise
    assert 0.6 < distances.std() < 1.4  # 64 normal errors, on another grid
    assert np.allclose(made.inputs(np.zeros(32)), LogNormal().median)


def test_measurements_that_are_none() -> None:
    with pytest.raises(ValueError, match="64 finite"):
        posterior(GRID, [1.0, 2.0])
    with pytest.raises(ValueError, match="64 finite"):
        posterior(GRID, [np.inf] * 64)
    with pytest.raises(ValueError, match="positive"):
        posterior(GRID, noise=0.0)
