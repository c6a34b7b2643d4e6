r"""The scalers of the paper's code that do not interpolate: by averages of 2 x 2 points, and by deconvolutions.

Their strides fix the ratio of the grids, about 16 downwards and 11 upwards, so a native grid decides the token grid:
`pooled` and `deconvolved` return it. The paper replaced them by interpolation (`training.nn.resampling.interpolation`),
which reaches any size.
"""

from __future__ import annotations

import torch
from torch import nn

from training.nn.activations import Activation, build_activation
from training.nn.dropout import Dropout
from training.nn.residual_block import ResidualBlock
from training.nn.shapes import Channels, Features

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
    """Convolve, halve the grid, apply three chained convolutions, concatenate their outputs, and halve it again.

    Args:
        inputs: The number of channels in.
        outputs: The number of channels out.
        padding: The zeros around the field before the first and the second convolution.
        activation: The activation after both averages. The convolutions have SiLU.
        dropout: The dropout rate after every convolution. It is 0 in evaluation.

    Example:
        >>> PoolingStage(1, 7)(torch.randn(2, 1, 33, 20)).shape
        torch.Size([2, 7, 8, 5])
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        padding: tuple[int, int] = STAGES[0],
        *,
        activation: Activation = "silu",
        dropout: float = 0.1,
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

    References:
        | Choose a Transformer: Fourier or Galerkin (Cao, NeurIPS 2021), `DownScaler` of its code, mode `conv`
        | https://arxiv.org/abs/2105.14995

    Example:
        >>> PoolingDownscaler(1, 48)(torch.randn(2, 1, 85, 141)).shape
        torch.Size([2, 48, 8, 11])
    """

    def __init__(self, inputs: int, channels: int, *, activation: Activation = "silu", dropout: float = 0.1) -> None:
        super().__init__(
            *(
                PoolingStage(width, channels, padding, activation=activation, dropout=dropout)
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

    References:
        | Choose a Transformer: Fourier or Galerkin (Cao, NeurIPS 2021), `UpScaler` of its code, mode `deconv`
        | https://arxiv.org/abs/2105.14995

    Example:
        >>> DeconvolutionUpscaler(6)(torch.randn(2, 6, 9, 10)).shape
        torch.Size([2, 6, 99, 115])
    """

    def __init__(self, channels: int, *, activation: Activation = "silu", dropout: float = 0.0) -> None:
        super().__init__()
        self.deconvolutions = nn.ModuleList(
            nn.ConvTranspose2d(channels, channels, 3, stride=2, padding=cut) for cuts in DECONVOLUTIONS for cut in cuts
        )
        self.activation, self.dropout = build_activation(activation), Dropout(dropout)

    def forward(self, x: Channels) -> Features:
        for number, deconvolution in enumerate(self.deconvolutions):
            x = deconvolution(x)
            x = self.activation(x if number % 2 else self.dropout(x))
        return x


def halve(x: Channels) -> Features:
    """Average blocks of 2 x 2 points; an odd last row or column is left out."""
    rows, columns = (side // 2 for side in x.shape[-2:])
    whole = x[..., : 2 * rows, : 2 * columns]
    return whole.unflatten(-1, (columns, 2)).unflatten(-3, (rows, 2)).mean(dim=(-3, -1))
