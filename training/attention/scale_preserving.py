r"""Attention without softmax: takes tokens and their positions, gives tokens.

Cao, NeurIPS 2021, arXiv 2105.14995, section 3.
Both members project :math:`Q = xW_Q, K = xW_K, V = xW_V` per head, normalise two of the three by a layer norm per
head, put the coordinates in front of every head's features, mix, and project back:

.. math::
    \text{Galerkin:}\quad z = Q\,(\tilde K^T \tilde V)/n, \qquad
    \text{Fourier:}\quad z = (\tilde Q \tilde K^T)\,V / (n\sqrt{w}),

with :math:`n` tokens and :math:`w` the head's width *after* the coordinates joined. Neither has a softmax, so matrix
products may be re-bracketed: both cost :math:`O(n w^2)` time and :math:`O(nw)` memory, and the mixing approximates an
integral over the domain.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from training.shapes import Heads, Positions, Tokens


class HeadNorm(nn.Module):
    """Normalise every head's features with an affine map of the head's own."""

    def __init__(self, heads: int, width: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(heads, 1, width))
        self.bias = nn.Parameter(torch.zeros(heads, 1, width))

    def forward(self, x: Heads) -> Heads:
        return functional.layer_norm(x, x.shape[-1:], eps=self.eps) * self.weight + self.bias


class ScalePreservingAttention(nn.Module):
    """Project, normalise, join the coordinates, mix, project back.

    The two members differ in what is normalised and how they mix.

    Args:
        channels: features of a token; must be a multiple of `heads`.
        heads: number of heads.
        coordinates: components of a position, put in front of the features of every head; 0 leaves positions out.
        eps: of the layer norms.
        gain: Xavier gain of the projections' initial weights.
        diagonal: multiple of the identity added to them. With the small gain it starts the layer near a scaled
        identity, which
            the paper found to matter by 30 % and more (section 4 and appendix).

    Raises:
        ValueError: `channels` is not a multiple of `heads`.
    """

    def __init__(
        self,
        channels: int,
        heads: int,
        coordinates: int,
        *,
        eps: float = 1e-5,
        gain: float = 1e-2,
        diagonal: float = 1e-2,
    ) -> None:
        super().__init__()
        if channels % heads:
            raise ValueError(
                f"expected channels to be a multiple of heads but got {channels} channels and {heads} heads"
            )
        self.heads = heads
        self.query, self.key, self.value = (projection(channels, gain, diagonal) for _ in range(3))
        self.first_norm, self.second_norm = (HeadNorm(heads, channels // heads, eps) for _ in range(2))
        self.output = nn.Linear(channels + heads * coordinates, channels)

    def forward(self, tokens: Tokens, positions: Positions) -> Tokens:
        Q, K, V = (self.split(project(tokens)) for project in (self.query, self.key, self.value))
        Q, K, V = (join(positions, x) for x in self.normalise(Q, K, V))
        return self.output(self.mix(Q, K, V).transpose(1, 2).flatten(2))

    def split(self, x: Tokens) -> Heads:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def normalise(self, Q: Heads, K: Heads, V: Heads) -> tuple[Tensor, Tensor, Tensor]:
        raise NotImplementedError

    def mix(self, Q: Heads, K: Heads, V: Heads) -> Heads:
        raise NotImplementedError


class GalerkinAttention(ScalePreservingAttention):
    r"""Mix as a Petrov-Galerkin projection, :math:`z = Q(\tilde K^T\tilde V)/n`; keys and values are normalised."""

    def normalise(self, Q: Heads, K: Heads, V: Heads) -> tuple[Tensor, Tensor, Tensor]:
        return Q, self.first_norm(K), self.second_norm(V)

    def mix(self, Q: Heads, K: Heads, V: Heads) -> Heads:
        return Q @ (K.transpose(-2, -1) @ V / K.shape[-2])


class FourierAttention(ScalePreservingAttention):
    r"""Mix as a learned integral kernel, :math:`z = (\tilde Q\tilde K^T)V/(n\sqrt w)`; queries, keys are normalised."""

    def normalise(self, Q: Heads, K: Heads, V: Heads) -> tuple[Tensor, Tensor, Tensor]:
        return self.first_norm(Q), self.second_norm(K), V

    def mix(self, Q: Heads, K: Heads, V: Heads) -> Heads:
        return Q @ (K.transpose(-2, -1) @ V / (K.shape[-2] * math.sqrt(K.shape[-1])))


def projection(channels: int, gain: float, diagonal: float) -> nn.Linear:
    """Give a square linear map with weights Xavier(gain) + diagonal * identity and no initial bias."""
    layer = nn.Linear(channels, channels)
    nn.init.xavier_uniform_(layer.weight, gain=gain)
    nn.init.zeros_(layer.bias)
    with torch.no_grad():
        layer.weight += diagonal * torch.eye(channels)
    return layer


def join(positions: Positions, x: Heads) -> Float[Tensor, "batch head token _"]:
    """Put the coordinates in front of the features of every head."""
    return torch.cat([positions.expand(*x.shape[:2], *positions.shape), x], dim=-1)
