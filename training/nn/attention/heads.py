r"""Multi-head attention without the mixing, which each family defines.

.. math::
    Q = xW_Q,\; K = yW_K,\; V = yW_V, \qquad \tilde Q = [p, \nu(Q)],\ \dots, \qquad
    z = \mathrm{concat}_h\,\mathrm{mix}(\tilde Q_h, \tilde K_h, \tilde V_h)\,W_O

For every head :math:`h`, two of the three are normalised by :math:`\nu`. The coordinates :math:`p` are prepended to the
features, so that a head has the width :math:`w = C/H + P` (Cao, NeurIPS 2021, arXiv 2105.14995, section 3).
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from training.messages import lookup
from training.nn.grids import (
    TOKENS,
    Heads,
    Mask,
    Matrices,
    Mixed,
    Positions,
    SourcePositions,
    Sources,
    Tokens,
    Weight,
    expect,
    graphing,
    tracing,
)

AttentionNorm = Literal["layer", "instance", "none"]


class HeadNorm(nn.Module):
    """Normalise the features of every head and token, with an affine map per head."""

    def __init__(self, heads: int, width: int, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(heads, 1, width))
        self.bias = nn.Parameter(torch.zeros(heads, 1, width))

    def forward(self, x: Heads) -> Heads:
        return functional.layer_norm(x, x.shape[-1:], eps=self.eps) * self.weight + self.bias


class HeadInstanceNorm(HeadNorm):
    """Normalise every feature of a head over the tokens of its sample, in training and in evaluation."""

    def forward(self, x: Heads) -> Heads:
        centred = x - x.mean(dim=-2, keepdim=True)
        variance = centred.square().mean(dim=-2, keepdim=True)
        return centred * torch.rsqrt(variance + self.eps) * self.weight + self.bias


NORM: dict[str, type[HeadNorm] | None] = {"layer": HeadNorm, "instance": HeadInstanceNorm, "none": None}


class HeadAttention(nn.Module):
    """Project the tokens, normalise, prepend the coordinates, mix, and project back.

    The subclasses differ in which projections they normalise and in how they mix; see the table in
    `training.nn.attention`.

    Args:
        channels: The number of features per token, a multiple of `heads`.
        heads: The number of heads.
        coordinates: The number of coordinates of a position. They are prepended to the features of every head. With 0
            the layer takes no positions and has no output projection: the heads are concatenated.
        norm: `layer` over the features of a head, `instance` over all tokens, or `none`.
        eps: The epsilon of the norms.
        gain: The Xavier gain of the initial weights of the projections.
        diagonal: The multiple of the identity that is added to them. With the small gain, the layer starts near a
            scaled identity, which improves the paper's results by 30 % and more (section 4 and appendix).
        symmetric: Also add the transpose to the initial weights.
        dropout: The dropout rate of the attention matrix: of K^T V where the mixing computes that product, otherwise of
            the token by token matrix, at quadratic cost. It is 0 in evaluation.

    Raises:
        ValueError: `channels` is not a multiple of `heads`, or a size or the dropout rate is out of range.
        UnknownNameError: There is no such norm.
    """

    #: Whether the mixing weighs pairs of tokens, (Q K^T) V. Then Q and K are normalised, otherwise K and V.
    pairwise: ClassVar[bool]

    def __init__(
        self,
        channels: int,
        heads: int,
        coordinates: int = 0,
        *,
        norm: str = "layer",
        eps: float = 1e-5,
        gain: float = 1e-2,
        diagonal: float = 1e-2,
        symmetric: bool = False,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if channels < 1 or heads < 1 or coordinates < 0 or not 0 <= dropout <= 1:
            raise ValueError(
                f"expected at least 1 channel and 1 head, and a dropout rate of 0 to 1, but got {channels} channels, "
                f"{heads} heads, {coordinates} coordinates and a rate of {dropout}"
            )
        if channels % heads:
            raise ValueError(
                f"expected channels to be a multiple of heads but got {channels} channels and {heads} heads"
            )
        self.channels, self.heads, self.coordinates = channels, heads, coordinates
        self.width = channels // heads + coordinates  # of a head in the mixing, w
        self.dropout = dropout
        self.query, self.key, self.value = (projection(channels, gain, diagonal, symmetric) for _ in range(3))
        kind, width = lookup(NORM, norm, "kind of attention norm"), channels // heads
        self.first_norm, self.second_norm = (kind(heads, width, eps) if kind else nn.Identity() for _ in range(2))
        self.output = nn.Linear(channels + heads * coordinates, channels) if coordinates else nn.Identity()
        # The membership of features in heads, [feature, head], set by `training.nn.attention.cao.centre`.
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
        """Return the mixed tokens, with the shape and dtype of `query`.

        Args:
            query: The tokens that the queries are computed from, of shape `[batch, token, channel]`.
            key: The tokens that the keys are computed from, of shape `[batch, source, channel]`; by default `query`.
            value: The tokens that the values are computed from; by default `key`.
            positions: The positions of the queries, of shape `[token, coordinate]` or `[batch, token, coordinate]`, of
                any real or integer dtype.
            key_positions: The positions of the keys; by default those of the queries.
            mask: True where a query attends to a key, of shape `[batch, query, key]` or `[batch, 1, key]`. Only
                attentions that weigh pairs of tokens accept one.
            weight: A factor of the inputs of queries and keys, such as quadrature weights, of shape
                `[batch, token, 1]`. The inputs of the values are not weighted.

        Raises:
            ValueError: The tokens have another layout or number of features; positions are missing, unexpected or of
                another dimension; an argument is of other samples or tokens, which would be broadcast; or there is a
                mask, which the attention or its norm over tokens does not accept.
        """
        for tokens in (query, key, value):
            if tokens is not None:
                expect(tokens, TOKENS, self.channels, self)
        if mask is not None and isinstance(self.first_norm, HeadInstanceNorm):
            raise ValueError(
                "instance norm accepts no mask: it is over all tokens, hidden ones, too; expected layer norm"
            )
        self.expect_alike(query, key, value, positions, key_positions, mask, weight)
        if all(other is None for other in (key, value, key_positions, mask, weight)):
            mixed = self.fast_self_attention(query, positions)
            if mixed is not None:
                return mixed
        key = query if key is None else key
        value = key if value is None else value
        if weight is not None:
            query, key = query * weight, key * weight
        Q, K, V = self.split(self.query(query)), self.split(self.key(key)), self.split(self.value(value))
        Q, K, V = self.normalise(Q, K, V)
        sources = positions if key_positions is None else key_positions
        Q, K, V = self.prepend(positions, Q), self.prepend(sources, K), self.prepend(sources, V)
        return self.output(self.mix(Q, K, V, mask).transpose(1, 2).flatten(2))

    def expect_alike(
        self,
        query: Tensor,
        key: Tensor | None,
        value: Tensor | None,
        positions: Tensor | None,
        key_positions: Tensor | None,
        mask: Tensor | None,
        weight: Tensor | None,
    ) -> None:
        """Require the samples and tokens of the arguments; while a graph is made nothing is compared.

        A mask of padding `[batch, key]` would otherwise be one of the heads where there are as many heads as samples.

        Raises:
            ValueError: See `forward`.
        """
        if graphing():
            return
        batch, tokens = query.shape[:2]
        sources = (query if key is None else key).shape[1]
        batches, own = {1, batch}, {self.coordinates}
        of_keys = positions if key_positions is None else key_positions
        for name, found, shape, sizes in (
            ("key", key, "[batch, source, channel]", ({batch}, {sources}, {self.channels})),
            ("value", value, "[batch, source, channel]", ({batch}, {sources}, {self.channels})),
            ("positions", positions, "[token, coordinate]", (batches, {tokens}, own)),
            ("key_positions", of_keys, "[source, coordinate]", (batches, {sources}, own)),
            ("mask", mask, "[batch, token, source] or [batch, 1, source]", (batches, {1, tokens}, {sources})),
            ("weight", weight, "[batch, token, 1]", (batches, {1, tokens} & {1, sources}, {1, self.channels})),
        ):
            if found is None:
                continue
            if name.endswith("positions") and found.shape[-1] != self.coordinates:
                raise ValueError(f"expected positions of {self.coordinates} coordinates but got {found.shape[-1]}")
            expected = sizes[-2:] if name.endswith("positions") and found.ndim < len(sizes) else sizes
            if found.ndim != len(expected) or not all(map(set.__contains__, expected, found.shape)):
                raise ValueError(
                    f"{type(self).__name__}: expected {name} {shape} of {batch} samples, {tokens} tokens and {sources} "
                    f"sources but got {tuple(found.shape)}"
                )

    def fast_self_attention(self, x: Tokens, positions: Positions | None) -> Tokens | None:  # noqa: ARG002 - a default
        """Return the same output computed faster, or None where the general method is needed."""
        return None

    def split(self, x: Tokens) -> Heads:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def normalise(self, Q: Mixed, K: Mixed, V: Mixed) -> tuple[Tensor, Tensor, Tensor]:
        """Return the heads, two of the three normalised; see `pairwise`."""
        if self.pairwise:
            return self.first_norm(Q), self.second_norm(K), V
        return Q, self.first_norm(K), self.second_norm(V)

    def prepend(self, positions: Positions | None, x: Heads) -> Mixed:
        """Prepend the coordinates to the features of every head.

        Raises:
            ValueError: The positions have another number of coordinates than the layer.
        """
        found = 0 if positions is None else positions.shape[-1]
        if not tracing() and found != self.coordinates:
            raise ValueError(f"expected positions of {self.coordinates} coordinates but got {found}")
        if positions is None:
            return x
        return torch.cat([positions.to(x.dtype).unsqueeze(-3).expand(*x.shape[:2], -1, -1), x], dim=-1)

    def mix(self, Q: Mixed, K: Mixed, V: Mixed, mask: Mask | None) -> Mixed:
        """Return the mixed values of every head, of shape `[batch, head, token, width]`.

        Args:
            Q: The queries, of shape `[batch, head, token, width]`.
            K: The keys, of shape `[batch, head, source, width]`.
            V: The values, of the shape of `K`.
            mask: See `forward`.
        """
        raise NotImplementedError

    @property
    def rate(self) -> float:
        return self.dropout if self.training else 0.0

    def drop(self, matrix: Matrices) -> Matrices:
        return functional.dropout(matrix, self.rate, training=True) if self.rate else matrix


def refuse_mask(mask: Mask | None, name: str) -> None:
    """Refuse a mask for an attention that sums over all keys before it meets a query.

    Raises:
        ValueError: There is a mask.
    """
    if mask is not None:
        raise ValueError(
            f"{name} attention accepts no mask: it sums K^T V over all tokens once for all queries, so the queries "
            "cannot attend to different tokens; expected fourier, softmax, causal or kernel attention"
        )


def projection(channels: int, gain: float, diagonal: float, symmetric: bool) -> nn.Linear:
    """Return a square linear map with the initial weights Xavier(gain) + diagonal * identity (+ transpose)."""
    layer = nn.Linear(channels, channels)
    nn.init.xavier_uniform_(layer.weight, gain=gain)
    nn.init.zeros_(layer.bias)
    with torch.no_grad():
        layer.weight += diagonal * torch.eye(channels)
        if symmetric:
            layer.weight += layer.weight.T.clone()
    return layer
