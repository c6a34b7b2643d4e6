r"""The permeability of a measured pressure of Darcy's flow: the classical baseline of the inverse network.

Among the permeabilities between two known bounds, a = low + (high - low) t with 0 <= t <= 1, the inversion minimises

.. math::
    J(t) = \frac12 \sum_i \left(\frac{u_i(t) - d_i}{\sigma_i}\right)^2
        + \lambda \sum_i A_i \sqrt{|\nabla t|_i^2 + (\epsilon / h)^2},

where d is the measured pressure, A_i is the area around a point and h is the grid's spacing. The second term is the
total variation, which admits sharp edges between materials (Chan & Tai 2003, SIAM J. Sci. Comput. 25, 881; smoothed by
epsilon as in Vogel & Oman 1996). The gradient costs a second solve with the same matrix, the adjoint; the steps are
those of L-BFGS-B. They start from the inversion on half as many points per axis, and that from a coarser one: from a
constant, 200 steps do not converge on a quarter of the benchmark's fields.

The weight of the data is not a free choice: sigma^2 is the variance of the noise plus that of the solver's own error on
this grid. A fit that meets the discrepancy principle then has a sum of squares of about one per point, and lambda, the
inverse of a prior's scale, can be the same for all fields and levels of noise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import minimize

from physics import darcy
from physics.numerics import volumes
from physics.numerics.grid import WALL, coarsen
from physics.numerics.volumes import sensitivity, solve_elliptic
from physics.registry import Classical

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

# Tuned on two fields of the benchmark on 141 points, at 0, 1 and 10 % noise: lambda from 40 to 4000, epsilon from 0.01
# to 0.05, and a mismatch of twice the solver's real error, since that error, unlike noise, does not average out.
STRENGTH = 350.0
SMOOTHING = 0.02
MISMATCH = 0.85
MEMORY = 20
COARSEST = 30  # points per axis that an inversion on fewer points has at least


@dataclass(frozen=True)
class Inverse:
    """The inversion of a measured pressure on one grid.

    Attributes:
        pressure: Measured pressure d [rows, columns].
        noise: Standard deviation of its noise [rows, columns].
        mismatch: Error of the pressure that this grid's solver computes, as a part of the root mean square of d.
        low: Permeability at t = 0.
        high: Permeability at t = 1.
        wall: Distance from the outermost points to the boundary, in sides of the square.
    """

    pressure: NDArray[np.float64]
    noise: NDArray[np.float64]
    mismatch: float = 0.0
    low: float = darcy.LOW
    high: float = darcy.HIGH
    wall: float = WALL

    @cached_property
    def deviation(self) -> NDArray[np.float64]:
        """The standard deviation sigma of noise and mismatch together [rows, columns]."""
        return np.asarray(np.hypot(self.noise, self.mismatch * np.sqrt(np.square(self.pressure).mean())))

    def material(self, iterations: int) -> NDArray[np.float64]:
        """Compute t [rows, columns], from coarse to fine."""
        coarse, shape = self.coarser(), self.pressure.shape
        start = np.full(shape, 0.5) if coarse is None else resampled(coarse.material(2 * iterations), shape)
        return self.minimise(start, iterations)

    def coarser(self) -> Inverse | None:
        """Return the same with half as many points per axis; None where these are too few."""
        rows, columns = ((n + 1) // 2 for n in self.pressure.shape)
        if min(rows, columns) < COARSEST:
            return None
        pressure, noise = (resampled(field, (rows, columns)) for field in (self.pressure, self.noise))
        ratio = _spacing(pressure.shape, self.wall) / _spacing(self.pressure.shape, self.wall)
        return replace(self, pressure=pressure, noise=noise, mismatch=ratio * self.mismatch)

    def minimise(self, start: NDArray[np.float64], iterations: int) -> NDArray[np.float64]:
        """Compute t [rows, columns] by at most `iterations` steps from a first t [rows, columns]."""

        def objective(flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
            value, gradient = self.objective(flat.reshape(self.pressure.shape))
            return value, gradient.ravel()

        found = minimize(
            objective,
            start.ravel(),
            jac=True,
            method="L-BFGS-B",
            bounds=[(0, 1)] * self.pressure.size,
            options={"maxiter": iterations, "maxcor": MEMORY},
        )
        return np.asarray(found.x).reshape(self.pressure.shape)

    def objective(self, material: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """Compute J and its gradient [rows, columns] at t [rows, columns]."""
        a = self.low + (self.high - self.low) * material
        u = solve_elliptic(a, volumes.areas(a.shape, self.wall), self.wall)
        misfit = (u - self.pressure) / self.deviation
        adjoint = solve_elliptic(a, misfit / self.deviation, self.wall)
        variation, slope = total_variation(material, SMOOTHING, self.wall)
        value = np.square(misfit).sum() / 2 + STRENGTH * variation
        return float(value), STRENGTH * slope - (self.high - self.low) * sensitivity(adjoint, u, self.wall)


UNKNOWN = -1.0  # in place of the deviation of a solution's noise


def invert(
    solution: ArrayLike,
    *,
    noise: ArrayLike = 0.0,
    points: tuple[int, int] | None = None,
    low: float = darcy.LOW,
    high: float = darcy.HIGH,
    wall: float = WALL,
    mismatch: float | None = None,
    iterations: int = 200,
) -> NDArray[np.float64]:
    """Compute the permeability whose pressure is `solution`, for the source 1.

    An iteration is two solves: 20 to 50 ms on 141 x 141 points and one thread, so a field takes five to ten seconds.

    Args:
        solution: Pressure u [rows, columns], measured at the benchmark's grid points.
        noise: Standard deviation of its noise, in its units: one number or [rows, columns].
        points: Blocks [rows, columns] to average the permeability over, as in `physics.numerics.grid`; by default
            it stays on the grid of the pressure.
        low: Least permeability.
        high: Greatest permeability.
        wall: Distance from the outermost points to the boundary, in sides of the square.
        mismatch: Error of the pressure that this grid's solver computes, as a part of the root mean square of u. The
            default is 0.85 h on a grid of spacing h, which suits materials with sharp edges, strided from a fine mesh.
        iterations: Largest number of steps of L-BFGS-B; twice as many with half as many points per axis, and so on.

    Returns:
        The permeability [rows, columns], or its block means [*points], between `low` and `high`.

    Raises:
        ValueError: The pressure is no finite field of at least 2 x 2 points or is zero everywhere, `noise` has another
            shape or is negative, the bounds are not positive and ascending, or `mismatch` or `iterations` is not
            positive.

    Example:
        >>> pressure = darcy.solve(np.full((5, 5), 3.0))
        >>> permeability = invert(pressure, mismatch=1e-3)
        >>> round(float(permeability.max()), 2)
        3.0
    """
    d, deviation = np.asarray(solution, dtype=np.float64), np.asarray(noise, dtype=np.float64)
    _check(d, deviation, low, high)
    relative = MISMATCH * _spacing(d.shape, wall) if mismatch is None else mismatch
    for name, value in {"mismatch": relative, "iterations": iterations}.items():
        if not value > 0:
            raise ValueError(f"expected a positive number but got {value} for {name}")
    inverse = Inverse(d, np.broadcast_to(deviation, d.shape), relative, low, high, wall)
    coefficient = low + (high - low) * inverse.material(iterations)
    return coefficient if points is None else coarsen(coefficient, points, wall)


def resampled(field: NDArray[np.float64], shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Interpolate a field [rows, columns] linearly at another number of points between its outermost ones.

    Example:
        >>> resampled(np.array([[0.0, 2.0], [4.0, 6.0]]), (3, 2))
        array([[0., 2.],
               [2., 4.],
               [4., 6.]])
    """
    for axis, points in enumerate(shape):
        positions = np.linspace(0, field.shape[axis] - 1, points)
        lower = np.minimum(positions.astype(int), field.shape[axis] - 2)
        part = np.expand_dims(positions - lower, 1 - axis)
        field = (1 - part) * field.take(lower, axis) + part * field.take(lower + 1, axis)
    return field


def total_variation(material: NDArray[np.float64], smoothing: float, wall: float) -> tuple[float, NDArray[np.float64]]:
    """Compute the smoothed total variation of t [rows, columns] on the unit square, and its gradient."""
    rows, columns = material.shape
    # Differences on a grid of unequal spacings, in units in which the cells are squares of the same area.
    stretch = np.sqrt((columns - 1) / (rows - 1))
    right = stretch * np.diff(material, axis=1, append=material[:, -1:])
    below = np.diff(material, axis=0, append=material[-1:]) / stretch
    length = np.sqrt(right**2 + below**2 + smoothing**2)
    east, south = stretch * right / length, below / length / stretch
    slope = -east - south
    slope[:, 1:] += east[:, :-1]
    slope[1:] += south[:-1]
    spacing = _spacing(material.shape, wall)
    return spacing * float(length.sum()), spacing * slope


def _spacing(shape: tuple[int, ...], wall: float) -> float:
    rows, columns = shape
    return float((1 - 2 * wall) / np.sqrt((rows - 1) * (columns - 1)))


def _check(d: NDArray[np.float64], deviation: NDArray[np.float64], low: float, high: float) -> None:
    if d.ndim != 2 or min(d.shape) < 2:
        raise ValueError(f'expected (row, column), at least 2 points each, but got {d.shape} for "solution"')
    if not np.isfinite(d).all():
        row, column = np.argwhere(~np.isfinite(d))[0]
        raise ValueError(f"solution[{row},{column}] is {d[row, column]}; a pressure must be finite")
    if not d.any():
        raise ValueError("the solution is zero everywhere, which no permeability explains")
    if deviation.shape not in {(), d.shape}:
        raise ValueError(f'expected a number or {d.shape} but got {deviation.shape} for "noise"')
    if not (np.isfinite(deviation) & (deviation >= 0)).all():
        raise ValueError("expected finite numbers of at least zero for noise")
    if not 0 < low < high < np.inf:
        raise ValueError(f"expected 0 < low < high but got low = {low} and high = {high}")


def _solve(solution: ArrayLike, *, noise: ArrayLike = UNKNOWN, **options: Any) -> NDArray[np.float64]:
    """Invert as `invert` does; noise that is not known is none beside the error of the grid."""
    return invert(solution, noise=np.where(np.asarray(noise) == UNKNOWN, 0.0, noise), **options)


# A solve takes hundreds of forward solves: five to ten seconds for 141 x 141 points.
CLASSICAL = Classical("darcy_inverse", darcy.example_pressure, _solve, largest=141**2, slow=True, exact=False)
