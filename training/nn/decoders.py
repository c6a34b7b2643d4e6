r"""From features on the fine grid to the answer: takes channels, gives the values of the solution there.

Both published kinds may first join the coordinates :math:`r` of the grid to the features, :math:`x \leftarrow
A[x, r] + b`:

- spectral: R spectral layers, then a network of one hidden layer at every point, :math:`B\,\mathrm{act}(A x + a) + b`;
- pointwise: R layers :math:`x \leftarrow \mathrm{drop}(\mathrm{act}(A x + b))`, then a linear map, all at every point.

Cao, NeurIPS 2021, arXiv 2105.14995, section 4 and appendix C. Linear maps at a point are convolutions of width one.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveFloat, PositiveInt
from torch import nn

from training.nn.activations import ACTIVATION, Activation
from training.nn.coordinates import JoinCoordinates
from training.nn.dropout import Dropout
from training.nn.shapes import Carried, Channels, Places
from training.nn.spectral import CONVOLUTION, SpectralConv, published_deviation


class CommonConfig(BaseModel):
    """What both decoders have in common."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    coordinates: bool = True  # join the coordinates of the grid first
    joined: PositiveInt | None = None  # features after that; None keeps as many as there were
    activation: Activation = "silu"
    dropout: float = 0.0


class SpectralDecoderConfig(CommonConfig):
    """Sizes of a spectral decoder; the defaults are the published ones for Darcy flow."""

    kind: Literal["spectral"] = "spectral"
    channels: PositiveInt = 32  # of the spectral layers, W
    modes: PositiveInt = 12  # M
    layers: PositiveInt = 2  # spectral layers, R
    hidden: PositiveInt = 128  # features of the hidden layer behind them, Z
    last_activation: bool = True  # activate behind the last spectral layer, too


class PointwiseDecoderConfig(CommonConfig):
    """Sizes of a pointwise decoder; the defaults are the published ones for the inverse problem."""

    kind: Literal["pointwise"] = "pointwise"
    layers: NonNegativeInt = 1  # R
    gain: PositiveFloat | None = None  # Xavier gain of the initial weights, biases 0; None starts as torch does


DecoderConfig = Annotated[SpectralDecoderConfig | PointwiseDecoderConfig, Field(discriminator="kind")]


class SpectralDecoder(nn.Module):
    """Join the coordinates, filter, then decide at every point.

    Args:
        config: sizes.
        inputs: channels in.
        dimensions: number of axes, 1 to 3.
    """

    def __init__(self, config: SpectralDecoderConfig, inputs: int, dimensions: int) -> None:
        super().__init__()
        self.join, width = join(config, inputs, dimensions)
        widths = [width] + [config.channels] * config.layers
        filters = [spectral_layer(config, *pair, dimensions) for pair in pairwise(widths)]
        if not config.last_activation:
            filters[-1].activation = nn.Identity()
        self.spectral = nn.Sequential(*filters)
        linear = CONVOLUTION[dimensions]
        self.head = nn.Sequential(
            linear(config.channels, config.hidden, 1), ACTIVATION[config.activation](), linear(config.hidden, 1, 1)
        )

    def forward(self, x: Channels, places: Places) -> Carried:
        return self.decide(x if self.join is None else self.join(x, places))

    def decide(self, joined: Channels) -> Carried:
        """Give the values of features that the coordinates have joined."""
        return self.head(self.spectral(joined))


class PointwiseDecoder(nn.Module):
    """Join the coordinates, then decide at every point.

    Args:
        config: sizes.
        inputs: channels in.
        dimensions: number of axes, 1 to 3.
    """

    def __init__(self, config: PointwiseDecoderConfig, inputs: int, dimensions: int) -> None:
        super().__init__()
        self.join, width = join(config, inputs, dimensions)
        linear = CONVOLUTION[dimensions]
        self.hidden = nn.Sequential(
            *(
                nn.Sequential(linear(width, width, 1), ACTIVATION[config.activation](), Dropout(config.dropout))
                for _ in range(config.layers)
            )
        )
        self.head = linear(width, 1, 1)
        if config.gain is not None:
            start_small(self, config.gain)

    def forward(self, x: Channels, places: Places) -> Carried:
        return self.decide(x if self.join is None else self.join(x, places))

    def decide(self, joined: Channels) -> Carried:
        """Give the values of features that the coordinates have joined."""
        return self.head(self.hidden(joined))


def join(config: CommonConfig, inputs: int, dimensions: int) -> tuple[JoinCoordinates | None, int]:
    """Give the map that joins the coordinates, or None, and the number of features behind it."""
    if not config.coordinates:
        return None, inputs
    width = config.joined or inputs
    return JoinCoordinates(inputs, width, dimensions), width


def spectral_layer(config: SpectralDecoderConfig, inputs: int, outputs: int, dimensions: int) -> SpectralConv:
    """Give one layer of a spectral decoder, with the published initial scale."""
    return SpectralConv(
        inputs,
        outputs,
        config.modes,
        dimensions,
        activation=config.activation,
        dropout=config.dropout,
        deviation=published_deviation(inputs, outputs, config.modes, dimensions),
    )


def start_small(module: nn.Module, gain: float) -> None:
    """Draw every weight uniformly by Xavier's rule with `gain` and set every bias to 0."""
    for parameter in module.parameters():
        if parameter.ndim > 1:
            nn.init.xavier_uniform_(parameter, gain=gain)
        else:
            nn.init.zeros_(parameter)


def build_decoder(
    config: SpectralDecoderConfig | PointwiseDecoderConfig, inputs: int, dimensions: int
) -> SpectralDecoder | PointwiseDecoder:
    """Build the decoder that `config` describes: `[batch, inputs, *grid]` -> `[batch, 1, *grid]`."""
    if isinstance(config, SpectralDecoderConfig):
        return SpectralDecoder(config, inputs, dimensions)
    return PointwiseDecoder(config, inputs, dimensions)
