r"""The operator of meshes and clouds: fields on any points and numbers to fields on these points and numbers.

.. code-block:: text

    coordinates [B, P, D], inputs [B, P, (component)] per field, counts [B], parameters [B] per number
      -> logarithm of positive quantities that span decades -> standardise
      -> pointwise: features, parameters, location in the box and in the cell -> C channels [B, P, C]
      -> scatter to the latent grid [B, C, *F]: multilinear weights, mean of the points near each node
      -> join the share of filled nodes and its blur -> U-Net of three levels
      -> gather at the points, multilinear -> pointwise, with the features once more -> outputs in physical units
    outputs [B, P, (component)] per field, [B, (component)] per scalar

Scalars are means of learned features over the nodes of the latent grid that are filled (`training.nn.pointwise`): by
the area of the cloud, not by the number of its points.
The latent grid covers the bounding box of the training points and one cell beyond; it is the same for all samples,
since their sizes matter. The first `counts` points of a sample are valid (all, where it is 0): the rest changes
nothing, and its outputs are 0. The order of the points changes nothing but that of the outputs, and the cost is linear
in their number. A grid without parameters of its own is enough of an encoder (arXiv 2506.12652).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from itertools import product
from typing import Literal

import torch
from pydantic import Field, PositiveInt, model_validator
from torch import Tensor, nn
from torch.nn import functional

from training.nn.pointwise import COARSEST, Pooling, UNet
from training.operators.operator import (
    ChannelNormaliser,
    Operator,
    OperatorKind,
    QuantitiesConfig,
    Scale,
    channels,
    scale,
    separated,
)

HALO = 1.0
"""Cells of the latent grid beyond the box."""
LIGHT = 0.02
"""Weight at which a node counts as half filled: means stay continuous where the last point leaves a cell."""
PART = 2**17
"""Points, over all samples of a batch, whose features are in memory at one time where no gradients are needed."""
COARSE = 4
"""Cells of the latent grid along one cell of the grid whose statistics decide how unusual an input is."""


class PointsConfig(QuantitiesConfig):
    """Sizes of an operator on points.

    Attributes:
        box: Lowest and highest coordinate of the training points along every dimension.
        latent: Cells of the latent grid along the longest side of the box; those of the others are as long.
        channels: On the finest level of the latent grid; twice as many on each coarser one.
        blocks: Pairs of convolutions per level.
    """

    kind: Literal["points"] = "points"
    box: tuple[tuple[float, float], ...] = Field(min_length=2, max_length=3)
    latent: PositiveInt = 40
    channels: PositiveInt = 16
    blocks: PositiveInt = 1

    @model_validator(mode="after")
    def check_box(self) -> PointsConfig:
        """Require a box with an inside."""
        if any(high <= low for low, high in self.box):
            raise ValueError(f"expected low < high along every dimension of the box but got {self.box}")
        return self

    def lattice(self, cells: int) -> Lattice:
        """Return the grid of about so many cells along the longest side of the box."""
        width = max(high - low for low, high in self.box) / cells
        nodes = [math.ceil((high - low) / width) + 1 + 2 * HALO for low, high in self.box]
        sides = tuple(COARSEST * math.ceil(count / COARSEST) for count in nodes)
        return Lattice(tuple(low for low, _ in self.box), width, sides)


class PointsOperator(Operator):
    """See the diagram of the module. The config fixes every size.

    Example:
        >>> config = PointsConfig(
        ...     input_components=(0,),
        ...     input_scales=("linear",),
        ...     output_components=(0, 2),
        ...     output_scales=("linear", "linear"),
        ...     box=((0, 1), (0, 2)),
        ...     latent=8,
        ... )
        >>> scalar, vector = PointsOperator(config)(torch.rand(3, 50, 2), torch.rand(3, 50), torch.full((3,), 40.0))
        >>> scalar.shape, vector.shape
        (torch.Size([3, 50]), torch.Size([3, 50, 2]))
    """

    config: PointsConfig

    scattered = True

    def __init__(self, config: PointsConfig) -> None:
        super().__init__()
        self.config = config
        dimensions, width = len(config.box), config.channels
        inputs, outputs = channels(config.input_components), channels(config.output_components)
        numbers, scalars = sum(config.widths), channels(config.scalar_components)
        self.lattice = config.lattice(config.latent)
        self.input_normaliser = ChannelNormaliser((inputs,))
        self.output_normaliser = ChannelNormaliser((outputs,))
        self.parameter_normaliser = ChannelNormaliser((numbers,))
        features = inputs + numbers + 3 * dimensions
        self.lift = nn.Sequential(nn.Linear(features, 2 * width), nn.SiLU(), nn.Linear(2 * width, width))
        self.network = UNet(dimensions, width + 2, width, config.blocks)
        if outputs:
            self.head = nn.Sequential(nn.Linear(width + features, 4 * width), nn.SiLU(), nn.Linear(4 * width, outputs))
        if scalars:
            self.scalar_normaliser = ChannelNormaliser((scalars,))
            self.pooling = Pooling(width, scalars, domain=True)

    @torch.no_grad()
    def fit_normalisers(self, *tensors: Tensor) -> None:
        """Take the statistics of training samples' valid points: all arguments of `forward`, then outputs."""
        count = 2 + len(self.config.input_components) + len(self.config.parameter_scales)
        points = Points.of(self.config, tensors[:count])
        split = count + len(self.config.output_components)
        if self.config.output_components:
            config = self.config
            outputs = stacked(tensors[count:split], config.output_components, config.output_scales, points.valid)
            self.output_normaliser.fit(outputs[points.valid])
        if self.config.scalar_components:
            scalars = tensors[split : split + len(self.config.scalar_components)]
            self.scalar_normaliser.fit(self.config.scalar_columns(scalars))
        if points.fields.shape[2]:
            self.input_normaliser.fit(points.fields[points.valid])
        if points.numbers.shape[1]:
            self.parameter_normaliser.fit(points.numbers)

    def forward(self, *inputs: Tensor, location: LatticeLocation | None = None) -> Tensor | tuple[Tensor, ...]:
        """Map coordinates, fields, counts and parameters to outputs, in physical units: one, or a tuple of several.

        `location` says where the points are on the latent grid, where that is known already.
        """
        points = Points.of(self.config, inputs)
        location = self.lattice.locate(points.coordinates) if location is None else location
        parts = parts_of(points, location)
        if len(parts) > 1:
            sums = (self.lattice.sums(self.lift(self.features(*part)), part[1], part[0].weight) for part in parts)
            latent, filled = self.lattice.means(functools.reduce(torch.add, sums), len(points.valid))
            features = None
        else:
            features = self.features(points, location)
            latent, filled = self.lattice.scatter(self.lift(features), location, points.weight)
        found = self.network(torch.cat([latent, filled, blur(filled)], dim=1))
        outputs: tuple[Tensor, ...] = ()
        if self.config.output_components:
            if features is None:
                values = torch.cat([self.decoded(found, part[1], self.features(*part)) for part in parts], dim=1)
            else:
                values = self.decoded(found, location, features)
            outputs = self.outputs(self.output_normaliser.inverse(values), points.valid)
        if self.config.scalar_components:
            pooled = self.scalar_normaliser.inverse(self.pooling(found, filled[:, 0]))
            outputs = (*outputs, *self.config.scalars(pooled))
        if self.config.integrals:
            sums = (one.of(outputs, inputs, inside=points.valid) for one in self.config.integrals)
            outputs = (*outputs, *sums)
        return outputs[0] if len(outputs) == 1 else outputs

    def decoded(self, latent: Tensor, location: LatticeLocation, features: Tensor) -> Tensor:
        """Return the channels of the outputs at points, on their scales and standardised."""
        values: Tensor = self.head(torch.cat([self.lattice.gather(latent, location), features], dim=2))
        return values

    def features(self, points: Points, location: LatticeLocation) -> Tensor:
        """Return the standardised fields and parameters of every point, and where it is in box and cell.

        The location in the cell is one on a circle, so that nothing jumps where a point moves to the next cell.
        """
        scaled = location.position / (0.5 * max(self.lattice.sides)) - 1
        angle = 2 * math.pi * location.inside
        parts = [self.input_normaliser(points.fields), scaled, torch.cos(angle), torch.sin(angle)]
        if self.config.widths:
            standard = self.parameter_normaliser(points.numbers)
            parts.append(standard[:, None].expand(-1, points.fields.shape[1], -1))
        return torch.cat(parts, dim=2)

    def outputs(self, values: Tensor, valid: Tensor) -> tuple[Tensor, ...]:
        """Separate the output fields from the channels `[batch, point, channel]`; they are 0 at padding."""
        parts = separated(values, self.config.output_components, self.config.output_scales, 2)
        return tuple(torch.where(valid if each.ndim == 2 else valid[:, :, None], each, 0.0) for each in parts)

    # What decides how unusual an input is

    def canonical(self, *fields: Tensor) -> tuple[Tensor, ...]:
        """Return fields on a coarse grid and numbers, which do not depend on order and hardly on number of the points.

        Returns:
            How far nodes are filled and the mean of each input channel, `[batch, *grid]` each; lowest and highest
            coordinates along every dimension, and parameters, `[batch]` each.
        """
        return canonical(self.config, fields)


def canonical(config: PointsConfig, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Return what decides how unusual the arguments of an operator are; see `PointsOperator.canonical`."""
    points, lattice = Points.of(config, inputs), config.lattice(max(1, config.latent // COARSE))
    means, filled = lattice.scatter(points.fields, lattice.locate(points.coordinates), points.weight)
    ends = torch.cat([points.coordinates.amin(dim=1), points.coordinates.amax(dim=1)], dim=1)
    return (filled[:, 0], *means.unbind(1), *ends.unbind(1), *points.numbers.unbind(1))


class Points:
    """Arguments of the operator: what padding holds is replaced by the first point of its sample.

    Attributes:
        coordinates: `[batch, point, dimension]`.
        fields: On their scales `[batch, point, channel]`.
        numbers: Parameters on their scales `[batch, parameter]`.
        valid: `[batch, point]`.
    """

    def __init__(self, coordinates: Tensor, fields: Tensor, numbers: Tensor, valid: Tensor) -> None:
        self.coordinates, self.fields, self.numbers, self.valid = coordinates, fields, numbers, valid

    @classmethod
    def of(cls, config: PointsConfig, inputs: Sequence[Tensor]) -> Points:
        """Read the arguments in their order: coordinates, fields, counts, parameters."""
        fields = 1 + len(config.input_components)
        coordinates, counts = inputs[0], inputs[fields]
        index = torch.arange(coordinates.shape[1], device=coordinates.device).to(counts.dtype)
        # Half-way between whole numbers, so that rounding of the counts changes nothing.
        valid = index + 0.5 < torch.where(counts > 0.5, counts, index[-1:] + 1)[:, None]
        coordinates = torch.where(valid[:, :, None], coordinates, coordinates[:, :1])
        channels = stacked(inputs[1:fields], config.input_components, config.input_scales, valid)
        if not config.input_components:
            channels = coordinates[:, :, :0]
        numbers = config.numbers(inputs[fields + 1 :])
        return cls(coordinates, channels, torch.cat(numbers, dim=1) if numbers else coordinates[:, 0, :0], valid)

    def part(self, rows: slice) -> Points:
        """Return some of the points."""
        return Points(self.coordinates[:, rows], self.fields[:, rows], self.numbers, self.valid[:, rows])

    @property
    def weight(self) -> Tensor:
        """1 at valid points and 0 at padding, `[batch, point]`."""
        return self.valid.to(self.coordinates.dtype)


class LatticeLocation:
    """Where points are on a lattice.

    Attributes:
        position: In cells from its first node, `[batch, point, dimension]`.
        inside: The part of the cell that lies before the point, 0 to 1, `[batch, point, dimension]`.
        nodes: Numbers of the corners of the cell among the nodes of all samples, `[batch, point, corner]`.
        weights: Of the corners, `[batch, point, corner]`.
    """

    def __init__(self, position: Tensor, inside: Tensor, nodes: Tensor, weights: Tensor) -> None:
        self.position, self.inside, self.nodes, self.weights = position, inside, nodes, weights

    def part(self, rows: slice) -> LatticeLocation:
        """Return that of some of the points."""
        return LatticeLocation(*(each[:, rows] for each in (self.position, self.inside, self.nodes, self.weights)))


def parts_of(points: Points, location: LatticeLocation) -> list[tuple[Points, LatticeLocation]]:
    """Return points in parts of at most `PART`, so that their features take little memory.

    Training takes all of them at once, and so does a graph: how many it has is not known when it is exported.
    """
    tracing: bool = torch.jit.is_tracing()  # type: ignore[attr-defined,no-untyped-call]
    if torch.is_grad_enabled() or torch.compiler.is_exporting() or tracing:
        return [(points, location)]
    batch, count = points.coordinates.shape[:2]
    step = max(1, PART // batch)
    if count <= step:
        return [(points, location)]
    rows = [slice(start, start + step) for start in range(0, count, step)]
    return [(points.part(each), location.part(each)) for each in rows]


class Lattice:
    """A regular grid with as many nodes per axis as `sides` says, `width` apart, one cell beyond the lowest corner."""

    def __init__(self, low: tuple[float, ...], width: float, sides: tuple[int, ...]) -> None:
        self.low, self.width, self.sides = low, width, sides

    def locate(self, coordinates: Tensor) -> LatticeLocation:
        """Find the cell of every point; points beyond the grid are in its outermost cells, at their faces."""
        low = torch.tensor(self.low, dtype=coordinates.dtype, device=coordinates.device)
        last = torch.tensor([side - 1.0 for side in self.sides], dtype=coordinates.dtype, device=coordinates.device)
        position = (coordinates - low) / self.width + HALO
        bounded = torch.minimum(position.clamp_min(0), last)
        first = torch.minimum(torch.floor(bounded.detach()), last - 1)
        inside = bounded - first
        strides = [math.prod(self.sides[axis + 1 :]) for axis in range(len(self.sides))]
        index, nodes, weights = first.long(), [], []
        for corner in product((0, 1), repeat=len(self.sides)):
            steps = [(index[:, :, axis] + step) * strides[axis] for axis, step in enumerate(corner)]
            nodes.append(torch.stack(steps).sum(dim=0))
            factors = [inside[:, :, axis] if step else 1 - inside[:, :, axis] for axis, step in enumerate(corner)]
            weights.append(math.prod(factors[1:], start=factors[0]))
        sample = torch.arange(coordinates.shape[0], device=coordinates.device)[:, None, None]
        return LatticeLocation(
            position, inside, torch.stack(nodes, dim=2) + sample * self.count, torch.stack(weights, dim=2)
        )

    @property
    def count(self) -> int:
        """The number of nodes."""
        return math.prod(self.sides)

    def scatter(self, values: Tensor, location: LatticeLocation, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Return the means `[batch, channel, *sides]` of values near each node, and how far it is filled.

        Args:
            values: `[batch, point, channel]`.
            location: Where the points are.
            weight: Of every point, `[batch, point]`.
        """
        return self.means(self.sums(values, location, weight), values.shape[0])

    def sums(self, values: Tensor, location: LatticeLocation, weight: Tensor) -> Tensor:
        """Return the sums over points near each node of values and of 1, weighted: `[batch * node, channel + 1]`."""
        batch, width = values.shape[0], values.shape[2] + 1
        joined = torch.cat([values, torch.ones_like(values[:, :, :1])], dim=2) * weight[:, :, None]
        spread = joined[:, :, None] * location.weights[:, :, :, None]
        empty = values.new_zeros((batch, self.count, width)).flatten(0, 1)
        return empty.index_add(0, location.nodes.flatten(), spread.flatten(0, 2))

    def means(self, total: Tensor, batch: int) -> tuple[Tensor, Tensor]:
        """Return the means of what `sums` returns, and how far each node is filled; see `scatter`."""
        found = total / (total[:, -1:] + LIGHT)
        grid = found.unflatten(0, (batch, self.count)).transpose(1, 2).unflatten(2, self.sides)
        return grid[:, :-1], grid[:, -1:]

    def gather(self, grid: Tensor, location: LatticeLocation) -> Tensor:
        """Interpolate `[batch, channel, *sides]` at the points: `[batch, point, channel]`."""
        rows = grid.flatten(2).transpose(1, 2).flatten(0, 1)
        batch, points, corners = location.nodes.shape
        found = rows.index_select(0, location.nodes.flatten()).unflatten(0, (batch, points, corners))
        return (found * location.weights[:, :, :, None]).sum(dim=2)


def blur(x: Tensor) -> Tensor:
    """Return the mean of five nodes along every axis of `[batch, 1, *grid]`, with zeros beyond."""
    axes = x.ndim - 2
    kernel = x.new_full((1, 1, *(5,) * axes), 1 / 5**axes)
    return (functional.conv2d if axes == 2 else functional.conv3d)(x, kernel, padding=2)


def stacked(fields: Sequence[Tensor], components: Sequence[int], scales: Sequence[Scale], valid: Tensor) -> Tensor:
    """Join fields `[batch, point, (component)]` as channels `[batch, point, channel]`, the first point in padding."""
    parts = []
    for x, count, kind in zip(fields, components, scales, strict=True):
        channel = x if count else x[:, :, None]
        parts.append(scale(torch.where(valid[:, :, None], channel, channel[:, :1]), kind))
    return torch.cat(parts, dim=2) if parts else valid[:, :, None][:, :, :0]


OPERATOR = OperatorKind("points", PointsConfig, PointsOperator)
