r"""Shapes and grids: the names of both in signatures, coordinates of points, and fields from one grid to another.

The names of dimensions are: `batch` samples; `row` and `column` the axes of a field on a plane; `block_row` and
`block_column` the axes of its means over blocks; `point` the axis of a line; `grid` any number of axes; `token` the
points that the encoder sees, flattened; `source` the tokens of keys and values; `channel` features; `head` attention
heads; `coordinate` components of a position. jaxtyping checks the annotations while the tests run; outside the tests
they cost nothing.

Points and tokens have coordinates in the order of the array's axes, so that coordinate :math:`k` varies along axis
:math:`k`. Where nothing else is said, both ends of an axis are points: point :math:`i` of :math:`n` lies at
:math:`i/(n-1)`. The reference project orders coordinates the other way round; its networks pass `reverse=True`.

A field is carried to another grid by one small matrix per axis,

.. math::
    R_{ij} \propto \max\bigl(0,\ 1 - |y_i - x_j| / \max(h_x, h_y)\bigr),

with rows of sum one: linear interpolation where the grid is refined. Where it is coarsened this is an average weighted
by a hat function, so a two-valued coefficient is averaged and not aliased. Locations are compared as integers before
the one division, so the same grid is carried to itself exactly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Integer, Real, Shaped
from torch import Tensor, nn
from torch.nn import functional

#: The three layouts of this package: of tokens, of fields between convolutions, and of features on one grid.
Layout = Literal["[batch, token, channel]", "[batch, channel, *grid]", "[batch, *grid, channel]"]
TOKENS: Layout = "[batch, token, channel]"
FIELDS: Layout = "[batch, channel, *grid]"
FEATURES: Layout = "[batch, *grid, channel]"

Line = Float[Tensor, "batch point"]
Plane = Float[Tensor, "batch row column"]
Blocks = Float[Tensor, "batch block_row block_column"]
Field = Float[Tensor, "batch *grid"]
Channels = Float[Tensor, "batch channel *grid"]
Features = Float[Tensor, "batch _ ..."]  # any channels on any grid
Numbers = Integer[Tensor, "batch token"]  # indices into a vocabulary; 0 is padding
Logits = Float[Tensor, "batch *token label"]  # per sequence or per token
Tokens = Float[Tensor, "batch token channel"]
Rows = Float[Tensor, "row channel"]  # the tokens of all samples as the rows of one matrix
Sources = Float[Tensor, "batch source channel"]
Heads = Float[Tensor, "batch head token width"]
Mixed = Float[Tensor, "batch head _ _"]  # heads of queries, keys or values, with or without coordinates
Matrices = Float[Tensor, "batch *head _ _"]  # attention matrices, per head or for all heads together
Coordinates = Float[Tensor, "coordinate *grid"]
Positions = Real[Tensor, "... token coordinate"]  # shared by all samples, or per sample
SourcePositions = Real[Tensor, "... source coordinate"]
Mask = Shaped[Tensor, "#batch #token source"]  # bool or 0/1; true where the query attends to the source
Weight = Float[Tensor, "#batch #token #channel"]


def tracing() -> bool:
    """Return whether TorchScript is tracing. Sizes are tensors then, and a trace would freeze a comparison of them."""
    return torch.jit.is_tracing()  # type: ignore[attr-defined,no-untyped-call] # public, but neither exported nor typed


def graphing() -> bool:
    """Return whether a graph is being made, by TorchScript or torch.export, in which nothing is compared."""
    return tracing() or torch.compiler.is_compiling()


def expect(
    x: Tensor,
    layout: Layout,
    channels: int,
    layer: nn.Module,
    *,
    dimensions: int | None = None,
    grid: Sequence[int] | None = None,
) -> None:
    """Require the layout of a layer's input; while a graph is made nothing is compared.

    Args:
        x: The input.
        layout: What the layer takes.
        channels: The features that it takes.
        layer: Whose name the message begins with.
        dimensions: The axes of its grid, 1 to 3 where it takes any.
        grid: Its points per axis where it takes no others; of tokens, the grid that they are the points of.

    Raises:
        ValueError: The input has another layout, number of features or grid.

    Example:
        >>> expect(torch.zeros(2, 64, 100), TOKENS, 64, nn.Identity())
        Traceback (most recent call last):
        ValueError: Identity: expected [batch, token, channel] with 64 channels but got (2, 64, 100)
    """
    if graphing():
        return
    axes = {1} if layout == TOKENS else {dimensions or (len(grid) if grid else 0)} - {0} or {1, 2, 3}
    found = tuple(x.shape)
    fits = x.ndim - 2 in axes and found[1 if layout == FIELDS else -1] == channels
    if fits and grid is not None:
        points = found[2:] if layout == FIELDS else found[1:-1]
        fits = points == (math.prod(grid),) if layout == TOKENS else points == tuple(grid)
    if not fits:
        of_grid = "" if dimensions is None or grid else f", {dimensions} axes" if dimensions > 1 else ", 1 axis"
        on_grid = f" on {' x '.join(map(str, grid))} points" if grid else of_grid
        raise ValueError(f"{type(layer).__name__}: expected {layout} with {channels} channels{on_grid} but got {found}")


#: A linear map of the channels at every point of 1, 2 or 3 axes is a convolution of width one.
CONVOLUTION = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
CONVOLVE = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}


def indices(sides: Sequence[int], device: torch.device | None = None) -> list[Tensor]:
    """Return the indices 0..n-1 along each axis.

    A grid enters an exported graph as these tensors. Numbers would be frozen in the graph.
    """
    return [torch.arange(side, device=device) for side in sides]


def unit_axis(index: Tensor, dtype: torch.dtype) -> Float[Tensor, " point"]:
    """Return the coordinates in [0, 1] of the points with the indices 0..n-1 on one axis; 0 of a single point."""
    return index.to(dtype) / steps(index[-1:]).to(dtype)


def steps(last: Tensor) -> Tensor:
    """Return the number of steps of an axis from its last index, and 1 for a single point, which divides by it.

    Graphs are for grids of more points, and hold no such case.
    """
    return last if graphing() else last.clamp(min=1)


def grid_coordinates(indices: Sequence[Tensor], dtype: torch.dtype, *, reverse: bool = False) -> Coordinates:
    """Return the coordinates of all points of a grid, in [0, 1].

    Args:
        indices: The indices 0..n-1 along each axis; see `indices`.
        dtype: The dtype of the result.
        reverse: Return the coordinates in the order x, y, ... of the reference project, whose first coordinate varies
            along the last axis.

    Returns:
        Coordinates of shape `[coordinate, *grid]`.

    Example:
        >>> grid_coordinates(indices((2, 3)), torch.float32)[1]
        tensor([[0.0000, 0.5000, 1.0000],
                [0.0000, 0.5000, 1.0000]])
    """
    axes = torch.meshgrid(*(unit_axis(index, dtype) for index in indices), indexing="ij")
    return torch.stack(axes[::-1] if reverse else axes)


def square_positions(side: int) -> Positions:
    """Return the positions of a grid of `side` x `side` tokens in row-major order, of shape `[side * side, 2]`."""
    return grid_coordinates(indices((side, side)), torch.get_default_dtype()).flatten(1).T.contiguous()


def circle_positions(points: int) -> Positions:
    """Return the positions of equidistant tokens of a periodic line on the unit circle, of shape `[points, 2]`."""
    angle = 2 * math.pi * torch.arange(points) / points
    return torch.stack([torch.cos(angle), torch.sin(angle)], dim=-1)


class JoinCoordinates(nn.Module):
    r"""Map the features :math:`x` and the coordinates :math:`r` of every point linearly to new features.

    .. math::
        y = A_x x + A_r r + b

    Args:
        inputs: The number of channels in, without the coordinates.
        outputs: The number of channels out.
        dimensions: The number of axes of the grid, which is also the number of coordinates.

    Example:
        >>> join = JoinCoordinates(3, 8, dimensions=2)
        >>> join(torch.randn(5, 3, 16, 12), grid_coordinates(indices((16, 12)), torch.float32)).shape
        torch.Size([5, 8, 16, 12])
    """

    def __init__(self, inputs: int, outputs: int, dimensions: int) -> None:
        super().__init__()
        self.inputs, self.dimensions = inputs, dimensions
        self.linear = CONVOLUTION[dimensions](inputs + dimensions, outputs, 1)
        self.convolve = CONVOLVE[dimensions]

    def forward(self, x: Channels, coordinates: Coordinates) -> Features:
        expect(x, FIELDS, self.inputs, self, dimensions=self.dimensions)
        expected, found = (self.dimensions, *x.shape[2:]), tuple(coordinates.shape)
        if not graphing() and found != expected:
            raise ValueError(f"{type(self).__name__}: expected coordinates of shape {expected} but got {found}")
        return self.map_features(x) + self.map_coordinates(coordinates)

    def map_features(self, x: Channels) -> Features:
        """Return the term :math:`A_x x`, which commutes with interpolation."""
        return self.convolve(x, self.linear.weight[:, : -self.dimensions])

    def map_coordinates(self, coordinates: Coordinates) -> Features:
        """Return the term :math:`A_r r + b`, equal for all samples, of shape `[1, outputs, *grid]`."""
        return self.convolve(coordinates[None], self.linear.weight[:, -self.dimensions :], self.linear.bias)


Rule = Literal["cells", "nodes", "left"]


@dataclass(frozen=True)
class AxisRule:
    """Where the points of an axis lie (centres of cells, both ends, or left ends), and whether its ends meet."""

    points: Rule
    periodic: bool


NODES = AxisRule("nodes", periodic=False)


def resample(
    x: Float[Tensor, "*batch row column"], rows: Tensor, columns: Tensor, *, average: bool = True
) -> Float[Tensor, "*batch _ _"]:
    """Resample a field to another grid, both with points on all ends, with averages where that grid is coarser.

    Args:
        x: The field, of shape `[*batch, row, column]`.
        rows: The row indices 0..h-1 of the other grid. Only their number matters.
        columns: The column indices 0..w-1 of the other grid.
        average: Average where the other grid is coarser. Otherwise interpolate linearly; see `sample`.

    Returns:
        The field on the other grid, of shape `[*batch, h, w]`.

    Example:
        >>> resample(torch.ones(2, 29, 29), torch.arange(57), torch.arange(15)).shape
        torch.Size([2, 57, 15])
    """
    down = hat_matrix(torch.arange(x.shape[-2], device=x.device), rows, x.dtype, average=average)
    across = hat_matrix(torch.arange(x.shape[-1], device=x.device), columns, x.dtype, average=average)
    return down @ x @ across.T


def sample(x: Float[Tensor, "*batch row column"], rows: Tensor, columns: Tensor) -> Float[Tensor, "*batch _ _"]:
    """Interpolate a field linearly at the points of another grid, without averages; see `resample`."""
    return resample(x, rows, columns, average=False)


def transfer(x: Float[Tensor, "batch channel ..."], sides: Sequence[Tensor], rules: Sequence[AxisRule]) -> Tensor:
    """Carry fields to another grid.

    On a periodic axis distances are taken around the circle. Elsewhere a target beyond the outermost source point takes
    its value.

    Args:
        x: Fields `[batch, channel, *source]`.
        sides: Per axis the indices 0..n-1 of the target's points; only their number matters.
        rules: Per axis where the points of both grids lie.

    Returns:
        Fields `[batch, channel, *target]`.

    Example:
        >>> x = torch.tensor([[[0.0, 1.0, 2.0]]])
        >>> transfer(x, [torch.arange(5)], [AxisRule("nodes", periodic=False)])
        tensor([[[0.0000, 0.5000, 1.0000, 1.5000, 2.0000]]])
    """
    for axis, (target, rule) in enumerate(zip(sides, rules, strict=True), start=2):
        weights = hat_matrix(torch.arange(x.shape[axis], device=x.device), target, x.dtype, rule)
        x = torch.matmul(x.movedim(axis, -1), weights.T).movedim(-1, axis)
    return x


def hat_matrix(
    source: Tensor, target: Tensor, dtype: torch.dtype, rule: AxisRule = NODES, *, average: bool = True
) -> Float[Tensor, "target source"]:
    """Return the weights of the source points for each target point; see the formula of the module.

    Args:
        source: The indices 0..n-1 of the source's points.
        target: The indices 0..m-1 of the target's points.
        dtype: The dtype of the result.
        rule: Where the points of both grids lie.
        average: Make the hat as wide as the coarser of both spacings. Otherwise it is as wide as the source's.
    """
    # Locations are fractions of the axis: i/(n-1) of nodes, i/n of left ends, (2i+1)/2n of the centres of cells.
    step = 2 if rule.points == "cells" else 1
    here, there = whole(source, rule), whole(target, rule)
    there = there if average else steps(there)  # a single target is the first point of the axis, or the mean of all
    wholes = here.to(dtype), there.to(dtype)
    x, y = (2 * index + 1 if rule.points == "cells" else index for index in (source, target))
    if rule.points == "nodes" or rule.periodic:
        apart = (y[:, None] * here - x[None, :] * there).abs()
    else:
        inside = torch.maximum(y * here, x[:1] * there)
        inside = torch.minimum(inside, x[-1:] * there)
        apart = (inside[:, None] - x[None, :] * there).abs()
    if rule.periodic:
        apart = torch.minimum(apart, here * there - apart)
    distance = apart.to(dtype) / steps(torch.maximum(*wholes) if average else wholes[1])  # in half widths of the hat
    weight = torch.relu(1 - (distance if step == 1 else distance / step))
    return weight / weight.sum(dim=1, keepdim=True)


def whole(index: Tensor, rule: AxisRule) -> Tensor:
    """Return the length of an axis `[1]` in steps between nodes, in cells, or in halves of them from their centres."""
    return index[-1:] if rule.points == "nodes" else (2 if rule.points == "cells" else 1) * (index[-1:] + 1)


def located_coordinates(sides: Sequence[int], periodic: Sequence[bool], located: Sequence[bool]) -> Tensor:
    """Return two coordinates per located axis `[coordinate, *grid]`: point on a circle, or position and distance."""
    rows = []
    for axis, (side, closed) in enumerate(zip(sides, periodic, strict=True)):
        if not located[axis]:
            continue
        s = (torch.arange(side) + 0.5) / side
        angle = 2 * math.pi * s
        shape = [side if other == axis else 1 for other in range(len(sides))]
        pair = (torch.cos(angle), torch.sin(angle)) if closed else (2 * s - 1, 4 * s * (1 - s))
        rows += [row.reshape(shape).expand(*sides) for row in pair]
    return torch.stack(rows) if rows else torch.zeros(0, *sides)
