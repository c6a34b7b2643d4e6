r"""The encoder layer of a transformer, and stacks of it.

.. math::
    x \leftarrow \nu(x \pm \mathrm{Mix}(\mu(x))), \qquad x \leftarrow \nu(x + \mathrm{FFN}(\mu(x))), \qquad
    \mathrm{Mix} = \mathrm{Attn} + \mathrm{Local}

One of :math:`\mu, \nu` is a layer norm and the other the identity: :math:`\mu` for `norm = "pre"`, :math:`\nu` for
`norm = "post"`. With `norm = "none"` both are the identity and only the attention normalises, as in the paper (Cao,
NeurIPS 2021, arXiv 2105.14995, section 3). `Local` is optional: a depthwise convolution on the token grid, which adds
the local mixing that attention to smooth features lacks.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator
from torch import nn
from torch.nn import functional

from schema.parts import Frozen
from training.messages import lookup
from training.nn.attention import Attention, AttentionNorm, AttentionType, build_attention
from training.nn.grids import TOKENS, Mask, Positions, Tokens, Weight, expect
from training.nn.pointwise import Activation, Dropout, build_activation, expect_odd

Norm = Literal["none", "pre", "post"]
Residual = Literal["plus", "minus"]
Rate = Annotated[float, Field(ge=0, le=1)]

POST: dict[str, bool] = {"none": False, "pre": False, "post": True}
MINUS: dict[str, bool] = {"plus": False, "minus": True}


class EncoderConfig(Frozen):
    """Options of an encoder. The configs of operators inherit them.

    Example:
        >>> EncoderConfig(attention="fourier", channels=96, layers=6).feedforward
        128
    """

    attention: AttentionType = "galerkin"
    attention_norm: AttentionNorm = "layer"
    attention_dropout: Rate = 0.0
    causal: bool = False  # tokens attend to themselves and their predecessors only; for kernels
    shared_map: bool = False  # one trained feature map for all heads instead of one per head; for kernels
    norm: Norm = "pre"
    eps: PositiveFloat = 1e-5  # of all norms
    gain: float = 1e-2  # Xavier gain of the attention's projections
    diagonal: float = 1e-2  # multiple of the identity added to them
    symmetric: bool = False  # also add their transpose
    channels: PositiveInt = 64  # features of a token, C, a multiple of the heads
    heads: PositiveInt = 4
    layers: NonNegativeInt = 4
    feedforward: PositiveInt = 128  # hidden features of the FFN
    activation: Activation = "silu"
    batch_norm: bool = False  # of the FFN's hidden features
    residual: Residual = "plus"
    dropout: Rate = 0.0  # of both residual branches
    feedforward_dropout: Rate = 0.0  # of the FFN's hidden features
    identical: bool = False  # start all layers from equal weights, as the reference project does
    local: NonNegativeInt = 0  # stencil of the depthwise convolution beside the attention, odd; 0: no convolution

    @model_validator(mode="after")
    def expect_a_map_to_share(self) -> EncoderConfig:
        """Refuse a shared feature map, or a causal form, for an attention that has none."""
        if self.shared_map and not self.attention.startswith("kernel-"):
            raise ValueError(f"{self.attention} attention has no feature map: leave shared_map out")
        if self.causal and not self.attention.startswith("kernel-"):
            raise ValueError(
                f"{self.attention} attention has no causal form: leave causal out, or use a kernel-... type"
            )
        if self.attention_norm == "instance" and (self.causal or self.attention == "causal"):
            raise ValueError("instance norm is over all tokens, later ones, too: set attention_norm = 'layer'")
        return self

    @model_validator(mode="after")
    def expect_sizes_that_fit(self) -> EncoderConfig:
        """Require as many channels for every head, and a stencil with a middle."""
        if self.channels % self.heads:
            raise ValueError(f"expected channels to be a multiple of {self.heads} heads but got {self.channels}")
        if self.local and not self.local % 2:
            raise ValueError(f"expected an odd stencil in local but got {self.local}")
        return self


class EncoderLayer(nn.Module):
    r"""Mix the tokens globally and locally, then transform each token alone; see the formula of the module.

    Args:
        attention: The global mixing, such as a layer of `training.nn.attention`.
        channels: The number of features per token.
        feedforward: The number of hidden features of the feed-forward network (FFN).
        norm: `pre`, `post` or `none`.
        activation: The activation of the FFN: `silu`, `relu`, `gelu` or `none`.
        residual: The sign of the mixing branch, `plus` or `minus`.
        batch_norm: Normalise the hidden features of the FFN over batch and tokens.
        eps: The epsilon of the layer norms.
        local: The local mixing, such as `LocalMixing`, or None.
        dropout: The dropout rate of both branches. It is 0 in evaluation.
        feedforward_dropout: The dropout rate of the hidden features of the FFN. It is 0 in evaluation.

    Raises:
        UnknownNameError: There is no such norm, activation or residual; the message lists the known names.

    Example:
        Six layers on 8192 points of a line, for a batch of 8:

        >>> def layer():
        ...     return EncoderLayer(build_attention("galerkin", 128, 4, coordinates=1), channels=128, feedforward=256)
        >>> layers = nn.ModuleList(layer() for _ in range(6))
        >>> x = torch.randn(8, 8192, 128)
        >>> pos = torch.arange(8192)[:, None].repeat(8, 1, 1)
        >>> with torch.no_grad():
        ...     for layer in layers:
        ...         x = layer(x, pos)
        >>> x.shape
        torch.Size([8, 8192, 128])
    """

    def __init__(
        self,
        attention: Attention,
        channels: int,
        feedforward: int,
        *,
        norm: str = "pre",
        activation: str = "silu",
        residual: str = "plus",
        batch_norm: bool = False,
        eps: float = 1e-5,
        local: nn.Module | None = None,
        dropout: float = 0.0,
        feedforward_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.channels = channels
        self.attention = attention
        self.local = local
        self.post = lookup(POST, norm, "norm")
        self.minus = lookup(MINUS, residual, "residual")
        self.norm1, self.norm2 = (nn.Identity() if norm == "none" else nn.LayerNorm(channels, eps) for _ in range(2))
        hidden = OrderedDict(
            activation=build_activation(activation),
            dropout=Dropout(feedforward_dropout),
        )
        if batch_norm:
            hidden["norm"] = nn.BatchNorm1d(feedforward)
        self.feedforward = nn.Sequential(
            nn.Linear(channels, feedforward), nn.Sequential(hidden), nn.Linear(feedforward, channels)
        )
        self.dropout = Dropout(dropout)

    def forward(
        self,
        tokens: Tokens,
        positions: Positions | None = None,
        *,
        mask: Mask | None = None,
        weight: Weight | None = None,
    ) -> Tokens:
        """Return the tokens after the layer.

        Args:
            tokens: The tokens, of shape `[batch, token, channel]`.
            positions: See `training.nn.attention.HeadAttention`.
            mask: See there.
            weight: See there.

        Raises:
            ValueError: The tokens have another layout or number of features.
        """
        expect(tokens, TOKENS, self.channels, self)
        tokens = self.add(tokens, partial(self.mix, positions=positions, mask=mask, weight=weight), self.norm1)
        return self.add(tokens, self.transform, self.norm2)

    def mix(self, tokens: Tokens, *, positions: Positions | None, mask: Mask | None, weight: Weight | None) -> Tokens:
        """Return what the tokens receive from one another, and from their neighbours on the grid."""
        mixed = self.attention(tokens, positions=positions, mask=mask, weight=weight)
        mixed = mixed if self.local is None else mixed + self.local(tokens)
        return -mixed if self.minus else mixed

    def transform(self, tokens: Tokens) -> Tokens:
        """Apply the FFN to the tokens of all samples as the rows of one matrix, which graphs multiply fastest."""
        return self.feedforward(tokens.flatten(0, 1)).unflatten(0, tokens.shape[:2])

    def add(self, tokens: Tokens, branch: Callable[[Tokens], Tokens], norm: nn.Module) -> Tokens:
        """Return the tokens plus a branch, normalised before the branch or after the sum."""
        if self.post:
            return norm(tokens + self.dropout(branch(tokens)))
        return tokens + self.dropout(branch(norm(tokens)))


def encoder_stack(
    config: EncoderConfig, coordinates: int, local: Callable[[], nn.Module | None] | None = None
) -> nn.ModuleList:
    """Return the layers of an encoder.

    Args:
        config: The options.
        coordinates: The number of coordinates of a position; 0 for an encoder without positions.
        local: Makes the local mixing of one layer. It is called only if `config.local` is not 0.

    Example:
        >>> layers = encoder_stack(EncoderConfig(channels=32, layers=2), coordinates=0)
        >>> nn.Sequential(*layers)(torch.randn(2, 100, 32)).shape
        torch.Size([2, 100, 32])
    """
    options: dict[str, bool] = {"causal": True} if config.causal else {}
    options |= {"shared": True} if config.shared_map else {}

    def layer() -> EncoderLayer:
        mixing = local() if local and config.local else None
        attention = build_attention(
            config.attention,
            config.channels,
            config.heads,
            coordinates,
            norm=config.attention_norm,
            eps=config.eps,
            gain=config.gain,
            diagonal=config.diagonal,
            symmetric=config.symmetric,
            dropout=config.attention_dropout,
            **options,
        )
        return EncoderLayer(
            attention,
            config.channels,
            config.feedforward,
            norm=config.norm,
            activation=config.activation,
            residual=config.residual,
            batch_norm=config.batch_norm,
            eps=config.eps,
            local=mixing,
            dropout=config.dropout,
            feedforward_dropout=config.feedforward_dropout,
        )

    if config.identical:
        first = layer()
        return nn.ModuleList(copy.deepcopy(first) for _ in range(config.layers))
    return nn.ModuleList(layer() for _ in range(config.layers))


class LocalMixing(nn.Module):
    """Convolve every channel alone over the token grid (depthwise, stride 1, same size).

    Args:
        channels: The number of features per token.
        grid: The sides of the token grid, of one or two axes. The tokens are its points in row-major order.
        kernel: The width of the stencil, an odd number.
        periodic: Wrap around the ends instead of padding with zeros.

    Raises:
        ValueError: `kernel` is even, or the grid has more than two axes.

    Example:
        >>> LocalMixing(32, (10, 12), kernel=3)(torch.randn(2, 120, 32)).shape
        torch.Size([2, 120, 32])
    """

    def __init__(self, channels: int, grid: tuple[int, ...], kernel: int, *, periodic: bool = False) -> None:
        super().__init__()
        expect_odd(kernel)
        if len(grid) not in {1, 2}:
            raise ValueError(f"expected a token grid of one or two axes but got {grid}")
        self.grid = grid
        self.padding = [kernel // 2] * (2 * len(grid))
        self.mode = "circular" if periodic else "constant"
        convolution = (nn.Conv1d, nn.Conv2d)[len(grid) - 1]
        self.convolution = convolution(channels, channels, kernel, groups=channels)

    def forward(self, tokens: Tokens) -> Tokens:
        expect(tokens, TOKENS, self.convolution.in_channels, self, grid=self.grid)
        planes = functional.pad(tokens.transpose(1, 2).unflatten(2, self.grid), self.padding, mode=self.mode)
        return self.convolution(planes).flatten(2).transpose(1, 2)
