"""Takes queries, keys and values as tokens, gives mixed tokens: one file per family, one signature for all.

| type | mixing of a head, n tokens, width w | cost in tokens | normalised | mask |
|---|---|---|---|---|
| `galerkin` | Q (K^T V) / n | linear | K, V | no |
| `fourier` | (Q K^T) V / (n sqrt(w)), computed as Q (K^T V) | linear; quadratic with mask or dropout | Q, K | yes |
| `linear` | softmax(Q) (softmax(K)^T V) / n | linear | K, V | no |
| `softmax` | softmax(Q K^T / sqrt(w)) V, fused | quadratic | Q, K | yes |
| `kernel-...` | phi(Q) (phi(K)^T V), divided by phi(Q) phi(K)^T 1 | linear; quadratic with mask [1] | Q, K | yes |
| `causal` | the same up to one's own token, phi = elu + 1 | linear; quadratic with mask [1] or dropout | Q, K | yes |

[1] Linear with one that hides padding, the same for all queries.

| kernel type | features phi of a head |
|---|---|
| `kernel-elu` | elu + 1, fixed |
| `kernel-random` | positive random features, fixed |
| `kernel-softplus`, `-orthogonal` | Softplus(x W), trained; with W orthogonal |
| `kernel-glu1` to `3` | 1 to 3 gated linear units, trained |
| `kernel-oglu1` to `3`, `-aoglu3` | the same, orthogonal; with gates of a quarter of the rank |

`low_rank` holds a head outside this table, bare of all but its matrices, that theory speaks about.

None gives its attention matrix away: most never form it. Cosine attention is left out: the published one never ran.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, Protocol, runtime_checkable

from training.nn.attention.causal import causal_attention
from training.nn.attention.heads import AttentionNorm, HeadAttention
from training.nn.attention.kernel import KERNELS, CausalAttention, KernelAttention
from training.nn.attention.scale_preserving import FourierAttention, GalerkinAttention
from training.nn.attention.softmax import LinearAttention, SoftmaxAttention
from training.nn.options import known
from training.nn.shapes import Mask, Positions, SourcePositions, Sources, Tokens, Weight

AttentionType = Literal[
    "galerkin",
    "fourier",
    "linear",
    "softmax",
    "causal",
    "kernel-elu",
    "kernel-random",
    "kernel-softplus",
    "kernel-orthogonal",
    "kernel-glu1",
    "kernel-glu2",
    "kernel-glu3",
    "kernel-oglu1",
    "kernel-oglu2",
    "kernel-oglu3",
    "kernel-aoglu3",
]


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


#: The one registry that turns a recipe's word into what builds the attention.
ATTENTION: dict[str, Callable[..., HeadAttention]] = {
    "galerkin": GalerkinAttention,
    "fourier": FourierAttention,
    "linear": LinearAttention,
    "softmax": SoftmaxAttention,
    "causal": CausalAttention,
    **{kind: partial(KernelAttention, features=features) for kind, features in KERNELS.items()},
}


def build_attention(kind: str, channels: int, heads: int, coordinates: int, **options: Any) -> HeadAttention:
    """Give a new attention of a type by its name; `options` are the keywords of `HeadAttention`, `causal` for kernels.

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
    "KernelAttention",
    "LinearAttention",
    "SoftmaxAttention",
    "build_attention",
    "causal_attention",
]
