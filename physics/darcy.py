r"""Darcy's flow in the unit square: the pressure u of a permeability a.

.. math::
    -\nabla \cdot (a \nabla u) = f, \qquad u = 0 \text{ on the boundary}

The scheme is that of `physics.numerics.volumes`. With `wall` = 1/(2n) on n points it is the cell-centred scheme on n
cells. The benchmark's fields have n = 421; the default `wall` is that of the coarser grids that are strided out of
them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.interpolate import RectBivariateSpline

from physics.numerics import fields, volumes
from physics.numerics.grid import CELLS, WALL, axis
from physics.numerics.volumes import Linearised, inverse_energy, solve_elliptic
from physics.registry import Classical, Sensing

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

LOW, HIGH = 3.0, 12.0
"""The permeabilities of the benchmark's two materials."""

HALF_WAVES = 8
"""The most half waves of a smooth source along an axis."""


def permeability(field: NDArray[np.float64], low: float = LOW, high: float = HIGH) -> NDArray[np.float64]:
    """Cut a Gaussian field into two materials.

    Args:
        field: Values [..., rows, columns].
        low: Permeability where the field is negative.
        high: Permeability where it is not.

    Returns:
        The permeability, in the shape of `field`.
    """
    return np.where(field >= 0.0, high, low)


def solve(coefficient: ArrayLike, source: ArrayLike = 1.0, wall: float = WALL) -> NDArray[np.float64]:
    """Solve -div(a grad u) = f on the unit square with u = 0 on its boundary.

    Args:
        coefficient: Permeability a [rows, columns] at the grid points, positive.
        source: Source f, one number or [rows, columns].
        wall: Distance from the outermost points to the boundary, in sides of the square.

    Returns:
        The pressure u [rows, columns] at the same points, in units of f/a. The residual is below 1e-10 of the source.

    Raises:
        ValueError: The coefficient is no finite positive field of at least 2 x 2 points, the source is not finite or of
            another shape, or the wall is not between 0 and 0.5.

    Example:
        >>> pressure = solve(np.full((5, 5), 2.0), source=2.0)
        >>> round(float(pressure.max()), 4)
        0.0704
    """
    a, f = _problem(coefficient, source)
    return solve_elliptic(a, f * volumes.areas(a.shape, wall), wall)


def residual(
    coefficient: ArrayLike, solution: ArrayLike, source: ArrayLike = 1.0, wall: float = WALL
) -> NDArray[np.float64]:
    """Compute f + div(a grad u): the part of the source that a proposed solution does not balance.

    Args:
        coefficient: Permeability a [rows, columns] at the grid points, positive.
        solution: Pressure u [rows, columns].
        source: Source f, one number or [rows, columns].
        wall: Distance from the outermost points to the boundary, in sides of the square.

    Returns:
        The residual [rows, columns], per unit area, in units of f.

    Raises:
        ValueError: As for `solve`, or the shapes of coefficient and solution differ.
    """
    a, f = _problem(coefficient, source)
    u = np.asarray(solution, dtype=np.float64)
    if u.shape != a.shape:
        raise ValueError(f'expected {a.shape}, the coefficient\'s shape, but got {u.shape} for "solution"')
    outflow = (volumes.matrix(a, wall) @ u.ravel()).reshape(a.shape)
    return np.asarray(f - outflow / volumes.areas(a.shape, wall))


def bound(coefficient: ArrayLike, solution: ArrayLike, source: ArrayLike = 1.0, wall: float = WALL) -> float:
    r"""Bound the relative distance of any pressure to the discrete solution in the energy norm.

    With the residual r, the finite volumes A of the coefficient and L of a = 1, min(a) L <= A gives

    .. math::
        \|u_h - u\|_A^2 = r^T A^{-1} r \le r^T L^{-1} r / \min a.

    Args:
        coefficient: Permeability a [rows, columns] at the grid points, positive.
        solution: Pressure u [rows, columns].
        source: Source f, one number or [rows, columns].
        wall: Distance from the outermost points to the boundary, in sides of the square.

    Returns:
        A number that is at least |u_h - u| / |u_h|; infinite where u is too far from u_h to tell, or not finite.

    Raises:
        ValueError: As for `residual`.

    Example:
        >>> a = example(16, seed=0)
        >>> bound(a, solve(a)) < 1e-9
        True
    """
    a, f = _problem(coefficient, source)
    u = np.asarray(solution, dtype=np.float64)
    if not np.isfinite(u).all():
        return float(np.inf)
    # The bound has no unit. Without these powers of two the squares of small numbers would be 0, and the bound, too.
    unit = volumes.exponent(a)
    a, f = np.ldexp(a, -unit), np.ldexp(f, -unit)
    unit = volumes.exponent(u, f)
    u, f = np.ldexp(u, -unit), np.ldexp(f, -unit)
    left = residual(a, u, f, wall) * volumes.areas(a.shape, wall)
    error = np.sqrt(max(inverse_energy(left, wall), 0.0) / a.min())
    energy = np.sqrt(u.ravel() @ (volumes.matrix(a, wall) @ u.ravel()))
    if error >= energy:
        return float(np.inf) if error > 0 else 0.0
    return float(error / (energy - error))


def restrict(field: NDArray[np.generic], points: int) -> NDArray[np.generic]:
    """Stride the last two axes of a field [..., n, n] down to `points` points each, edges included.

    Raises:
        ValueError: The number `points` is not n or one of its strided sizes: 211, 141, 106, 85, 71, 61, 43, 36, … for
            421.
    """
    steps = [_stride(fine, points) for fine in field.shape[-2:]]
    return field[..., :: steps[0], :: steps[1]]


def sample(
    rng: int | np.random.SeedSequence | np.random.Generator, cells: int = CELLS
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Draw a coefficient of the benchmark's distribution on `cells` x `cells` cell centres, and its pressure.

    Example:
        >>> coefficient, pressure = sample(0, cells=16)
        >>> pressure.shape, float(coefficient.min()), float(coefficient.max())
        ((16, 16), 3.0, 12.0)
    """
    coefficient = permeability(fields.neumann_field(cells, np.random.default_rng(rng)))
    return coefficient, solve(coefficient, wall=0.5 / cells)


def smooth_source(points: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Draw a source [points, points] on cell centres: a constant plus up to eight half waves along each axis.

    Their share is random, from none to a source that is 0 on average.

    Example:
        >>> smooth_source(16, np.random.default_rng(0)).shape
        (16, 16)
    """
    waves = int(rng.integers(2, HALF_WAVES + 2))
    coefficients = rng.standard_normal((waves, waves))
    coefficients[0, 0] = 0.0
    x = (np.arange(points) + 0.5) / points
    varying = fields.cosine_series(coefficients, x, x)
    angle = rng.uniform(0, np.pi / 2)
    return np.asarray(np.cos(angle) + np.sin(angle) * varying / varying.std())


def example(points: int, seed: int) -> NDArray[np.float64]:
    """Draw a coefficient of the benchmark's distribution on its grid of `points` x `points` points.

    It is the field of `sample(seed)`, evaluated at the points of `grid.axis(points)`, for any number of points.
    """
    coefficients = fields.neumann_coefficients(CELLS, np.random.default_rng(seed))
    return permeability(fields.cosine_series(coefficients, axis(points), axis(points)))


def example_pressure(points: int, seed: int) -> NDArray[np.float64]:
    """Draw a pressure of the benchmark on its grid of `points` x `points` points: an input of the inverse problem.

    It is the pressure of `sample(seed)`, solved on the whole mesh and interpolated between its points by cubic splines.
    """
    fine, wanted = axis(CELLS), axis(points)
    return np.asarray(RectBivariateSpline(fine, fine, solve(example(CELLS, seed)))(wanted, wanted))


def _problem(coefficient: ArrayLike, source: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    a, f = np.asarray(coefficient, dtype=np.float64), np.asarray(source, dtype=np.float64)
    if a.ndim != 2 or min(a.shape) < 2:
        raise ValueError(f'expected (row, column), at least 2 points each, but got {a.shape} for "coefficient"')
    if not (np.isfinite(a) & (a > 0)).all():
        row, column = np.argwhere(~(np.isfinite(a) & (a > 0)))[0]
        raise ValueError(f"coefficient[{row},{column}] is {a[row, column]}; a permeability must be finite and positive")
    if f.shape not in {(), a.shape}:
        raise ValueError(f'expected a number or {a.shape} but got {f.shape} for "source"')
    if not np.isfinite(f).all():
        raise ValueError(f"source{np.argwhere(~np.isfinite(f))[0].tolist() if f.ndim else ''} is not finite")
    return a, f


def _stride(fine: int, points: int) -> int:
    if points < 2 or (fine - 1) % (points - 1):
        raise ValueError(
            f"cannot stride {fine} points down to {points}: {points - 1} intervals do not divide {fine - 1}"
        )
    return (fine - 1) // (points - 1)


SENSING = Sensing("coefficient", "solution", axis, Linearised)
CLASSICAL = Classical("darcy", example, solve, bound=bound, sensing=SENSING)
