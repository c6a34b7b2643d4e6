"""The Poisson solver converges at its order, leaves no residual and has the cube's symmetries."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from physics import poisson
from physics.numerics import grid

Field = NDArray[np.float64]


def error(*points: int) -> float:
    """Compare with u = x (1-x) sin(pi y) sin(2 pi z), whose f = (2 + 5 pi^2 x (1-x)) sin(pi y) sin(2 pi z)."""
    x, y, z = np.meshgrid(*(grid.nodes(n) for n in points), indexing="ij")
    waves = np.sin(np.pi * y) * np.sin(2 * np.pi * z)
    found = poisson.solve((2 + 5 * np.pi**2 * x * (1 - x)) * waves)
    return float(np.abs(found - x * (1 - x) * waves).max())


def test_the_solution_converges_with_order_two() -> None:
    points = [9, 17, 33, 65]
    slope, _ = np.polyfit(np.log([n - 1 for n in points]), np.log([error(n, n, n) for n in points]), 1)
    assert -slope == pytest.approx(2, abs=0.1)


def test_axes_may_have_different_numbers_of_points() -> None:
    assert error(9, 17, 33) < error(9, 9, 17)


@given(seed=st.integers(0, 2**32), sides=st.tuples(*[st.integers(3, 12)] * 3))
@settings(max_examples=20, deadline=None)
def test_no_residual_is_left(seed: int, sides: tuple[int, int, int]) -> None:
    f = np.random.default_rng(seed).standard_normal(sides)
    u = poisson.solve(f)
    assert np.abs(poisson.residual(f, u)).max() < 1e-11
    assert not any(u.take(end, axis).any() for axis in range(3) for end in (0, -1))


@given(
    seed=st.integers(0, 2**32), order=st.sampled_from(list(permutations(range(3)))), flips=st.sets(st.integers(0, 2))
)
@settings(max_examples=16, deadline=None)
def test_the_solver_commutes_with_the_cubes_symmetries(seed: int, order: tuple[int, ...], flips: set[int]) -> None:
    def move(field: Field) -> Field:
        return np.flip(field.transpose(order), tuple(flips))

    f = np.random.default_rng(seed).standard_normal((7, 7, 7))
    np.testing.assert_allclose(poisson.solve(move(f)), move(poisson.solve(f)), rtol=1e-10, atol=1e-14)


def test_the_same_seed_is_the_same_source_on_every_grid() -> None:
    f, _ = poisson.sample(3, 17)
    np.testing.assert_allclose(poisson.example(9, 3), f[::2, ::2, ::2], rtol=1e-12, atol=1e-12)
    assert not np.allclose(poisson.example(9, 4), poisson.example(9, 3))


def test_samples_are_solved_on_a_finer_mesh() -> None:
    (f, u), fine = poisson.sample(3, 9), poisson.solve(poisson.example(33, 3))[::4, ::4, ::4]
    own, drawn = (float(np.linalg.norm(found - fine)) for found in (poisson.solve(f), u))
    assert drawn < 0.3 * own


def test_sources_vary_as_their_covariance_says() -> None:
    rng = np.random.default_rng(1)
    centre = [poisson.source(3, rng)[1, 1, 1] for _ in range(2000)]
    k = np.arange(poisson.MODES)
    middle = np.where(k == 0, 1.0, 2 * np.cos(np.pi * k / 2) ** 2)
    eigenvalues = np.pi**2 * (k[:, None, None] ** 2 + k[:, None] ** 2 + k**2)
    expected = np.einsum("i,j,k,ijk->", middle, middle, middle, 100 / (eigenvalues + 9) ** 2)
    assert np.var(centre) == pytest.approx(expected, rel=0.15)


def test_the_bound_is_the_distance_in_the_norm_of_the_scheme() -> None:
    rng, sides = np.random.default_rng(4), (5, 6, 4)
    f = rng.standard_normal(sides)
    exact = poisson.solve(f)
    u = exact.copy()
    u[1:-1, 1:-1, 1:-1] += 0.01 * rng.standard_normal((3, 4, 2))
    second = [(2 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1))[1:-1, 1:-1] * (n - 1) ** 2 for n in sides]
    eyes = [np.eye(n - 2) for n in sides]
    A = sum(np.kron(np.kron(*pair[:2]), pair[2]) for pair in (
        [second[axis] if axis == other else eyes[other] for other in range(3)] for axis in range(3)
    ))  # fmt: skip
    e, v = ((field[1:-1, 1:-1, 1:-1]).ravel() for field in (exact - u, exact))
    np.testing.assert_allclose(A @ v, f[1:-1, 1:-1, 1:-1].ravel(), rtol=1e-10, atol=1e-10)
    assert poisson.bound(f, u) == pytest.approx(np.sqrt((e @ A @ e) / (v @ A @ v)), rel=1e-10)


@pytest.mark.parametrize("unit", [1e-170, 1e170])
def test_the_bound_depends_on_no_unit(unit: float) -> None:
    f = unit * poisson.example(9, 0)
    assert poisson.bound(f, 1.1 * poisson.solve(f)) == pytest.approx(0.1, rel=1e-9)


def test_values_on_the_walls_are_errors() -> None:
    f = poisson.example(9, 0)
    u = poisson.solve(f)
    u[0, 4, 4] = 0.01
    assert poisson.bound(f, u) > 0.01
    assert poisson.bound(np.zeros((9, 9, 9)), np.zeros((9, 9, 9))) == 0
    assert poisson.bound(np.zeros((9, 9, 9)), u) == np.inf


def test_invalid_arguments_are_named() -> None:
    with pytest.raises(ValueError, match=r"at least 3 points each, but got \(3, 3\)"):
        poisson.solve(np.ones((3, 3)))
    with pytest.raises(ValueError, match=r"at least 3 points each, but got \(3, 2, 3\)"):
        poisson.solve(np.ones((3, 2, 3)))
    with pytest.raises(ValueError, match=r"source\[1, 2, 0\] is not finite"):
        poisson.solve(np.where(np.arange(27).reshape(3, 3, 3) == 15, np.nan, 1.0))
    with pytest.raises(ValueError, match=r"\(3, 3, 4\) for \"solution\""):
        poisson.residual(np.ones((3, 3, 3)), np.ones((3, 3, 4)))
    with pytest.raises(ValueError, match="at least 3 points on an axis but got 2"):
        poisson.example(2, 0)
