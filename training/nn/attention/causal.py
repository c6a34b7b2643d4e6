r"""Sums over earlier tokens: takes positive features of queries and keys, and values; gives each query's mean so far.

.. math::
    z_t = \frac{\phi_t^T S_t}{\phi_t^T(s_t + \epsilon)}, \qquad
    S_t = \frac1n\sum_{u\le t}\psi_u v_u^T, \quad s_t = \frac1n\sum_{u\le t}\psi_u

(Katharopoulos et al., ICML 2020, arXiv 2006.16236). Tokens are taken in blocks of :math:`c`: pairs within a block
directly, all earlier blocks through their sums, which costs :math:`O(n w (w + c))` time and :math:`O(nw(1 + w/c))`
memory.
"""

from __future__ import annotations

import torch
from torch.nn import functional

from training.nn.shapes import Mixed

BLOCK = 64  # tokens of a block, c: about the width of a head, where both parts of the cost are alike
EPS = 1e-7  # keeps a query that sees nothing from a division by zero
TINY = 1e-20  # keeps a query whose features are all rounded to 0 from it


def causal_attention(Q: Mixed, K: Mixed, V: Mixed) -> Mixed:
    """Give the module's formula for positive features of queries and keys `[batch, head, token, _]`, phi left out."""
    tokens = torch.arange(Q.shape[-2], device=Q.device)
    # A column of ones beside the values carries the denominator along.
    q, k, v = blocks(Q), blocks(K / K.shape[-2]), blocks(functional.pad(V, (0, 1), value=1.0))
    sums = (k.transpose(-2, -1) @ v).cumsum(dim=2)
    earlier = functional.pad(sums, (0, 0, 0, 0, 1, 0))[:, :, :-1]
    seen = (q @ earlier + (q @ k.transpose(-2, -1)).tril() @ v).flatten(2, 3).index_select(2, tokens)
    return divided(seen[..., :-1], seen[..., -1:], Q)


def divided(sums: Mixed, weights: Mixed, Q: Mixed) -> Mixed:
    r"""Give sums over keys divided by their weights, :math:`\phi_t^Ts_t + \phi_t^T\epsilon`."""
    return sums / (weights + EPS * Q.sum(dim=-1, keepdim=True)).clamp(min=TINY)


def blocks(x: Mixed) -> torch.Tensor:
    """Give the tokens in blocks, filled up with zeros: [batch, head, block, BLOCK, width].

    Blocks are gathered, not reshaped, and there is one more than needed: exporters cannot prove that a padded number of
    tokens is a multiple of BLOCK, and take a lone block for a broadcast.
    """
    first = torch.arange(0, x.shape[-2] + BLOCK, BLOCK, device=x.device)
    members = first[:, None] + torch.arange(BLOCK, device=x.device)
    return functional.pad(x, (0, 0, 0, 2 * BLOCK))[:, :, members]
