r"""Between grids: takes fields on one, gives fields on another; and the interpolation CNN.

`resample` carries a field that reaches from edge to edge to any other grid of the same square by one small matrix an
axis,

.. math::
    R_{ij} \propto \max(0,\ 1 - |y_i - x_j| / \max(h_x, h_y)),

with rows of sum one: linear interpolation where the grid is refined, a hat-weighted average where it is coarsened, so
that a two-valued coefficient is averaged and not aliased. The same grid is carried to itself exactly.

The CNN pair `Downscaler` and `Upscaler` is the paper's (Cao, NeurIPS 2021, appendix C.2): convolutions between bilinear
interpolations with explicit sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from training.nn.activations import ACTIVATION, Activation
from training.nn.dropout import Dropout
from training.nn.shapes import Carried, Channels

Size = int | tuple[int, int]


def resample(x: Float[Tensor, "*batch row column"], rows: Tensor, columns: Tensor) -> Float[Tensor, "*batch _ _"]:
    """Carry `x` to the grid with the indices `rows` = 0..h-1 and `columns` = 0..w-1 (only their lengths matter)."""
    down = hat_matrix(torch.arange(x.shape[-2], device=x.device), rows, x.dtype)
    across = hat_matrix(torch.arange(x.shape[-1], device=x.device), columns, x.dtype)
    return down @ x @ across.T


def sample(x: Float[Tensor, "*batch row column"], rows: Tensor, columns: Tensor) -> Float[Tensor, "*batch _ _"]:
    """Interpolate `x` linearly at the points of the grid with the indices `rows` and `columns`, finer or coarser."""
    down = hat_matrix(torch.arange(x.shape[-2], device=x.device), rows, x.dtype, average=False)
    across = hat_matrix(torch.arange(x.shape[-1], device=x.device), columns, x.dtype, average=False)
    return down @ x @ across.T


def hat_matrix(
    source: Tensor, target: Tensor, dtype: torch.dtype, *, average: bool = True
) -> Float[Tensor, "target source"]:
    """Give the weights of each target point over the source points; both grids reach from 0 to 1.

    The hat is as wide as the coarser spacing or, without `average`, as the source's.
    """
    cells, wanted = source[-1:].to(dtype), target[-1:].to(dtype)
    # In units of the hat's half width; whole numbers are multiplied before the one division, so equal grids match
    # exactly.
    distance = (target[:, None] * source[-1:] - source[None, :] * target[-1:]).abs().to(dtype) / (
        torch.maximum(cells, wanted) if average else wanted
    )
    weight = torch.relu(1 - distance)
    return weight / weight.sum(dim=1, keepdim=True)


def interpolate(x: Channels, size: tuple[int, int]) -> Carried:
    """Interpolate bilinearly between grids that share their outermost points."""
    return functional.interpolate(x, size=size, mode="bilinear", align_corners=True)


def convolution(
    inputs: int, outputs: int, *, bias: bool = True, activation: Activation = "silu", dropout: float = 0.0
) -> nn.Sequential:
    """Give a 3 x 3 convolution that keeps the size, with dropout and activation behind it."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=bias), Dropout(dropout), ACTIVATION[activation]()
    )


class Downscaler(nn.Module):
    """Make token features of a field.

    Convolve, shrink to `middle`, put three chained convolutions side by side, shrink to `side`.

    Args:
        inputs: channels in.
        channels: features of a token, shared among the three chained convolutions.
        stem: channels at the fine size, where convolutions are dear.
        middle: intermediate size, (rows, columns) or the side of a square.
        side: size of the token grid, likewise.
        bias: of the convolutions.
        activation: behind every convolution.
        reactivate: apply the activation again behind each interpolation, as the published network does.
        dropout: rate behind every convolution; 0 in evaluation.
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
        self.reactivation = ACTIVATION[activation if reactivate else "none"]()
        # The chain's channels that are no padding, once `pad_chain` was here.
        self.kept: Tensor | None
        self.register_buffer("kept", None, persistent=False)

    def forward(self, x: Channels) -> Carried:
        x, features = self.reactivation(interpolate(self.stem(x), self.middle)), []
        for link in self.chain:
            x = link(x)
            features.append(x)
        tokens = self.reactivation(interpolate(torch.cat(features, dim=1), self.side))
        return tokens if self.kept is None else tokens.index_select(1, self.kept)

    def pad_chain(self, multiple: int) -> None:
        """Widen the chain to a multiple of channels with zeros, which changes no answer: for inference only.

        A third of a power of two fits no vector, and runtimes convolve such channels in a slower layout. Every
        activation answers zero with zero, so the padding stays zero from link to link.
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
    """Carry token features to the fine grid: grow to `middle`, convolve, grow to `side`.

    Args:
        inputs: features of a token.
        outputs: channels at the fine size.
        middle: intermediate size, (rows, columns) or the side of a square.
        side: fine size, likewise.
        bias: of the convolution.
        activation: behind the convolution.
        reactivate: drop and apply the activation once more behind it, as the published network does.
        dropout: rate behind the convolution; 0 in evaluation.
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
        self.reactivation = nn.Sequential(Dropout(dropout), ACTIVATION[activation]()) if reactivate else nn.Identity()

    def forward(self, x: Channels, mix: Callable[[Carried], Carried] | None = None) -> Carried:
        """Carry features to the fine grid; `mix`, a linear map at every point, is applied on the grid before it."""
        grown = self.reactivation(self.convolution(interpolate(x, self.middle)))
        return interpolate(grown if mix is None else mix(grown), self.side)


def rectangle(size: Size) -> tuple[int, int]:
    """Give (rows, columns) of a size that may be the side of a square."""
    return (size, size) if isinstance(size, int) else size


def coordinates(rows: Tensor, columns: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Give both coordinates on [0, 1] of a grid with the indices `rows` and `columns`: [row, 1] and [1, column]."""
    y, x = (index.to(dtype) / index[-1:].to(dtype) for index in (rows, columns))
    return y[:, None], x[None, :]
