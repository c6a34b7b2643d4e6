r"""The general operator: any fields and numbers on a line, a plane or in space, to any fields and numbers.

.. code-block:: text

    inputs [B, (component), *grid] per field, parameters [B] per number
      -> logarithm of positive quantities that span decades -> standardise -> one array of channels
      -> carry to the working grid [B, C, *F] -> join coordinates and parameters -> convolution: detail [B, D, *F]
      -> patches -> tokens [B, T, C] -> L encoder layers (global attention and a local stencil)
      -> patches back [B, D, *F] -> add the detail -> spectral layers with residuals -> channels of the outputs
      -> standard units -> carry to the requested grid -> exponential of logarithms
    outputs [B, (component), *grid] per field, [B, (component)] per scalar

Scalars are means of learned features of the spectral layers' result over the working grid, by its cells and inside the
mask, mapped once more (`training.nn.pointwise`). Integrals of output fields follow them, over the requested grid.
Without an input field the network sees the coordinates and the parameters alone; a last argument `[B, *grid]` says by
its shape on which grid the outputs are wanted.

Without encoder layers (`layers = 0`) there are no tokens: the detail enters the spectral layers as it is. With `unet`
the result of a U-Net is added to it first: its stencils see the jumps of a material, which the lowest waves blur. With
`gated` the spectral layers are gated ones, and with `band_limited` fields are carried by Fourier series: for smooth
fields on periodic grids.

The working grid is that of the training data, on which both transfers are the identity; every other grid is
interpolated to it and from it, so the same weights accept any grid. Periodic axes are closed everywhere: in stencils,
transforms, positions and transfers.

Where an equation is linear in some of its inputs, so is the network: with `linear` those fields and a constant are
mixed over the grid by linear layers, which multiply them by features of the medium. These are made of everything else,
by a gated layer. Sums of sources then have sums of solutions, however few samples there are.

With `masked` the last field is 1 inside the domain and 0 outside. What other fields hold outside changes nothing, and
outputs are 0 there. In place of a distance to the edge, which takes a search or a loop, the network sees the mask
averaged on coarser grids: its slopes say where the edge is and how far away. The finest of these averages multiplies
what enters the spectral layers, since the waves of a field that is cut off decay slowly (DAFNO, arXiv 2305.00478).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Literal

import torch
from pydantic import NonNegativeInt, PositiveInt, model_validator
from torch import Tensor, nn

from training.nn.encoder import EncoderConfig, encoder_stack
from training.nn.grids import CONVOLUTION, AxisRule, Rule, located_coordinates, transfer
from training.nn.pointwise import (
    COARSEST,
    BoundaryConv,
    Pooling,
    TokenStencil,
    UNet,
    cropped,
    filled,
    quadrature,
    unpatch,
)
from training.nn.spectral import (
    BoundarySpectralConv,
    Gate,
    GatedSpectralLayer,
    LinearSpectralLayer,
    band_limited,
)
from training.operators.operator import (
    ChannelNormaliser,
    Operator,
    OperatorKind,
    QuantitiesConfig,
    channels,
    separated,
    stack,
    within,
)

INSIDE = 0.5  # what a mask is above inside the domain
COARSER = (2, 4, 8)  # how many times fewer points per axis the grids have on which a mask is averaged


class FieldConfig(QuantitiesConfig, EncoderConfig):
    """Sizes of a general operator."""

    kind: Literal["field"] = "field"
    masked: bool = False  # whether a mask follows the input fields
    periodic: tuple[bool, ...]  # per axis whether its ends meet
    points: tuple[Rule, ...]  # per axis where its points lie
    working: tuple[PositiveInt, ...]  # points per axis of the working grid
    # Per axis whether a shift along it moves every solution; the network then has no coordinate along it. Empty for
    # none.
    translation: tuple[bool, ...] = ()
    patch: PositiveInt = 4  # points of the working grid along one side of a token
    channels: int = 64
    heads: int = 4
    layers: int = 4
    feedforward: int = 128
    local: int = 3
    detail: PositiveInt = 32  # channels on the working grid
    # Wave numbers of the spectral layers per axis; the period of an axis with ends is twice its length.
    modes: PositiveInt = 12
    spectral: PositiveInt = 2  # number of spectral layers
    unet: NonNegativeInt = 0  # pairs of convolutions per level of a U-Net before them; 0 for none
    gated: bool = False  # whether the spectral layers multiply pairs of channels; see `training.nn.GatedSpectralLayer`
    gate: Gate = "silu"  # of these products; "sigmoid" is bounded
    # Per input field whether the outputs are linear in it and in all other such fields together, up to what they are
    # without them; empty for none. The network is gated, and these fields and the outputs have linear scales.
    linear: tuple[bool, ...] = ()
    # Whether fields are carried to and from the working grid by Fourier series. All axes are periodic.
    band_limited: bool = False

    @model_validator(mode="after")
    def check(self) -> FieldConfig:
        """Require an entry per axis and field, periodic axes for Fourier series, and what linear inputs need."""
        if self.band_limited and not all(self.periodic):
            raise ValueError("expected periodic axes only with band_limited")
        pairs = [("periodic", "points"), ("periodic", "working")]
        pairs += [("periodic", "translation")] if self.translation else []
        pairs += [("input_components", "linear")] if self.linear else []
        for first, second in pairs:
            if len(getattr(self, first)) != len(getattr(self, second)):
                raise ValueError(f"expected as many {second} as {first}")
        if any(self.linear):
            if self.scalar_components:
                raise ValueError("expected no scalars with linear inputs")
            scales = {scale for scale, linear in zip(self.input_scales, self.linear, strict=True) if linear}
            if not self.gated or self.masked or {*scales, *self.output_scales} != {"linear"}:
                raise ValueError("expected gated layers, linear scales and no mask with linear inputs")
        return self

    @property
    def located(self) -> tuple[bool, ...]:
        """Per axis whether the network has coordinates along it."""
        return tuple(not each for each in self.translation) or (True,) * len(self.working)

    @property
    def takes_grid(self) -> bool:
        """Whether a last argument says the grid, since no input is on it."""
        return not self.input_components and not self.masked

    @property
    def rules(self) -> list[AxisRule]:
        return [AxisRule(rule, closed) for rule, closed in zip(self.points, self.periodic, strict=True)]

    @property
    def tokens(self) -> tuple[int, ...]:
        return tuple(-(-side // self.patch) for side in self.working)


class FieldOperator(Operator):
    """See the diagram of the module. The config fixes every size.

    Example:
        >>> config = FieldConfig(
        ...     input_components=(0, 2),
        ...     input_scales=("log", "linear"),
        ...     output_components=(0,),
        ...     output_scales=("linear",),
        ...     periodic=(False, True),
        ...     points=("nodes", "left"),
        ...     working=(12, 16),
        ... )
        >>> FieldOperator(config)(torch.ones(3, 10, 20), torch.zeros(3, 2, 10, 20)).shape
        torch.Size([3, 10, 20])
    """

    config: FieldConfig

    coordinates: Tensor
    positions: Tensor
    measure: Tensor

    def __init__(self, config: FieldConfig) -> None:
        super().__init__()
        self.config = config
        self.mask = len(config.input_components) if config.masked else None
        axes, detail = len(config.periodic), config.detail
        inputs, outputs = channels(config.input_components), channels(config.output_components)
        self.input_normaliser = ChannelNormaliser((inputs, *(1,) * axes))
        self.output_normaliser = ChannelNormaliser((outputs, *(1,) * axes))
        numbers, scalars = sum(config.widths), channels(config.scalar_components)
        self.parameter_normaliser = ChannelNormaliser((numbers,)) if numbers else None
        coordinates, positions = (
            located_coordinates(sides, config.periodic, config.located) for sides in (config.working, config.tokens)
        )
        self.register_buffer("coordinates", coordinates, persistent=False)
        self.register_buffer("positions", positions.flatten(1).T, persistent=False)
        convolution = CONVOLUTION[axes]
        joined = inputs + numbers + len(self.coordinates) + ((1 + len(COARSER)) if config.masked else 0)
        #: The channels of the features that the outputs are linear in, a constant last; none where they need not be.
        pairs = zip(config.linear, config.input_components, strict=False)
        by_channel = (linear for linear, components in pairs for _ in range(max(1, components)))
        self.sources = [channel for channel, linear in enumerate(by_channel) if linear]
        if self.sources:
            self.sources.append(joined)
            self.surroundings = [channel for channel in range(joined + 1) if channel not in self.sources[:-1]]
            joined = len(self.surroundings)
            self.enter = nn.Linear(len(self.sources), detail, bias=False)
            self.medium = GatedSpectralLayer(detail, config.modes, config.periodic, config.working, config.gate)
        self.lift = nn.Sequential(BoundaryConv(joined, detail, config.periodic), nn.SiLU())
        if config.layers:
            self.patch = convolution(detail, config.channels, config.patch, config.patch)
            stencil = partial(TokenStencil, config.tokens, config.channels, config.periodic, config.local)
            self.encoder = encoder_stack(config, self.positions.shape[1], stencil)
            self.unpatch = nn.Linear(config.channels, detail * config.patch**axes)
            self.skip = convolution(detail, detail, 1)
        if config.unet:
            self.unet = UNet(axes, detail, detail, config.unet, partial(BoundaryConv, periodic=config.periodic))
        self.spectral = nn.ModuleList(spectral_layer(config) for _ in range(config.spectral))
        if scalars:
            halved = [rule.points == "nodes" and not rule.periodic for rule in config.rules]
            self.register_buffer("measure", quadrature(config.working, halved), persistent=False)
            self.scalar_normaliser = ChannelNormaliser((scalars,))
            self.pooling = Pooling(detail, scalars, domain=config.masked)
        if self.sources:
            self.head = nn.Sequential(nn.Linear(detail, outputs, bias=False))
        elif outputs:
            pointwise = nn.Linear if config.gated else partial(convolution, kernel_size=1)
            self.head = nn.Sequential(pointwise(detail, 2 * detail), nn.SiLU(), pointwise(2 * detail, outputs))

    @torch.no_grad()
    def fit_normalisers(self, *tensors: Tensor) -> None:
        """Take the statistics of training samples: all arguments of `forward`, then outputs."""
        count = self.fields + len(self.config.parameter_scales) + self.config.takes_grid
        fields, numbers, inside = self.split(tensors[:count])
        split = count + len(self.config.output_components)
        truth, scalars = tensors[count:split], tensors[split : split + len(self.config.scalar_components)]
        if self.config.input_components:
            self.input_normaliser.fit(fields if inside is None else fields.movedim(1, -1)[inside])
        if truth:
            outputs = stack(within(truth, inside), self.config.output_components, self.config.output_scales)
            self.output_normaliser.fit(outputs if inside is None else outputs.movedim(1, -1)[inside])
        if scalars:
            self.scalar_normaliser.fit(self.config.scalar_columns(scalars))
        if self.parameter_normaliser is not None and numbers is not None:
            self.parameter_normaliser.fit(numbers)

    def forward(self, *inputs: Tensor, masks: Tensor | None = None) -> Tensor | tuple[Tensor, ...]:
        """Map fields and parameters to fields and scalars, in physical units: one tensor, or a tuple of several.

        `masks` is what `masks` returns of the mask, where the caller has it from an earlier call on the same domain.
        """
        fields, numbers, inside = self.split(inputs)
        if self.mask is not None and masks is None:
            masks = self.masks(inputs[self.mask])
        features = self.features(fields, numbers, inside, masks)
        detail = self.lift(features[:, self.surroundings] if self.sources else features)
        if self.config.layers:
            detail = self.global_path(detail) + self.skip(detail)
        if self.config.unet:
            working = self.config.working
            detail = detail + cropped(self.unet(filled(detail, COARSEST, working, self.config.periodic)), working)
        latent = detail if self.sources else self.latent(detail, masks)
        outputs: tuple[Tensor, ...] = ()
        if self.config.output_components:
            found = self.solved(features[:, self.sources], detail) if self.sources else self.head(latent)
            found = found.movedim(-1, 1) if self.config.gated else found
            lead = inputs[-1] if self.config.takes_grid else fields
            sides = [torch.arange(side, device=fields.device) for side in lead.shape[-len(self.config.working) :]]
            values = self.output_normaliser.inverse(self.carried(found, sides))
            outputs = separated(values, self.config.output_components, self.config.output_scales, 1)
            if inside is not None:
                outputs = tuple(within(outputs, inside, 0.0))
        if self.config.scalar_components:
            outputs = (*outputs, *self.scalars(latent, masks))
        if self.config.integrals:
            sums = (one.of(outputs, inputs, self.config.points, inside) for one in self.config.integrals)
            outputs = (*outputs, *sums)
        return outputs[0] if len(outputs) == 1 else outputs

    def canonical(self, *fields: Tensor) -> tuple[Tensor, ...]:
        """Return the arguments with the mean value of every field outside the domain, and numbers one by one.

        What says the grid is left out.
        """
        found = self.numbered(fields)
        if self.mask is None:
            return found
        mask = fields[self.mask]
        inside, known = mask > INSIDE, zip(fields[: self.mask], self.means, strict=True)
        outside = [within([field], inside, mean if field.ndim > mask.ndim else mean[0])[0] for field, mean in known]
        return (*outside, inside.to(mask.dtype), *found[self.fields :])

    @property
    def means(self) -> list[Tensor]:
        """The mean of every channel of each input field but the mask, `[channel, 1, ...]`, off its scale."""
        counts = [max(1, components) for components in self.config.input_components]
        parts = zip(self.input_normaliser.mean.split(counts), self.config.input_scales, strict=True)
        return [torch.exp(mean) if kind == "log" else mean for mean, kind in parts]

    def numbered(self, arguments: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return fields and the components of parameters `[batch]` each, without what says the grid."""
        numbers = zip(arguments[self.fields :], self.config.widths, strict=False)
        columns = (column for x, count in numbers for column in x.reshape(-1, count).unbind(1))
        return (*arguments[: self.fields], *columns)

    def latent(self, x: Tensor, masks: Tensor | None = None) -> Tensor:
        """Apply the spectral layers to the detail `[batch, D, *F]`; of gated ones the result is `[batch, *F, D]`."""
        if not self.config.gated:
            for layer in self.spectral:
                x = x + layer(x if masks is None else x * masks[:, 1:2])
            return x
        x = x.movedim(1, -1)  # gated layers have their channels last
        for layer in self.spectral:
            x = layer(x)
        return x

    def scalars(self, latent: Tensor, masks: Tensor | None = None) -> tuple[Tensor, ...]:
        """Pool what the spectral layers return to the scalars, `[batch, (component)]` each."""
        x = latent.movedim(-1, 1) if self.config.gated else latent
        weights = self.measure.to(x.dtype) if masks is None else self.measure.to(x.dtype) * masks[:, 0]
        return self.config.scalars(self.scalar_normaliser.inverse(self.pooling(x, weights)))

    def solved(self, sources: Tensor, detail: Tensor) -> Tensor:
        """Map sources `[batch, source, *F]` to channels `[batch, *F, output]`, linearly, in the medium of a detail."""
        medium, x = self.medium(detail.movedim(1, -1)), self.enter(sources.movedim(1, -1))
        for layer in self.spectral:
            x = layer(x, medium)
        return self.head(x)

    def carried(self, x: Tensor, sides: Sequence[Tensor]) -> Tensor:
        """Carry `[batch, channel, *grid]` to the grid of some indices, from the working grid or to it."""
        if not self.config.band_limited:
            return transfer(x, sides, self.config.rules)
        return band_limited(x, sides, self.config.rules, [side // 2 + 1 for side in self.config.working])

    @property
    def fields(self) -> int:
        """The number of input fields, the mask included."""
        return len(self.config.input_components) + self.config.masked

    def split(self, inputs: Sequence[Tensor]) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Return the fields as channels, the parameters `[batch, parameter]`, and which points are inside the domain.

        Fields `[batch, channel, *grid]` are on their scales, and of no meaning outside the domain.
        """
        if self.config.takes_grid:
            inputs = inputs[:-1]
        count = len(self.config.input_components)
        inside = None if self.mask is None else inputs[self.mask] > INSIDE
        if count:
            fields = stack(within(inputs[:count], inside), self.config.input_components, self.config.input_scales)
        elif self.config.takes_grid:
            fields = inputs[0].reshape(-1, self.config.widths[0])[:, :0]
        else:  # a mask alone
            fields = inputs[0][:, None][:, :0]
        if len(inputs) == self.fields:
            return fields, None, inside
        return fields, torch.cat(self.config.numbers(inputs[self.fields :]), dim=1), inside

    def masks(self, mask: Tensor) -> Tensor:
        """Return the mask `[batch, *grid]` on the working grid, and averaged on coarser ones: `[batch, mask, *F]`."""
        rules, sides = self.config.rules, [torch.arange(side, device=mask.device) for side in self.config.working]
        found = [transfer(mask[:, None], sides, rules)]
        for factor in COARSER:
            fewer = [torch.arange(max(2, side // factor), device=mask.device) for side in self.config.working]
            found.append(transfer(transfer(found[0], fewer, rules), sides, rules))
        return torch.cat(found, dim=1)

    def features(
        self, fields: Tensor, numbers: Tensor | None, inside: Tensor | None = None, masks: Tensor | None = None
    ) -> Tensor:
        """Return standardised fields, masks, coordinates and parameters on the working grid."""
        sides = [torch.arange(side, device=fields.device) for side in self.config.working]
        parts = [] if masks is None else [masks]
        if self.config.input_components:
            standard = self.input_normaliser(fields)
            known = standard if inside is None else standard * inside[:, None].to(fields.dtype)
            parts.insert(0, self.carried(known, sides))
        if any(self.config.located):
            parts.append(self.coordinates.to(fields.dtype).expand(fields.shape[0], *self.coordinates.shape))
        if numbers is not None and self.parameter_normaliser is not None:
            standard = self.parameter_normaliser(numbers)
            spread = standard.reshape(*standard.shape, *(1,) * len(self.config.working))
            parts.append(spread.expand(*standard.shape, *self.config.working))
        if self.sources:
            parts.append(torch.ones_like(parts[0][:, :1]))
        return torch.cat(parts, dim=1)

    def global_path(self, detail: Tensor) -> Tensor:
        """Mix the detail `[B, D, *F]` globally as tokens."""
        whole = filled(detail, self.config.patch, self.config.working, self.config.periodic)
        tokens = self.patch(whole).flatten(2).transpose(1, 2)
        positions = self.positions.to(tokens.dtype) if any(self.config.located) else None
        for layer in self.encoder:
            tokens = layer(tokens, positions)
        return cropped(unpatch(self.unpatch(tokens), self.config.tokens, self.config.patch), self.config.working)


def spectral_layer(config: FieldConfig) -> nn.Module:
    """Return a layer on the working grid: a gated one `[batch, *grid, channel]`, or one `[batch, channel, *grid]`."""
    if any(config.linear):
        return LinearSpectralLayer(config.detail, config.modes, config.periodic, config.working)
    if config.gated:
        return GatedSpectralLayer(config.detail, config.modes, config.periodic, config.working, config.gate)
    return BoundarySpectralConv(config.detail, config.detail, config.modes, config.periodic, config.working)


OPERATOR = OperatorKind("field", FieldConfig, FieldOperator)
