"""Takes a number of points, gives their places: the benchmark's grid, the cell centres of 421 cells, strided."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

CELLS = 421
"""Cells along each axis of the mesh that the published Darcy fields live on."""

WALL = 0.5 / CELLS
"""Distance from the outermost points to the boundary of the unit square: half a fine cell, whatever the grid."""


def axis(points: int) -> NDArray[np.float64]:
    """Give the places of `points` grid points on one axis of the unit interval.

    They reach from the centre of the first fine cell to the centre of the last, x_i = (1/2 + 420 i/(n-1))/421, so that
    every 5th, 3rd or 2nd of the 421 cell centres is the grid of 85, 141 or 211 points.

    Raises:
        ValueError: fewer than two points.
    """
    if points < 2:
        raise ValueError(f"expected at least 2 points on an axis but got {points}")
    return (0.5 + (CELLS - 1) * np.arange(points) / (points - 1)) / CELLS
