r"""The light network for 1, 2 or 3 axes: takes a field on any grid, gives the answer on the same grid.

.. code-block:: text

    field [B, *grid] or [B, channel, *grid]
      -> join the coordinates -> every grid point a token [B, N, C] -> L encoder layers
      -> decoder, with the coordinates or without -> one channel
    answer [B, *grid]

No scalers, so nothing is bound to a grid, and the cost grows with it. On the plane the numbers are those of the
published code, `FourierTransformer2DLite` (Cao, NeurIPS 2021, arXiv 2105.14995); line and space follow the same rule.
"""

from __future__ import annotations

from typing import Literal

from jaxtyping import Float
from pydantic import PositiveInt
from torch import Tensor, nn

from training.nn.coordinates import JoinCoordinates, indices, places
from training.nn.decoders import DecoderConfig, SpectralDecoderConfig, build_decoder
from training.nn.dropout import Dropout
from training.nn.encoder import EncoderConfig, encoder_stack
from training.nn.normaliser import Normaliser
from training.nn.shapes import Channels, Field

Fields = Float[Tensor, "batch ..."]


class GridTransformerConfig(EncoderConfig):
    """Sizes and options of a grid transformer; the decoder's defaults are the published ones for Navier-Stokes."""

    kind: Literal["grid-transformer"] = "grid-transformer"
    dimensions: Literal[1, 2, 3] = 2
    inputs: PositiveInt = 1  # channels of the field, without the coordinates
    local: Literal[0] = 0  # no local mixing: it is bound to a token grid
    latent_dropout: float = 0.0  # on the features before the decoder
    normalise: bool = True  # standardise input and output by the training fields' mean and deviation
    decoder: DecoderConfig = SpectralDecoderConfig(coordinates=False, channels=20, modes=12, hidden=20)


class GridTransformer(nn.Module):
    """See the module's picture; `config` fixes every size but the grid's."""

    def __init__(self, config: GridTransformerConfig) -> None:
        super().__init__()
        self.config = config
        statistics = () if config.inputs == 1 else (config.inputs, *(1 for _ in range(config.dimensions)))
        self.input_normaliser, self.output_normaliser = Normaliser(statistics), Normaliser()
        self.lift = JoinCoordinates(config.inputs, config.channels, config.dimensions)
        self.encoder = encoder_stack(config, config.dimensions)
        self.latent_dropout = Dropout(config.latent_dropout)
        self.decoder = build_decoder(config.decoder, config.channels, config.dimensions)

    def fit_normalisers(self, fields: Fields, answers: Field) -> None:
        """Take the statistics of the training fields, per channel, if the config asks for it."""
        if self.config.normalise:
            self.input_normaliser.fit(fields)
            self.output_normaliser.fit(answers)

    def forward(self, field: Fields) -> Field:
        standard = self.input_normaliser(field)
        return self.output_normaliser.inverse(self.solve(standard[:, None] if self.config.inputs == 1 else standard))

    def solve(self, field: Channels) -> Field:
        """Give the standardised answer of a standardised field `[B, channel, *grid]`."""
        where = places(indices(field.shape[2:], field.device), field.dtype)
        tokens = self.lift(field, where).flatten(2).transpose(1, 2)
        for layer in self.encoder:
            tokens = layer(tokens, where.flatten(1).T)
        latent = self.latent_dropout(tokens).transpose(1, 2).unflatten(2, field.shape[2:])
        return self.decoder(latent, where)[:, 0]
