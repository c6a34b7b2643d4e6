"""The Karhunen-Loève coordinates are those of the benchmark's field, and their products are adjoint."""

from __future__ import annotations

import numpy as np
import pytest

from physics.numerics import fields
from physics.numerics.grid import axis
from physics.posterior.prior import KarhunenLoeve


def centres(cells: int) -> np.ndarray:
    return (np.arange(cells) + 0.5) / cells


def test_the_modes_are_orthonormal_on_the_square() -> None:
    basis, points = KarhunenLoeve(40), centres(64)
    modes = basis.field(np.eye(40), points, points) / basis.deviations[:, None, None]
    gram = np.einsum("khw,lhw->kl", modes, modes) / 64**2
    np.testing.assert_allclose(gram, np.eye(40), atol=1e-12)


def test_the_field_is_the_benchmarks_up_to_one_scale() -> None:
    basis, points, cells = KarhunenLoeve(30), axis(21), 64
    xi = np.random.default_rng(0).standard_normal(30)
    k = basis.frequencies
    coefficients = np.zeros((cells, cells))
    coefficients[k[:, 0], k[:, 1]] = (cells * fields.neumann_deviations(cells, 2.0, 3.0))[k[:, 0], k[:, 1]] * xi
    expected = fields.cosine_series(coefficients, points, points)
    found = basis.field(xi[None], points, points)[0]
    scale = basis.deviations[0] / fields.neumann_deviations(cells, 2.0, 3.0)[0, 1]
    np.testing.assert_allclose(found, scale * expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("rows", "columns"), [(11, 17), (85, 85)])
def test_adjoint_is_the_transpose_of_field(rows: int, columns: int) -> None:
    basis, rng = KarhunenLoeve(32), np.random.default_rng(1)
    xi, gradients = rng.standard_normal((3, 32)), rng.standard_normal((3, rows, columns))
    y, x = axis(rows), axis(columns)
    left = (basis.field(xi, y, x) * gradients).sum(axis=(1, 2))
    right = (xi * basis.adjoint(gradients, y, x)).sum(axis=1)
    np.testing.assert_allclose(left, right, rtol=1e-11)


def test_more_modes_hold_more_of_the_variance() -> None:
    shares = [KarhunenLoeve(modes).variance_share for modes in (1, 8, 32, 64, 421**2 - 1)]
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1)
    assert 0.9 < shares[2] < shares[3] < 1
    assert (np.diff(KarhunenLoeve(64).deviations) <= 1e-12).all()


def test_the_variance_of_samples_is_the_share() -> None:
    basis, points = KarhunenLoeve(64), centres(24)
    drawn = basis.field(basis.sample(2000, np.random.default_rng(2)), points, points)
    assert drawn.var(axis=0).mean() == pytest.approx(basis.variance_share, rel=0.05)


@pytest.mark.parametrize("modes", [0, 421**2])
def test_a_wrong_number_of_modes_is_refused(modes: int) -> None:
    with pytest.raises(ValueError, match="modes"):
        KarhunenLoeve(modes)


def test_a_wrong_number_of_coefficients_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\(batch, 8\)"):
        KarhunenLoeve(8).field(np.ones((1, 7)), axis(5), axis(5))
