r"""Attention that looks back only: takes tokens in an order and their positions, gives tokens.

.. math::
    z_t = \frac{\phi(\tilde Q_t)^T S_t}{\phi(\tilde Q_t)^T(s_t + \epsilon)}, \qquad
    S_t = \frac1n\sum_{u\le t}\phi(\tilde K_u)\tilde V_u^T, \quad s_t = \frac1n\sum_{u\le t}\phi(\tilde K_u),

with :math:`\phi(x) = \mathrm{elu}(x) + 1 > 0` (Katharopoulos et al., ICML 2020, arXiv 2006.16236). Tokens are taken
in blocks of :math:`c`: pairs within a block directly, all earlier blocks through their sums, which costs
:math:`O(n w (w + c))` time and :math:`O(nw(1 + w/c))` memory.
"""

from __future__ import annotations

import torch
from torch.nn import functional

from training.attention.heads import HeadAttention, tracing
from training.shapes import Mask, Mixed

BLOCK = 64  # tokens of a block, c: about the width of a head, where both parts of the cost are alike
EPS = 1e-7  # keeps a query that sees nothing from a division by zero


class CausalAttention(HeadAttention):
    """Mix every token with itself and its predecessors; queries and keys are normalised.

    A mask hides further pairs; with one, or with dropout, the n x n matrix of weights is formed. A query that sees
    no key gets 0. Keys share the order of the queries, so there are as many: else a ValueError says so.
    """

    pairwise = True

    def mix(self, Q: Mixed, K: Mixed, V: Mixed, mask: Mask | None) -> Mixed:
        if not tracing() and Q.shape[-2] != K.shape[-2]:
            raise ValueError(f"causal attention expected as many keys as queries but got {K.shape[-2]}, {Q.shape[-2]}")
        Q, K = functional.elu(Q) + 1, functional.elu(K) + 1
        if mask is None and not self.rate:
            return causal_attention(Q, K, V)
        scores = (Q @ K.transpose(-2, -1)).tril() / K.shape[-2]
        if mask is not None:
            scores = scores.masked_fill(mask[:, None] == 0, 0.0)
        weights = scores / (scores.sum(dim=-1, keepdim=True) + EPS * Q.sum(dim=-1, keepdim=True))
        return self.drop(weights) @ V


def causal_attention(Q: Mixed, K: Mixed, V: Mixed) -> Mixed:
    """Give the module's formula for positive features of queries and keys `[batch, head, token, _]`, phi left out."""
    tokens = torch.arange(Q.shape[-2], device=Q.device)
    # A column of ones beside the values carries the denominator along.
    q, k, v = blocks(Q), blocks(K / K.shape[-2]), blocks(functional.pad(V, (0, 1), value=1.0))
    sums = k.transpose(-2, -1) @ v
    earlier = sums.cumsum(dim=2) - sums
    seen = (q @ earlier + (q @ k.transpose(-2, -1)).tril() @ v).flatten(2, 3).index_select(2, tokens)
    return seen[..., :-1] / (seen[..., -1:] + EPS * Q.sum(dim=-1, keepdim=True))


def blocks(x: Mixed) -> torch.Tensor:
    """Give the tokens in blocks, filled up with zeros: [batch, head, block, BLOCK, width].

    Blocks are gathered, not reshaped, and there is one more than needed: exporters cannot prove that a padded number of
    tokens is a multiple of BLOCK, and take a lone block for a broadcast.
    """
    first = torch.arange(0, x.shape[-2] + BLOCK, BLOCK, device=x.device)
    members = first[:, None] + torch.arange(BLOCK, device=x.device)
    return functional.pad(x, (0, 0, 0, 2 * BLOCK))[:, :, members]
