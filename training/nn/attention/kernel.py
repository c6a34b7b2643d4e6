r"""Attention by a kernel of positive features, and its causal form.

.. math::
    z_t = \frac{\phi(\tilde Q_t)^T S_t}{\phi(\tilde Q_t)^T(s_t + \epsilon)}, \qquad
    S_t = \frac1m\sum_u\phi(\tilde K_u)\tilde V_u^T, \quad s_t = \frac1m\sum_u\phi(\tilde K_u)

The sums are over all :math:`m` keys that are no padding or, if causal, over the keys up to the query's own. The
features :math:`\phi(x) > 0` of a row of the head's width :math:`w` are fixed or trained:

| map | formula | parameters of a head |
|---|---|---|
| elu | elu(x) + 1 (Katharopoulos et al., ICML 2020, arXiv 2006.16236) | 0 |
| random | positive random features of exp(q k / sqrt(w)) (Choromanski et al., ICLR 2021, arXiv 2009.14794) | 0 |
| trained ones | `research.sequences.trained_kernels` | |

The cost is :math:`O(nw^2)` time and :math:`O(nw)` memory for n tokens and heads of width w. Sums are in float32 at
least: in bfloat16 they would stop growing after a few hundred tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from training.nn.attention.heads import HeadAttention, HeadInstanceNorm
from training.nn.grids import Mask, Mixed, tracing

BLOCK = 64  # tokens per block of causal attention: about the width of a head, where both terms of the cost are equal
EPS = 1e-7  # avoids a division by zero for a query that attends to nothing
TINY = 1e-20  # avoids it for a query whose features are all rounded to 0


class FeatureMap(nn.Module):
    """Map every token to positive features, `[batch, head, token, width]` to `[batch, head, token, feature]`."""

    def forward(self, x: Mixed) -> Mixed:
        raise NotImplementedError


class EluFeatures(FeatureMap):
    r"""Compute :math:`\mathrm{elu}(x) + 1`, without parameters.

    Example:
        >>> EluFeatures()(torch.zeros(1, 1, 1, 2))
        tensor([[[[1., 1.]]]])
    """

    def forward(self, x: Mixed) -> Mixed:
        return functional.relu(x) + x.clamp(max=0).exp()  # the sum elu(x) + 1 would round to 0 below x = -17


class RandomFeatures(FeatureMap):
    r"""Compute 2n random features of the kernel of softmax attention, without trained parameters.

    .. math::
        \phi(x) = \exp(\pm\Omega^Ty - |y|^2/2)/\sqrt{2n}, \qquad y = x/n^{1/4}

    The directions :math:`\Omega` are orthogonal and have the lengths of normal vectors. They are drawn at construction
    and saved, so that :math:`E\,\phi(q)^T\phi(k) = \exp(q^Tk/\sqrt n)`. The map expects normalised tokens: the features
    of much longer tokens underflow.

    Args:
        width: The number of features per head, n.

    Example:
        >>> RandomFeatures(16)(torch.randn(2, 4, 10, 16)).shape
        torch.Size([2, 4, 10, 32])
    """

    directions: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        lengths = torch.randn(width, width).norm(dim=0)
        self.register_buffer("directions", nn.init.orthogonal_(torch.empty(width, width)) * lengths)

    def forward(self, x: Mixed) -> Mixed:
        y = x / self.width**0.25
        along = y @ self.directions
        exponent = torch.cat([along, -along], dim=-1) - y.square().sum(dim=-1, keepdim=True) / 2
        return exponent.exp() / math.sqrt(2 * self.width)


Features = Callable[..., FeatureMap]

#: Feature maps by the kind of attention; each takes the width of a head, and the number of maps or None for one.
KERNELS: dict[str, Features] = {
    "kernel-elu": lambda _width, _heads=None: EluFeatures(),
    "kernel-random": lambda width, _heads=None: RandomFeatures(width),
}


class KernelAttention(HeadAttention):
    r"""Mix by positive features, with normalised queries and keys.

    .. math::
        z = \phi(\tilde Q)\,(\phi(\tilde K)^T V) \oslash \phi(\tilde Q)\,\phi(\tilde K)^T 1

    A mask `[batch, 1, key]` hides padding at no cost: the output equals the one without these tokens. A mask that
    differs between queries, and dropout of causal attention, form the n x n matrix of weights. A query that attends to
    no key gets 0.

    The sizes and the options are those of `HeadAttention`.

    Args:
        features: Makes the feature map from the width of a head, including the coordinates, and the number of heads.
        shared: Use one trained map for all heads. By default each head has its own.
        causal: Let every token attend to itself and to its predecessors only. Keys are then in the order of the queries
            and of the same number; otherwise `forward` raises a ValueError.

    Raises:
        ValueError: It is causal, and its norm is over the tokens; see also `HeadAttention`.

    References:
        | Linear Self-Attention Approximation via Trainable Feedforward Kernel (Yorsh & Kovalenko, 2022)
        | https://arxiv.org/abs/2211.04076
        | Rethinking Attention with Performers (Choromanski et al., ICLR 2021)
        | https://arxiv.org/abs/2009.14794

    Example:
        >>> attention = KernelAttention(64, heads=4, coordinates=0, features=KERNELS["kernel-elu"])
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
        if causal and isinstance(self.first_norm, HeadInstanceNorm):
            raise ValueError("instance norm is over all tokens, later ones, too; expected layer norm with causal")
        self.features, self.causal = features(self.width, None if shared else heads), causal

    def mix(self, Q: Mixed, K: Mixed, V: Mixed, mask: Mask | None) -> Mixed:
        if self.causal and not tracing() and Q.shape[-2] != K.shape[-2]:
            raise ValueError(f"causal attention expected as many keys as queries but got {K.shape[-2]}, {Q.shape[-2]}")
        wide = torch.promote_types(V.dtype, torch.float32)
        mixed = self.weigh(self.features(Q).to(wide), self.features(K).to(wide), V.to(wide), mask)
        return mixed.to(V.dtype)

    def weigh(self, Q: Mixed, K: Mixed, V: Mixed, mask: Mask | None) -> Mixed:
        """Return the means of the values, weighted by the features of queries and keys."""
        if mask is not None and (tracing() or mask.shape[-2] == 1):  # traced graphs have masks of padding only
            K, mask = zero_padding(K, mask), None
        if mask is not None or (self.causal and self.rate):
            return self.by_pairs(Q, K, V, mask)
        if self.causal:
            return causal_attention(Q, K, V)
        k = K / K.shape[-2]
        return weighted_mean(Q @ self.drop(k.transpose(-2, -1) @ V), Q @ k.sum(dim=-2).unsqueeze(-1), Q)

    def by_pairs(self, Q: Mixed, K: Mixed, V: Mixed, mask: Mask | None) -> Mixed:
        """Return the same means by the n x n matrix of weights."""
        scores = Q @ K.transpose(-2, -1) / K.shape[-2]
        if self.causal:
            scores = scores.tril()
        if mask is not None:
            scores = scores.masked_fill(mask[:, None] == 0, 0.0)
        return self.drop(weighted_mean(scores, scores.sum(dim=-1, keepdim=True), Q)) @ V


class CausalAttention(KernelAttention):
    r"""Mix every token with itself and its predecessors by the fixed features elu + 1; arguments as of `HeadAttention`.

    .. math::
        z_t = \frac{\phi(\tilde Q_t)^T \sum_{u\le t}\phi(\tilde K_u)V_u^T}
        {\phi(\tilde Q_t)^T\sum_{u\le t}\phi(\tilde K_u)}, \qquad \phi(x) = \mathrm{elu}(x) + 1

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


def causal_attention(Q: Mixed, K: Mixed, V: Mixed) -> Mixed:
    r"""Return the mean of the values up to each query, weighted by the inner product of features.

    .. math::
        z_t = \frac{\phi_t^T S_t}{\phi_t^T(s_t + \epsilon)}, \qquad
        S_t = \frac1n\sum_{u\le t}\psi_u v_u^T, \quad s_t = \frac1n\sum_{u\le t}\psi_u

    The tokens are grouped in blocks of :math:`c`. Pairs within a block are computed directly, and all earlier blocks
    through their sums. This takes :math:`O(n w (w + c))` time and :math:`O(nw(1 + w/c))` memory (Katharopoulos et al.,
    ICML 2020, arXiv 2006.16236).

    Args:
        Q: Positive features of the queries, of shape `[batch, head, token, feature]`.
        K: Positive features of the keys, of the same shape.
        V: The values, of shape `[batch, head, token, width]`.

    Returns:
        The means, of the shape of `V`.

    Example:
        >>> Q, K, V = torch.rand(2, 4, 100, 16), torch.rand(2, 4, 100, 16), torch.randn(2, 4, 100, 8)
        >>> causal_attention(Q, K, V).shape
        torch.Size([2, 4, 100, 8])
    """
    tokens = torch.arange(Q.shape[-2], device=Q.device)
    # A column of ones beside the values gives the denominator.
    q, k, v = blocks(Q), blocks(K / K.shape[-2]), blocks(functional.pad(V, (0, 1), value=1.0))
    sums = (k.transpose(-2, -1) @ v).cumsum(dim=2)
    earlier = functional.pad(sums, (0, 0, 0, 0, 1, 0))[:, :, :-1]
    seen = (q @ earlier + (q @ k.transpose(-2, -1)).tril() @ v).flatten(2, 3).index_select(2, tokens)
    return weighted_mean(seen[..., :-1], seen[..., -1:], Q)


def weighted_mean(sums: Mixed, weights: Mixed, Q: Mixed) -> Mixed:
    r"""Return sums over keys divided by the sums of their weights plus :math:`\phi_t^T\epsilon`."""
    return sums / (weights + EPS * Q.sum(dim=-1, keepdim=True)).clamp(min=TINY)


def blocks(x: Mixed) -> torch.Tensor:
    """Return the tokens in blocks, padded with zeros, of shape `[batch, head, block, BLOCK, width]`.

    Blocks are gathered and not reshaped, and there is one block more than needed: exporters cannot prove that a padded
    number of tokens is a multiple of BLOCK, and they take a single block for a broadcast.
    """
    first = torch.arange(0, x.shape[-2] + BLOCK, BLOCK, device=x.device)
    members = first[:, None] + torch.arange(BLOCK, device=x.device)
    return functional.pad(x, (0, 0, 0, 2 * BLOCK))[:, :, members]
