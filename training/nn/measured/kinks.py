r"""What a measured pressure shows below the spacing of its grid: kinks, and materials between them.

For the finite volumes of :math:`-\nabla\cdot(a\nabla u) = 1` and two materials :math:`a_\pm`, at every point of the
field's own grid:

.. math::
    s_\pm = \exp\Bigl[-\Bigl(\frac{-\Delta_h u - 1/a_\pm}{w_\pm}\Bigr)^2\Bigr], \qquad
    k_d = \frac{h_d\, \partial_d^2 u}{\sqrt{|\nabla u|^2 + \epsilon^2}}.

:math:`s_\pm` is near 1 inside a material. The kink :math:`k_d` has no units: it is the change of the slope from one
side of a point to the other, relative to the slope.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from training.nn.measured.curvature import Axis, with_walls
from training.nn.shapes import Features, Plane

KINKS = 4
"""Fields: nearness to both materials, kinks along both axes."""

WIDTH = 0.5
"""Half width of the nearness to a material, relative to its inverse permeability."""

FLAT = 0.05
"""Slopes below this, in units of 1/a, are no direction of flow."""


def kinks(u: Plane, axes: Sequence[Axis], low: Tensor, high: Tensor, dtype: torch.dtype | None = None) -> Features:
    """Return the features of the module, averaged on the working grid.

    Args:
        u: The pressure, of shape `[batch, row, column]`.
        axes: Its rows and its columns.
        low: The permeability of one material.
        high: That of the other.
        dtype: Of averages and results; that of the pressure by default. Differences amplify rounding.

    Returns:
        `KINKS` fields, of shape `[batch, feature, *working grid]`.
    """
    rows, columns = axes
    down = torch.diff(with_walls(u, -2), dim=-2) / rows.distances[:, None]
    across = torch.diff(with_walls(u, -1), dim=-1) / columns.distances
    bends = torch.diff(down, dim=-2), torch.diff(across, dim=-1)
    load = -(bends[0] / rows.widths[:, None] + bends[1] / columns.widths)
    dtype = u.dtype if dtype is None else dtype
    near = [torch.exp(-((load * each - 1) / WIDTH).to(dtype).square()) for each in (low, high)]
    y, x = (down[:, 1:] + down[:, :-1]) / 2, (across[:, :, 1:] + across[:, :, :-1]) / 2
    slope = torch.sqrt(y.square() + x.square() + (FLAT / (low * high).sqrt()).square())
    over_rows, over_columns = (axis.average(axis.points, 1.0).to(dtype) for axis in (rows, columns))
    features = [*near, *((bend / slope).to(dtype) for bend in bends)]
    return over_rows @ torch.stack(features, dim=1) @ over_columns.T
