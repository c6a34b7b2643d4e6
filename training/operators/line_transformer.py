r"""The network of the paper for the line: from a field on any grid to an output on the same grid.

.. code-block:: text

    field [B, N] or [B, channel, N]
      -> linear map -> N tokens [B, N, C] -> L encoder layers (-> add the features of the linear map)
      -> decoder, with or without coordinates -> one channel
    output [B, N]

Every grid point is a token, so the cost grows with the grid. The coordinates are x_i = i/(n-1) with both ends included,
also for periodic fields, because the published weights were trained so. The numbers equal those of the reference
project's `SimpleTransformer` (Cao, NeurIPS 2021, arXiv 2105.14995, section 4: Burgers' equation).
"""

from __future__ import annotations

from typing import Literal

from jaxtyping import Float
from pydantic import PositiveInt
from torch import Tensor, nn

from training.nn.coordinates import grid_coordinates, indices
from training.nn.decoders import DecoderConfig, SpectralDecoderConfig, build_decoder
from training.nn.dropout import Dropout
from training.nn.encoder import EncoderConfig, encoder_stack
from training.nn.normaliser import Normaliser
from training.nn.shapes import Channels, Line
from training.operators.operator import Operator, OperatorKind

Lines = Float[Tensor, "batch *channel point"]


class LineTransformerConfig(EncoderConfig):
    """Options of a line transformer. The defaults of the decoder are the published ones for Burgers' equation."""

    kind: Literal["line-transformer"] = "line-transformer"
    inputs: PositiveInt = 1  # channels of the field
    local: Literal[0] = 0  # local mixing needs a fixed token grid
    feature_residual: bool = False  # add the features of the linear map after the encoder
    latent_dropout: float = 0.0  # on the features before the decoder
    normalise: bool = False  # standardise input and output by the training fields' mean and deviation
    decoder: DecoderConfig = SpectralDecoderConfig(coordinates=False, channels=48, modes=16, hidden=48)


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
        self.lift = nn.Linear(config.inputs, config.channels)
        self.encoder = encoder_stack(config, 1)
        self.latent_dropout = Dropout(config.latent_dropout)
        self.decoder = build_decoder(config.decoder, config.channels, 1)

    def fit_normalisers(self, fields: Lines, outputs: Line) -> None:
        """Set the statistics to those of the training fields, if `normalise` is set."""
        if self.config.normalise:
            self.input_normaliser.fit(fields)
            self.output_normaliser.fit(outputs)

    def forward(self, field: Lines) -> Line:
        standard = self.input_normaliser(field)
        return self.output_normaliser.inverse(self.solve(standard[:, None] if self.config.inputs == 1 else standard))

    def solve(self, field: Channels) -> Line:
        """Return the standardised output for a standardised field `[B, channel, N]`."""
        coordinates = grid_coordinates(indices(field.shape[2:], field.device), field.dtype)
        tokens = features = self.lift(field.transpose(1, 2))
        for layer in self.encoder:
            tokens = layer(tokens, coordinates.T)
        latent = self.latent_dropout(tokens + features if self.config.feature_residual else tokens)
        return self.decoder(latent.transpose(1, 2), coordinates)[:, 0]


OPERATOR = OperatorKind("line-transformer", LineTransformerConfig, LineTransformer)
