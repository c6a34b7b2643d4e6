r"""One head of attention with matrices of low rank: takes tokens, gives tokens that tell in which sequence they stand.

.. math::
    z_k = x_k + W_O\sum_i p_i W_V x_i, \qquad p = \sigma\bigl((W_Kx_i)^T(W_Qx_k)\bigr)_i,

with :math:`W_Q, W_K, W_V, W_O^T` of shape rank x channels and neither norm nor scale (Kajitsuka & Sato, ICLR 2024,
arXiv 2307.14023). Rank 1 is enough to tell all contexts of all tokens apart: see
`training.memorisation.contextual_mapping`.
:math:`O(n^2)` time and memory for n tokens, as all attention that forms its matrix.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from training.nn.shapes import Mask, Tokens


class LowRankAttention(nn.Module):
    r"""Add to every token what it attends to.

    Args:
        channels: features of a token.
        rank: of each of the four matrices; `channels` for a full head.
        hard: attend to the keys of the largest score alone (`hardmax`), of derivative 0 almost everywhere: queries and
            keys learn by softmax's, "straight through".
    """

    def __init__(self, channels: int, rank: int = 1, *, hard: bool = False) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(channels, rank, bias=False) for _ in range(3))
        self.output = nn.Linear(rank, channels, bias=False)
        self.hard = hard

    def forward(self, tokens: Tokens, mask: Mask | None = None) -> Tokens:
        """Give the tokens with their contexts; a mask, `[batch, 1, key]` for padding, is true where a key is seen."""
        scores = self.query(tokens) @ self.key(tokens).transpose(-2, -1)
        if mask is not None:
            scores = scores.masked_fill(mask == 0, torch.finfo(scores.dtype).min)
        weights = scores.softmax(dim=-1)
        if self.hard:
            weights = hardmax(scores) + (weights - weights.detach())
        return tokens + self.output(weights @ self.value(tokens))


def hardmax(scores: Float[Tensor, "*rows key"]) -> Float[Tensor, "*rows key"]:
    """Share a weight of 1 equally among the largest scores: what softmax becomes as scores grow."""
    largest = (scores == scores.amax(dim=-1, keepdim=True)).to(scores.dtype)
    return largest / largest.sum(dim=-1, keepdim=True)


def boltzmann(x: Float[Tensor, "*rows entry"]) -> Float[Tensor, "*rows"]:
    r"""Give the Boltzmann operator :math:`\mathrm{boltz}(x) = \sum_i x_ie^{x_i}/\sum_ie^{x_i}`, a softened maximum."""
    return (x.softmax(dim=-1) * x).sum(dim=-1)
