r"""The encoder layer: takes tokens and their positions, gives tokens of the same shape.

.. math::
    x \leftarrow x + \mathrm{Attn}(\nu(x)) + \mathrm{Local}(\nu(x)), \qquad x \leftarrow x + \mathrm{FFN}(\nu(x)),

where :math:`\nu` is a layer norm (`norm = "pre"`) or the identity (`norm = "attention"`: only the norms inside the
attention, as published). `Local` is optional: a depthwise convolution on the token grid, which supplies what a global
mixing of smooth features is poor at.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import nn
from torch.nn import functional

from training.attention import Attention
from training.shapes import Positions, Tokens

Norm = Literal["attention", "pre"]


class EncoderLayer(nn.Module):
    """Mix tokens globally (and locally), then transform each on its own.

    Args:
        attention: the global mixing, any member of `training.attention`.
        channels: features of a token.
        feedforward: hidden features of the FFN.
        norm: see the module's formula.
        local: the local mixing, or None.
        dropout: rate on both residual branches; 0 in evaluation.
    """

    def __init__(
        self,
        attention: Attention,
        channels: int,
        feedforward: int,
        *,
        norm: Norm = "pre",
        local: nn.Module | None = None,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.attention = attention
        self.local = local
        self.norm1, self.norm2 = (nn.LayerNorm(channels) if norm == "pre" else nn.Identity() for _ in range(2))
        self.feedforward = nn.Sequential(nn.Linear(channels, feedforward), nn.SiLU(), nn.Linear(feedforward, channels))
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Tokens, positions: Positions) -> Tokens:
        tokens = tokens + self.dropout(self.mix(self.norm1(tokens), positions))
        return tokens + self.dropout(self.feedforward(self.norm2(tokens)))

    def mix(self, tokens: Tokens, positions: Positions) -> Tokens:
        mixed = self.attention(tokens, positions)
        return mixed if self.local is None else mixed + self.local(tokens)


class LocalMixing(nn.Module):
    """Convolve every channel on its own over the token grid (depthwise, stride 1, same size).

    Args:
        channels: features of a token.
        grid: sides of the token grid, one or two axes; tokens are its points in row-major order.
        kernel: odd width of the stencil.
        periodic: wrap around the ends instead of padding with zeros.
    """

    def __init__(self, channels: int, grid: tuple[int, ...], kernel: int, *, periodic: bool = False) -> None:
        super().__init__()
        self.grid = grid
        self.padding = [kernel // 2] * (2 * len(grid))
        self.mode = "circular" if periodic else "constant"
        convolution = (nn.Conv1d, nn.Conv2d)[len(grid) - 1]
        self.convolution = convolution(channels, channels, kernel, groups=channels)

    def forward(self, tokens: Tokens) -> Tokens:
        planes = functional.pad(tokens.transpose(1, 2).unflatten(2, self.grid), self.padding, mode=self.mode)
        return self.convolution(planes).flatten(2).transpose(1, 2)


def square_positions(side: int) -> Positions:
    """Give the coordinates of a side x side token grid on [0, 1]^2, row-major: [side * side, 2]."""
    axis = torch.linspace(0, 1, side)
    return torch.stack(torch.meshgrid(axis, axis, indexing="ij"), dim=-1).flatten(0, 1)


def circle_positions(points: int) -> Positions:
    """Give `points` periodic tokens their places on the unit circle, where both ends of [0, 1) meet: [points, 2]."""
    angle = 2 * math.pi * torch.arange(points) / points
    return torch.stack([torch.cos(angle), torch.sin(angle)], dim=-1)
