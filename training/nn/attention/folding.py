r"""Galerkin attention by few passes over the tokens: takes what `GalerkinAttention` is made of, gives its answer.

Queries and coordinates enter linearly, so all that stands behind the keys' and values' inner products is one linear
map of the tokens. With the bare norm :math:`\nu` of a head (without its affine map), :math:`f = [1, p]` and `n` tokens,

.. math::
    \hat K = \nu(xW_K),\; \hat V = \nu(xW_V), \qquad
    S = [f, \hat K]^T [f, \hat V], \qquad z W_O = x A(S) + f B(S),

where A and B hold the affine maps of the norms, the blocks of heads on the diagonal, :math:`W_Q` and :math:`W_O`:
products of matrices of `channels` rows. Equal to Cao's formula (NeurIPS 2021, arXiv 2105.14995, section 3) up to
rounding. Time :math:`O(n C^2)` as for the projections alone; queries, heads and their mix, each of `n C` numbers, are
never formed, nor anything transposed.
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
    """Give what the attention says of tokens that ask each other; its norms are `HeadNorm`s."""
    heads, coordinates, count = attention.heads, attention.coordinates, x.shape[-2]
    of_keys, of_values = cast("HeadNorm", attention.first_norm), cast("HeadNorm", attention.second_norm)
    frame = functional.pad(positions.to(x.dtype), (1, 0), value=1.0)
    rows = x.flatten(0, 1)
    member = attention.member
    keys = bare(attention.key(rows), heads, of_keys.eps, member).unflatten(0, x.shape[:2])
    values = bare(attention.value(rows), heads, of_values.eps, member).unflatten(0, x.shape[:2])
    (key_scale, key_shift), (value_scale, value_shift) = affine(of_keys), affine(of_values)

    frames = frame.mT @ frame
    by_frame = frame.mT @ keys  # of the bare keys; below with the norm's affine map
    frame_keys = by_frame * key_scale + frames[..., :, :1] * key_shift
    frame_values = frame.mT @ values * value_scale + frames[..., :, :1] * value_shift
    mixed = keys.mT @ values * value_scale + by_frame[..., 0, :, None] * value_shift
    mixed = key_scale[:, None] * mixed + key_shift[:, None] * frame_values[..., :1, :]

    output = cast("nn.Linear", attention.output)
    by_head = output.weight.T.unflatten(0, (heads, -1))
    from_positions, from_values = by_head[:, :coordinates], by_head[:, coordinates:].flatten(0, 1)
    # Each head's K^T V in four parts, of features and of coordinates; dropout acts on all of its entries.
    drop, own = attention.drop, frames[..., None, 1:, 1:].expand(x.shape[0], heads, -1, -1)
    by_position = drop(frame_keys[..., 1:, :]).mT.unflatten(-2, (heads, -1)) @ from_positions
    queries = (drop(mixed * same_head(mixed, heads)) @ from_values + by_position.flatten(-3, -2)) / count
    places = (drop(frame_values[..., 1:, :]) @ from_values + (drop(own) @ from_positions).sum(-3)) / count
    constant = attention.query.bias @ queries + output.bias
    return x @ (attention.query.weight.T @ queries) + frame @ torch.cat([constant[..., None, :], places], dim=-2)


def bare(x: Rows, heads: int, eps: float, member: Tensor | None = None) -> Rows:
    """Normalise the features of every head of a token, without an affine map and without taking heads apart.

    Given which features belong to which head, `[feature, head]`, `x` must be centred already. Then variances are one
    product, and their inverse roots reach the features by another: in a graph, the norm of so short a row takes as long
    as the projection before it.
    """
    if member is not None:
        variance = (x * x) @ (member / (x.shape[-1] // heads))  # `square` would be a power in a graph, and slow
        return x * (torch.rsqrt(variance + eps) @ member.T)
    apart = x.unflatten(-1, (heads, -1))
    return functional.layer_norm(apart, apart.shape[-1:], eps=eps).flatten(-2)


@torch.no_grad()
def centre(attention: HeadAttention) -> None:
    """Take each head's mean out of keys and values, which their norms would do: the same answers, for inference only.

    The mean is linear in the tokens, so the projections can lose it once and for all.
    """
    for projection in (attention.key, attention.value):
        for part in (projection.weight, projection.bias):
            by_head = part.unflatten(0, (attention.heads, -1))
            part.copy_((by_head - by_head.mean(1, keepdim=True)).flatten(0, 1))
    heads = torch.eye(attention.heads, dtype=attention.key.weight.dtype, device=attention.key.weight.device)
    attention.member = heads.repeat_interleave(attention.key.out_features // attention.heads, dim=0)


def affine(norm: HeadNorm) -> tuple[Tensor, Tensor]:
    """Give a head norm's scale and shift for the features of all heads."""
    return norm.weight.flatten(), norm.bias.flatten()


def same_head(square: Tensor, heads: int) -> Tensor:
    """Give 1 where row and column of a matrix `[..., channels, channels]` are of one head, else 0."""
    head = torch.arange(square.shape[-1], device=square.device) // (square.shape[-1] // heads)
    return (head[:, None] == head).to(square.dtype)
