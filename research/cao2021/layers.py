"""Layers of the reference implementation that no published network uses.

The older scalers of the code (`DownScaler`, mode `conv`, and `UpScaler`, mode `deconv`) average 2 x 2 points and
deconvolve. Their strides fix the ratio of the grids, about 16 downwards and 11 upwards, so a native grid decides the
token grid: `pooled` and `deconvolved` return it. `ResidualBlock` is the code's `Conv2dResBlock`, and the frequency head
its `BulkRegressor`.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from pydantic import PositiveInt
from torch import Tensor, nn

from schema.parts import Frozen
from training.nn.grids import FIELDS, TOKENS, Channels, Features, Tokens, expect
from training.nn.pointwise import Activation, Dropout, build_activation


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


HIDDEN = 4  # hidden features of the bulk form, per number
DROPOUT = 0.1


class FrequencyHeadConfig(Frozen):
    """Sizes of a frequency head.

    Example:
        >>> FrequencyHeadConfig(targets=2, length=3).points is None
        True
    """

    kind: Literal["frequency"] = "frequency"
    targets: PositiveInt = 1  # lists per sample
    length: PositiveInt = 1  # numbers of a list, m
    points: PositiveInt | None = None  # tokens of every sample, for the bulk form; None: the form per token


class FrequencyHead(nn.Module):
    r"""Predict `length` numbers per target from the tokens of a sample, such as eigenvalues.

    .. math::
        \text{per token:}\quad y_{k} = B\,\mathrm{relu}(A x_k + a) + b,\ k < m, \qquad
        \text{in bulk:}\quad y_{\cdot t} = B_t\,\mathrm{leaky}(A_t\,(x c_t + d_t) + a_t) + b_t

    The form per token takes any number of tokens, at least `length`, and predicts the numbers of the first ones. The
    bulk form sees all tokens at once, and is for one number of them.

    Args:
        config: The sizes.
        inputs: The number of features per token.

    Example:
        >>> FrequencyHead(FrequencyHeadConfig(targets=2, length=3), 48)(torch.randn(5, 100, 48)).shape
        torch.Size([5, 3, 2])
        >>> FrequencyHead(FrequencyHeadConfig(length=3, points=100), 48)(torch.randn(5, 100, 48)).shape
        torch.Size([5, 3, 1])
    """

    def __init__(self, config: FrequencyHeadConfig, inputs: int) -> None:
        super().__init__()
        self.config, self.inputs = config, inputs
        self.linear: nn.Module
        self.bulk = nn.ModuleList()
        if config.points is None:
            self.linear = nn.Sequential(nn.Linear(inputs, inputs), nn.ReLU(), nn.Linear(inputs, config.targets))
            return
        self.linear = nn.Linear(inputs, config.targets)
        hidden = HIDDEN * config.length
        self.bulk.extend(
            nn.Sequential(nn.Linear(config.points, hidden), nn.LeakyReLU(), nn.Linear(hidden, config.length))
            for _ in range(config.targets)
        )
        self.dropout = Dropout(DROPOUT)

    def forward(self, tokens: Tokens) -> Float[Tensor, "batch number target"]:
        expect(tokens, TOKENS, self.inputs, self)
        mapped = self.linear(tokens)
        if self.config.points is None:
            return mapped[:, : self.config.length]
        lists = [each(mapped[..., target]) for target, each in enumerate(self.bulk)]
        return self.dropout(torch.stack(lists, dim=-1))
