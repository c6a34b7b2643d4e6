"""The tower maps the tokens of a sequence to one vector.

.. code-block:: text

    tokens [B, L], 0 is padding
      -> embedding of the token + embedding of its position, behind one more token where pooling is `cls`
      -> L encoder layers, padding masked -> layer norm -> the first token, or the mean over all but padding
    vector [B, C]

The mask of the padding is computed from the tokens, so the padded length does not change the vector.
"""

from __future__ import annotations

import math
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float
from pydantic import NonNegativeInt, PositiveInt, model_validator
from torch import Tensor, nn

from training.nn.activations import Activation
from training.nn.attention import AttentionType
from training.nn.encoder import EncoderConfig, encoder_stack
from training.nn.shapes import Numbers, Tokens

UNABLE = ("galerkin", "fourier", "linear")  # they take a mean over all tokens of a domain, including padding
Seen = Bool[Tensor, "batch token"]


class TowerConfig(EncoderConfig):
    """Settings of a tower; the configs of classifier and matcher inherit them."""

    inputs: ClassVar[int] = 1  # sequences of an input

    length: PositiveInt  # most tokens of a sequence
    positions: Literal["learned", "sinusoidal"] = "sinusoidal"  # embedding of a token's position
    pooling: Literal["cls", "mean"] = "cls"  # a token of its own, or the mean over the sequence
    attention: AttentionType = "softmax"
    gain: float = 1.0
    diagonal: float = 0.0
    activation: Activation = "gelu"
    local: NonNegativeInt = 0

    @model_validator(mode="after")
    def expect_masked_padding(self) -> TowerConfig:
        """Refuse settings with which padding would change the vector, or the token in front would see itself alone."""
        if self.attention in UNABLE:
            raise ValueError(f"{self.attention} attention takes a mean over padding, too: choose another")
        if self.local or self.batch_norm:
            raise ValueError("local mixing and batch norm would mix padding in: leave them out")
        if self.pooling == "cls" and (self.causal or self.attention == "causal"):
            raise ValueError("the first token of causal attention sees itself alone: set pooling = 'mean'")
        return self


class Tower(nn.Module):
    """Encode sequences; see the diagram of the module.

    Args:
        config: The sizes.
        vocabulary: Number of different tokens, including padding.
    """

    positions: Tensor

    def __init__(self, config: TowerConfig, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, config.channels)
        first = config.pooling == "cls"
        self.first = nn.Parameter(torch.zeros(1, 1, config.channels)) if first else None
        if config.positions == "learned":
            self.positions = nn.Parameter(0.02 * torch.randn(config.length + first, config.channels))
        else:
            self.register_buffer("positions", sinusoids(config.length + first, config.channels), persistent=False)
        self.dropout = nn.Dropout(config.dropout)
        self.encoder = encoder_stack(config, coordinates=0)
        self.norm = nn.LayerNorm(config.channels, config.eps) if config.norm == "pre" else nn.Identity()

    def forward(self, tokens: Numbers) -> Float[Tensor, "batch channel"]:
        """Return vectors `[batch, channel]` of tokens `[batch, length]`, padded by 0."""
        seen, x = tokens != 0, self.embedding(tokens)
        if self.first is not None:
            seen = torch.cat([torch.ones_like(seen[:, :1]), seen], dim=1)
            x = torch.cat([self.first.expand(x.shape[0], -1, -1), x], dim=1)
        x = self.dropout(x + self.positions[torch.arange(x.shape[1], device=x.device)])
        for layer in self.encoder:
            x = layer(x, mask=seen[:, None])
        return self.pool(self.norm(x), seen)

    def pool(self, x: Tokens, seen: Seen) -> Float[Tensor, "batch channel"]:
        """Return the token in front, or the mean over the tokens that are seen."""
        if self.first is not None:
            return x[:, 0]
        weight = seen.to(x.dtype)[..., None]
        return (x * weight).sum(dim=1) / weight.sum(dim=1).clamp(min=1)


def sinusoids(length: int, channels: int) -> Float[Tensor, "length channels"]:
    """Return sines and cosines of wave lengths from 2 pi to 20000 pi (Vaswani et al., 2017, section 3.5)."""
    rates = torch.exp(torch.arange(0, channels, 2) * (-math.log(1e4) / channels))
    angles = torch.arange(length)[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[:, :channels]
