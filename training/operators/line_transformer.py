r"""The network of the paper for the line: from a field on any grid to an output on the same grid.

.. code-block:: text

    field [B, N] or [B, channel, N]
      -> linear map, or layers on the graph of the points -> N tokens [B, N, C]
      -> L encoder layers (-> add the features of the first map)
      -> decoder, with or without coordinates -> one channel; or the frequency head -> m numbers
    output [B, N] or [B, m]

The edges of the graph join neighbouring points; they hold the graph Laplacian and its powers, made from the grid of the
input, so any grid is accepted. They take memory in proportion to N^2 C.

Every grid point is a token, so the cost grows with the grid. The coordinates are x_i = i/(n-1) with both ends included,
also for periodic fields, because the published weights were trained so. The numbers equal those of the reference
project's `SimpleTransformer` (Cao, NeurIPS 2021, arXiv 2105.14995, section 4: Burgers' equation).
"""

from __future__ import annotations

from typing import Annotated, Literal

from jaxtyping import Float
from pydantic import Field, PositiveInt
from torch import Tensor, nn

from training.nn.coordinates import grid_coordinates, indices
from training.nn.decoders import (
    PointwiseDecoder,
    PointwiseDecoderConfig,
    SpectralDecoder,
    SpectralDecoderConfig,
    build_decoder,
)
from training.nn.dropout import Dropout
from training.nn.encoder import EncoderConfig, encoder_stack
from training.nn.frequencies import FrequencyHead, FrequencyHeadConfig
from training.nn.graphs import GraphFeaturesConfig, build_graph_features, line_laplacians
from training.nn.normaliser import Normaliser
from training.nn.shapes import Channels, Line, Tokens
from training.operators.operator import Operator, OperatorKind

Lines = Float[Tensor, "batch *channel point"]


LineDecoderConfig = Annotated[
    SpectralDecoderConfig | PointwiseDecoderConfig | FrequencyHeadConfig, Field(discriminator="kind")
]


class LineTransformerConfig(EncoderConfig):
    """Options of a line transformer. The defaults of the decoder are the published ones for Burgers' equation."""

    kind: Literal["line-transformer"] = "line-transformer"
    inputs: PositiveInt = 1  # channels of the field
    local: Literal[0] = 0  # local mixing needs a fixed token grid
    graph: GraphFeaturesConfig | None = None  # layers on the graph of the points; None: a linear map at every point
    periodic: bool = False  # the ends of the line are neighbours in the graph
    feature_residual: bool = False  # add the features of the first map after the encoder
    latent_dropout: float = 0.0  # on the features before the decoder
    normalise: bool = False  # standardise input and output by the training fields' mean and deviation
    decoder: LineDecoderConfig = SpectralDecoderConfig(coordinates=False, channels=48, modes=16, hidden=48)


class LineTransformer(Operator):
    """See the diagram of the module. The config fixes every size but that of the grid.

    Example:
        >>> operator = LineTransformer(LineTransformerConfig(attention="fourier", channels=16, layers=1))
        >>> operator(torch.randn(2, 100)).shape
        torch.Size([2, 100])
    """

    config: LineTransformerConfig

    def __init__(self, config: LineTransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.input_normaliser = Normaliser(() if config.inputs == 1 else (config.inputs, 1))
        self.output_normaliser = Normaliser()
        self.lift = lift(config)
        self.encoder = encoder_stack(config, 1)
        self.latent_dropout = Dropout(config.latent_dropout)
        self.decoder = decoder(config)

    def fit_normalisers(self, fields: Lines, outputs: Line) -> None:
        """Set the statistics to those of the training fields, if `normalise` is set."""
        if self.config.normalise:
            self.input_normaliser.fit(fields)
            self.output_normaliser.fit(outputs)

    def forward(self, field: Lines) -> Float[Tensor, "batch _"]:
        standard = self.input_normaliser(field)
        return self.output_normaliser.inverse(self.solve(standard[:, None] if self.config.inputs == 1 else standard))

    def solve(self, field: Channels) -> Float[Tensor, "batch _"]:
        """Return the standardised output for a standardised field `[B, channel, N]`."""
        coordinates = grid_coordinates(indices(field.shape[2:], field.device), field.dtype)
        tokens = features = self.extract(field.transpose(1, 2))
        for layer in self.encoder:
            tokens = layer(tokens, coordinates.T)
        latent = self.latent_dropout(tokens + features if self.config.feature_residual else tokens)
        if isinstance(self.decoder, FrequencyHead):
            return self.decoder(latent)[..., 0]
        return self.decoder(latent.transpose(1, 2), coordinates)[:, 0]

    def extract(self, tokens: Tokens) -> Float[Tensor, "batch token _"]:
        """Return the first features of the tokens."""
        if isinstance(self.lift, nn.Linear) or self.config.graph is None:
            return self.lift(tokens)
        [index] = indices(tokens.shape[1:2], tokens.device)
        edges = line_laplacians(index, self.config.graph.powers, tokens.dtype, periodic=self.config.periodic)
        return self.lift(tokens, edges)


def lift(config: LineTransformerConfig) -> nn.Module:
    """Return the first map from the field's channels to features."""
    if config.graph is None:
        return nn.Linear(config.inputs, config.channels)
    return build_graph_features(config.graph, config.inputs, config.channels)


def decoder(config: LineTransformerConfig) -> SpectralDecoder | PointwiseDecoder | FrequencyHead:
    """Return the last map, from features to values."""
    if isinstance(config.decoder, FrequencyHeadConfig):
        return FrequencyHead(config.decoder, config.channels)
    return build_decoder(config.decoder, config.channels, 1)


OPERATOR = OperatorKind("line-transformer", LineTransformerConfig, LineTransformer)
