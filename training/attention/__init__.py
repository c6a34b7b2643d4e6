"""Takes queries, keys and values as tokens, gives mixed tokens: one file per family, one signature for all.

| type | mixing of a head, n tokens, width w | cost in tokens | normalised | mask |
|---|---|---|---|---|
| `galerkin` | Q (K^T V) / n | linear | K, V | no |
| `fourier` | (Q K^T) V / (n sqrt(w)), computed as Q (K^T V) | linear; quadratic with mask or dropout | Q, K | yes |
| `linear` | softmax(Q) (softmax(K)^T V) / n | linear | K, V | no |
| `softmax` | softmax(Q K^T / sqrt(w)) V, fused | quadratic | Q, K | yes |
| `causal` | phi(Q) phi(K)^T V up to one's own token, divided | linear; quadratic with mask or dropout | Q, K | yes |

None gives its attention matrix away: most never form it. Cosine attention is left out: the published one never ran.
"""

from __future__ import annotations

from typing import Any, Literal, Protocol, runtime_checkable

from training.attention.causal import CausalAttention, causal_attention
from training.attention.heads import AttentionNorm, HeadAttention
from training.attention.scale_preserving import FourierAttention, GalerkinAttention
from training.attention.softmax import LinearAttention, SoftmaxAttention
from training.shapes import Mask, Positions, SourcePositions, Sources, Tokens, Weight
from training.words import known

AttentionType = Literal["galerkin", "fourier", "linear", "softmax", "causal"]


@runtime_checkable
class Attention(Protocol):
    """What an encoder layer needs of an attention; `HeadAttention.forward` says what the arguments mean."""

    def __call__(
        self,
        query: Tokens,
        key: Sources | None = None,
        value: Sources | None = None,
        *,
        positions: Positions | None = None,
        key_positions: SourcePositions | None = None,
        mask: Mask | None = None,
        weight: Weight | None = None,
    ) -> Tokens:
        """Mix the tokens; shape and dtype are kept."""
        ...


#: The one registry that turns a recipe's word into a class.
ATTENTION: dict[str, type[HeadAttention]] = {
    "galerkin": GalerkinAttention,
    "fourier": FourierAttention,
    "linear": LinearAttention,
    "softmax": SoftmaxAttention,
    "causal": CausalAttention,
}


def build_attention(kind: str, channels: int, heads: int, coordinates: int, **options: Any) -> HeadAttention:
    """Give a new attention of a type by its name; `options` are the keywords of `HeadAttention`.

    Raises:
        ValueError: there is no such type (the message lists those there are), or an option does not fit.
    """
    return ATTENTION[known(kind, ATTENTION, "the attention type")](channels, heads, coordinates, **options)


__all__ = [
    "ATTENTION",
    "Attention",
    "AttentionNorm",
    "AttentionType",
    "CausalAttention",
    "FourierAttention",
    "GalerkinAttention",
    "HeadAttention",
    "LinearAttention",
    "SoftmaxAttention",
    "build_attention",
    "causal_attention",
]
