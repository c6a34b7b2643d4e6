r"""Means over blocks of grid points, as the inverse problem's output is defined by (Cao, NeurIPS 2021).

The published pooling takes :math:`m` blocks of :math:`k = \lceil n/m \rceil` points on an axis of :math:`n` points. The
overhang :math:`k m - n` is shared between both ends, the smaller part first, and counts for nothing.

An output of m blocks is always taken from the common grid of 4(m-1) + 1 points (141 for 36). A block is four points
there, and a field on the mesh of 421 cells comes to it by means of three cells, which every symmetry of the square
preserves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from physics.numerics import volumes

if TYPE_CHECKING:
    from numpy.typing import NDArray

Real = TypeVar("Real", bound=np.floating[Any])

BLOCK = 4
"""Points of the common grid along one side of a block."""


def common_grid(sides: tuple[int, ...]) -> tuple[int, ...]:
    """Return the points per axis of the grid that an output of `sides` blocks is taken from.

    Example:
        >>> common_grid((36, 36))
        (141, 141)
    """
    return tuple(BLOCK * (side - 1) + 1 for side in sides)


def block_mean(fields: NDArray[Real], sides: tuple[int, ...]) -> NDArray[Real]:
    """Average the last axes of `fields` over blocks of their points.

    Args:
        fields: Values [..., *grid].
        sides: Blocks on each of the last axes.

    Returns:
        The means [..., *sides], in the units and the precision of `fields`.

    Raises:
        ValueError: An axis has too few points, or blocks so wide that one would hold no point.

    Example:
        >>> block_mean(np.array([1.0, 3.0, 5.0, 7.0]), (2,))
        array([2., 6.])
    """
    means: NDArray[Any] = fields
    for axis, side in enumerate(sides, start=fields.ndim - len(sides)):
        edges = block_edges(means.shape[axis], side)
        sizes = np.diff(edges).astype(fields.dtype)
        last = (1,) * (means.ndim - axis - 1)
        means = np.add.reduceat(means, edges[:-1], axis=axis) / sizes.reshape(-1, *last)
    return means


def block_edges(points: int, side: int) -> NDArray[np.int64]:
    """Return the first point of each of `side` blocks on an axis, and the end of the last: [side + 1].

    Raises:
        ValueError: A block would hold no point.

    Example:
        >>> block_edges(141, 36)[[0, 1, 2, -1]]
        array([  0,   3,   7, 141])
    """
    width = -(-points // side)
    overhang = (width * side - points) // 2
    edges = np.clip(width * np.arange(side + 1) - overhang, 0, points)
    if (np.diff(edges) == 0).any():
        raise ValueError(f"cannot average {points} points over {side} blocks of {width}: some would hold none")
    return edges


def coarsen(field: NDArray[np.float64], sides: tuple[int, int], wall: float) -> NDArray[np.float64]:
    """Average a field on any grid over blocks of the common grid.

    Args:
        field: Values [rows, columns]; each stands for its point's rectangle, as `physics.numerics.volumes` has them.
        sides: Blocks on each axis.
        wall: Distance from the outermost points to the boundary, in sides of the square.

    Returns:
        The means [*sides], in the units of `field`.

    Raises:
        ValueError: Fewer than two blocks on an axis.
    """
    if min(sides) < 2:
        raise ValueError(f"expected at least 2 blocks on each axis but got {sides}")
    down, across = (
        overlaps(points, common, wall) for points, common in zip(field.shape, common_grid(sides), strict=True)
    )
    return block_mean(np.asarray(down @ field @ across.T), sides)


def overlaps(points: int, others: int, wall: float) -> NDArray[np.float64]:
    """Compute how the intervals of one grid cover those of another on the same axis.

    Args:
        points: Points of the grid that is averaged.
        others: Points of the grid that the averages belong to.
        wall: Distance from the outermost points of both grids to the boundary.

    Returns:
        The share [others, points] that each of the `points` intervals has in each of the `others`. Rows add up to 1.
    """
    if points == others:
        return np.eye(points)
    given, wanted = (np.concatenate([[0.0], np.cumsum(volumes.widths(n, wall))]) for n in (points, others))
    shared = np.minimum.outer(wanted[1:], given[1:]) - np.maximum.outer(wanted[:-1], given[:-1])
    return np.asarray(np.maximum(shared, 0) / np.diff(wanted)[:, None])
