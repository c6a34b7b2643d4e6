r"""Averaged first and second differences of a measured field that vanishes on the walls.

A permeability shows in the second derivatives of its pressure: :math:`\Delta u = -1/a` inside a material, with a kink
where two materials meet. Differences amplify noise. An average over a stencil of width :math:`w` damps it, in a second
derivative like :math:`w^{-3}`. So slopes and curvatures are averaged over several widths:

.. math::
    \partial u_{i+1/2} = \frac{u_{i+1} - u_i}{y_{i+1} - y_i}, \qquad
    \partial^2 u_i = \frac{\partial u_{i+1/2} - \partial u_{i-1/2}}{y_{i+1/2} - y_{i-1/2}}, \qquad
    \langle f \rangle_k \propto \sum_j \max(0,\ 1 - |y_k - y_j| / w)\, f_j,

with u = 0 on the walls as the value beyond either end of an axis. Differences are taken before averages, so that equal
values cancel exactly.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from training.nn.shapes import Features, Plane

FEATURES = 4
"""Fields per width: the slopes along both axes and the curvatures along both axes."""


class Axis:
    """Finite differences along one axis of a grid, averaged at the points of a working grid between the same ends.

    Coordinates are in units of 1/((n-1)(m-1)) of the distance between the ends, in which the points of both grids have
    integer coordinates. So equal points compare equal in every precision.

    Args:
        index: The indices 0..n-1 of the field's points. Only their number matters.
        working: The indices 0..m-1 of the working grid's points.
        wall: The distance from either end to the wall, in units of the square's side.
        dtype: The dtype of all results.
    """

    def __init__(self, index: Tensor, working: Tensor, wall: float, dtype: torch.dtype) -> None:
        cells, self.cells = index[-1:].to(dtype), working[-1:].to(dtype)
        faces = torch.cat([index, index[-1:] + 1])
        at_wall = (faces == 0) | (faces == faces[-1:])
        spacing = (1 - 2 * wall) / cells
        self.distances = torch.where(at_wall, torch.full_like(spacing, wall), spacing)
        self.widths = (self.distances[1:] + self.distances[:-1]) / 2
        overhang = wall / (2 * spacing)  # from the outermost points halfway to the wall
        self.step = cells
        self.working = working.to(dtype) * cells
        self.points = index.to(dtype) * self.cells
        middles = torch.minimum(torch.maximum(faces.to(dtype) - 0.5, -overhang), cells + overhang)
        self.faces = middles * self.cells

    def average(self, locations: Tensor, width: float) -> Float[Tensor, "working _"]:
        """Return the weights of each working point over `locations`.

        `width` is in steps of the working grid. It is at least one step of the field's grid.
        """
        reach = torch.maximum(width * self.step, self.cells)
        weight = torch.relu(1 - (self.working[:, None] - locations[None, :]).abs() / reach)
        return weight / weight.sum(dim=1, keepdim=True)


def derivatives(
    u: Plane, axes: Sequence[Axis], widths: tuple[float, ...], dtype: torch.dtype | None = None
) -> Features:
    """Return the averaged slopes and curvatures of a field on the working grid.

    Args:
        u: The field, of shape `[batch, row, column]`.
        axes: Its rows and its columns.
        widths: The widths of the averages, in steps of the working grid.
        dtype: Of averages and results; that of the field by default. Differences amplify rounding, averages do not.

    Returns:
        `FEATURES` fields per width, of shape `[batch, feature, *working grid]`.

    Example:
        >>> axis = Axis(torch.arange(57), torch.arange(29), 0.5 / 421, torch.float32)
        >>> derivatives(torch.rand(2, 57, 57), (axis, axis), (1.0, 4.0)).shape
        torch.Size([2, 8, 29, 29])
    """
    rows, columns = axes
    down = torch.diff(with_walls(u, -2), dim=-2) / rows.distances[:, None]
    across = torch.diff(with_walls(u, -1), dim=-1) / columns.distances
    curvatures = torch.diff(down, dim=-2) / rows.widths[:, None], torch.diff(across, dim=-1) / columns.widths
    dtype = u.dtype if dtype is None else dtype
    down, across, curvatures = down.to(dtype), across.to(dtype), (curvatures[0].to(dtype), curvatures[1].to(dtype))
    features = []
    for width in widths:
        (over_rows, over_row_faces), (over_columns, over_column_faces) = (
            (axis.average(axis.points, width).to(dtype), axis.average(axis.faces, width).to(dtype)) for axis in axes
        )
        features += [
            over_row_faces @ down @ over_columns.T,
            over_rows @ across @ over_column_faces.T,
            *(over_rows @ curvature @ over_columns.T for curvature in curvatures),
        ]
    return torch.stack(features, dim=1)


def with_walls(u: Plane, axis: int) -> Features:
    """Add the zeros of both walls before and after an axis."""
    wall = torch.zeros_like(u.narrow(axis, 0, 1))
    return torch.cat([wall, u, wall], dim=axis)
