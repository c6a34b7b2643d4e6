r"""Takes fields on a fine grid, gives their means over blocks of points: what an answer on a coarser grid is made of.

The published pooling (Cao, NeurIPS 2021, inverse problem): blocks of :math:`k = \lceil n/m \rceil` points an axis for
`m` answers, laid over the `n` points with the overhang shared between both ends, the smaller part first; what hangs
over counts for nothing.

An answer of `m` blocks is always taken from the grid of 4(m-1) + 1 points (141 for 36), whatever the grid of the
question. There a block is 4 points, and a field of the 421-cell mesh comes to it by means of three cells that every
symmetry of the square respects.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Real = TypeVar("Real", bound=np.floating[Any])

BLOCK = 4
"""Points of the common grid along one side of an answer's block."""


def common_grid(answer: tuple[int, ...]) -> tuple[int, ...]:
    """Give the points per axis of the grid that an answer's blocks are taken from."""
    return tuple(BLOCK * (side - 1) + 1 for side in answer)


def block_mean(fields: NDArray[Real], sides: tuple[int, ...]) -> NDArray[Real]:
    """Average the last axes of `fields` over blocks, to `sides` points: [..., *grid] -> [..., *sides].

    Raises:
        ValueError: an axis has too few points, or blocks so wide that one would hold no point.
    """
    means: NDArray[Any] = fields
    for axis, side in enumerate(sides, start=fields.ndim - len(sides)):
        edges = block_edges(means.shape[axis], side)
        sizes = np.diff(edges).astype(fields.dtype)
        last = (1,) * (means.ndim - axis - 1)
        means = np.add.reduceat(means, edges[:-1], axis=axis) / sizes.reshape(-1, *last)
    return means


def block_edges(points: int, side: int) -> NDArray[np.int64]:
    """Give the first point of each block on an axis, and the end of the last: [side + 1].

    Raises:
        ValueError: see `block_mean`.
    """
    kernel = -(-points // side)
    start = (kernel * side - points) // 2
    edges = np.clip(kernel * np.arange(side + 1) - start, 0, points)
    if (np.diff(edges) == 0).any():
        raise ValueError(f"cannot average {points} points over {side} blocks of {kernel}: some would hold none")
    return edges
