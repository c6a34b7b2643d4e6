"""Takes queries, keys and values as tokens, gives mixed tokens: one file per family, one signature for all.

| type | family | cost in tokens |
|---|---|---|
| `galerkin` | scale-preserving, K^T V first | linear |
| `fourier` | scale-preserving, (Q K^T) V, computed as Q (K^T V) | linear |
"""

from __future__ import annotations

from typing import Literal, Protocol, runtime_checkable

from training.attention.scale_preserving import FourierAttention, GalerkinAttention
from training.shapes import Positions, Tokens

AttentionType = Literal["galerkin", "fourier"]


@runtime_checkable
class Attention(Protocol):
    """What an encoder layer needs of an attention: self-attention of `tokens` placed at `positions`."""

    def __call__(self, tokens: Tokens, positions: Positions) -> Tokens:
        """Mix the tokens; shape and dtype are kept."""
        ...


#: The one registry that turns a recipe's word into a class.
ATTENTION: dict[AttentionType, type[GalerkinAttention | FourierAttention]] = {
    "galerkin": GalerkinAttention,
    "fourier": FourierAttention,
}

__all__ = ["ATTENTION", "Attention", "AttentionType", "FourierAttention", "GalerkinAttention"]
