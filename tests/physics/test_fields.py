"""The random fields have the variances of their formulas, and one field is the same on every grid."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from physics import burgers, darcy
from physics.numerics import fields, grid

FIELDS = 600
SCATTER = 5 * np.sqrt(2 / FIELDS)  # five standard deviations of a variance estimated from that many normal numbers


@pytest.mark.parametrize("mode", [(0, 1), (1, 0), (1, 1), (3, 2)])
def test_neumann_modes_have_the_variance_of_the_covariance_operator(mode: tuple[int, int]) -> None:
    cells, rng, (i, j) = 24, np.random.default_rng(3), mode
    x = (np.arange(cells) + 0.5) / cells
    wave = np.outer(np.cos(np.pi * i * x), np.cos(np.pi * j * x))
    wave /= np.sqrt(np.mean(wave**2))
    variance = np.mean([np.mean(fields.neumann_field(cells, rng) * wave) ** 2 for _ in range(FIELDS)])
    assert variance * (np.pi**2 * (i**2 + j**2) + 9) ** 2 / 9 == pytest.approx(1, abs=SCATTER)


@pytest.mark.parametrize("k", [1, 2, 7])
@pytest.mark.parametrize("wave", [np.cos, np.sin])
def test_periodic_modes_have_the_variance_of_the_covariance_operator(k: int, wave: np.ufunc) -> None:
    rng, x = np.random.default_rng(4), np.arange(64) / 64
    basis = np.sqrt(2) * wave(2 * np.pi * k * x)
    variance = np.mean([np.mean(fields.periodic_field(64, rng) * basis) ** 2 for _ in range(FIELDS)])
    assert variance * ((2 * np.pi * k) ** 2 + 25) ** 2 / 625 == pytest.approx(1, abs=SCATTER)


def test_fields_have_zero_mean() -> None:
    rng = np.random.default_rng(5)
    assert abs(fields.neumann_field(61, rng).mean()) < 1e-13
    assert abs(fields.periodic_field(8192, rng).mean()) < 1e-13


def test_both_permeabilities_are_equally_likely() -> None:
    rng = np.random.default_rng(6)
    materials = np.stack([darcy.permeability(fields.neumann_field(24, rng)) for _ in range(FIELDS)])
    assert set(np.unique(materials)) == {3.0, 12.0}
    assert np.mean(materials == 12.0) == pytest.approx(0.5, abs=0.03)


@given(seed=st.integers(0, 2**63), points=st.integers(2, 300))
@settings(max_examples=20, deadline=None)
def test_a_periodic_field_is_one_function_on_every_grid(seed: int, points: int) -> None:
    coarse, fine = (burgers.example(n, seed) for n in (points, 3 * points))
    np.testing.assert_allclose(coarse, fine[::3], atol=1e-11)


def test_a_darcy_example_is_the_sample_on_its_grid() -> None:
    coefficient, _ = darcy.sample(7)
    for points in (85, 141, 421):
        np.testing.assert_array_equal(darcy.example(points, 7), darcy.restrict(coefficient, points))
    assert darcy.example(100, 7).shape == (100, 100)


def test_the_cosine_series_gives_the_transform_at_cell_centres() -> None:
    centres, cells = (np.arange(24) + 0.5) / 24, 24
    coefficients = fields.neumann_coefficients(cells, np.random.default_rng(8))
    by_transform = fields.neumann_field(cells, np.random.default_rng(8))
    np.testing.assert_allclose(fields.cosine_series(coefficients, centres, centres), by_transform, atol=1e-12)


def test_the_axis_consists_of_strided_cell_centres() -> None:
    centres = (np.arange(421) + 0.5) / 421
    for points, step in ((85, 5), (141, 3), (211, 2), (421, 1)):
        np.testing.assert_allclose(grid.axis(points), centres[::step], rtol=1e-14)
    with pytest.raises(ValueError, match="at least 2 points on an axis but got 1"):
        grid.axis(1)
