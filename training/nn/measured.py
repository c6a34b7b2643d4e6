r"""What a measured pressure shows: averaged differences, kinks below the spacing of its grid, and its scale.

A permeability shows in the second derivatives of its pressure: :math:`\Delta u = -1/a` inside a material, with a kink
where two materials meet. Differences amplify noise. An average over a stencil of width :math:`w` damps it, in a second
derivative like :math:`w^{-3}`. So slopes and curvatures are averaged over several widths:

.. math::
    \partial u_{i+1/2} = \frac{u_{i+1} - u_i}{y_{i+1} - y_i}, \qquad
    \partial^2 u_i = \frac{\partial u_{i+1/2} - \partial u_{i-1/2}}{y_{i+1/2} - y_{i-1/2}}, \qquad
    \langle f \rangle_k \propto \sum_j \max(0,\ 1 - |y_k - y_j| / w)\, f_j,

with u = 0 on the walls as the value beyond either end of an axis. Differences are taken before averages, so that equal
values cancel exactly. They amplify rounding, averages do not: these may be in a dtype of fewer digits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from physics.numerics.grid import WALL
from training.nn.grids import Features, Plane, indices, unit_axis
from training.nn.pointwise import Normaliser

FEATURES = 4
"""Fields per width: the slopes along both axes and the curvatures along both axes."""
HIDDEN = 48  # features of the network that tells the scale of a pressure


class AxisDifferences:
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


def slopes(u: Plane, axes: Sequence[AxisDifferences]) -> tuple[Tensor, Tensor]:
    """Return the slopes at the faces between neighbours of a column and of a row, those at the walls included."""
    rows, columns = axes
    down = torch.diff(with_walls(u, -2), dim=-2) / rows.distances[:, None]
    return down, torch.diff(with_walls(u, -1), dim=-1) / columns.distances


def with_walls(u: Plane, axis: int) -> Features:
    """Add the zeros of both walls before and after an axis."""
    wall = torch.zeros_like(u.narrow(axis, 0, 1))
    return torch.cat([wall, u, wall], dim=axis)


def derivatives(
    u: Plane, axes: Sequence[AxisDifferences], widths: tuple[float, ...], dtype: torch.dtype | None = None
) -> Features:
    """Return the averaged slopes and curvatures of a field on the working grid.

    Args:
        u: The field, of shape `[batch, row, column]`.
        axes: Its rows and its columns.
        widths: The widths of the averages, in steps of the working grid.
        dtype: Of averages and results; that of the field by default.

    Returns:
        `FEATURES` fields per width, of shape `[batch, feature, *working grid]`.

    Example:
        >>> axis = AxisDifferences(torch.arange(57), torch.arange(29), 0.5 / 421, torch.float32)
        >>> derivatives(torch.rand(2, 57, 57), (axis, axis), (1.0, 4.0)).shape
        torch.Size([2, 8, 29, 29])
    """
    rows, columns = axes
    down, across = slopes(u, axes)
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


KINKS = 4
"""Fields: nearness to both materials, kinks along both axes."""

WIDTH = 0.5
"""Half width of the nearness to a material, relative to its inverse permeability."""

FLAT = 0.05
"""Slopes below this, in units of 1/a, are no direction of flow."""


def kinks(
    u: Plane, axes: Sequence[AxisDifferences], low: Tensor, high: Tensor, dtype: torch.dtype | None = None
) -> Features:
    r"""Return what a pressure shows below the spacing of its grid: kinks, and the materials between them.

    For the finite volumes of :math:`-\nabla\cdot(a\nabla u) = 1` and two materials :math:`a_\pm`, at every point of the
    field's own grid:

    .. math::
        s_\pm = \exp\Bigl[-\Bigl(\frac{-\Delta_h u - 1/a_\pm}{w_\pm}\Bigr)^2\Bigr], \qquad
        k_d = \frac{h_d\, \partial_d^2 u}{\sqrt{|\nabla u|^2 + \epsilon^2}}.

    :math:`s_\pm` is near 1 inside a material. The kink :math:`k_d` has no units: it is the change of the slope from one
    side of a point to the other, relative to the slope.

    Args:
        u: The pressure, of shape `[batch, row, column]`.
        axes: Its rows and its columns.
        low: The permeability of one material.
        high: That of the other.
        dtype: Of averages and results; that of the pressure by default.

    Returns:
        `KINKS` fields, averaged on the working grid, of shape `[batch, feature, *working grid]`.
    """
    rows, columns = axes
    down, across = slopes(u, axes)
    bends = torch.diff(down, dim=-2), torch.diff(across, dim=-1)
    load = -(bends[0] / rows.widths[:, None] + bends[1] / columns.widths)
    dtype = u.dtype if dtype is None else dtype
    near = [torch.exp(-((load * each - 1) / WIDTH).to(dtype).square()) for each in (low, high)]
    y, x = (down[:, 1:] + down[:, :-1]) / 2, (across[:, :, 1:] + across[:, :, :-1]) / 2
    slope = torch.sqrt(y.square() + x.square() + (FLAT / (low * high).sqrt()).square())
    over_rows, over_columns = (axis.average(axis.points, 1.0).to(dtype) for axis in (rows, columns))
    features = [*near, *((bend / slope).to(dtype) for bend in bends)]
    return over_rows @ torch.stack(features, dim=1) @ over_columns.T


MODES = 4
"""Sine waves along each axis."""

WIDTHS = (1.0, 2.0, 4.0)
"""Widths of the averaged curvatures, in steps of their grid."""

THRESHOLDS = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0)
"""Sizes of the averaged curvatures, on a scale of inverse hyperbolic sines."""

LEVELS = (0.0, 0.01, 0.1)
"""Noise of the fields that the estimate is fitted to, in units of their deviation."""

STEPS, BATCH, RATE, DECAY = 1500, 256, 5e-3, 1e-2
"""Of the fit by AdamW."""

SMALLEST = 1e-36
"""The mean square of a pressure of 0, which has a derivative."""


class PressureScale(nn.Module):
    r"""Estimate the scale of a measured pressure from its shape.

    The pressure of permeabilities c a is u/c. A scale is homogeneous: that of c u is c times that of u. The root mean
    square of u is one, and varies little between the fields of one distribution. What it varies with shows in the shape
    of u: in its first sine waves, and in how often the averaged curvatures are of which size,

    .. math::
        s(u) = \frac{|u|}{|u_0|}\, e^{g(x)}, \qquad
        x = \Bigl(\frac{\langle \sin_j \sin_k, u\rangle}{|u|},\
        \bigl\langle \tanh 2\bigl(\mathrm{asinh}(-\Delta_w u / 2|u|) - t_i\bigr) \bigr\rangle\Bigr),

    with a small network g that is fitted such that s = 1 for the training fields, at several levels of noise.

    Args:
        side: Side of the grid of the averaged curvatures.
        hidden: Hidden features of the network.

    Example:
        >>> scale, u = PressureScale(8), torch.rand(2, 40, 30)
        >>> torch.allclose(scale(u / 4), scale(u) / 4)
        True
    """

    reference: Tensor
    thresholds: Tensor

    def __init__(self, side: int) -> None:
        super().__init__()
        self.side = side
        self.register_buffer("reference", torch.ones(()))
        self.register_buffer("thresholds", torch.tensor(THRESHOLDS), persistent=False)
        shape = MODES**2 + len(WIDTHS) * len(THRESHOLDS)
        self.normaliser = Normaliser((shape,))
        self.network = nn.Sequential(nn.Linear(shape, HIDDEN), nn.SiLU(), nn.Linear(HIDDEN, 1))
        self.network.requires_grad_(requires_grad=False)  # `fit` does what training would

    def forward(self, solution: Plane) -> Float[Tensor, "batch 1 1"]:
        shape = self.normaliser(self.shape(solution)).clamp(-4, 4)
        return size(solution) / self.reference * torch.exp(self.network(shape))[:, :, None]

    def shape(self, solution: Plane) -> Float[Tensor, "batch _"]:
        """Return numbers that do not depend on the scale."""
        relative, working = solution / size(solution), torch.arange(self.side, device=solution.device)
        axes = [
            AxisDifferences(index, working, WALL, solution.dtype)
            for index in indices(solution.shape[1:], solution.device)
        ]
        rows, columns = (self.waves(index, solution.dtype) for index in indices(solution.shape[1:], solution.device))
        found = [(rows @ relative @ columns.T).flatten(1).to(self.reference.dtype)]
        dtype = self.reference.dtype
        features = derivatives(relative, axes, WIDTHS, dtype).unflatten(1, (len(WIDTHS), FEATURES))
        sizes = torch.asinh(-(features[:, :, -2] + features[:, :, -1]) / 2).flatten(2)
        found += [torch.tanh(2 * (sizes - each)).mean(dim=2) for each in self.thresholds.to(sizes.dtype).unbind()]
        return torch.cat(found, dim=1)

    def waves(self, index: Tensor, dtype: torch.dtype) -> Float[Tensor, "wave point"]:
        """Return the first sine waves at the points of an axis, over the number of points."""
        number = 1 + torch.arange(MODES, device=index.device)
        position = WALL + (1 - 2 * WALL) * unit_axis(index, dtype)
        return torch.sin(math.pi * number.to(dtype)[:, None] * position) / (index[-1:] + 1).to(dtype)

    @torch.no_grad()
    def fit(self, solutions: Plane) -> None:
        """Fit the estimate to training fields, whose scale is 1."""
        generator, deviation = torch.Generator().manual_seed(0), solutions.std(dim=0)
        shapes, sizes = [], []
        for level in LEVELS:
            for part in solutions.split(16):
                noise = torch.randn(part.shape, generator=generator, dtype=part.dtype)
                measured = part + level * deviation * noise
                shapes.append(self.shape(measured))
                sizes.append(size(measured)[:, 0, 0].log())
        self.normaliser.fit(torch.cat(shapes))
        logarithm = torch.cat(sizes)
        self.reference.copy_(logarithm.mean().exp())
        self.train_network(self.normaliser(torch.cat(shapes)).clamp(-4, 4), logarithm - logarithm.mean(), generator)

    @torch.enable_grad()
    def train_network(self, shapes: Tensor, logarithms: Tensor, generator: torch.Generator) -> None:
        """Fit the network's output for standardised shapes to minus the logarithms of the relative sizes."""
        network = self.network.requires_grad_()
        optimiser = torch.optim.AdamW(network.parameters(), RATE, weight_decay=DECAY)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, total_steps=STEPS)
        for _ in range(STEPS):
            chosen = torch.randint(0, len(shapes), (BATCH,), generator=generator)
            loss = (network(shapes[chosen])[:, 0] + logarithms[chosen]).square().mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
        network.requires_grad_(requires_grad=False)


def size(solution: Plane) -> Float[Tensor, "batch 1 1"]:
    """Return the root mean square of each pressure, and a small number where it is 0."""
    return solution.square().mean(dim=(1, 2), keepdim=True).clamp(min=SMALLEST).sqrt()


class Detail(nn.Module):
    """Convolutions on the working grid, before and after the encoder.

    Those that lead to other layers start small, so they change little about a network that was trained without them.
    """

    def __init__(self, inputs: int, config: Any) -> None:
        super().__init__()
        width, block = config.detail, config.block
        self.first, self.second, self.third = (
            nn.Conv2d(channels, width, 3, padding=1) for channels in (inputs, width, width)
        )
        self.pool = nn.Conv2d(width, config.channels, block, stride=block)
        self.unpool = nn.ConvTranspose2d(config.channels, width, block, stride=block)
        self.last = nn.Conv2d(width, 1, 3, padding=1)
        self.block, self.working = block, config.working
        for layer in (self.pool, self.last):
            nn.init.normal_(layer.weight, std=1e-3)
            nn.init.zeros_(cast("Tensor", layer.bias))

    def forward(self, fine: Features) -> Features:
        """Return features of the working points, for those that were measured."""
        return functional.silu(self.second(functional.silu(self.first(fine))))

    def decode(self, local: Features, latent: Features, blocks: Features, before: int) -> Plane:
        """Return the logit of each working point."""

        def cropped(x: Features) -> Features:
            """Return the points of the blocks that lie on the working grid."""
            return x[:, :, before : before + self.working, before : before + self.working]

        x = functional.silu(self.third(local) + cropped(self.unpool(latent)))
        each = blocks[:, :, :, None, :, None].expand(-1, -1, -1, self.block, -1, self.block)
        return (self.last(x) + cropped(each.flatten(4, 5).flatten(2, 3)))[:, 0]
