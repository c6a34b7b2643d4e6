r"""Galerkin self-attention with few passes over the tokens.

Queries and coordinates enter linearly. So everything after the inner products of keys and values is one linear map of
the tokens. With the norm :math:`\nu` of a head without its affine map, :math:`f = [1, p]` and `n` tokens,

.. math::
    \hat K = \nu(xW_K),\; \hat V = \nu(xW_V), \qquad
    S = [f, \hat K]^T [f, \hat V], \qquad z W_O = x A(S) + f B(S).

A and B hold the affine maps of the norms, the diagonal blocks of the heads, :math:`W_Q` and :math:`W_O`. They are
products of matrices of `channels` rows. The result equals Cao's formula (NeurIPS 2021, arXiv 2105.14995, section 3) up
to rounding. It takes :math:`O(n C^2)` time, as much as the projections alone. Queries, heads and their mix, each of
`n C` numbers, are never formed, and nothing is transposed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from training.nn.shapes import Positions, Rows, Tokens

if TYPE_CHECKING:
    from training.nn.attention.heads import HeadAttention, HeadNorm


def fold(attention: HeadAttention, x: Tokens, positions: Positions) -> Tokens:
    """Return the output of Galerkin self-attention.

    Args:
        attention: The layer. Its norms are `HeadNorm`s.
        x: The tokens, of shape `[batch, token, channel]`.
        positions: Their positions, of shape `[token, coordinate]` or `[batch, token, coordinate]`.

    Returns:
        The mixed tokens, of the shape of `x`.
    """
    heads, coordinates, count = attention.heads, attention.coordinates, x.shape[-2]
    of_keys, of_values = cast("HeadNorm", attention.first_norm), cast("HeadNorm", attention.second_norm)
    frame = functional.pad(positions.to(x.dtype), (1, 0), value=1.0)
    rows = x.flatten(0, 1)
    member = attention.member
    keys = normalise_heads(attention.key(rows), heads, of_keys.eps, member).unflatten(0, x.shape[:2])
    values = normalise_heads(attention.value(rows), heads, of_values.eps, member).unflatten(0, x.shape[:2])
    (key_scale, key_shift), (value_scale, value_shift) = affine(of_keys), affine(of_values)

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
    graph, a norm over such short rows takes as long as the projection before it.

    Args:
        x: The tokens of all samples, of shape `[row, channel]`. With `member` every head is centred already.
        heads: The number of heads.
        eps: The epsilon of the norm.
        member: 1 where a feature belongs to a head, otherwise 0, of shape `[channel, head]`.

    Returns:
        The normalised tokens, of the shape of `x`.
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


def affine(norm: HeadNorm) -> tuple[Tensor, Tensor]:
    """Return a head norm's scale and shift for the features of all heads, each of shape `[channel]`."""
    return norm.weight.flatten(), norm.bias.flatten()


def same_head(square: Tensor, heads: int) -> Tensor:
    """Return 1 where row and column of a matrix `[..., channel, channel]` belong to one head, otherwise 0."""
    head = torch.arange(square.shape[-1], device=square.device) // (square.shape[-1] // heads)
    return (head[:, None] == head).to(square.dtype)
