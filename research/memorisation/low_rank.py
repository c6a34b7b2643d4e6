r"""One attention head with matrices of low rank, without norm and scale.

Rank 1 is enough to distinguish all contexts of all tokens (Kajitsuka & Sato, ICLR 2024, arXiv 2307.14023); see
`contextual_mapping`.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from training.nn.grids import TOKENS, Mask, Tokens, expect, graphing


class LowRankAttention(nn.Module):
    r"""Add to every token the mean of the tokens that it attends to.

    .. math::
        z_k = x_k + W_O\sum_i p_i W_V x_i, \qquad p = \sigma\bigl((W_Kx_i)^T(W_Qx_k)\bigr)_i

    The matrices :math:`W_Q, W_K, W_V, W_O^T` have the shape rank x channels. The cost is :math:`O(n^2)` time and memory
    for n tokens. With several heads the token gains the sum over the heads, each of which has matrices of its own.

    Args:
        channels: The number of features per token.
        rank: The rank of each of the four matrices of a head; `channels` for a full head.
        heads: The number of heads.
        hard: Attend to the keys of the largest score only (`hardmax`). Its derivative is 0 almost everywhere, so
            queries and keys learn by the derivative of softmax (the straight-through estimator).

    Raises:
        ValueError: A size is below 1.

    References:
        | Are Transformers with One Layer Self-Attention Using Low-Rank Weight Matrices Universal Approximators?
        | (Kajitsuka & Sato, ICLR 2024)
        | https://arxiv.org/abs/2307.14023

    Example:
        >>> attention = LowRankAttention(16, rank=1)
        >>> attention(torch.randn(2, 10, 16)).shape
        torch.Size([2, 10, 16])
    """

    def __init__(self, channels: int, rank: int = 1, heads: int = 1, *, hard: bool = False) -> None:
        if min(channels, rank, heads) < 1:
            raise ValueError(f"expected channels, rank and heads of at least 1 but got {channels}, {rank}, {heads}")
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(channels, heads * rank, bias=False) for _ in range(3))
        self.output = nn.Linear(heads * rank, channels, bias=False)
        self.heads, self.hard = heads, hard

    def forward(self, tokens: Tokens, mask: Mask | None = None) -> Tokens:
        """Return the tokens with their contexts, those of `[batch, token, channel]`.

        A mask, `[batch, 1, key]` for padding or `[batch, query, key]`, is true for visible keys. Of a query that sees
        none, all keys are visible.

        Raises:
            ValueError: The tokens or the mask have another shape.
        """
        expect(tokens, TOKENS, self.query.in_features, self)
        expect_mask(tokens, mask)
        scores = self.split(self.query(tokens)) @ self.split(self.key(tokens)).transpose(-2, -1)
        if mask is not None:
            mask = mask if self.heads == 1 else mask[:, None]
            scores = scores.masked_fill(mask == 0, torch.finfo(scores.dtype).min)
        weights = scores.softmax(dim=-1)
        if self.hard:
            weights = hardmax(scores) + (weights - weights.detach())
        mixed = weights @ self.split(self.value(tokens))
        return tokens + self.output(mixed if self.heads == 1 else mixed.transpose(1, 2).flatten(2))

    def split(self, x: Float[Tensor, "batch token _"]) -> Float[Tensor, "batch *head token _"]:
        """Return the heads of projected tokens on an axis of their own; one head stays as it is."""
        return x if self.heads == 1 else x.unflatten(-1, (self.heads, -1)).transpose(1, 2)


def expect_mask(tokens: Tensor, mask: Tensor | None) -> None:
    """Refuse other shapes: a mask `[batch, key]` would be one of queries where there are as many tokens as samples."""
    if graphing():
        return
    batch, count, _ = tokens.shape
    fitting = {(samples, queries, count) for samples in (1, batch) for queries in (1, count)}
    if mask is not None and tuple(mask.shape) not in fitting:
        raise ValueError(
            f"expected a mask [batch, 1, key] or [batch, query, key] for tokens {tuple(tokens.shape)} "
            f"but got the shape {tuple(mask.shape)}"
        )


def hardmax(scores: Float[Tensor, "*rows key"]) -> Float[Tensor, "*rows key"]:
    """Return equal weights of sum 1 for the largest scores, the limit of softmax for growing scores.

    Example:
        >>> hardmax(torch.tensor([1.0, 3.0, 3.0]))
        tensor([0.0000, 0.5000, 0.5000])
    """
    largest = (scores == scores.amax(dim=-1, keepdim=True)).to(scores.dtype)
    return largest / largest.sum(dim=-1, keepdim=True)


def boltzmann(x: Float[Tensor, "*rows entry"]) -> Float[Tensor, "*rows"]:
    r"""Return the Boltzmann operator :math:`\sum_i x_ie^{x_i}/\sum_ie^{x_i}`, a smooth maximum.

    Example:
        >>> boltzmann(torch.tensor([0.0, 50.0]))
        tensor(50.)
    """
    return (x.softmax(dim=-1) * x).sum(dim=-1)
