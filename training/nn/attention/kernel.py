r"""Attention by a kernel of positive features: takes tokens and their positions, gives tokens.

.. math::
    z_t = \frac{\phi(\tilde Q_t)^T S_t}{\phi(\tilde Q_t)^T(s_t + \epsilon)}, \qquad
    S_t = \frac1m\sum_u\phi(\tilde K_u)\tilde V_u^T, \quad s_t = \frac1m\sum_u\phi(\tilde K_u),

over all :math:`m` keys that are no padding, or those up to one's own (causal), with :math:`\phi` one of
`training.nn.attention.feature_maps`: fixed (Katharopoulos et al., ICML 2020, arXiv 2006.16236; Choromanski et al., ICLR
2021, arXiv 2009.14794) or trained (Yorsh & Kovalenko, arXiv 2211.04076). :math:`O(nw^2)` time, :math:`O(nw)` memory
for n tokens and heads of width w. Sums are taken in float32 at least, whatever the tokens' precision: in bfloat16 they
would stop to grow after a few hundred tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from training.nn.attention.causal import EPS, causal_attention, divided
from training.nn.attention.feature_maps import (
    EluFeatures,
    FeatureMap,
    GatedFeatures,
    RandomFeatures,
    SoftplusFeatures,
)
from training.nn.attention.heads import HeadAttention, tracing
from training.nn.shapes import Mask, Mixed

#: The maps that a recipe can choose, made from the width of a head.
KERNELS: dict[str, Callable[[int], FeatureMap]] = {
    "kernel-elu": lambda _: EluFeatures(),
    "kernel-random": RandomFeatures,
    "kernel-softplus": SoftplusFeatures,
    "kernel-orthogonal": partial(SoftplusFeatures, orthogonal=True),
    "kernel-glu1": partial(GatedFeatures, units=1),
    "kernel-glu2": partial(GatedFeatures, units=2),
    "kernel-glu3": partial(GatedFeatures, units=3),
    "kernel-oglu1": partial(GatedFeatures, units=1, orthogonal=True),
    "kernel-oglu2": partial(GatedFeatures, units=2, orthogonal=True),
    "kernel-oglu3": partial(GatedFeatures, units=3, orthogonal=True),
    "kernel-aoglu3": partial(GatedFeatures, units=3, orthogonal=True, factored=True),
}


class KernelAttention(HeadAttention):
    """Mix by the module's formula; queries and keys are normalised.

    A mask `[batch, 1, key]` hides padding at no cost, and the answer is the one without these tokens. One that differs
    between queries, and dropout of causal attention, form the n x n matrix of weights. A query that sees no key gets 0.

    Args:
        channels: as all others, see `HeadAttention`.
        heads: likewise.
        coordinates: likewise.
        features: makes the map from the width of a head, its coordinates included.
        causal: let tokens see themselves and their predecessors only. Keys then share the order of the queries, so
            there are as many: else a ValueError says so.
        options: the keywords of `HeadAttention`.
    """

    pairwise = True

    def __init__(
        self,
        channels: int,
        heads: int,
        coordinates: int,
        *,
        features: Callable[[int], FeatureMap],
        causal: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(channels, heads, coordinates, **options)
        self.features, self.causal = features(self.width), causal

    def mix(self, Q: Mixed, K: Mixed, V: Mixed, mask: Mask | None) -> Mixed:
        if self.causal and not tracing() and Q.shape[-2] != K.shape[-2]:
            raise ValueError(f"causal attention expected as many keys as queries but got {K.shape[-2]}, {Q.shape[-2]}")
        wide = torch.promote_types(V.dtype, torch.float32)
        mixed = self.weigh(self.features(Q).to(wide), self.features(K).to(wide), V.to(wide), mask)
        return mixed.to(V.dtype)

    def weigh(self, Q: Mixed, K: Mixed, V: Mixed, mask: Mask | None) -> Mixed:
        """Give the weighted means of values for positive features of queries and keys."""
        if mask is not None and (tracing() or mask.shape[-2] == 1):  # a trace is given masks of padding alone
            K, mask = hide(K, mask), None
        if mask is not None or (self.causal and self.rate):
            return self.by_pairs(Q, K, V, mask)
        if self.causal:
            return causal_attention(Q, K, V)
        k = K / K.shape[-2]
        return divided(Q @ self.drop(k.transpose(-2, -1) @ V), Q @ k.sum(dim=-2).unsqueeze(-1), Q)

    def by_pairs(self, Q: Mixed, K: Mixed, V: Mixed, mask: Mask | None) -> Mixed:
        scores = Q @ K.transpose(-2, -1) / K.shape[-2]
        if self.causal:
            scores = scores.tril()
        if mask is not None:
            scores = scores.masked_fill(mask[:, None] == 0, 0.0)
        return self.drop(divided(scores, scores.sum(dim=-1, keepdim=True), Q)) @ V


class CausalAttention(KernelAttention):
    """Mix every token with itself and its predecessors by the fixed features elu + 1."""

    def __init__(self, channels: int, heads: int, coordinates: int, **options: Any) -> None:
        super().__init__(channels, heads, coordinates, features=KERNELS["kernel-elu"], causal=True, **options)


def hide(K: Mixed, mask: Mask) -> Mixed:
    """Give features of keys with those of padding 0, the rest scaled so that a mean over all is one over the rest."""
    seen = (mask != 0).to(K.dtype).transpose(-2, -1)[:, None]
    return K * (seen / seen.mean(dim=-2, keepdim=True).clamp(min=EPS))
