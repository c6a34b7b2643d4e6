r"""Causal linear attention: sums over the tokens up to each query, block by block.

.. math::
    z_t = \frac{\phi_t^T S_t}{\phi_t^T(s_t + \epsilon)}, \qquad
    S_t = \frac1n\sum_{u\le t}\psi_u v_u^T, \quad s_t = \frac1n\sum_{u\le t}\psi_u

The tokens are grouped in blocks of :math:`c`. Pairs within a block are computed directly, and all earlier blocks
through their sums. This takes :math:`O(n w (w + c))` time and :math:`O(nw(1 + w/c))` memory (Katharopoulos et al., ICML
2020, arXiv 2006.16236).
"""

from __future__ import annotations

import torch
from torch.nn import functional

from training.nn.shapes import Mixed

BLOCK = 64  # tokens per block, c: about the width of a head, where both terms of the cost are equal
EPS = 1e-7  # avoids a division by zero for a query that attends to nothing
TINY = 1e-20  # avoids it for a query whose features are all rounded to 0


def causal_attention(Q: Mixed, K: Mixed, V: Mixed) -> Mixed:
    """Return the mean of the values up to each query, weighted by the inner product of features.

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
    r"""Return sums over keys divided by the sums of their weights plus :math:`\phi_t^T\epsilon`.

    Args:
        sums: The sums, of shape `[batch, head, token, width]`.
        weights: The sums of the weights, of shape `[batch, head, token, 1]`.
        Q: The features of the queries, :math:`\phi_t`.
    """
    return sums / (weights + EPS * Q.sum(dim=-1, keepdim=True)).clamp(min=TINY)


def blocks(x: Mixed) -> torch.Tensor:
    """Return the tokens in blocks, padded with zeros, of shape `[batch, head, block, BLOCK, width]`.

    Blocks are gathered and not reshaped, and there is one block more than needed: exporters cannot prove that a padded
    number of tokens is a multiple of BLOCK, and they take a single block for a broadcast.
    """
    first = torch.arange(0, x.shape[-2] + BLOCK, BLOCK, device=x.device)
    members = first[:, None] + torch.arange(BLOCK, device=x.device)
    return functional.pad(x, (0, 0, 0, 2 * BLOCK))[:, :, members]
