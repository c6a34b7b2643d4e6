r"""Attention with softmax: takes tokens and their positions, gives tokens.

.. math::
    \text{softmax:}\quad z = \sigma_{\text{source}}(\tilde Q \tilde K^T/\sqrt w)\,\tilde V, \qquad
    \text{linear:}\quad z = \sigma_{\text{feature}}(\tilde Q)\,\bigl(\sigma_{\text{source}}(\tilde K)^T\tilde V\bigr)/n,

with :math:`\sigma` the softmax over the axis of its index, :math:`n` sources and :math:`w` the head's width after the
coordinates joined (Vaswani et al., NeurIPS 2017, arXiv 1706.03762; Shen et al., WACV 2021, arXiv 1812.01243, with the
:math:`1/n` of Cao, NeurIPS 2021, arXiv 2105.14995). They are what the types without softmax are compared with.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from training.nn.attention.heads import HeadAttention, refuse_mask, tracing
from training.nn.shapes import Mask, Mixed


class LinearAttention(HeadAttention):
    r"""Mix by normalised features, :math:`O(n w^2)` time and :math:`O(nw)` memory; keys and values are normalised."""

    pairwise = False

    def mix(self, Q: Mixed, K: Mixed, V: Mixed, mask: Mask | None) -> Mixed:
        refuse_mask(mask, "linear")
        matrix = K.softmax(dim=-2).transpose(-2, -1) @ V / K.shape[-2]
        return Q.softmax(dim=-1) @ self.drop(matrix)


class SoftmaxAttention(HeadAttention):
    r"""Mix by the fused kernel, :math:`O(n^2 w)` time, memory by its grace; queries and keys are normalised.

    A mask `[batch, 1, key]`, which hides padding, keeps the fused kernel; one that differs between queries forms the
    n x n matrix. A query that sees no key at all gets the mean of all values, as if its scores were one large negative
    number.
    """

    pairwise = True

    def mix(self, Q: Mixed, K: Mixed, V: Mixed, mask: Mask | None) -> Mixed:
        if mask is None or tracing() or mask.shape[-2] == 1:  # a trace is given masks of padding alone
            bias = None if mask is None else self.bias(mask, Q.dtype)
            return functional.scaled_dot_product_attention(Q, K, V, bias, dropout_p=self.rate)
        scores = Q @ K.transpose(-2, -1) / math.sqrt(self.width)
        return self.drop((scores + self.bias(mask, Q.dtype)).softmax(dim=-1)) @ V

    def bias(self, mask: Mask, dtype: torch.dtype) -> Float[Tensor, "#batch 1 #token source"]:
        """Give what is added to the scores: nothing where a query sees a key, else the largest negative number."""
        nothing = torch.zeros(mask.shape, dtype=dtype, device=mask.device)
        return nothing.masked_fill(mask == 0, torch.finfo(dtype).min)[:, None]
