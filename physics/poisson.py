r"""Poisson's equation in the unit cube: the potential u of a source f.

.. math::
    -\Delta u = f, \qquad u = 0 \text{ on the walls}

The points are x_i = i/(n-1) on each axis, walls included; n may differ between the axes. Inside, the seven-point scheme
of second order

.. math::
    \sum_{\mathrm{axes}} \frac{2 u_i - u_{i-1} - u_{i+1}}{h^2} = f_i

has products of sines for eigenvectors, so that two sine transforms and a division solve it (Hockney 1965, J. ACM 12,
95), to rounding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import fft

from physics.numerics.fields import cosines
from physics.numerics.grid import nodes
from physics.numerics.volumes import exponent
from physics.registry import Classical

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

MODES = 8
"""Cosines on each axis of a drawn source."""

REFINEMENT = 2
"""Refinement of the mesh that a drawn source is solved on: its u has a quarter of the error of the grid's own."""


def solve(source: ArrayLike) -> NDArray[np.float64]:
    """Solve -Laplace u = f on the unit cube with u = 0 on its walls.

    Args:
        source: Source f [depth, row, column]; its values on the walls have no effect.

    Returns:
        The potential u [depth, row, column] at the same points, in units of f times length^2.

    Raises:
        ValueError: The source is no finite field of at least 3 x 3 x 3 points.

    Example:
        >>> potential = solve(np.ones((5, 5, 5)))
        >>> round(float(potential.max()), 4)
        0.0515
    """
    f = _field(source, "source")
    axes = [_eigenvalues(points) for points in f.shape]
    inside = (slice(1, -1),) * f.ndim
    u = np.zeros(f.shape)
    u[inside] = fft.idstn(fft.dstn(f[inside], type=1) / sum(np.ix_(*axes)), type=1)
    return u


def residual(source: ArrayLike, solution: ArrayLike) -> NDArray[np.float64]:
    """Compute f + Laplace u inside the walls: the part of the source that a proposed solution does not balance.

    Args:
        source: Source f [depth, row, column].
        solution: Potential u [depth, row, column].

    Returns:
        The residual [depth-2, row-2, column-2], in units of f.

    Raises:
        ValueError: As for `solve`, or the shapes differ.
    """
    f, u = _pair(source, solution)
    inside = (slice(1, -1),) * f.ndim
    left = f[inside].copy()
    for axis, points in enumerate(u.shape):
        across = (*inside[:axis], slice(None), *inside[axis + 1 :])
        left += (points - 1) ** 2 * np.diff(u[across], n=2, axis=axis)
    return left


def bound(source: ArrayLike, solution: ArrayLike) -> float:
    r"""Return the relative distance of any potential to the discrete solution in the energy norm.

    .. math::
        \|v\|^2 = \sum_{\mathrm{edges}} w\, \Bigl(\frac{v_1 - v_2}{h}\Bigr)^2

    The weight w of an edge is its length h times the widths that its ends stand for on the other axes, h/2 at a wall.
    Edges lead from the walls to zeros outside. For potentials that vanish on the walls, this is the quadratic form of
    the seven-point scheme.

    Args:
        source: Source f [depth, row, column].
        solution: Potential u [depth, row, column]; values on the walls other than 0 count as errors.

    Returns:
        |u_h - u| / |u_h|, exact but for rounding; infinite where u_h is 0 and u is not.

    Raises:
        ValueError: As for `residual`.

    Example:
        >>> f = example(9, seed=0)
        >>> bound(f, solve(f)), round(bound(f, 1.1 * solve(f)), 3)
        (0.0, 0.1)
    """
    f, u = _pair(source, solution)
    # The bound has no unit. Without this power of two the squares of small numbers would be 0, and the bound, too.
    unit = exponent(f, u)
    f, u = np.ldexp(f, -unit), np.ldexp(u, -unit)
    exact = solve(f)
    error, size = _energy(exact - u), _energy(exact)
    if size > 0:
        return float(np.sqrt(error / size))
    return float(np.inf) if error > 0 else 0.0


def source(points: int, rng: np.random.Generator) -> NDArray[np.float64]:
    r"""Draw a source with zero Neumann conditions, of the lowest `MODES` cosines on each axis.

    .. math::
        f \sim N(0, 100 (-\Delta + 9)^{-2})

    Args:
        points: Points on each axis.
        rng: The generator. One state of it is one field, whatever the number of points.

    Returns:
        The values [points, points, points].

    Raises:
        ValueError: There are fewer than three points, none of which would be inside.
    """
    if points < 3:
        raise ValueError(f"expected at least 3 points on an axis but got {points}")
    k = np.arange(MODES)
    eigenvalues = np.pi**2 * sum(axis**2 for axis in np.ix_(k, k, k))
    f = 10 / (eigenvalues + 9) * rng.standard_normal((MODES,) * 3)
    basis = cosines(nodes(points), MODES)
    for _ in range(f.ndim):
        f = np.tensordot(f, basis, axes=(0, 1))
    return np.asarray(f)


def sample(
    rng: int | np.random.SeedSequence | np.random.Generator, points: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Draw a source on `points` points per axis, and solve for it on a mesh of `REFINEMENT` times as many intervals.

    Example:
        >>> source, potential = sample(0, points=5)
        >>> source.shape, potential.shape
        ((5, 5, 5), (5, 5, 5))
    """
    f = source(REFINEMENT * (points - 1) + 1, np.random.default_rng(rng))
    stride = (slice(None, None, REFINEMENT),) * f.ndim
    return f[stride], solve(f)[stride]


def example(points: int, seed: int) -> NDArray[np.float64]:
    """Draw a source [points, points, points]: that of `sample(seed)`, on any grid."""
    return source(points, np.random.default_rng(seed))


def _eigenvalues(points: int) -> NDArray[np.float64]:
    """Compute the eigenvalues of the three-point second difference on the points inside."""
    half_angles = np.pi / 2 * np.arange(1, points - 1) / (points - 1)
    return np.asarray((2 * (points - 1) * np.sin(half_angles)) ** 2)


def _energy(u: NDArray[np.float64]) -> float:
    """Return the square of the energy norm."""
    total = 0.0
    for axis, points in enumerate(u.shape):
        extended = np.pad(u, [(1, 1) if other == axis else (0, 0) for other in range(u.ndim)])
        squares = np.diff(extended, axis=axis) ** 2 * (points - 1)
        others = [np.ones(points + 1) if other == axis else _widths(n) for other, n in enumerate(u.shape)]
        total += float(np.einsum("ijk,i,j,k->", squares, *others))
    return total


def _widths(points: int) -> NDArray[np.float64]:
    """Return the part of an axis that each of its points stands for."""
    widths = np.full(points, 1 / (points - 1))
    widths[[0, -1]] /= 2
    return widths


def _pair(source: ArrayLike, solution: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    f, u = _field(source, "source"), _field(solution, "solution")
    if u.shape != f.shape:
        raise ValueError(f'expected {f.shape}, the source\'s shape, but got {u.shape} for "solution"')
    return f, u


def _field(values: ArrayLike, name: str) -> NDArray[np.float64]:
    field = np.asarray(values, dtype=np.float64)
    if field.ndim != 3 or min(field.shape) < 3:
        raise ValueError(f'expected (depth, row, column), at least 3 points each, but got {field.shape} for "{name}"')
    if not np.isfinite(field).all():
        raise ValueError(f"{name}{np.argwhere(~np.isfinite(field))[0].tolist()} is not finite")
    return field


CLASSICAL = Classical("poisson", example, solve, bound=bound)
