"""The Darcy solver converges at its order, has the square's symmetries, and leaves no residual."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from physics import darcy
from physics.families import FAMILIES
from physics.numerics import volumes
from physics.numerics.grid import WALL, axis, relative_l2

Field = NDArray[np.float64]

SYMMETRIES: list[Callable[[Field], Field]] = [
    *(lambda f, quarters=quarters: np.rot90(f, quarters) for quarters in range(4)),
    *(lambda f, quarters=quarters: np.rot90(f, quarters).T for quarters in range(4)),
]


def positions(points: int, wall: float) -> Field:
    return np.linspace(wall, 1 - wall, points)


def manufactured(x: Field, y: Field) -> tuple[Field, Field, Field]:
    """Return a, u and f = -div(a grad u) for u = sin(pi x) sin(2 pi y) and a smooth a that varies by a factor of 3."""
    a, ax, ay = 2 + np.sin(2 * x + 3 * y), 2 * np.cos(2 * x + 3 * y), 3 * np.cos(2 * x + 3 * y)
    u = np.sin(np.pi * x) * np.sin(2 * np.pi * y)
    ux = np.pi * np.cos(np.pi * x) * np.sin(2 * np.pi * y)
    uy = 2 * np.pi * np.sin(np.pi * x) * np.cos(2 * np.pi * y)
    return a, u, 5 * np.pi**2 * a * u - ax * ux - ay * uy


def error(rows: int, columns: int, wall: float) -> float:
    y, x = np.meshgrid(positions(rows, wall), positions(columns, wall), indexing="ij")
    a, u, f = manufactured(x, y)
    difference = darcy.solve(a, f, wall) - u
    return float(np.sqrt(np.sum(volumes.areas(a.shape, wall) * difference**2)))


def order(errors: list[float], points: list[int]) -> float:
    slope, _ = np.polyfit(np.log(points), np.log(errors), 1)
    return float(-slope)


def test_cell_centred_meshes_converge_with_order_two() -> None:
    points = [16, 32, 64, 128]
    assert order([error(n, n, 0.5 / n) for n in points], points) == pytest.approx(2, abs=0.1)


def test_benchmark_grids_converge_with_order_two() -> None:
    points = [22, 43, 85, 141]
    errors = [error(n, n, WALL) for n in points]
    assert order(errors, points) == pytest.approx(2, abs=0.15)
    assert errors[-1] < 3e-4


def test_fields_need_not_be_square() -> None:
    assert error(43, 85, WALL) < 1.1 * error(43, 43, WALL)


@given(seed=st.integers(0, 2**32), symmetry=st.sampled_from(SYMMETRIES))
@settings(max_examples=16, deadline=None)
def test_the_solver_commutes_with_the_squares_symmetries(seed: int, symmetry: Callable[[Field], Field]) -> None:
    a = np.random.default_rng(seed).choice([3.0, 12.0], size=(17, 23))
    np.testing.assert_allclose(darcy.solve(symmetry(a)), symmetry(darcy.solve(a)), rtol=1e-8)


@given(
    seed=st.integers(0, 2**32), ratio=st.sampled_from([1.0, 4.0, 20.0, 1e3, 1e6]), wall=st.sampled_from([WALL, 0.02])
)
@settings(max_examples=20, deadline=None)
def test_no_residual_is_left(seed: int, ratio: float, wall: float) -> None:
    rng = np.random.default_rng(seed)
    a, source = ratio ** rng.random((25, 31)), rng.standard_normal((25, 31))
    u = darcy.solve(a, source, wall)
    assert np.abs(darcy.residual(a, u, source, wall)).max() < 1e-6
    assert np.abs(darcy.residual(a, 1.01 * u, source, wall)).max() > 1e-3


def test_both_solvers_agree() -> None:
    a = darcy.example(85, 1)
    load = volumes.areas(a.shape, WALL)
    iterated = volumes.solve_elliptic(a, load, WALL)
    factorised = volumes.factorised(a, WALL).solve(load.ravel()).reshape(load.shape)
    np.testing.assert_allclose(iterated, factorised, rtol=1e-8)


def test_scaling_the_permeability_divides_the_pressure() -> None:
    a = darcy.example(43, 2)
    np.testing.assert_allclose(darcy.solve(7 * a), darcy.solve(a) / 7, rtol=1e-8)


@pytest.mark.parametrize("seed", [0, 1])
def test_solves_on_the_strided_grids_are_near_the_fine_solution(seed: int) -> None:
    coefficient, solution = darcy.sample(seed)
    assert 0.008 < solution.max() < 0.016
    for points, bound in ((85, 1e-2), (141, 6e-3)):
        coarse, fine = darcy.solve(darcy.restrict(coefficient, points)), darcy.restrict(solution, points)
        assert relative_l2(coarse[None], fine[None]) < bound


def test_a_sample_depends_on_its_seed_alone() -> None:
    (a, u), (b, v), (c, _) = (darcy.sample(np.random.SeedSequence(seed), 24) for seed in (1, 1, 2))
    np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(u, v)
    assert (a != c).any()


@pytest.mark.parametrize(
    ("coefficient", "message"),
    [
        (np.ones(4), r'expected \(row, column\), at least 2 points each, but got \(4,\) for "coefficient"'),
        (np.ones((1, 4)), r"got \(1, 4\)"),
        (
            np.array([[1.0, 1.0], [1.0, -2.0]]),
            r"coefficient\[1,1\] is -2.0; a permeability must be finite and positive",
        ),
        (np.array([[1.0, np.nan], [1.0, 1.0]]), r"coefficient\[0,1\] is nan"),
        (np.array([[1.0, 1.0], [np.inf, 1.0]]), r"coefficient\[1,0\] is inf"),
    ],
)
def test_invalid_coefficients_are_named(coefficient: Field, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        darcy.solve(coefficient)


def test_mismatched_shapes_are_named() -> None:
    with pytest.raises(ValueError, match=r'expected a number or \(4, 5\) but got \(5, 4\) for "source"'):
        darcy.solve(np.ones((4, 5)), np.ones((5, 4)))
    with pytest.raises(ValueError, match=r'got \(5, 4\) for "solution"'):
        darcy.residual(np.ones((4, 5)), np.ones((5, 4)))
    with pytest.raises(ValueError, match="cannot stride 421 points down to 100"):
        darcy.restrict(np.ones((421, 421)), 100)


def test_an_example_pressure_is_that_of_the_sample_on_any_grid() -> None:
    _, pressure = darcy.sample(3)
    np.testing.assert_allclose(darcy.example_pressure(141, 3), pressure[::3, ::3], rtol=1e-9)
    between = darcy.example_pressure(100, 3)
    assert between.shape == (100, 100)
    assert between.min() == pytest.approx(pressure.min(), rel=1e-9)  # at a corner, a point of both grids
    assert between.min() < between.max() <= pressure.max()


@pytest.mark.parametrize("family", FAMILIES)
def test_the_bound_is_never_below_the_distance(family: str) -> None:
    rng = np.random.default_rng(5)
    coefficient, source = FAMILIES[family](rng, axis(29)), rng.standard_normal((29, 29))
    exact, A = darcy.solve(coefficient, source), volumes.matrix(coefficient, WALL)
    for size in (0.0, 1e-6, 1e-3, 0.1):
        found = exact * (1 + size * rng.standard_normal(exact.shape))
        error, whole = ((v.ravel() @ (A @ v.ravel())) ** 0.5 for v in (found - exact, exact))
        assert darcy.bound(coefficient, found, source) >= error / whole


def test_a_bound_of_nothing_is_nothing() -> None:
    assert darcy.bound(np.ones((5, 5)), np.zeros((5, 5)), 0.0) == 0.0
    assert darcy.bound(np.ones((5, 5)), np.zeros((5, 5))) == np.inf


@pytest.mark.parametrize("unit", [1e-160, 1e-40, 1e-25, 1e25, 1e40, 1e150])
def test_units_change_no_digit_but_the_last(unit: float) -> None:
    """Squares of small numbers are 0, and so are small numbers in single precision, in which is preconditioned."""
    a = darcy.example(43, 2)
    u = darcy.solve(a)
    with np.errstate(all="raise", under="ignore"):
        np.testing.assert_allclose(darcy.solve(a, unit) / unit, u, rtol=1e-9)
        np.testing.assert_allclose(darcy.solve(unit * a) * unit, u, rtol=1e-9)
        bound = darcy.bound(a, 1.1 * u)
        assert darcy.bound(a, 1.1 * unit * u, unit) == pytest.approx(bound, rel=1e-9)
        assert darcy.bound(unit * a, 1.1 / unit * u) == pytest.approx(bound, rel=1e-9)
        assert darcy.bound(a, np.zeros_like(a), unit) == np.inf


def test_a_pressure_that_is_no_number_is_infinitely_far() -> None:
    assert darcy.bound(np.ones((5, 5)), np.full((5, 5), np.nan)) == np.inf


def test_sources_and_walls_that_are_none_are_named() -> None:
    with pytest.raises(ValueError, match="source is not finite"):
        darcy.solve(np.ones((4, 4)), np.nan)
    with pytest.raises(ValueError, match=r"source\[1, 2\] is not finite"):
        darcy.solve(np.ones((3, 3)), np.where(np.arange(9).reshape(3, 3) == 5, np.inf, 1.0))
    for wall in (-0.1, 0.0, 0.5, np.nan):
        with pytest.raises(ValueError, match="distance to the wall between 0 and"):
            darcy.solve(np.diag([1.0, 50.0, 1.0]) + 1, wall=wall)
