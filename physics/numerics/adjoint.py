r"""Derivatives of Darcy's discrete flow by the permeability, from one factorisation.

For A(a) u = f the tangent along b is :math:`-A^{-1} A(b) u`, and the gradient of :math:`c^T u` is
:math:`-p^T (\partial A / \partial a) u` with the adjoint :math:`A p = c`. A is symmetric, so its sparse LU factors
serve the solution and any number of tangents and adjoints.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse.linalg import splu

from physics.numerics import volumes
from physics.numerics.grid import WALL

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Linearised:
    """The pressure of a permeability, and its derivatives.

    Args:
        coefficient: Permeability a [rows, columns], positive.
        wall: Distance from the outermost points to the boundary, in sides of the square.

    Example:
        >>> flow = Linearised(np.full((5, 5), 2.0))
        >>> np.allclose(flow.push(np.full((1, 5, 5), 2.0)), -flow.solution)  # u is inversely proportional to a
        True
    """

    def __init__(self, coefficient: NDArray[np.float64], wall: float = WALL) -> None:
        self._shape, self._wall = coefficient.shape, wall
        self._factors = splu(
            volumes.matrix(coefficient, wall).tocsc(),
            permc_spec="MMD_AT_PLUS_A",
            diag_pivot_thresh=0.0,
            options={"SymmetricMode": True},
        )

    @cached_property
    def solution(self) -> NDArray[np.float64]:
        """The pressure u [rows, columns] for the source 1."""
        [solved] = self._solve(volumes.areas(self._shape, self._wall)[None])
        return np.asarray(solved)

    def push(self, tangents: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the derivatives of u along directions of a, both [batch, rows, columns]."""
        # A is linear in a, without a constant part, so its derivative along b is A(b).
        return -self._solve(np.stack([self._outflow(tangent) for tangent in tangents]))

    def pull(self, cotangents: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the gradients by a of the sums of c u, for cotangents c [batch, rows, columns] of the pressure."""
        adjoints = self._solve(cotangents)
        return -np.stack([sensitivity(adjoint, self.solution, self._wall) for adjoint in adjoints])

    def _outflow(self, tangent: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return A(b) u [rows, columns]; the fluxes through the faces are cheaper than the matrix."""
        across, down = volumes.conductances(tangent, self._wall)
        u = np.pad(self.solution, 1)
        along_rows = np.diff(across * np.diff(u[1:-1], axis=1), axis=1)
        along_columns = np.diff(down * np.diff(u[:, 1:-1], axis=0), axis=0)
        return np.asarray(-along_rows - along_columns)

    def _solve(self, loads: NDArray[np.float64]) -> NDArray[np.float64]:
        flat = np.ascontiguousarray(loads.reshape(len(loads), -1).T)
        solved: NDArray[np.float64] = np.asarray(self._factors.solve(flat), dtype=np.float64)
        return solved.T.reshape(loads.shape)


def sensitivity(adjoint: NDArray[np.float64], solution: NDArray[np.float64], wall: float) -> NDArray[np.float64]:
    """Compute p^T (dA/da) u at every point's a, for the matrix A(a) of `volumes.matrix`.

    Args:
        adjoint: Adjoint pressure p [rows, columns].
        solution: Pressure u [rows, columns].
        wall: Distance from the outermost points to the boundary, in sides of the square.

    Returns:
        The derivatives [rows, columns].
    """
    rows, columns = solution.shape
    across = np.divide.outer(volumes.widths(rows, wall), volumes.distances(columns, wall))
    down = np.divide.outer(volumes.widths(columns, wall), volumes.distances(rows, wall))
    along_rows = _to_points(across * _jumps(adjoint) * _jumps(solution))
    return along_rows + _to_points(down * _jumps(adjoint.T) * _jumps(solution.T)).T


def _jumps(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the differences across the faces along the rows, the walls' included: [rows, columns + 1]."""
    return np.diff(np.pad(values, ((0, 0), (1, 1))), axis=1)


def _to_points(faces: NDArray[np.float64]) -> NDArray[np.float64]:
    """Distribute every face to its two points, the transpose of averaging; a wall's face has one: [rows, columns]."""
    halves = faces / 2
    points = halves[:, 1:] + halves[:, :-1]
    points[:, [0, -1]] += halves[:, [0, -1]]
    return np.asarray(points)
