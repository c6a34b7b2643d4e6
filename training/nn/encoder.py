r"""The encoder layer: takes tokens and their positions, gives tokens of the same shape.

.. math::
    x \leftarrow \nu(x \pm \mathrm{Mix}(\mu(x))), \qquad x \leftarrow \nu(x + \mathrm{FFN}(\mu(x))), \qquad
    \mathrm{Mix} = \mathrm{Attn} + \mathrm{Local},

where one of :math:`\mu, \nu` is a layer norm and the other the identity: :math:`\mu` for `norm = "pre"`, :math:`\nu`
for `norm = "post"`; neither for `norm = "none"`, which leaves the norms inside the attention alone, as published (Cao,
NeurIPS 2021, arXiv 2105.14995, section 3). `Local` is optional: a depthwise convolution on the token grid, which
supplies what a global mixing of smooth features is poor at.
"""

from __future__ import annotations

import copy
import math
from collections import OrderedDict
from collections.abc import Callable
from typing import Literal, get_args

import torch
from pydantic import BaseModel, ConfigDict
from torch import nn
from torch.nn import functional

from training.nn.activations import ACTIVATION, Activation
from training.nn.attention import Attention, AttentionNorm, AttentionType, build_attention
from training.nn.dropout import Dropout
from training.nn.options import known
from training.nn.shapes import Mask, Positions, Tokens, Weight

Norm = Literal["none", "pre", "post"]
Residual = Literal["plus", "minus"]


class EncoderConfig(BaseModel):
    """What every operator's encoder can be told; an operator's own config inherits it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    attention: AttentionType = "galerkin"
    attention_norm: AttentionNorm = "layer"
    attention_dropout: float = 0.0
    dropout_in_evaluation: bool = False  # the attention's dropout only, as in the published measurements
    causal: bool = False  # tokens see their predecessors only; kernels can
    norm: Norm = "pre"
    eps: float = 1e-5  # of all norms
    gain: float = 1e-2  # Xavier gain of the attention's projections
    diagonal: float = 1e-2  # multiple of the identity added to them
    symmetric: bool = False  # add their transpose too
    channels: int = 64  # features of a token, C
    heads: int = 4
    layers: int = 4
    feedforward: int = 128  # hidden features of the FFN
    activation: Activation = "silu"
    batch_norm: bool = False  # of the FFN's hidden features
    residual: Residual = "plus"
    dropout: float = 0.0  # of both residual branches
    feedforward_dropout: float = 0.0  # of the FFN's hidden features
    identical: bool = False  # start all layers from equal weights, as published
    local: int = 0  # stencil of the depthwise convolution beside the attention; 0 leaves it out


class EncoderLayer(nn.Module):
    """Mix tokens globally (and locally), then transform each on its own.

    Six layers on 8192 points of a line, for a batch of 8::

        import torch
        from torch import nn
        from training.attention import build_attention
        from training.encoder import EncoderLayer

        def layer():
            return EncoderLayer(build_attention("galerkin", 128, 4, coordinates=1), channels=128, feedforward=256)

        layers = nn.ModuleList(layer() for _ in range(6))
        x = torch.randn(8, 8192, 128)
        pos = torch.arange(8192)[:, None].repeat(8, 1, 1)
        for layer in layers:
            x = layer(x, pos)

    Args:
        attention: the global mixing, any member of `training.nn.attention`.
        channels: features of a token.
        feedforward: hidden features of the FFN.
        norm: `pre`, `post` or `none`, see the module's formula.
        activation: `silu`, `relu`, `gelu` or `none`, of the FFN.
        residual: the sign of the mixing branch, `plus` or `minus`.
        batch_norm: normalise the FFN's hidden features over batch and tokens.
        eps: of the norms.
        local: the local mixing, or None.
        dropout: rate on both residual branches; 0 in evaluation.
        feedforward_dropout: rate on the FFN's hidden features; 0 in evaluation.

    Raises:
        ValueError: a word is unknown; the message lists those that are known.
    """

    def __init__(
        self,
        attention: Attention,
        channels: int,
        feedforward: int,
        *,
        norm: str = "pre",
        activation: str = "silu",
        residual: str = "plus",
        batch_norm: bool = False,
        eps: float = 1e-5,
        local: nn.Module | None = None,
        dropout: float = 0.0,
        feedforward_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.attention = attention
        self.local = local
        self.post = known(norm, get_args(Norm), "the norm") == "post"
        self.minus = known(residual, get_args(Residual), "the residual") == "minus"
        self.norm1, self.norm2 = (nn.Identity() if norm == "none" else nn.LayerNorm(channels, eps) for _ in range(2))
        hidden = OrderedDict(
            activation=ACTIVATION[known(activation, ACTIVATION, "the activation")](),
            dropout=Dropout(feedforward_dropout),
        )
        if batch_norm:
            hidden["norm"] = nn.BatchNorm1d(feedforward)
        self.feedforward = nn.Sequential(
            nn.Linear(channels, feedforward), nn.Sequential(hidden), nn.Linear(feedforward, channels)
        )
        self.dropout = Dropout(dropout)

    def forward(
        self,
        tokens: Tokens,
        positions: Positions | None = None,
        *,
        mask: Mask | None = None,
        weight: Weight | None = None,
    ) -> Tokens:
        """Give the tokens after one layer; positions, mask and weight as in `training.nn.attention.HeadAttention`."""

        def mix(x: Tokens) -> Tokens:
            mixed = self.attention(x, positions=positions, mask=mask, weight=weight)
            mixed = mixed if self.local is None else mixed + self.local(x)
            return -mixed if self.minus else mixed

        tokens = self.add(tokens, mix, self.norm1)
        return self.add(tokens, self.transform, self.norm2)

    def transform(self, tokens: Tokens) -> Tokens:
        """Transform each token on its own: as rows of one matrix, whatever their sample, which graphs multiply best."""
        return self.feedforward(tokens.flatten(0, 1)).unflatten(0, tokens.shape[:2])

    def add(self, tokens: Tokens, branch: Callable[[Tokens], Tokens], norm: nn.Module) -> Tokens:
        if self.post:
            return norm(tokens + self.dropout(branch(tokens)))
        return tokens + self.dropout(branch(norm(tokens)))


def encoder_stack(
    config: EncoderConfig, coordinates: int, local: Callable[[], nn.Module | None] | None = None
) -> nn.ModuleList:
    """Give the layers of an encoder.

    Args:
        config: an operator's config.
        coordinates: components of a token's position; 0 for an encoder without positions.
        local: makes one layer's local mixing; asked only if the config wants one.
    """

    def layer() -> EncoderLayer:
        return encoder_layer(config, coordinates, local() if local and config.local else None)

    if config.identical:
        first = layer()
        return nn.ModuleList(copy.deepcopy(first) for _ in range(config.layers))
    return nn.ModuleList(layer() for _ in range(config.layers))


def encoder_layer(config: EncoderConfig, coordinates: int, local: nn.Module | None) -> EncoderLayer:
    """Give one layer of the encoder."""
    attention = build_attention(
        config.attention,
        config.channels,
        config.heads,
        coordinates,
        norm=config.attention_norm,
        eps=config.eps,
        gain=config.gain,
        diagonal=config.diagonal,
        symmetric=config.symmetric,
        dropout=config.attention_dropout,
        dropout_in_evaluation=config.dropout_in_evaluation,
        **({"causal": True} if config.causal else {}),
    )
    return EncoderLayer(
        attention,
        config.channels,
        config.feedforward,
        norm=config.norm,
        activation=config.activation,
        residual=config.residual,
        batch_norm=config.batch_norm,
        eps=config.eps,
        local=local,
        dropout=config.dropout,
        feedforward_dropout=config.feedforward_dropout,
    )


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
