r"""Slopes and curvatures of a measured field: takes a plane that vanishes on the walls, gives both on another grid.

What a permeability does to a pressure shows in its second derivatives: :math:`\Delta u = -1/a` inside a material, and a
kink where two meet. Differencing amplifies noise, averaging over a stencil of width :math:`w` damps it (in a second
derivative like :math:`w^{-3}`), so both are given averaged over several widths:

.. math::
    \partial u_{i+1/2} = \frac{u_{i+1} - u_i}{y_{i+1} - y_i}, \qquad
    \partial^2 u_i = \frac{\partial u_{i+1/2} - \partial u_{i-1/2}}{y_{i+1/2} - y_{i-1/2}}, \qquad
    \langle f \rangle_k \propto \sum_j \max(0,\ 1 - |y_k - y_j| / w)\, f_j,

with u = 0 on the walls as the value beyond either end of an axis. Differences are taken first and averaged then: what
cancels, cancels exactly.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from training.nn.shapes import Carried, Plane

FEATURES = 4
"""Fields for each width: slopes along rows and columns' axis, and curvatures likewise."""


class Axis:
    """One axis of a grid and its finite differences, seen from a grid of `working` points between the same ends.

    Places are in units of 1/((n-1)(m-1)) of the way between the ends: those of both grids are whole numbers, so that
    equal places are equal in every arithmetic.

    Args:
        index: 0..n-1, of which only the length matters.
        working: 0..m-1 likewise.
        wall: distance from either end to the wall.
        dtype: of all results.
    """

    def __init__(self, index: Tensor, working: Tensor, wall: float, dtype: torch.dtype) -> None:
        cells, self.cells = index[-1:].to(dtype), working[-1:].to(dtype)
        faces = torch.cat([index, index[-1:] + 1])
        at_wall = (faces == 0) | (faces == faces[-1:])
        spacing = (1 - 2 * wall) / cells
        self.distances = torch.where(at_wall, torch.full_like(spacing, wall), spacing)
        self.widths = (self.distances[1:] + self.distances[:-1]) / 2
        overhang = wall / (2 * spacing)  # from the outermost points to the middle of the way to the wall
        self.step = cells
        self.working = working.to(dtype) * cells
        self.points = index.to(dtype) * self.cells
        middles = torch.minimum(torch.maximum(faces.to(dtype) - 0.5, -overhang), cells + overhang)
        self.faces = middles * self.cells

    def average(self, places: Tensor, width: float) -> Float[Tensor, "working _"]:
        """Give each working point's weights over `places`; `width` is in steps of the working grid.

        It is widened to a step of the question's grid, if that is coarser.
        """
        reach = torch.maximum(width * self.step, self.cells)
        weight = torch.relu(1 - (self.working[:, None] - places[None, :]).abs() / reach)
        return weight / weight.sum(dim=1, keepdim=True)


def derivatives(u: Plane, axes: Sequence[Axis], widths: tuple[float, ...]) -> Carried:
    """Give the averaged slopes and curvatures of `u`, `FEATURES` for each width, on the working grid.

    Args:
        u: the field.
        axes: its rows and its columns.
        widths: of the averages, in steps of the working grid.

    Returns:
        `[batch, feature, *working grid]`.
    """
    rows, columns = axes
    down = torch.diff(walled(u, -2), dim=-2) / rows.distances[:, None]
    across = torch.diff(walled(u, -1), dim=-1) / columns.distances
    bends = torch.diff(down, dim=-2) / rows.widths[:, None], torch.diff(across, dim=-1) / columns.widths
    features = []
    for width in widths:
        over_rows, over_columns = rows.average(rows.points, width), columns.average(columns.points, width).T
        features += [
            rows.average(rows.faces, width) @ down @ over_columns,
            over_rows @ across @ columns.average(columns.faces, width).T,
            *(over_rows @ bend @ over_columns for bend in bends),
        ]
    return torch.stack(features, dim=1)


def walled(u: Plane, axis: int) -> Carried:
    """Put the walls' zeros before and after an axis."""
    wall = torch.zeros_like(u.narrow(axis, 0, 1))
    return torch.cat([wall, u, wall], dim=axis)
