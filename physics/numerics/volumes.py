r"""The finite volumes of -div(a grad u) with u = 0 on the walls: the matrix, its solvers, and derivatives by a.

Each point owns the rectangle up to the midlines between it and its neighbours, the outermost ones up to the wall. The
outflow of a rectangle is

.. math::
    \sum_{\mathrm{faces}} a_{\mathrm{face}} (u_{\mathrm{point}} - u_{\mathrm{neighbour}})
        \frac{\mathrm{length}}{\mathrm{distance}},

where a_face is the arithmetic mean of both sides. At a wall, u_neighbour is 0 and a_face is the point's own a. Every
`wall` is the distance from the outermost points to the boundary, in sides of the square.

A coefficient that varies little is solved by conjugate gradients, preconditioned by the same equation with a = 1. The
preconditioner is exact, by fast diagonalisation (Lynch, Rice & Thomas 1964): its matrix is K x W + W x K of the
one-dimensional stiffness K and widths W, so the eigenvectors of the pencil (K, W) on both axes turn it into a division.
The iterations grow with the square root of max a / min a and not with the grid: 24 of them reduce the residual of the
benchmark's 3 / 12 to 1e-10. A coefficient that varies much is solved by a sparse LU factorisation, whose cost does not
depend on the ratio.
"""

from __future__ import annotations

import math
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse
from scipy.linalg import eigh_tridiagonal
from scipy.sparse.linalg import LinearOperator, cg, splu

from physics.numerics.grid import WALL, widths

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray

    Field = NDArray[np.float64]
    Single = NDArray[np.float32]
    Real = NDArray[np.floating[Any]]

# Fields of 3 and 12 on one thread: 0.28 s iterating, 1.5 s factorising, 0.75 s by algebraic multigrid at 421 points;
# 20, 100 and 110 ms at 141; 8, 30 and 63 ms at 85. With a ratio of 30: 0.6 s iterating at 421, 18 ms at 85.
LARGEST_RATIO = 30.0
TOLERANCE = 1e-10
ROUNDING = 1e-4
"""More than the eigenvectors' single precision changes, relatively, in a quadratic form."""


def distances(points: int, wall: float) -> Field:
    """Return the distance across each face [points + 1], from wall to wall; the distances add up to 1."""
    d = np.full(points + 1, (1 - 2 * wall) / (points - 1))
    d[[0, -1]] = wall
    return d


def areas(shape: tuple[int, ...], wall: float) -> Field:
    """Return the area of each point's rectangle [rows, columns]; the areas add up to 1."""
    rows, columns = shape
    return np.outer(widths(rows, wall), widths(columns, wall))


def matrix(coefficient: Field, wall: float) -> sparse.csr_array:
    """Assemble the symmetric positive definite matrix that maps u, row by row, to the outflow of each rectangle."""
    return assembled(*conductances(coefficient, wall))


def assembled(across: Real, down: Real) -> sparse.csr_array:
    """Assemble the matrix of conductances, as `conductances` returns them."""
    columns = down.shape[1]
    diagonal = across[:, 1:] + across[:, :-1] + down[1:] + down[:-1]
    right, below = -across[:, 1:], -down[1:-1].ravel()
    right[:, -1] = 0.0  # the last point of a row does not touch the first of the next
    beside = right.ravel()[:-1]
    diagonals: list[Any] = [below, beside, diagonal.ravel(), beside, below]
    offsets = (-columns, -1, 0, 1, columns)
    return sparse.csr_array(sparse.diags_array(diagonals, offsets=offsets, format="csr"))


def conductances(coefficient: Real, wall: float) -> tuple[Real, Real]:
    """Compute the flux through every face per difference of u.

    Args:
        coefficient: Permeability a [rows, columns].
        wall: Distance from the outermost points to the boundary, in sides of the square.

    Returns:
        Those of the faces between columns [rows, columns + 1] and between rows [rows + 1, columns], walls included.
    """
    return weighted(_faces(coefficient), _faces(coefficient.T).T, wall)


def weighted(across: Real, down: Real, wall: float) -> tuple[Real, Real]:
    """Multiply the permeability of the faces between columns and between rows by length over neighbours' distance."""
    rows, columns = len(across), down.shape[1]
    return (
        across * np.divide.outer(widths(rows, wall), distances(columns, wall)),
        down * np.divide.outer(widths(columns, wall), distances(rows, wall)).T,
    )


def outflow(across: Real, down: Real, u: Real) -> Real:
    """Return the outflow of each rectangle [rows, columns] by its conductances, which is cheaper than the matrix."""
    return -np.diff(across * _jumps(u), axis=1) - np.diff(down * _jumps(u, axis=0), axis=0)


def _faces(coefficient: Real) -> Real:
    """Average neighbours along the rows: [rows, columns] -> [rows, columns + 1], the wall's faces included."""
    padded = np.pad(coefficient, ((0, 0), (1, 1)), mode="edge")
    return np.asarray((padded[:, 1:] + padded[:, :-1]) / 2)


def solve_elliptic(coefficient: Field, load: Field, wall: float) -> Field:
    """Solve for the u whose outflow from every point's rectangle equals the load.

    Args:
        coefficient: Permeability a [rows, columns], positive.
        load: Source times area [rows, columns].
        wall: Distance from the outermost points to the boundary, in sides of the square.

    Returns:
        The solution u [rows, columns], in units of source over permeability.
    """
    # Squares, and single precision, hold numbers near 1 alone. Powers of two change no digit of the solution.
    a, b = exponent(coefficient), exponent(load)
    return np.asarray(np.ldexp(_solve(np.ldexp(coefficient, -a), np.ldexp(load, -b), wall), b - a))


def exponent(*values: ArrayLike) -> int:
    """Return the e with which the largest size of all values is between 2^e and 2^(e+1); 0 for zeros.

    Example:
        >>> exponent(np.array([-5.0, 3.0]), 0.5), exponent(0.0)
        (2, 0)
    """
    largest = max(float(np.abs(each).max()) for each in values)
    return math.frexp(largest)[1] - 1 if 0 < largest < math.inf else 0


def _solve(coefficient: Field, load: Field, wall: float) -> Field:
    if coefficient.max() <= LARGEST_RATIO * coefficient.min():
        scale = 1 / np.sqrt(coefficient.min() * coefficient.max())
        invert = constant_inverse(load.shape, wall, float(scale))

        def precondition(residual: Field) -> Field:
            # A preconditioner may be rough: single precision halves the time and costs no iteration.
            return invert(residual.reshape(load.shape).astype(np.float32)).astype(np.float64).ravel()

        preconditioner = LinearOperator((load.size, load.size), matvec=precondition, dtype=np.float64)
        u, failure = cg(matrix(coefficient, wall), load.ravel(), rtol=TOLERANCE, maxiter=500, M=preconditioner)
        if failure == 0:
            return np.asarray(u).reshape(load.shape)
    return np.asarray(factorised(coefficient, wall).solve(load.ravel())).reshape(load.shape)


def factorised(coefficient: Field, wall: float) -> Any:
    """Return sparse LU factors of the matrix, which solve for loads [points] or [points, batch]."""
    # Minimum degree on the symmetric pattern fills in a third less than the default ordering; a symmetric positive
    # definite matrix needs no pivoting.
    return splu(
        matrix(coefficient, wall).tocsc(),
        permc_spec="MMD_AT_PLUS_A",
        diag_pivot_thresh=0.0,
        options={"SymmetricMode": True},
    )


def constant_inverse(shape: tuple[int, ...], wall: float, scale: float = 1.0) -> Callable[[Single], Single]:
    """Return the inverse of the equation with a = 1/scale, by fast diagonalisation in single precision."""
    (down, Y), (across, X) = (modes(points, wall) for points in shape)
    divisor = (scale / np.add.outer(down, across)).astype(np.float32)

    def invert(load: Single) -> Single:
        return np.asarray(Y @ (divisor * (Y.T @ load @ X)) @ X.T)

    return invert


def inverse_energy(load: Field, wall: float) -> float:
    """Compute an upper bound on r^T L^-1 r for the equation with a = 1 and a load r [rows, columns]."""
    (down, Y), (across, X) = (modes(points, wall) for points in load.shape)
    transformed = Y.T @ load @ X
    return float((transformed**2 / np.add.outer(down, across)).sum()) * (1 + ROUNDING)


@lru_cache(maxsize=16)
def modes(points: int, wall: float) -> tuple[Field, Single]:
    """Solve K v = lambda W v for the three-point stiffness K and the widths W, so that V^T W V = 1."""
    stiffness, root = 1 / distances(points, wall), np.sqrt(widths(points, wall))
    diagonal = (stiffness[1:] + stiffness[:-1]) / root**2
    eigenvalues, vectors = eigh_tridiagonal(diagonal, -stiffness[1:-1] / (root[1:] * root[:-1]))
    return np.asarray(eigenvalues), np.asarray(vectors / root[:, None], dtype=np.float32)


def solve_early_stopped(coefficient: ArrayLike, steps: int, source: float = 1.0, wall: float = WALL) -> Single:
    """Take a few steps of preconditioned conjugate gradients from zero, in single precision.

    Each step is a five-point sum and two pairs of dense products. A solution need not be more exact than the
    discretisation: on fields of the benchmark six steps reach its error on 141 x 141 points.

    Args:
        coefficient: Permeability a [rows, columns], positive.
        steps: How many.
        source: Source f.
        wall: Distance from the outermost points to the boundary, in sides of the square.

    Returns:
        The pressure u [rows, columns].

    Example:
        >>> pressure = solve_early_stopped(np.full((5, 5), 2.0), steps=1, source=2.0)
        >>> round(float(pressure.max()), 4)
        0.0704
    """
    a = np.asarray(coefficient, dtype=np.float32)
    invert = constant_inverse(a.shape, wall)
    across, down = (each.astype(np.float32) for each in conductances(a, wall))

    residual = np.asarray(source * areas(a.shape, wall), dtype=np.float32)
    u, z = np.zeros_like(a), invert(residual)
    direction, product = z, np.vdot(residual, z)
    rounding = np.finfo(np.float32).eps ** 2 * product
    for _ in range(steps):
        if product <= rounding:  # nothing is left to correct, as of a constant after a step or two
            break
        image = outflow(across, down, direction)
        length = product / np.vdot(direction, image)
        u = u + length * direction
        residual = residual - length * image
        z = invert(residual)
        product, before = np.vdot(residual, z), product
        direction = z + (product / before) * direction
    return u


class Linearised:
    r"""The pressure of a permeability, and its derivatives by it, from one factorisation.

    For A(a) u = f the tangent along b is :math:`-A^{-1} A(b) u`, and the gradient of :math:`c^T u` is
    :math:`-p^T (\partial A / \partial a) u` with the adjoint :math:`A p = c`. A is symmetric, so its sparse LU factors
    serve the solution and any number of tangents and adjoints.

    Args:
        coefficient: Permeability a [rows, columns], positive.
        wall: Distance from the outermost points to the boundary, in sides of the square.

    Example:
        >>> flow = Linearised(np.full((5, 5), 2.0))
        >>> np.allclose(flow.push(np.full((1, 5, 5), 2.0)), -flow.solution)  # u is inversely proportional to a
        True
    """

    def __init__(self, coefficient: Field, wall: float = WALL) -> None:
        self._shape, self._wall = coefficient.shape, wall
        self._factors = factorised(coefficient, wall)

    @cached_property
    def solution(self) -> Field:
        """The pressure u [rows, columns] for the source 1."""
        [solved] = self._solve(areas(self._shape, self._wall)[None])
        return np.asarray(solved)

    def push(self, tangents: Field) -> Field:
        """Return the derivatives of u along directions of a, both [batch, rows, columns]."""
        # A is linear in a, without a constant part, so its derivative along b is A(b).
        return -self._solve(np.stack([outflow(*conductances(each, self._wall), self.solution) for each in tangents]))

    def pull(self, cotangents: Field) -> Field:
        """Return the gradients by a of the sums of c u, for cotangents c [batch, rows, columns] of the pressure."""
        adjoints = self._solve(cotangents)
        return -np.stack([sensitivity(adjoint, self.solution, self._wall) for adjoint in adjoints])

    def _solve(self, loads: Field) -> Field:
        flat = np.ascontiguousarray(loads.reshape(len(loads), -1).T)
        solved: Field = np.asarray(self._factors.solve(flat), dtype=np.float64)
        return solved.T.reshape(loads.shape)


def sensitivity(adjoint: Field, solution: Field, wall: float) -> Field:
    """Compute p^T (dA/da) u at every point's a, for the matrix A(a) of `matrix`.

    Args:
        adjoint: Adjoint pressure p [rows, columns].
        solution: Pressure u [rows, columns].
        wall: Distance from the outermost points to the boundary, in sides of the square.

    Returns:
        The derivatives [rows, columns].
    """
    rows, columns = solution.shape
    across = np.divide.outer(widths(rows, wall), distances(columns, wall))
    down = np.divide.outer(widths(columns, wall), distances(rows, wall))
    along_rows = _to_points(across * _jumps(adjoint) * _jumps(solution))
    return along_rows + _to_points(down * _jumps(adjoint.T) * _jumps(solution.T)).T


def _jumps(values: Real, axis: int = 1) -> Real:
    """Return the differences across the faces along an axis, the walls' included: one more than points."""
    return np.diff(np.pad(values, [(int(each == axis),) * 2 for each in (0, 1)]), axis=axis)


def _to_points(faces: Field) -> Field:
    """Distribute every face to its two points, the transpose of averaging; a wall's face has one: [rows, columns]."""
    halves = faces / 2
    points = halves[:, 1:] + halves[:, :-1]
    points[:, [0, -1]] += halves[:, [0, -1]]
    return np.asarray(points)
