"""Takes a field on the benchmark's grid, gives its means over blocks: what the inverse problem's answer is made of.

An answer of m blocks on an axis is taken from the grid of 4(m-1) + 1 points, 141 for 36, whatever grid the field is
given on: a block is four points there, one or two fewer at the walls (Cao, NeurIPS 2021).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from physics import volumes

if TYPE_CHECKING:
    from numpy.typing import NDArray

BLOCK = 4
"""Points of the common grid along one side of a block."""


def block_mean(field: NDArray[np.float64], sides: tuple[int, int], wall: float) -> NDArray[np.float64]:
    """Average a field [rows, columns] over `sides` blocks, the points' rectangles being as `physics.volumes` has them.

    Raises:
        ValueError: fewer than two blocks on an axis.
    """
    if min(sides) < 2:
        raise ValueError(f"expected at least 2 blocks on each axis but got {sides}")
    down, across = (_means(points, side, wall) for points, side in zip(field.shape, sides, strict=True))
    return np.asarray(down @ field @ across.T)


def _means(points: int, side: int, wall: float) -> NDArray[np.float64]:
    """Give the matrix [side, points] of the blocks' means on one axis."""
    common = BLOCK * (side - 1) + 1
    member = (np.arange(common) + 1) // BLOCK == np.arange(side)[:, None]
    return np.asarray(member / member.sum(axis=1, keepdims=True) @ overlaps(points, common, wall))


def overlaps(points: int, others: int, wall: float) -> NDArray[np.float64]:
    """Give the share [others, points] that each of `points` intervals has in each of the `others` on the same axis."""
    if points == others:
        return np.eye(points)
    given, wanted = (np.concatenate([[0.0], np.cumsum(volumes.widths(n, wall))]) for n in (points, others))
    shared = np.minimum.outer(wanted[1:], given[1:]) - np.maximum.outer(wanted[:-1], given[:-1])
    return np.asarray(np.maximum(shared, 0) / np.diff(wanted)[:, None])
