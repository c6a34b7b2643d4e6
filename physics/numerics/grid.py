r"""Grids of the unit square: the positions of their points, means over blocks of them, and distances of fields.

The inverse problem's output is defined by means over blocks (Cao, NeurIPS 2021). The published pooling takes :math:`m`
blocks of :math:`k = \lceil n/m \rceil` points on an axis of :math:`n` points. The overhang :math:`k m - n` is shared
between both ends, the smaller part first, and counts for nothing. An output of m blocks is always taken from the common
grid of 4(m-1) + 1 points (141 for 36). A block is four points there, and a field on the mesh of 421 cells comes to it
by means of three cells, which every symmetry of the square preserves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

Real = TypeVar("Real", bound=np.floating[Any])

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


def widths(points: int, wall: float) -> NDArray[np.float64]:
    """Return the width of the interval that each point stands for, up to the midlines or the wall; they add up to 1.

    Raises:
        ValueError: The distance to the wall is not between 0 and half a side.

    Example:
        >>> widths(4, wall=0.125)
        array([0.25, 0.25, 0.25, 0.25])
    """
    if not 0 < wall < 0.5:
        raise ValueError(f"expected a distance to the wall between 0 and 0.5 sides but got {wall}")
    spacing = (1 - 2 * wall) / (points - 1)
    w = np.full(points, spacing)
    w[[0, -1]] = wall + spacing / 2
    return w


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
        field: Values [rows, columns]; each stands for its point's rectangle, as `widths` has them.
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
    """Compute the share [others, points] of each of the `points` intervals in each of `others` on the same axis."""
    if points == others:
        return np.eye(points)
    given, wanted = (np.concatenate([[0.0], np.cumsum(widths(n, wall))]) for n in (points, others))
    shared = np.minimum.outer(wanted[1:], given[1:]) - np.maximum.outer(wanted[:-1], given[:-1])
    return np.asarray(np.maximum(shared, 0) / np.diff(wanted)[:, None])


def relative_l2(found: ArrayLike, truth: ArrayLike) -> NDArray[np.float64]:
    r"""Compute the relative L2 distance of every sample.

    .. math::
        e_b = \frac{\lVert u_b - v_b \rVert_2}{\lVert v_b \rVert_2}

    Args:
        found: Fields u [batch, *grid].
        truth: Fields v [batch, *grid] in the same units.

    Returns:
        The distances [batch], without a unit.

    Raises:
        ValueError: The shapes differ.

    Example:
        >>> relative_l2([[3.0, 0.0], [1.0, 1.0]], [[3.0, 4.0], [1.0, 1.0]])
        array([0.8, 0. ])
    """
    u, v = (np.asarray(fields, dtype=np.float64) for fields in (found, truth))
    if u.shape != v.shape:
        raise ValueError(f"expected fields of one shape but got {u.shape} and {v.shape}")
    axes = tuple(range(1, u.ndim))
    return np.asarray(np.sqrt(np.square(u - v).sum(axes) / np.square(v).sum(axes)))
