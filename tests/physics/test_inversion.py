"""The inversion uses the exact gradient and recovers a permeability within its bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from physics import darcy, inversion
from physics.inversion import Inverse, invert, resampled
from physics.numerics import fields
from physics.numerics.grid import WALL, axis, coarsen, relative_l2

Field = NDArray[np.float64]


def measured(rows: int = 15, columns: int = 18) -> Inverse:
    rng = np.random.default_rng(3)
    data = darcy.solve(rng.uniform(3, 12, (rows, columns)))
    return Inverse(data, 0.1 * data.mean() * rng.uniform(1, 2, data.shape))


def smooth(points: int) -> Field:
    y, x = np.meshgrid(axis(points), axis(points), indexing="ij")
    return np.asarray(7 + 2 * np.cos(np.pi * x) * np.cos(2 * np.pi * y))


def materials(points: int) -> Field:
    coefficients = fields.neumann_coefficients(64, np.random.default_rng(5))
    return darcy.permeability(fields.cosine_series(coefficients, axis(points), axis(points)))


def distance(found: Field, truth: Field) -> float:
    return float(relative_l2(found[None], truth[None])[0])


def test_central_differences_approach_the_gradient_with_order_two() -> None:
    inverse, rng = measured(), np.random.default_rng(4)
    t, direction = rng.uniform(0.2, 0.8, inverse.pressure.shape), rng.standard_normal(inverse.pressure.shape)
    slope = float((inverse.objective(t)[1] * direction).sum())
    steps = [4e-3, 2e-3, 1e-3]
    central = [
        (inverse.objective(t + h * direction)[0] - inverse.objective(t - h * direction)[0]) / (2 * h) for h in steps
    ]
    errors = [abs(value - slope) for value in central]
    order, _ = np.polyfit(np.log(steps), np.log(errors), 1)
    assert order == pytest.approx(2, abs=0.1)
    assert errors[-1] < 1e-3 * abs(slope)


def test_a_smooth_coefficient_is_recovered() -> None:
    truth = smooth(21)
    found = invert(darcy.solve(truth), mismatch=1e-5)
    assert distance(found, truth) < 0.05
    assert distance(found, truth) < 0.3 * distance(np.full_like(truth, truth.mean()), truth)


def test_less_noise_is_less_error() -> None:
    truth, rng = materials(21), np.random.default_rng(6)
    u = darcy.solve(truth)
    xi, errors = rng.standard_normal(u.shape), []
    for level in (0.001, 0.01, 0.1):
        deviation = level * u.std()
        found = invert(u + deviation * xi, noise=deviation, points=(6, 6), mismatch=1e-3)
        errors.append(distance(found, coarsen(truth, (6, 6), WALL)))
    assert errors[0] < errors[1] < errors[2] < 0.25


def test_the_bounds_hold_and_narrow_ones_are_reached() -> None:
    found = invert(darcy.solve(smooth(15)), low=6.0, high=8.0, mismatch=1e-3, iterations=60)
    assert found.min() == 6.0
    assert found.max() == 8.0


def test_steps_from_a_coarse_inversion_come_further_than_those_from_a_constant() -> None:
    u = darcy.solve(materials(61))
    inverse = Inverse(u, np.zeros_like(u), mismatch=1e-2)
    from_constant = inverse.minimise(np.full_like(u, 0.5), 40)
    assert inverse.coarser() is not None
    assert inverse.objective(inverse.material(40))[0] < 0.9 * inverse.objective(from_constant)[0]


def test_linear_fields_are_resampled_exactly() -> None:
    y, x = np.meshgrid(np.linspace(0, 1, 9), np.linspace(0, 1, 6), indexing="ij")
    y_fine, x_fine = np.meshgrid(np.linspace(0, 1, 4), np.linspace(0, 1, 13), indexing="ij")
    np.testing.assert_allclose(resampled(2 * y - x, (4, 13)), 2 * y_fine - x_fine, atol=1e-14)


def test_noise_may_be_given_per_point() -> None:
    u = darcy.solve(materials(15))
    per_point, uniform = (invert(u, noise=noise, iterations=20) for noise in (np.full(u.shape, 1e-4), 1e-4))
    np.testing.assert_array_equal(per_point, uniform)


def test_blocks_of_the_common_grid_are_plain_means() -> None:
    field = np.random.default_rng(7).random((29, 13))
    padded = np.pad(field, ((1, 2), (1, 2)), constant_values=np.nan).reshape(8, 4, 4, 4)
    np.testing.assert_allclose(coarsen(field, (8, 4), WALL), np.nanmean(padded, axis=(1, 3)), rtol=1e-12)


def test_blocks_of_other_grids_cover_the_same_areas() -> None:
    np.testing.assert_allclose(coarsen(np.full((22, 15), 3.0), (8, 8), WALL), 3.0, rtol=1e-12)
    assert distance(coarsen(smooth(85), (8, 8), WALL), coarsen(smooth(29), (8, 8), WALL)) < 3e-3


@pytest.mark.parametrize(
    ("solution", "options", "message"),
    [
        (np.ones(4), {}, "row, column"),
        (np.array([[1.0, np.nan], [1, 1]]), {}, r"solution\[0,1\] is nan"),
        (np.zeros((4, 4)), {}, "zero everywhere"),
        (np.ones((4, 4)), {"noise": np.ones(3)}, r"got \(3,\)"),
        (np.ones((4, 4)), {"noise": -1.0}, "at least zero for noise"),
        (np.ones((4, 4)), {"low": 5.0, "high": 4.0}, "0 < low < high"),
        (np.ones((4, 4)), {"mismatch": 0.0}, "for mismatch"),
        (np.ones((4, 4)), {"iterations": 0}, "for iterations"),
        (np.ones((4, 4)), {"points": (1, 2), "iterations": 1}, "at least 2 blocks"),
    ],
)
def test_invalid_arguments_are_named(solution: Field, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        invert(solution, **options)


def test_noise_that_is_not_known_is_the_default_of_the_problem() -> None:
    u = darcy.solve(np.where(np.arange(16)[:, None] < 8, 3.0, 12.0) * np.ones((16, 16)))
    found = inversion.CLASSICAL.solve(u, (4, 4), noise=np.float32(-1.0))
    np.testing.assert_array_equal(found, invert(u, noise=0.0, points=(4, 4)))
    np.testing.assert_array_equal(found, inversion.CLASSICAL.solve(u, (4, 4)))
