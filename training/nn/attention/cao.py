r"""The four types of attention that Cao compares (NeurIPS 2021, https://arxiv.org/abs/2105.14995, section 3).

Their arguments are those of `HeadAttention`.

.. math::
    \text{Galerkin:}\quad z = \tilde Q\,(\tilde K^T \tilde V)/n, \qquad
    \text{Fourier:}\quad z = (\tilde Q \tilde K^T)\,\tilde V / (n\sqrt{w})

.. math::
    \text{linear:}\quad z = \sigma_{\text{feature}}(\tilde Q)\,\bigl(\sigma_{\text{source}}(\tilde K)^T\tilde V\bigr)/n,
    \qquad \text{softmax:}\quad z = \sigma_{\text{source}}(\tilde Q \tilde K^T/\sqrt w)\,\tilde V

Here :math:`n` is the number of sources, :math:`w` the width of a head including the coordinates, and :math:`\sigma` the
softmax over the axis of its index. Without a softmax over the scores the matrix products are associative, so all but
the last cost :math:`O(n w^2)` time and :math:`O(nw)` memory, and the mixing approximates an integral over the domain.
"""

from __future__ import annotations

import math
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from training.nn.attention.heads import HeadAttention, HeadNorm, refuse_mask
from training.nn.grids import Mask, Mixed, Positions, Rows, Tokens, tracing


class GalerkinAttention(HeadAttention):
    r"""Mix as a Petrov-Galerkin projection, with normalised keys and values.

    .. math::
        z = Q(\tilde K^T\tilde V)/n

    :math:`n` is the number of sources, so the sum is a mean. Self-attention is computed by `fold`, which reads
    and writes the tokens fewer times.

    Example:
        >>> attention = GalerkinAttention(64, heads=4, coordinates=1)
        >>> attention(torch.randn(2, 100, 64), positions=torch.linspace(0, 1, 100)[:, None]).shape
        torch.Size([2, 100, 64])
    """

    pairwise = False

    def fast_self_attention(self, x: Tokens, positions: Positions | None) -> Tokens | None:
        if positions is None or not self.coordinates or type(self.first_norm) is not HeadNorm:
            return None
        return fold(self, x, positions) if tracing() or positions.shape[-1] == self.coordinates else None

    def prepare_inference(self) -> None:
        """Move the centring of keys and values into their projections. The output stays equal. For inference only."""
        if type(self.first_norm) is HeadNorm:
            centre(self)

    def mix(self, Q: Mixed, K: Mixed, V: Mixed, mask: Mask | None) -> Mixed:
        refuse_mask(mask, "galerkin")
        return Q @ self.drop(K.transpose(-2, -1) @ V / K.shape[-2])


def fold(attention: HeadAttention, x: Tokens, positions: Positions) -> Tokens:
    r"""Return the output of Galerkin self-attention, whose norms are `HeadNorm`s, with few passes over the tokens.

    Queries and coordinates enter linearly. So everything after the inner products of keys and values is one linear map
    of the tokens. With the norm :math:`\nu` of a head without its affine map, :math:`f = [1, p]` and `n` tokens,

    .. math::
        \hat K = \nu(xW_K),\; \hat V = \nu(xW_V), \qquad
        S = [f, \hat K]^T [f, \hat V], \qquad z W_O = x A(S) + f B(S).

    A and B hold the affine maps of the norms, the diagonal blocks of the heads, :math:`W_Q` and :math:`W_O`. They are
    products of matrices of `channels` rows. The result equals the formula of the module up to rounding. It takes
    :math:`O(n C^2)` time, as much as the projections alone. Queries, heads and their mix, each of `n C` numbers, are
    never formed, and nothing is transposed.
    """
    heads, coordinates, count = attention.heads, attention.coordinates, x.shape[-2]
    of_keys, of_values = cast("HeadNorm", attention.first_norm), cast("HeadNorm", attention.second_norm)
    frame = functional.pad(positions.to(x.dtype), (1, 0), value=1.0)
    rows = x.flatten(0, 1)
    member = attention.member
    keys = normalise_heads(attention.key(rows), heads, of_keys.eps, member).unflatten(0, x.shape[:2])
    values = normalise_heads(attention.value(rows), heads, of_values.eps, member).unflatten(0, x.shape[:2])
    (key_scale, key_shift), (value_scale, value_shift) = (
        (norm.weight.flatten(), norm.bias.flatten()) for norm in (of_keys, of_values)
    )

    frames = frame.mT @ frame
    by_frame = frame.mT @ keys  # of the normalised keys; below with the norm's affine map
    frame_keys = by_frame * key_scale + frames[..., :, :1] * key_shift
    frame_values = frame.mT @ values * value_scale + frames[..., :, :1] * value_shift
    mixed = keys.mT @ values * value_scale + by_frame[..., 0, :, None] * value_shift
    mixed = key_scale[:, None] * mixed + key_shift[:, None] * frame_values[..., :1, :]

    output = cast("nn.Linear", attention.output)
    by_head = output.weight.T.unflatten(0, (heads, -1))
    from_positions, from_values = by_head[:, :coordinates], by_head[:, coordinates:].flatten(0, 1)
    # K^T V of each head has four parts, of features and of coordinates. Dropout acts on all of its entries.
    drop, own = attention.drop, frames[..., None, 1:, 1:].expand(x.shape[0], heads, -1, -1)
    by_position = drop(frame_keys[..., 1:, :]).mT.unflatten(-2, (heads, -1)) @ from_positions
    queries = (drop(mixed * same_head(mixed, heads)) @ from_values + by_position.flatten(-3, -2)) / count
    offsets = (drop(frame_values[..., 1:, :]) @ from_values + (drop(own) @ from_positions).sum(-3)) / count
    constant = attention.query.bias @ queries + output.bias
    return x @ (attention.query.weight.T @ queries) + frame @ torch.cat([constant[..., None, :], offsets], dim=-2)


def normalise_heads(x: Rows, heads: int, eps: float, member: Tensor | None = None) -> Rows:
    """Normalise the features of every head of a token, without an affine map and without splitting the heads.

    With `member`, variances are one matrix product, and another one expands their inverse roots to the features. In a
    graph, a norm over such short rows takes as long as the projection before it. `member`, of shape `[channel, head]`,
    is 1 where a feature belongs to a head and otherwise 0; every head of `x` is centred already.
    """
    if member is not None:
        variance = (x * x) @ (member / (x.shape[-1] // heads))  # `square` would be a power in a graph, and slow
        return x * (torch.rsqrt(variance + eps) @ member.T)
    split = x.unflatten(-1, (heads, -1))
    return functional.layer_norm(split, split.shape[-1:], eps=eps).flatten(-2)


@torch.no_grad()
def centre(attention: HeadAttention) -> None:
    """Subtract the mean of each head from the weights of its key and value projections. For inference only.

    The mean is linear in the tokens, so the projections can be centred in advance. The output stays equal.
    """
    for projection in (attention.key, attention.value):
        for part in (projection.weight, projection.bias):
            by_head = part.unflatten(0, (attention.heads, -1))
            part.copy_((by_head - by_head.mean(1, keepdim=True)).flatten(0, 1))
    heads = torch.eye(attention.heads, dtype=attention.key.weight.dtype, device=attention.key.weight.device)
    attention.member = heads.repeat_interleave(attention.key.out_features // attention.heads, dim=0)


def same_head(square: Tensor, heads: int) -> Tensor:
    """Return 1 where row and column of a matrix `[..., channel, channel]` belong to one head, otherwise 0."""
    head = torch.arange(square.shape[-1], device=square.device) // (square.shape[-1] // heads)
    return (head[:, None] == head).to(square.dtype)


class FourierAttention(HeadAttention):
    r"""Mix by a learned integral kernel, with normalised queries and keys.

    .. math::
        z = (\tilde Q\tilde K^T)V/(n\sqrt w)

    The product is computed as :math:`\tilde Q(\tilde K^T V)`, in linear time. With a mask or with dropout, which act on
    the :math:`n \times n` scores, it is computed in the order of the formula. The score of a masked pair is 0.

    Example:
        >>> attention = FourierAttention(64, heads=4, coordinates=1)
        >>> attention(torch.randn(2, 100, 64), positions=torch.linspace(0, 1, 100)[:, None]).shape
        torch.Size([2, 100, 64])
    """

    pairwise = True

    def mix(self, Q: Mixed, K: Mixed, V: Mixed, mask: Mask | None) -> Mixed:
        scale = K.shape[-2] * math.sqrt(self.width)
        if mask is None and not self.rate:
            return Q @ (K.transpose(-2, -1) @ V / scale)
        scores = Q @ K.transpose(-2, -1) / scale
        if mask is not None:
            scores = scores.masked_fill(mask[:, None] == 0, 0.0)
        return self.drop(scores) @ V


class LinearAttention(HeadAttention):
    r"""Mix by softmax features of queries and keys, with normalised keys and values.

    .. math::
        z = \sigma_{\text{feature}}(Q)\,\bigl(\sigma_{\text{source}}(\tilde K)^T\tilde V\bigr)/n

    It takes :math:`O(n w^2)` time and :math:`O(nw)` memory.

    References:
        | Efficient Attention: Attention with Linear Complexities (Shen et al., WACV 2021)
        | https://arxiv.org/abs/1812.01243; the factor 1/n is Cao's

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
    values, as if its scores were one large negative number. The fused kernel has neither second nor forward-mode
    derivatives (`torch.func.jvp`); within `torch.nn.attention.sdpa_kernel(SDPBackend.MATH)` torch has both.

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
