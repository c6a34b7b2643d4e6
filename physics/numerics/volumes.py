r"""The finite volumes of -div(a grad u) with u = 0 on the walls, as a sparse matrix.

Each point owns the rectangle up to the midlines between it and its neighbours, the outermost ones up to the wall. The
outflow of a rectangle is

.. math::
    \sum_{\mathrm{faces}} a_{\mathrm{face}} (u_{\mathrm{point}} - u_{\mathrm{neighbour}})
        \frac{\mathrm{length}}{\mathrm{distance}},

where a_face is the arithmetic mean of both sides. At a wall, u_neighbour is 0 and a_face is the point's own a. Every
`wall` is the distance from the outermost points to the boundary, in sides of the square.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

if TYPE_CHECKING:
    from numpy.typing import NDArray


def widths(points: int, wall: float) -> NDArray[np.float64]:
    """Return the width of each point's rectangle [points]; the widths add up to 1.

    Example:
        >>> widths(4, wall=0.125)
        array([0.25, 0.25, 0.25, 0.25])
    """
    spacing = (1 - 2 * wall) / (points - 1)
    w = np.full(points, spacing)
    w[[0, -1]] = wall + spacing / 2
    return w


def distances(points: int, wall: float) -> NDArray[np.float64]:
    """Return the distance across each face [points + 1], from wall to wall; the distances add up to 1."""
    d = np.full(points + 1, (1 - 2 * wall) / (points - 1))
    d[[0, -1]] = wall
    return d


def areas(shape: tuple[int, ...], wall: float) -> NDArray[np.float64]:
    """Return the area of each point's rectangle [rows, columns]; the areas add up to 1."""
    rows, columns = shape
    return np.outer(widths(rows, wall), widths(columns, wall))


def matrix(coefficient: NDArray[np.float64], wall: float) -> sparse.csr_array:
    """Assemble the symmetric positive definite matrix that maps u, row by row, to the outflow of each rectangle."""
    return assembled(*conductances(coefficient, wall))


def assembled(across: NDArray[np.floating[Any]], down: NDArray[np.floating[Any]]) -> sparse.csr_array:
    """Assemble the matrix of conductances, as `conductances` returns them."""
    columns = down.shape[1]
    diagonal = across[:, 1:] + across[:, :-1] + down[1:] + down[:-1]
    right, below = -across[:, 1:], -down[1:-1].ravel()
    right[:, -1] = 0.0  # the last point of a row does not touch the first of the next
    beside = right.ravel()[:-1]
    diagonals = [below, beside, diagonal.ravel(), beside, below]
    offsets = (-columns, -1, 0, 1, columns)
    return sparse.csr_array(sparse.diags_array(diagonals, offsets=offsets, format="csr"))


def conductances(
    coefficient: NDArray[np.floating[Any]], wall: float
) -> tuple[NDArray[np.floating[Any]], NDArray[np.floating[Any]]]:
    """Compute the flux through every face per difference of u.

    Args:
        coefficient: Permeability a [rows, columns].
        wall: Distance from the outermost points to the boundary, in sides of the square.

    Returns:
        Those of the faces between columns [rows, columns + 1] and between rows [rows + 1, columns], walls included.
    """
    return weighted(_faces(coefficient), _faces(coefficient.T).T, wall)


def weighted(
    across: NDArray[np.floating[Any]], down: NDArray[np.floating[Any]], wall: float
) -> tuple[NDArray[np.floating[Any]], NDArray[np.floating[Any]]]:
    """Multiply the permeability of every face by its length over the distance of its neighbours.

    Args:
        across: Of the faces between columns [rows, columns + 1].
        down: Of the faces between rows [rows + 1, columns].
        wall: Distance from the outermost points to the boundary, in sides of the square.

    Returns:
        The conductances of both.
    """
    rows, columns = len(across), down.shape[1]
    return (
        across * np.divide.outer(widths(rows, wall), distances(columns, wall)),
        down * np.divide.outer(widths(columns, wall), distances(rows, wall)).T,
    )


def _faces(coefficient: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
    """Average neighbours along the rows: [rows, columns] -> [rows, columns + 1], the wall's faces included."""
    padded = np.pad(coefficient, ((0, 0), (1, 1)), mode="edge")
    return np.asarray((padded[:, 1:] + padded[:, :-1]) / 2)
