r"""Attention with softmax: the standard form, and its linear variant.

.. math::
    \text{softmax:}\quad z = \sigma_{\text{source}}(\tilde Q \tilde K^T/\sqrt w)\,\tilde V, \qquad
    \text{linear:}\quad z = \sigma_{\text{feature}}(\tilde Q)\,\bigl(\sigma_{\text{source}}(\tilde K)^T\tilde V\bigr)/n

Here :math:`\sigma` is the softmax over the axis of its index, :math:`n` the number of sources and :math:`w` the width
of a head including the coordinates.
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
    r"""Mix by softmax features of queries and keys, with normalised keys and values.

    .. math::
        z = \sigma_{\text{feature}}(Q)\,\bigl(\sigma_{\text{source}}(\tilde K)^T\tilde V\bigr)/n

    It takes :math:`O(n w^2)` time and :math:`O(nw)` memory.

    Args:
        channels: The number of features per token, a multiple of `heads`.
        heads: The number of heads.
        coordinates: The number of coordinates of a position; 0 for tokens without positions.
        options: The keywords of `HeadAttention`.

    References:
        | Efficient Attention: Attention with Linear Complexities (Shen et al., WACV 2021)
        | https://arxiv.org/abs/1812.01243
        | Choose a Transformer: Fourier or Galerkin (Cao, NeurIPS 2021), for the factor 1/n
        | https://arxiv.org/abs/2105.14995

    Example:
        >>> attention = LinearAttention(64, heads=4, coordinates=1)
        >>> attention(torch.randn(2, 100, 64), positions=torch.linspace(0, 1, 100)[:, None]).shape
        torch.Size([2, 100, 64])
    """

    pairwise = False

    def mix(self, Q: Mixed, K: Mixed, V: Mixed, mask: Mask | None) -> Mixed:
        refuse_mask(mask, "linear")
        matrix = K.softmax(dim=-2).transpose(-2, -1) @ V / K.shape[-2]
        return Q.softmax(dim=-1) @ self.drop(matrix)


class SoftmaxAttention(HeadAttention):
    r"""Mix by torch's fused kernel, with normalised queries and keys.

    .. math::
        z = \sigma_{\text{source}}(\tilde Q \tilde K^T/\sqrt w)\,V

    It takes :math:`O(n^2 w)` time. A mask `[batch, 1, key]`, which hides padding, keeps the fused kernel. A mask that
    differs between queries forms the :math:`n \times n` matrix. A query that attends to no key gets the mean of all
    values, as if its scores were one large negative number.

    Args:
        channels: The number of features per token, a multiple of `heads`.
        heads: The number of heads.
        coordinates: The number of coordinates of a position; 0 for tokens without positions.
        options: The keywords of `HeadAttention`.

    References:
        | Attention Is All You Need (Vaswani et al., NeurIPS 2017)
        | https://arxiv.org/abs/1706.03762

    Example:
        >>> attention, padding = SoftmaxAttention(64, heads=4, coordinates=0), torch.arange(100) >= 90
        >>> attention(torch.randn(2, 100, 64), mask=~padding[None, None]).shape
        torch.Size([2, 100, 64])
    """

    pairwise = True

    def mix(self, Q: Mixed, K: Mixed, V: Mixed, mask: Mask | None) -> Mixed:
        if mask is None or tracing() or mask.shape[-2] == 1:  # traced graphs have masks of padding only
            bias = None if mask is None else self.bias(mask, Q.dtype)
            return functional.scaled_dot_product_attention(Q, K, V, bias, dropout_p=self.rate)
        scores = Q @ K.transpose(-2, -1) / math.sqrt(self.width)
        return self.drop((scores + self.bias(mask, Q.dtype)).softmax(dim=-1)) @ V

    def bias(self, mask: Mask, dtype: torch.dtype) -> Float[Tensor, "#batch 1 #token source"]:
        """Return the summand of the scores: 0 where a query attends to a key, otherwise the lowest finite number."""
        nothing = torch.zeros(mask.shape, dtype=dtype, device=mask.device)
        return nothing.masked_fill(mask == 0, torch.finfo(dtype).min)[:, None]
