r"""Attention by a kernel of positive features.

.. math::
    z_t = \frac{\phi(\tilde Q_t)^T S_t}{\phi(\tilde Q_t)^T(s_t + \epsilon)}, \qquad
    S_t = \frac1m\sum_u\phi(\tilde K_u)\tilde V_u^T, \quad s_t = \frac1m\sum_u\phi(\tilde K_u)

The sums are over all :math:`m` keys that are no padding or, if causal, over the keys up to the query's own.
:math:`\phi` is one of `training.nn.attention.feature_maps`; each head has its own. The cost is :math:`O(nw^2)` time and
:math:`O(nw)` memory for n tokens and heads of width w. Sums are in float32 at least: in bfloat16 they would stop
growing after a few hundred tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from training.nn.attention.causal import EPS, causal_attention, weighted_mean
from training.nn.attention.feature_maps import (
    EluFeatures,
    FeatureMap,
    GatedFeatures,
    RandomFeatures,
    SoftplusFeatures,
)
from training.nn.attention.heads import HeadAttention, tracing
from training.nn.shapes import Mask, Mixed

Features = Callable[..., FeatureMap]

FREE: dict[str, Features] = {
    "kernel-softplus": SoftplusFeatures,
    "kernel-glu1": partial(GatedFeatures, units=1),
    "kernel-glu2": partial(GatedFeatures, units=2),
    "kernel-glu3": partial(GatedFeatures, units=3),
}
ORTHOGONAL: dict[str, Features] = {
    "kernel-orthogonal": partial(SoftplusFeatures, orthogonality="penalty"),
    "kernel-oglu1": partial(GatedFeatures, units=1, orthogonality="penalty"),
    "kernel-oglu2": partial(GatedFeatures, units=2, orthogonality="penalty"),
    "kernel-oglu3": partial(GatedFeatures, units=3, orthogonality="penalty"),
    "kernel-aoglu3": partial(GatedFeatures, units=3, orthogonality="penalty", low=True),
}

#: Feature maps by the kind of attention; each takes the width of a head, and the number of maps or None for one.
KERNELS: dict[str, Features] = {
    "kernel-elu": lambda _width, _heads=None: EluFeatures(),
    "kernel-random": lambda width, _heads=None: RandomFeatures(width),
    **FREE,
    **ORTHOGONAL,
    **{f"{kind}-exact": partial(features, orthogonality="exact") for kind, features in ORTHOGONAL.items()},
}


class KernelAttention(HeadAttention):
    r"""Mix by positive features, with normalised queries and keys.

    .. math::
        z = \phi(\tilde Q)\,(\phi(\tilde K)^T V) \oslash \phi(\tilde Q)\,\phi(\tilde K)^T 1

    A mask `[batch, 1, key]` hides padding at no cost: the output equals the one without these tokens. A mask that
    differs between queries, and dropout of causal attention, form the n x n matrix of weights. A query that attends to
    no key gets 0.

    Args:
        channels: The number of features per token, a multiple of `heads`.
        heads: The number of heads.
        coordinates: The number of coordinates of a position; 0 for tokens without positions.
        features: Makes the feature map from the width of a head, including the coordinates, and the number of heads.
        shared: Use one trained map for all heads. By default each head has its own.
        causal: Let every token attend to itself and to its predecessors only. Keys are then in the order of the queries
            and of the same number; otherwise `forward` raises a ValueError.
        options: The keywords of `HeadAttention`.

    References:
        | Linear Self-Attention Approximation via Trainable Feedforward Kernel (Yorsh & Kovalenko, 2022)
        | https://arxiv.org/abs/2211.04076
        | Rethinking Attention with Performers (Choromanski et al., ICLR 2021)
        | https://arxiv.org/abs/2009.14794

    Example:
        >>> attention = KernelAttention(64, heads=4, coordinates=0, features=SoftplusFeatures)
        >>> attention(torch.randn(2, 100, 64)).shape
        torch.Size([2, 100, 64])
    """

    pairwise = True

    def __init__(
        self,
        channels: int,
        heads: int,
        coordinates: int,
        *,
        features: Features,
        shared: bool = False,
        causal: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(channels, heads, coordinates, **options)
        self.features, self.causal = features(self.width, None if shared else heads), causal

    def mix(self, Q: Mixed, K: Mixed, V: Mixed, mask: Mask | None) -> Mixed:
        if self.causal and not tracing() and Q.shape[-2] != K.shape[-2]:
            raise ValueError(f"causal attention expected as many keys as queries but got {K.shape[-2]}, {Q.shape[-2]}")
        wide = torch.promote_types(V.dtype, torch.float32)
        mixed = self.weigh(self.features(Q).to(wide), self.features(K).to(wide), V.to(wide), mask)
        return mixed.to(V.dtype)

    def weigh(self, Q: Mixed, K: Mixed, V: Mixed, mask: Mask | None) -> Mixed:
        """Return the weighted means of the values.

        Args:
            Q: Positive features of the queries, of shape `[batch, head, token, feature]`.
            K: Positive features of the keys, of shape `[batch, head, source, feature]`.
            V: The values, of shape `[batch, head, source, width]`.
            mask: See `forward`.
        """
        if mask is not None and (tracing() or mask.shape[-2] == 1):  # traced graphs have masks of padding only
            K, mask = zero_padding(K, mask), None
        if mask is not None or (self.causal and self.rate):
            return self.by_pairs(Q, K, V, mask)
        if self.causal:
            return causal_attention(Q, K, V)
        k = K / K.shape[-2]
        return weighted_mean(Q @ self.drop(k.transpose(-2, -1) @ V), Q @ k.sum(dim=-2).unsqueeze(-1), Q)

    def by_pairs(self, Q: Mixed, K: Mixed, V: Mixed, mask: Mask | None) -> Mixed:
        """Return the same means by the n x n matrix of weights.

        Args:
            Q: See `weigh`.
            K: See there.
            V: See there.
            mask: See there.
        """
        scores = Q @ K.transpose(-2, -1) / K.shape[-2]
        if self.causal:
            scores = scores.tril()
        if mask is not None:
            scores = scores.masked_fill(mask[:, None] == 0, 0.0)
        return self.drop(weighted_mean(scores, scores.sum(dim=-1, keepdim=True), Q)) @ V


class CausalAttention(KernelAttention):
    r"""Mix every token with itself and its predecessors by the fixed features elu + 1.

    .. math::
        z_t = \frac{\phi(\tilde Q_t)^T \sum_{u\le t}\phi(\tilde K_u)V_u^T}
        {\phi(\tilde Q_t)^T\sum_{u\le t}\phi(\tilde K_u)}, \qquad \phi(x) = \mathrm{elu}(x) + 1

    Args:
        channels: The number of features per token, a multiple of `heads`.
        heads: The number of heads.
        coordinates: The number of coordinates of a position; 0 for tokens without positions.
        options: The keywords of `HeadAttention`.

    References:
        | Transformers are RNNs: Fast Autoregressive Transformers with Linear Attention (Katharopoulos et al., ICML
        2020) | https://arxiv.org/abs/2006.16236

    Example:
        >>> attention = CausalAttention(64, heads=4, coordinates=0)
        >>> attention(torch.randn(2, 100, 64)).shape
        torch.Size([2, 100, 64])
    """

    def __init__(self, channels: int, heads: int, coordinates: int, **options: Any) -> None:
        super().__init__(channels, heads, coordinates, features=KERNELS["kernel-elu"], causal=True, **options)


def zero_padding(K: Mixed, mask: Mask) -> Mixed:
    """Set the features of padding to 0 and scale the others so that a mean over all keys is one over the others."""
    seen = (mask != 0).to(K.dtype).transpose(-2, -1)[:, None]
    return K * (seen / seen.mean(dim=-2, keepdim=True).clamp(min=EPS))
