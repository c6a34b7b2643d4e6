r"""The published network for the line: takes a field on any grid, gives the answer on the same grid.

.. code-block:: text

    field [B, N] or [B, channel, N]
      -> linear map -> N tokens [B, N, C] -> L encoder layers (-> add the linear map's features)
      -> decoder, with the coordinates or without -> one channel
    answer [B, N]

Every grid point is a token, so the cost grows with the grid. Positions are x_i = i/(n-1), both ends included, also for
periodic fields: so the published weights were trained. Cao, NeurIPS 2021, arXiv 2105.14995, section 4 (Burgers'
equation); the numbers are those of the published code, `SimpleTransformer`.
"""

from __future__ import annotations

from typing import Literal

from jaxtyping import Float
from pydantic import PositiveInt
from torch import Tensor, nn

from training.nn.coordinates import indices, places
from training.nn.decoders import DecoderConfig, SpectralDecoderConfig, build_decoder
from training.nn.dropout import Dropout
from training.nn.encoder import EncoderConfig, encoder_stack
from training.nn.normaliser import Normaliser
from training.nn.shapes import Channels, Line

Lines = Float[Tensor, "batch *channel point"]


class LineTransformerConfig(EncoderConfig):
    """Sizes and options of a line transformer; the decoder's defaults are the published ones for Burgers' equation."""

    kind: Literal["line-transformer"] = "line-transformer"
    inputs: PositiveInt = 1  # channels of the field
    local: Literal[0] = 0  # no local mixing: it is bound to a token grid
    feature_residual: bool = False  # add the linear map's features behind the encoder
    latent_dropout: float = 0.0  # on the features before the decoder
    normalise: bool = False  # standardise input and output by the training fields' mean and deviation
    decoder: DecoderConfig = SpectralDecoderConfig(coordinates=False, channels=48, modes=16, hidden=48)


class LineTransformer(nn.Module):
    """See the module's picture; `config` fixes every size but the grid's."""

    def __init__(self, config: LineTransformerConfig) -> None:
        super().__init__()
        self.config = config
        self.input_normaliser = Normaliser(() if config.inputs == 1 else (config.inputs, 1))
        self.output_normaliser = Normaliser()
        self.lift = nn.Linear(config.inputs, config.channels)
        self.encoder = encoder_stack(config, 1)
        self.latent_dropout = Dropout(config.latent_dropout)
        self.decoder = build_decoder(config.decoder, config.channels, 1)

    def fit_normalisers(self, fields: Lines, answers: Line) -> None:
        """Take the statistics of the training fields, if the config asks for it."""
        if self.config.normalise:
            self.input_normaliser.fit(fields)
            self.output_normaliser.fit(answers)

    def forward(self, field: Lines) -> Line:
        standard = self.input_normaliser(field)
        return self.output_normaliser.inverse(self.solve(standard[:, None] if self.config.inputs == 1 else standard))

    def solve(self, field: Channels) -> Line:
        """Give the standardised answer of a standardised field `[B, channel, N]`."""
        where = places(indices(field.shape[2:], field.device), field.dtype)
        tokens = features = self.lift(field.transpose(1, 2))
        for layer in self.encoder:
            tokens = layer(tokens, where.T)
        latent = self.latent_dropout(tokens + features if self.config.feature_residual else tokens)
        return self.decoder(latent.transpose(1, 2), where)[:, 0]
