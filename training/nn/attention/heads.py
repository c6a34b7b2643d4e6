r"""What every attention has in common: takes tokens and their positions, gives mixed tokens; a family fills in the mix.

.. math::
    Q = xW_Q,\; K = yW_K,\; V = yW_V, \qquad \tilde Q = [p, \nu(Q)],\ \dots, \qquad
    z = \mathrm{concat}_h\,\mathrm{mix}(\tilde Q_h, \tilde K_h, \tilde V_h)\,W_O,

per head :math:`h`: two of the three are normalised by :math:`\nu`, the coordinates :math:`p` join in front of the
features, so that a head is :math:`w = C/H + P` wide, and the mix follows (Cao, NeurIPS 2021, arXiv 2105.14995,
section 3).
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from training.nn.options import known
from training.nn.shapes import Heads, Mask, Matrices, Mixed, Positions, SourcePositions, Sources, Tokens, Weight

AttentionNorm = Literal["layer", "instance", "none"]


class HeadNorm(nn.Module):
    """Normalise every head's features, token by token, with an affine map of the head's own."""

    def __init__(self, heads: int, width: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(heads, 1, width))
        self.bias = nn.Parameter(torch.zeros(heads, 1, width))

    def forward(self, x: Heads) -> Heads:
        return functional.layer_norm(x, x.shape[-1:], eps=self.eps) * self.weight + self.bias


class HeadInstanceNorm(HeadNorm):
    """Normalise every feature of a head over the tokens of its sample, in training and evaluation alike."""

    def forward(self, x: Heads) -> Heads:
        centred = x - x.mean(dim=-2, keepdim=True)
        variance = centred.square().mean(dim=-2, keepdim=True)
        return centred * torch.rsqrt(variance + self.eps) * self.weight + self.bias


NORM: dict[str, type[HeadNorm] | None] = {"layer": HeadNorm, "instance": HeadInstanceNorm, "none": None}


class HeadAttention(nn.Module):
    """Project, normalise, join the coordinates, mix, project back.

    Members differ in what is normalised and how they mix: see the table in `training.nn.attention`.

    Args:
        channels: features of a token; must be a multiple of `heads`.
        heads: number of heads.
        coordinates: components of a position, put in front of the features of every head. 0 leaves positions out,
            and with them the output's projection: the heads are then simply concatenated.
        norm: `layer` over a head's features, `instance` over the tokens, or `none`.
        eps: of the norms.
        gain: Xavier gain of the projections' initial weights.
        diagonal: multiple of the identity added to them. With the small gain it starts the layer near a scaled
            identity, which the paper found to matter by 30 % and more (section 4 and appendix).
        symmetric: add the transpose to the initial weights too.
        dropout: rate at which entries of the attention matrix are left out: of K^T V where a type forms that one, else
            of the token by token matrix, which is then formed at a quadratic cost. 0 in evaluation.
        dropout_in_evaluation: leave them out in evaluation too. The published results were measured so, with a rate
            of 0.5: for comparison only.

    Raises:
        ValueError: `channels` is not a multiple of `heads`, or there is no such norm.
    """

    #: Whether the mixing weighs tokens by pairs, (Q K^T) V: then Q and K are normalised, else K and V.
    pairwise: ClassVar[bool]

    def __init__(
        self,
        channels: int,
        heads: int,
        coordinates: int,
        *,
        norm: str = "layer",
        eps: float = 1e-5,
        gain: float = 1e-2,
        diagonal: float = 1e-2,
        symmetric: bool = False,
        dropout: float = 0.0,
        dropout_in_evaluation: bool = False,
    ) -> None:
        super().__init__()
        if channels % heads:
            raise ValueError(
                f"expected channels to be a multiple of heads but got {channels} channels and {heads} heads"
            )
        self.heads, self.coordinates = heads, coordinates
        self.width = channels // heads + coordinates  # of a head in the mix, w
        self.dropout, self.dropout_in_evaluation = dropout, dropout_in_evaluation
        self.query, self.key, self.value = (projection(channels, gain, diagonal, symmetric) for _ in range(3))
        self.first_norm, self.second_norm = (head_norm(norm, heads, channels // heads, eps) for _ in range(2))
        self.output = nn.Linear(channels + heads * coordinates, channels) if coordinates else nn.Identity()
        # Which feature is of which head, [feature, head], once `training.nn.attention.folding.centre` was here.
        self.member: Tensor | None
        self.register_buffer("member", None, persistent=False)

    def forward(
        self,
        query: Tokens,
        key: Sources | None = None,
        value: Sources | None = None,
        *,
        positions: Positions | None = None,
        key_positions: SourcePositions | None = None,
        mask: Mask | None = None,
        weight: Weight | None = None,
    ) -> Tokens:
        """Mix what the sources say into every token; shape and dtype of `query` are kept.

        Args:
            query: the tokens that ask.
            key: the tokens that answer; the queries themselves by default.
            value: what they answer with; the keys by default.
            positions: places of the queries, `[token, coordinate]` or `[batch, token, coordinate]`, of any real or
                integer dtype.
            key_positions: places of the keys; those of the queries by default.
            mask: `[batch, query, key]`, true where a query sees a key; types that weigh tokens by pairs take one.
            weight: `[batch, token, 1]`, a factor on the inputs of queries and keys (but not of values), such as
                quadrature weights.

        Raises:
            ValueError: positions are missing, unexpected or of another dimension, or the type takes no mask.
        """
        if all(other is None for other in (key, value, key_positions, mask, weight)):
            answer = self.among(query, positions)
            if answer is not None:
                return answer
        key = query if key is None else key
        value = key if value is None else value
        if weight is not None:
            query, key = query * weight, key * weight
        Q, K, V = self.split(self.query(query)), self.split(self.key(key)), self.split(self.value(value))
        Q, K, V = self.normalise(Q, K, V)
        sources = positions if key_positions is None else key_positions
        Q, K, V = self.join(positions, Q), self.join(sources, K), self.join(sources, V)
        return self.output(self.mix(Q, K, V, mask).transpose(1, 2).flatten(2))

    def among(self, x: Tokens, positions: Positions | None) -> Tokens | None:  # noqa: ARG002 - for a family to fill in
        """Give the answer of tokens that ask each other by a shorter way, or None where there is none."""
        return None

    def split(self, x: Tokens) -> Heads:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def normalise(self, Q: Mixed, K: Mixed, V: Mixed) -> tuple[Tensor, Tensor, Tensor]:
        if self.pairwise:
            return self.first_norm(Q), self.second_norm(K), V
        return Q, self.first_norm(K), self.second_norm(V)

    def join(self, positions: Positions | None, x: Heads) -> Mixed:
        """Put the coordinates in front of the features of every head."""
        found = 0 if positions is None else positions.shape[-1]
        if not tracing() and found != self.coordinates:
            raise ValueError(f"expected positions of {self.coordinates} coordinates but got {found}")
        if positions is None:
            return x
        return torch.cat([positions.to(x.dtype).unsqueeze(-3).expand(*x.shape[:2], -1, -1), x], dim=-1)

    def mix(self, Q: Mixed, K: Mixed, V: Mixed, mask: Mask | None) -> Mixed:
        raise NotImplementedError

    @property
    def rate(self) -> float:
        """The rate of dropout that is in force now."""
        return self.dropout if self.training or self.dropout_in_evaluation else 0.0

    def drop(self, matrix: Matrices) -> Matrices:
        return functional.dropout(matrix, self.rate, training=True) if self.rate else matrix


def tracing() -> bool:
    """Tell whether TorchScript records: then sizes are tensors, and a trace would freeze what a comparison says."""
    return torch.jit.is_tracing()  # type: ignore[attr-defined,no-untyped-call] # public, but neither exported nor typed


def refuse_mask(mask: Mask | None, name: str) -> None:
    """Raise a ValueError if there is a mask, for attention that sums over all tokens before any query is asked."""
    if mask is not None:
        raise ValueError(
            f"{name} attention takes no mask: it sums K^T V over all tokens once for every query, so no query can see "
            "fewer; expected fourier, softmax or causal attention, which weigh tokens by pairs"
        )


def head_norm(norm: str, heads: int, width: int, eps: float) -> nn.Module:
    """Give the norm of one projection's heads."""
    chosen = NORM[known(norm, NORM, "the attention's norm")]
    return nn.Identity() if chosen is None else chosen(heads, width, eps)


def projection(channels: int, gain: float, diagonal: float, symmetric: bool) -> nn.Linear:
    """Give a square linear map with weights W = Xavier(gain) + diagonal * identity (+ W^T) and no initial bias."""
    layer = nn.Linear(channels, channels)
    nn.init.xavier_uniform_(layer.weight, gain=gain)
    nn.init.zeros_(layer.bias)
    with torch.no_grad():
        layer.weight += diagonal * torch.eye(channels)
        if symmetric:
            layer.weight += layer.weight.T.clone()
    return layer
