"""The CNNs of a paper and its code (Cao, NeurIPS 2021, https://arxiv.org/abs/2105.14995): a field to tokens, and back.

`Downscaler` and `Upscaler` interpolate, which reaches any size (appendix C.2). The older scalers of the code
(`DownScaler`, mode `conv`, and `UpScaler`, mode `deconv`) average 2 x 2 points and deconvolve. Their strides fix the
ratio of the grids, about 16 downwards and 11 upwards, so a native grid decides the token grid: `pooled` and
`deconvolved` return it. `ResidualBlock` is the code's `Conv2dResBlock`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from training.nn.pointwise import Activation, Dropout, build_activation
from training.nn.shapes import FIELDS, Channels, Features, expect

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


class ResidualBlock(nn.Module):
    r"""Convolve once or twice by 3 x 3 stencils without bias, add the input, and activate.

    .. math::
        y = \mathrm{act}(F(x) + S(x)), \qquad F = \mathrm{drop} \circ \mathrm{conv}, \quad\text{or}\quad
        F = \mathrm{drop} \circ \mathrm{conv} \circ \mathrm{act} \circ \mathrm{drop} \circ \mathrm{conv}

    S is the identity, or a linear map at every point where the widths differ. Without residual it is zero. The block
    keeps the grid if `padding` is 1, and has no size that depends on it.

    Args:
        inputs: The number of channels in.
        outputs: The number of channels out.
        padding: The zeros around the field, of the first convolution. The second always keeps the grid.
        residual: Add the input.
        double: Convolve twice.
        activation: The activation.
        dropout: The dropout rate after every convolution. It is 0 in evaluation.

    Raises:
        ValueError: A residual is requested of a block that changes the grid.

    Example:
        >>> ResidualBlock(3, 5, residual=True, double=True)(torch.randn(2, 3, 20, 30)).shape
        torch.Size([2, 5, 20, 30])
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        padding: int = 1,
        residual: bool = False,
        double: bool = False,
        activation: Activation = "silu",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if residual and padding != 1:
            raise ValueError(f"expected padding 1, which keeps the grid, of a residual block but got {padding}")
        self.inputs = inputs
        first = nn.Conv2d(inputs, outputs, 3, padding=padding, bias=False)
        self.convolution = nn.Sequential(first, Dropout(dropout))
        if double:
            second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
            self.convolution.extend([build_activation(activation), second, Dropout(dropout)])
        self.shortcut: nn.Module | None = None
        if residual:
            self.shortcut = nn.Identity() if inputs == outputs else nn.Conv2d(inputs, outputs, 1)
        self.activation = build_activation(activation)

    def forward(self, x: Channels) -> Features:
        expect(x, FIELDS, self.inputs, self, dimensions=2)
        convolved = self.convolution(x)
        return self.activation(convolved if self.shortcut is None else convolved + self.shortcut(x))


STAGES = ((1, 1), (5, 2))  # zeros around the field before the first and the second convolution of each stage
DECONVOLUTIONS = ((2, 1), (4, 2))  # points cut off after both deconvolutions of each stage


def pooled(side: int) -> int:
    """Return the points per axis after a `PoolingDownscaler`, at least 1.

    Example:
        >>> pooled(141), pooled(33)
        (11, 5)
    """
    for first, second in STAGES:
        side = ((side + 2 * first - 2) // 2 + 2 * second - 2) // 2
    return side


def deconvolved(side: int) -> int:
    """Return the points per axis after a `DeconvolutionUpscaler`.

    Example:
        >>> deconvolved(9)
        99
    """
    for cuts in DECONVOLUTIONS:
        for cut in cuts:
            side = 2 * (side - 1) + 3 - 2 * cut
    return side


class PoolingStage(nn.Module):
    """Convolve, halve the grid, apply three chained convolutions, concatenate their outputs, and halve it again."""

    def __init__(
        self, inputs: int, outputs: int, padding: tuple[int, int], activation: Activation, dropout: float
    ) -> None:
        super().__init__()
        third = outputs // 3
        widths = [(outputs, third), (third, third), (third, outputs - 2 * third)]
        self.stem = ResidualBlock(inputs, outputs, padding=padding[0], dropout=dropout)
        self.chain = nn.ModuleList(
            ResidualBlock(*pair, padding=zeros, dropout=dropout)
            for pair, zeros in zip(widths, (padding[1], 1, 1), strict=True)
        )
        self.activation = build_activation(activation)

    def forward(self, x: Channels) -> Features:
        x, features = self.activation(halve(self.stem(x))), []
        for link in self.chain:
            x = link(x)
            features.append(x)
        return self.activation(halve(torch.cat(features, dim=1)))


class PoolingDownscaler(nn.Sequential):
    """Compute token features of a field by two stages of convolutions and averages of 2 x 2 points.

    The token grid is `pooled` of the field's. An odd last row or column is left out, as in the reference project.

    Args:
        inputs: The number of channels in.
        channels: The number of features per token.
        activation: The activation after each average. The convolutions have SiLU, as in the reference project.
        dropout: The dropout rate after every convolution, 0.1 in the reference project. It is 0 in evaluation.

    Example:
        >>> PoolingDownscaler(1, 48)(torch.randn(2, 1, 85, 141)).shape
        torch.Size([2, 48, 8, 11])
    """

    def __init__(self, inputs: int, channels: int, *, activation: Activation = "silu", dropout: float = 0.1) -> None:
        super().__init__(
            *(
                PoolingStage(width, channels, padding, activation, dropout)
                for width, padding in zip((inputs, channels), STAGES, strict=True)
            )
        )


class DeconvolutionUpscaler(nn.Module):
    """Map token features to a finer grid by four transposed convolutions of stride 2.

    The output's grid is `deconvolved` of the tokens'.

    Args:
        channels: The number of features, which stays.
        activation: The activation after every deconvolution.
        dropout: The dropout rate after the first and the third deconvolution. It is 0 in evaluation.

    Example:
        >>> DeconvolutionUpscaler(6)(torch.randn(2, 6, 9, 10)).shape
        torch.Size([2, 6, 99, 115])
    """

    def __init__(self, channels: int, *, activation: Activation = "silu", dropout: float = 0.0) -> None:
        super().__init__()
        self.channels = channels
        self.deconvolutions = nn.ModuleList(
            nn.ConvTranspose2d(channels, channels, 3, stride=2, padding=cut) for cuts in DECONVOLUTIONS for cut in cuts
        )
        self.activation, self.dropout = build_activation(activation), Dropout(dropout)

    def forward(self, x: Channels) -> Features:
        expect(x, FIELDS, self.channels, self, dimensions=2)
        for number, deconvolution in enumerate(self.deconvolutions):
            x = deconvolution(x)
            x = self.activation(x if number % 2 else self.dropout(x))
        return x


def halve(x: Channels) -> Features:
    """Average blocks of 2 x 2 points; an odd last row or column is left out."""
    rows, columns = (side // 2 for side in x.shape[-2:])
    whole = x[..., : 2 * rows, : 2 * columns]
    return whole.unflatten(-1, (columns, 2)).unflatten(-3, (rows, 2)).mean(dim=(-3, -1))
