r"""Decoders: from features on the fine grid to the values of the solution.

Both first join the coordinates :math:`r` of the grid to the features, :math:`x \leftarrow
A[x, r] + b`, unless the config leaves the coordinates out. Linear maps at a point are convolutions of width one. They
are those of a paper (Cao, NeurIPS 2021, https://arxiv.org/abs/2105.14995, section 4 and appendix C).
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt
from torch import nn

from schema.parts import Frozen
from training.nn.grids import CONVOLUTION, FIELDS, Channels, Coordinates, Features, JoinCoordinates, expect
from training.nn.pointwise import Activation, Dropout, build_activation
from training.nn.spectral import SpectralConv


class CommonConfig(Frozen):
    """Options of both decoders of fields."""

    coordinates: bool = True  # join the coordinates of the grid first
    joined: PositiveInt | None = None  # features after that; None keeps their number
    activation: Activation = "silu"
    dropout: float = 0.0


class SpectralDecoderConfig(CommonConfig):
    """Sizes of a spectral decoder. The defaults are the published ones for Darcy flow.

    Example:
        >>> SpectralDecoderConfig(channels=24, modes=8).layers
        2
    """

    kind: Literal["spectral"] = "spectral"
    channels: PositiveInt = 32  # of the spectral layers, W
    modes: PositiveInt = 12  # M
    layers: PositiveInt = 2  # spectral layers, R
    hidden: PositiveInt = 128  # features of the hidden layer after them, Z
    last_activation: bool = True  # also activate after the last spectral layer


class PointwiseDecoderConfig(CommonConfig):
    """Sizes of a pointwise decoder. The defaults are the published ones for the inverse problem.

    Example:
        >>> PointwiseDecoderConfig(layers=2, coordinates=False).layers
        2
    """

    kind: Literal["pointwise"] = "pointwise"
    layers: NonNegativeInt = 1  # R
    gain: PositiveFloat | None = None  # Xavier gain of the initial weights, with zero biases; None: torch's default


DecoderConfig = Annotated[SpectralDecoderConfig | PointwiseDecoderConfig, Field(discriminator="kind")]


class Decoder(nn.Module):
    """What both decoders of fields do first: join the coordinates, if the config does not leave them out."""

    def __init__(self, config: CommonConfig, inputs: int, dimensions: int) -> None:
        super().__init__()
        self.inputs, self.dimensions = inputs, dimensions
        self.width = (config.joined or inputs) if config.coordinates else inputs  # features after that
        self.join = JoinCoordinates(inputs, self.width, dimensions) if config.coordinates else None

    def forward(self, x: Channels, coordinates: Coordinates) -> Features:
        expect(x, FIELDS, self.inputs, self, dimensions=self.dimensions)
        return self.decode(x if self.join is None else self.join(x, coordinates))

    def decode(self, joined: Channels) -> Features:
        """Return the values for features that already hold the coordinates."""
        raise NotImplementedError


class SpectralDecoder(Decoder):
    r"""Join the coordinates, apply R spectral layers, then a network of one hidden layer at every point.

    .. math::
        x \leftarrow A[x, r] + b, \qquad x \leftarrow \mathrm{SpectralConv}_R(\dots\mathrm{SpectralConv}_1(x)), \qquad
        y = B\,\mathrm{act}(C x + c) + d

    Args:
        config: The sizes.
        inputs: The number of channels in.
        dimensions: The number of axes, 1 to 3.

    Example:
        >>> decoder = SpectralDecoder(SpectralDecoderConfig(coordinates=False, modes=5), 48, dimensions=1)
        >>> decoder(torch.randn(2, 48, 64), torch.linspace(0, 1, 64)[None]).shape
        torch.Size([2, 1, 64])
    """

    def __init__(self, config: SpectralDecoderConfig, inputs: int, dimensions: int) -> None:
        super().__init__(config, inputs, dimensions)
        widths = [self.width] + [config.channels] * config.layers
        filters = [
            SpectralConv(
                *pair,
                config.modes,
                dimensions,
                activation=config.activation,
                dropout=config.dropout,
                deviation=published_deviation(*pair, config.modes, dimensions),
            )
            for pair in pairwise(widths)
        ]
        if not config.last_activation:
            filters[-1].activation = nn.Identity()
        self.spectral = nn.Sequential(*filters)
        linear = CONVOLUTION[dimensions]
        self.head = nn.Sequential(
            linear(config.channels, config.hidden, 1), build_activation(config.activation), linear(config.hidden, 1, 1)
        )

    def decode(self, joined: Channels) -> Features:
        return self.head(self.spectral(joined))


class PointwiseDecoder(Decoder):
    r"""Join the coordinates, then apply R hidden layers and a linear map at every point.

    .. math::
        x \leftarrow A[x, r] + b, \qquad x \leftarrow \mathrm{drop}(\mathrm{act}(A_i x + b_i)),\ i = 1..R, \qquad
        y = B x + c

    Args:
        config: The sizes.
        inputs: The number of channels in.
        dimensions: The number of axes, 1 to 3.

    Example:
        >>> decoder = PointwiseDecoder(PointwiseDecoderConfig(layers=2), 48, dimensions=1)
        >>> decoder(torch.randn(2, 48, 64), torch.linspace(0, 1, 64)[None]).shape
        torch.Size([2, 1, 64])
    """

    def __init__(self, config: PointwiseDecoderConfig, inputs: int, dimensions: int) -> None:
        super().__init__(config, inputs, dimensions)
        linear, width = CONVOLUTION[dimensions], self.width
        self.hidden = nn.Sequential(
            *(
                nn.Sequential(linear(width, width, 1), build_activation(config.activation), Dropout(config.dropout))
                for _ in range(config.layers)
            )
        )
        self.head = linear(width, 1, 1)
        if config.gain is not None:
            for parameter in self.parameters():
                if parameter.ndim > 1:
                    nn.init.xavier_uniform_(parameter, gain=config.gain)
                else:
                    nn.init.zeros_(parameter)

    def decode(self, joined: Channels) -> Features:
        return self.head(self.hidden(joined))


def build_decoder(
    config: SpectralDecoderConfig | PointwiseDecoderConfig, inputs: int, dimensions: int
) -> SpectralDecoder | PointwiseDecoder:
    """Return a new decoder, which maps `[batch, inputs, *grid]` to `[batch, 1, *grid]`.

    Args:
        config: The kind and the sizes.
        inputs: The number of channels in.
        dimensions: The number of axes, 1 to 3.

    Example:
        >>> build_decoder(PointwiseDecoderConfig(layers=0, coordinates=False), 3, dimensions=2).head
        Conv2d(3, 1, kernel_size=(1, 1), stride=(1, 1))
    """
    if isinstance(config, SpectralDecoderConfig):
        return SpectralDecoder(config, inputs, dimensions)
    return PointwiseDecoder(config, inputs, dimensions)


def published_deviation(inputs: int, outputs: int, modes: int, dimensions: int) -> float:
    r"""Return the standard deviation of the initial spectral weights of the reference project.

    It is Xavier's normal rule for the tensor [in, out, \*modes, 2] with the gain 1/(in out) on a line and
    :math:`\sqrt{in + out}/(in\,out)` on a plane and in space.
    """
    gain = (1 if dimensions == 1 else math.sqrt(inputs + outputs)) / (inputs * outputs)
    return gain * math.sqrt(2 / ((inputs + outputs) * 2 * modes**dimensions))
