"""The CNNs of a paper and its code (Cao, NeurIPS 2021, https://arxiv.org/abs/2105.14995): a field to tokens, and back.

`Downscaler` and `Upscaler` interpolate, which reaches any size (appendix C.2).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from training.nn.grids import FIELDS, Channels, Features, expect
from training.nn.pointwise import Activation, Dropout, build_activation

Size = int | tuple[int, int]


class Downscaler(nn.Module):
    r"""Compute token features of a field by convolutions and interpolations to coarser grids.

    The layer convolves, interpolates to `middle`, applies three chained convolutions, concatenates their outputs, and
    interpolates to `side`.

    Args:
        inputs: The number of channels in.
        channels: The number of features per token. Each chained convolution gives a third of them.
        stem: The number of channels at the fine grid, where convolutions are expensive.
        middle: The intermediate grid: (rows, columns), or the side of a square.
        side: The token grid, likewise.
        bias: Whether the convolutions have a bias.
        activation: The activation after every convolution.
        reactivate: Apply the activation again after each interpolation, as the reference project does.
        dropout: The dropout rate after every convolution. It is 0 in evaluation.

    Example:
        >>> downscaler = Downscaler(1, 48, stem=16, middle=49, side=29)
        >>> downscaler(torch.randn(2, 1, 85, 85)).shape
        torch.Size([2, 48, 29, 29])
    """

    def __init__(
        self,
        inputs: int,
        channels: int,
        stem: int,
        middle: Size,
        side: Size,
        *,
        bias: bool = True,
        activation: Activation = "silu",
        reactivate: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        third = channels // 3
        self.inputs = inputs
        self.middle, self.side = rectangle(middle), rectangle(side)
        widths = [(inputs, stem), (stem, third), (third, third), (third, channels - 2 * third)]
        self.stem, *chain = (convolution(a, b, bias=bias, activation=activation, dropout=dropout) for a, b in widths)
        self.chain = nn.ModuleList(chain)
        self.reactivation = build_activation(activation if reactivate else "none")
        # The indices of the chain's channels that are no padding, set by `pad_chain`.
        self.kept: Tensor | None
        self.register_buffer("kept", None, persistent=False)

    def forward(self, x: Channels) -> Features:
        expect(x, FIELDS, self.inputs, self, dimensions=2)
        x, features = self.reactivation(interpolate(self.stem(x), self.middle)), []
        for link in self.chain:
            x = link(x)
            features.append(x)
        tokens = self.reactivation(interpolate(torch.cat(features, dim=1), self.side))
        return tokens if self.kept is None else tokens.index_select(1, self.kept)

    def pad_chain(self, multiple: int) -> None:
        """Pad the chain's channels with zeros to a multiple, which leaves the output unchanged. For inference only.

        A third of a power of two does not fill vector registers, and runtimes convolve such channels in a slower
        layout. Every activation maps zero to zero, so the padding stays zero along the chain.
        """
        kept, start, inputs = [], 0, 0
        for link in self.chain:
            layer = cast("nn.Conv2d", cast("nn.Sequential", link)[0])
            width = layer.out_channels
            outputs = -(-width // multiple) * multiple
            missing = max(inputs - layer.in_channels, 0)
            layer.weight.data = functional.pad(layer.weight, (0, 0, 0, 0, 0, missing, 0, outputs - width))
            if layer.bias is not None:
                layer.bias.data = functional.pad(layer.bias, (0, outputs - width))
            layer.in_channels, layer.out_channels = layer.in_channels + missing, outputs
            kept.append(torch.arange(start, start + width))
            start, inputs = start + outputs, outputs
        self.kept = torch.cat(kept)


class Upscaler(nn.Module):
    r"""Map token features to a fine grid: interpolate to `middle`, convolve, interpolate to `side`.

    Args:
        inputs: The number of features per token.
        outputs: The number of channels at the fine grid.
        middle: The intermediate grid: (rows, columns), or the side of a square.
        side: The fine grid, likewise.
        bias: Whether the convolution has a bias.
        activation: The activation after the convolution.
        reactivate: Apply dropout and the activation once more after the convolution, as the reference project does.
        dropout: The dropout rate after the convolution. It is 0 in evaluation.

    Example:
        >>> upscaler = Upscaler(48, 16, middle=49, side=85)
        >>> upscaler(torch.randn(2, 48, 29, 29)).shape
        torch.Size([2, 16, 85, 85])
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        middle: Size,
        side: Size,
        *,
        bias: bool = True,
        activation: Activation = "silu",
        reactivate: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.inputs = inputs
        self.middle, self.side = rectangle(middle), rectangle(side)
        self.convolution = convolution(inputs, outputs, bias=bias, activation=activation, dropout=dropout)
        again = nn.Sequential(Dropout(dropout), build_activation(activation))
        self.reactivation = again if reactivate else nn.Identity()

    def forward(self, x: Channels, mix: Callable[[Features], Features] | None = None) -> Features:
        """Return the features on the fine grid.

        `mix` is a linear map that acts on every point alone. It is applied at the intermediate grid, where it is
        cheaper, and commutes with the last interpolation.
        """
        expect(x, FIELDS, self.inputs, self, dimensions=2)
        grown = self.reactivation(self.convolution(interpolate(x, self.middle)))
        return interpolate(grown if mix is None else mix(grown), self.side)


def interpolate(x: Channels, size: tuple[int, int]) -> Features:
    """Interpolate bilinearly to a grid of `size` whose outermost points are those of the old grid."""
    return functional.interpolate(x, size=size, mode="bilinear", align_corners=True)


def convolution(
    inputs: int, outputs: int, *, bias: bool = True, activation: Activation = "silu", dropout: float = 0.0
) -> nn.Sequential:
    """Return a 3 x 3 convolution that keeps the grid, followed by dropout and an activation."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=bias), Dropout(dropout), build_activation(activation)
    )


def rectangle(size: Size) -> tuple[int, int]:
    """Return (rows, columns) of a size that may be the side of a square."""
    return (size, size) if isinstance(size, int) else size
