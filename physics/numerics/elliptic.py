"""Two sparse solvers for the finite volumes of -div(a grad u), and the choice between them.

A coefficient that varies little is solved by conjugate gradients, preconditioned by the same equation with a = 1. The
preconditioner is exact, by fast diagonalisation (Lynch, Rice & Thomas 1964): its matrix is K x W + W x K of the
one-dimensional stiffness K and widths W, so the eigenvectors of the pencil (K, W) on both axes turn it into a division.
The iterations grow with the square root of max a / min a and not with the grid: 24 of them reduce the residual of the
benchmark's 3 / 12 to 1e-10. A coefficient that varies much is solved by a sparse LU factorisation, whose cost does not
depend on the ratio.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import eigh_tridiagonal
from scipy.sparse.linalg import LinearOperator, cg, splu

from physics.numerics import volumes

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

# Fields of 3 and 12 on one thread: 0.28 s iterating, 1.5 s factorising, 0.75 s by algebraic multigrid at 421 points;
# 20, 100 and 110 ms at 141; 8, 30 and 63 ms at 85. With a ratio of 30: 0.6 s iterating at 421, 18 ms at 85.
LARGEST_RATIO = 30.0
TOLERANCE = 1e-10
ROUNDING = 1e-4
"""More than the eigenvectors' single precision changes, relatively, in a quadratic form."""


def solve_elliptic(coefficient: NDArray[np.float64], load: NDArray[np.float64], wall: float) -> NDArray[np.float64]:
    """Solve for the u whose outflow from every point's rectangle equals the load.

    Args:
        coefficient: Permeability a [rows, columns], positive.
        load: Source times area [rows, columns].
        wall: Distance from the outermost points to the boundary, in sides of the square.

    Returns:
        The solution u [rows, columns], in units of source over permeability.
    """
    iterate = coefficient.max() <= LARGEST_RATIO * coefficient.min()
    return (_iterate if iterate else _factorise)(coefficient, load, wall)


def _factorise(coefficient: NDArray[np.float64], load: NDArray[np.float64], wall: float) -> NDArray[np.float64]:
    # Minimum degree on the symmetric pattern fills in a third less than the default ordering; a symmetric positive
    # definite matrix needs no pivoting.
    factors = splu(
        volumes.matrix(coefficient, wall).tocsc(),
        permc_spec="MMD_AT_PLUS_A",
        diag_pivot_thresh=0.0,
        options={"SymmetricMode": True},
    )
    return np.asarray(factors.solve(load.ravel())).reshape(load.shape)


def _iterate(coefficient: NDArray[np.float64], load: NDArray[np.float64], wall: float) -> NDArray[np.float64]:
    scale = 1 / np.sqrt(coefficient.min() * coefficient.max())
    invert = constant_inverse(load.shape, wall, float(scale))

    def precondition(residual: NDArray[np.float64]) -> NDArray[np.float64]:
        # A preconditioner may be rough: single precision halves the time and costs no iteration.
        return invert(residual.reshape(load.shape).astype(np.float32)).astype(np.float64).ravel()

    preconditioner = LinearOperator((load.size, load.size), matvec=precondition, dtype=np.float64)
    u, failure = cg(volumes.matrix(coefficient, wall), load.ravel(), rtol=TOLERANCE, maxiter=500, M=preconditioner)
    return np.asarray(u).reshape(load.shape) if failure == 0 else _factorise(coefficient, load, wall)


def constant_inverse(
    shape: tuple[int, ...], wall: float, scale: float = 1.0
) -> Callable[[NDArray[np.float32]], NDArray[np.float32]]:
    """Return the inverse of the equation with a = 1/scale, by fast diagonalisation in single precision.

    Args:
        shape: Rows and columns.
        wall: Distance from the outermost points to the boundary, in sides of the square.
        scale: The inverse of the coefficient.
    """
    (down, Y), (across, X) = (modes(points, wall) for points in shape)
    divisor = (scale / np.add.outer(down, across)).astype(np.float32)

    def invert(load: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.asarray(Y @ (divisor * (Y.T @ load @ X)) @ X.T)

    return invert


def inverse_energy(load: NDArray[np.float64], wall: float) -> float:
    """Compute an upper bound on r^T L^-1 r for the equation with a = 1.

    Args:
        load: The load r [rows, columns].
        wall: Distance from the outermost points to the boundary, in sides of the square.
    """
    (down, Y), (across, X) = (modes(points, wall) for points in load.shape)
    transformed = Y.T @ load @ X
    return float((transformed**2 / np.add.outer(down, across)).sum()) * (1 + ROUNDING)


@lru_cache(maxsize=16)
def modes(points: int, wall: float) -> tuple[NDArray[np.float64], NDArray[np.float32]]:
    """Solve K v = lambda W v for the three-point stiffness K and the widths W, so that V^T W V = 1."""
    stiffness, root = 1 / volumes.distances(points, wall), np.sqrt(volumes.widths(points, wall))
    diagonal = (stiffness[1:] + stiffness[:-1]) / root**2
    eigenvalues, vectors = eigh_tridiagonal(diagonal, -stiffness[1:-1] / (root[1:] * root[:-1]))
    return np.asarray(eigenvalues), np.asarray(vectors / root[:, None], dtype=np.float32)
