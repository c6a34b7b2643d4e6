"""Quantities as channels: what the general operators on grids and on points take and return, and on which scales.

A field of several components has a channel for each. A positive quantity that spans decades enters, or is learned, by
its logarithm. Every channel is standardised by itself, however unlike the units are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, NonNegativeInt, model_validator
from torch import Tensor

from training.integrals import IntegralConfig
from training.nn.pointwise import Normaliser

Scale = Literal["linear", "log"]
LISTS = (
    ("input_components", "input_scales"),
    ("parameter_components", "parameter_scales"),
    ("output_components", "output_scales"),
    ("scalar_components", "scalar_scales"),
)
"""Keys of a config that have an entry per quantity, the same number of them."""


class QuantitiesConfig(BaseModel):
    """What a general operator maps to what; components are counted, with 0 for a scalar field or one number."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    input_components: tuple[int, ...]  # per input field, without a mask and without coordinates
    input_scales: tuple[Scale, ...]  # per such field whether it enters by its logarithm
    parameter_scales: tuple[Scale, ...] = ()  # likewise per parameter, without the counts of points
    parameter_components: tuple[NonNegativeInt, ...] = ()  # per parameter; empty where all are one number
    output_components: tuple[int, ...]  # per output field
    output_scales: tuple[Scale, ...]  # per output field whether its logarithm is learned
    scalar_components: tuple[NonNegativeInt, ...] = ()  # per scalar
    scalar_scales: tuple[Scale, ...] = ()  # per scalar whether its logarithm is learned
    integrals: tuple[IntegralConfig, ...] = ()  # of output fields: the outputs behind the scalars

    @model_validator(mode="after")
    def check_quantities(self) -> QuantitiesConfig:
        """Require a scale per quantity."""
        for first, second in LISTS:
            counted = getattr(self, first) or first != "parameter_components"
            if counted and len(getattr(self, first)) != len(getattr(self, second)):
                raise ValueError(f"expected as many {second} as {first}")
        return self

    @property
    def widths(self) -> tuple[int, ...]:
        """The numbers of every parameter."""
        return tuple(max(1, count) for count in self.parameter_components) or (1,) * len(self.parameter_scales)

    def numbers(self, parameters: Sequence[Tensor]) -> list[Tensor]:
        """Return parameters `[batch, (component)]` on their scales, `[batch, number]` each."""
        given = zip(parameters, self.widths, self.parameter_scales, strict=True)
        return [columns(x, count, kind) for x, count, kind in given]

    def scalars(self, values: Tensor) -> tuple[Tensor, ...]:
        """Separate `[batch, number]` into scalars `[batch, (component)]`, off their scales."""
        return separated(values, self.scalar_components, self.scalar_scales, 1)

    def scalar_columns(self, scalars: Sequence[Tensor]) -> Tensor:
        """Return scalars `[batch, (component)]` on their scales, `[batch, number]`: the inverse of `scalars`."""
        parts = zip(scalars, self.scalar_components, self.scalar_scales, strict=True)
        return torch.cat([columns(*part) for part in parts], dim=1)


class ChannelNormaliser(Normaliser):
    """Standardise every channel by itself, however unlike the channels' units are; one that never varies is shifted."""

    @torch.no_grad()
    def fit(self, fields: Tensor) -> None:
        """Take mean and deviation per channel from samples `[sample, channel, *grid]`."""
        over = [axis for axis in range(fields.ndim) if axis != 1]
        deviation, mean = torch.std_mean(fields.double(), dim=over, correction=0)
        self.mean.copy_(mean.reshape(self.mean.shape))
        self.deviation.copy_(torch.where(deviation > 0, deviation, 1).reshape(self.deviation.shape))


def separated(x: Tensor, components: Sequence[int], scales: Sequence[Scale], axis: int) -> tuple[Tensor, ...]:
    """Separate quantities from an axis of channels, off their scales; one without components has no such axis."""
    found, start = [], 0
    before: tuple[Any, ...] = (slice(None),) * axis
    for count, kind in zip(components, scales, strict=True):
        part = x[*before, start : start + count] if count else x[*before, start]
        found.append(torch.exp(part) if kind == "log" else part)
        start += max(1, count)
    return tuple(found)


def columns(x: Tensor, components: int, kind: Scale) -> Tensor:
    """Return numbers `[batch, (component)]` on their scale, `[batch, number]`."""
    return scale(x.reshape(-1, max(1, components)), kind)


def scale(x: Tensor, kind: Scale) -> Tensor:
    """Return a quantity or its logarithm."""
    return torch.log(x) if kind == "log" else x


def channels(components: Sequence[int]) -> int:
    """Count the channels of quantities."""
    return sum(max(1, count) for count in components)
