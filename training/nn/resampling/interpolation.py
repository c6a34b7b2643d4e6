r"""Resampling of fields between grids: hat-function interpolation, and the two interpolating CNNs of the paper.

`resample` maps a field to another grid of the same square by one small matrix per axis,

.. math::
    R_{ij} \propto \max(0,\ 1 - |y_i - x_j| / \max(h_x, h_y)),

whose rows sum to one. On a finer grid this is linear interpolation. On a coarser grid it is an average weighted by a
hat function, so a two-valued coefficient is averaged and not aliased. The same grid is reproduced exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from training.nn.activations import Activation, build_activation
from training.nn.dropout import Dropout
from training.nn.shapes import Channels, Features

Size = int | tuple[int, int]


def resample(x: Float[Tensor, "*batch row column"], rows: Tensor, columns: Tensor) -> Float[Tensor, "*batch _ _"]:
    """Resample a field to another grid, with averages where that grid is coarser.

    Args:
        x: The field, of shape `[*batch, row, column]`.
        rows: The row indices 0..h-1 of the other grid. Only their number matters.
        columns: The column indices 0..w-1 of the other grid.

    Returns:
        The field on the other grid, of shape `[*batch, h, w]`.

    Example:
        >>> resample(torch.ones(2, 29, 29), torch.arange(57), torch.arange(15)).shape
        torch.Size([2, 57, 15])
    """
    down = hat_matrix(torch.arange(x.shape[-2], device=x.device), rows, x.dtype)
    across = hat_matrix(torch.arange(x.shape[-1], device=x.device), columns, x.dtype)
    return down @ x @ across.T


def sample(x: Float[Tensor, "*batch row column"], rows: Tensor, columns: Tensor) -> Float[Tensor, "*batch _ _"]:
    """Interpolate a field linearly at the points of another grid, without averages.

    Args:
        x: The field, of shape `[*batch, row, column]`.
        rows: The row indices 0..h-1 of the other grid.
        columns: The column indices 0..w-1 of the other grid.

    Returns:
        The field on the other grid, of shape `[*batch, h, w]`.
    """
    down = hat_matrix(torch.arange(x.shape[-2], device=x.device), rows, x.dtype, average=False)
    across = hat_matrix(torch.arange(x.shape[-1], device=x.device), columns, x.dtype, average=False)
    return down @ x @ across.T


def hat_matrix(
    source: Tensor, target: Tensor, dtype: torch.dtype, *, average: bool = True
) -> Float[Tensor, "target source"]:
    """Return the weights of each target point over the source points; see the formula of the module.

    Args:
        source: The indices 0..n-1 of the source points. Both axes span [0, 1].
        target: The indices 0..m-1 of the target points.
        dtype: The dtype of the result.
        average: Make the hat as wide as the coarser of both spacings. Otherwise it is as wide as the source's.

    Returns:
        A matrix of shape `[m, n]`.
    """
    source_cells, target_cells = source[-1:].to(dtype), target[-1:].to(dtype)
    # Distances are in units of the hat's half width. Integers are multiplied before the one division, so that equal
    # grids match exactly.
    distance = (target[:, None] * source[-1:] - source[None, :] * target[-1:]).abs().to(dtype) / (
        torch.maximum(source_cells, target_cells) if average else target_cells
    )
    weight = torch.relu(1 - distance)
    return weight / weight.sum(dim=1, keepdim=True)


def interpolate(x: Channels, size: tuple[int, int]) -> Features:
    """Interpolate bilinearly to a grid of `size` whose outermost points are those of the old grid."""
    return functional.interpolate(x, size=size, mode="bilinear", align_corners=True)


def convolution(
    inputs: int, outputs: int, *, bias: bool = True, activation: Activation = "silu", dropout: float = 0.0
) -> nn.Sequential:
    """Return a 3 x 3 convolution that keeps the grid, followed by dropout and an activation.

    Args:
        inputs: The number of channels in.
        outputs: The number of channels out.
        bias: Whether the convolution has a bias.
        activation: The activation.
        dropout: The dropout rate. It is 0 in evaluation.
    """
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=bias), Dropout(dropout), build_activation(activation)
    )


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

    References:
        | Choose a Transformer: Fourier or Galerkin (Cao, NeurIPS 2021), appendix C.2
        | https://arxiv.org/abs/2105.14995

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
        self.middle, self.side = rectangle(middle), rectangle(side)
        widths = [(inputs, stem), (stem, third), (third, third), (third, channels - 2 * third)]
        self.stem, *chain = (convolution(a, b, bias=bias, activation=activation, dropout=dropout) for a, b in widths)
        self.chain = nn.ModuleList(chain)
        self.reactivation = build_activation(activation if reactivate else "none")
        # The indices of the chain's channels that are no padding, set by `pad_chain`.
        self.kept: Tensor | None
        self.register_buffer("kept", None, persistent=False)

    def forward(self, x: Channels) -> Features:
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

    References:
        | Choose a Transformer: Fourier or Galerkin (Cao, NeurIPS 2021), appendix C.2
        | https://arxiv.org/abs/2105.14995

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
        self.middle, self.side = rectangle(middle), rectangle(side)
        self.convolution = convolution(inputs, outputs, bias=bias, activation=activation, dropout=dropout)
        again = nn.Sequential(Dropout(dropout), build_activation(activation))
        self.reactivation = again if reactivate else nn.Identity()

    def forward(self, x: Channels, mix: Callable[[Features], Features] | None = None) -> Features:
        """Return the features on the fine grid.

        `mix` is a linear map that acts on every point alone. It is applied at the intermediate grid, where it is
        cheaper, and commutes with the last interpolation.
        """
        grown = self.reactivation(self.convolution(interpolate(x, self.middle)))
        return interpolate(grown if mix is None else mix(grown), self.side)


def rectangle(size: Size) -> tuple[int, int]:
    """Return (rows, columns) of a size that may be the side of a square."""
    return (size, size) if isinstance(size, int) else size
