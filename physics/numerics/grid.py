"""The positions of grid points on one axis, as parts of its length."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

CELLS = 421
"""Cells along each axis of the mesh that the published Darcy fields live on."""

WALL = 0.5 / CELLS
"""Distance from the outermost points to the boundary of the unit square: half a fine cell, on every grid."""


def axis(points: int) -> NDArray[np.float64]:
    """Return the positions of the benchmark's grid, x_i = (1/2 + 420 i/(n-1))/421.

    They reach from the centre of the first fine cell to the centre of the last, so that every 5th, 3rd or 2nd of the
    421 cell centres is the grid of 85, 141 or 211 points.

    Raises:
        ValueError: fewer than two points.

    Example:
        >>> 421 * axis(3)
        array([  0.5, 210.5, 420.5])
    """
    return (0.5 + (CELLS - 1) * nodes(points)) / CELLS


def nodes(points: int) -> NDArray[np.float64]:
    """Return the positions x_i = i/(n-1) of points that include both ends.

    Raises:
        ValueError: fewer than two points.

    Example:
        >>> nodes(5)
        array([0.  , 0.25, 0.5 , 0.75, 1.  ])
    """
    if points < 2:
        raise ValueError(f"expected at least 2 points on an axis but got {points}")
    return np.arange(points) / (points - 1)
