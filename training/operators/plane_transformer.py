r"""The published network for the plane: takes a field on any grid, gives the answer there or on a grid of its own.

.. code-block:: text

    field [B, H, W]
      -> interpolate to the native grid -> standardise point by point
      -> Downscaler, or join the coordinates -> tokens [B, T, C] -> L encoder layers -> Upscaler
      -> decoder with the coordinates -> one channel -> physical units point by point -> zeros on the outermost points
      -> interpolate to the grid of the question, where the answer's grid is the native one
    answer [B, H, W] or [B, h, w]

Cao, NeurIPS 2021, arXiv 2105.14995, section 4 (Darcy flow and its inverse problem); on the native grid the numbers are
those of the published code, `FourierTransformer2D`.
"""

from __future__ import annotations

from typing import Literal

from jaxtyping import Float
from pydantic import PositiveInt, model_validator
from torch import Tensor, nn
from torch.nn import functional

from training.nn.activations import Activation
from training.nn.coordinates import JoinCoordinates, indices, places
from training.nn.decoders import DecoderConfig, SpectralDecoderConfig, build_decoder
from training.nn.dropout import Dropout
from training.nn.encoder import EncoderConfig, LocalMixing, encoder_stack
from training.nn.normaliser import Normaliser
from training.nn.resampling import Downscaler, Upscaler, sample
from training.nn.shapes import Carried, Channels

Sides = tuple[PositiveInt, PositiveInt]
Planes = Float[Tensor, "batch *channel row column"]
Answer = Float[Tensor, "batch _ _"]


class PlaneTransformerConfig(EncoderConfig):
    """Sizes, each (rows, columns), and options of a plane transformer."""

    kind: Literal["plane-transformer"] = "plane-transformer"
    inputs: PositiveInt = 1  # channels of the field
    grid: Sides  # the native grid
    down_middle: Sides | None = None  # between native and token grid; None leaves the downscaler out
    tokens: Sides
    up_middle: Sides | None = None  # between token grid and answer; None leaves the upscaler out
    answer: Sides
    boundary: Literal["dirichlet", "free"] = "dirichlet"  # dirichlet: the outermost points are zero
    down_activation: Activation = "relu"
    up_activation: Activation = "silu"
    down_dropout: float = 0.0
    up_dropout: float = 0.0
    latent_dropout: float = 0.0  # on the tokens before the encoder and on the features before the decoder
    decoder: DecoderConfig = SpectralDecoderConfig(joined=32)

    @model_validator(mode="after")
    def sizes_fit(self) -> PlaneTransformerConfig:
        """Refuse sizes that do not meet where a scaler is left out, and more modes than the answer's grid has."""
        if self.down_middle is None and self.tokens != self.grid:
            raise ValueError(f"without down_middle, expected tokens to be the grid {self.grid} but got {self.tokens}")
        if self.up_middle is None and self.answer != self.tokens:
            raise ValueError(f"without up_middle, expected answer to be tokens {self.tokens} but got {self.answer}")
        most = min(self.answer) // 2 + 1
        if isinstance(self.decoder, SpectralDecoderConfig) and self.decoder.modes > most:
            raise ValueError(f"expected at most {most} modes on the grid {self.answer} but got {self.decoder.modes}")
        return self


class PlaneTransformer(nn.Module):
    """See the module's picture; `config` fixes every size."""

    def __init__(self, config: PlaneTransformerConfig) -> None:
        super().__init__()
        self.config = config
        channel = () if config.inputs == 1 else (config.inputs,)
        self.input_normaliser = Normaliser((*channel, *config.grid), relative=False)
        self.output_normaliser = Normaliser(config.answer, relative=False)
        self.lift, self.downscaler, self.upscaler = lift(config), downscaler(config), upscaler(config)
        self.latent_dropout = Dropout(config.latent_dropout)
        self.encoder = encoder_stack(config, 2, lambda: LocalMixing(config.channels, config.tokens, config.local))
        self.decoder = build_decoder(config.decoder, config.channels, 2)

    def fit_normalisers(self, fields: Planes, answers: Answer) -> None:
        """Take the statistics of the training fields, interpolated to the native grid, and of the answers."""
        self.input_normaliser.fit(sample(fields, *indices(self.config.grid, fields.device)))
        self.output_normaliser.fit(sample(answers, *indices(self.config.answer, answers.device)))

    def forward(self, field: Planes, boundary: Answer | None = None) -> Answer:
        """Answer `field`; `boundary`, of the answer's shape, is added to the whole answer."""
        native = self.input_normaliser(sample(field, *indices(self.config.grid, field.device)))
        answer = self.output_normaliser.inverse(self.solve(native[:, None] if self.config.inputs == 1 else native))
        if self.config.boundary == "dirichlet":
            answer = functional.pad(answer[:, 1:-1, 1:-1], (1, 1, 1, 1))
        if self.config.answer == self.config.grid:
            answer = sample(answer, *indices(field.shape[-2:], field.device))
        return answer if boundary is None else answer + boundary

    def solve(self, field: Channels) -> Answer:
        """Give the standardised answer of a standardised field, both on their native grids."""
        tokens = self.encode(field)
        latent = tokens.transpose(1, 2).unflatten(2, self.config.tokens)
        where = places(indices(self.config.answer, field.device), field.dtype)
        join = self.decoder.join
        if self.upscaler is not None and join is not None and not self.config.latent_dropout:
            # A linear map at every point and an interpolation may change places: the map, which mostly leaves fewer
            # channels, is cheaper before the last interpolation.
            return self.decoder.decide(self.upscaler(latent, join.mix) + join.place(where))[:, 0]
        features = self.latent_dropout(latent if self.upscaler is None else self.upscaler(latent))
        return self.decoder(features, where)[:, 0]

    def encode(self, field: Channels) -> Carried:
        """Give the encoder's tokens `[B, T, C]`."""
        positions = places(indices(self.config.tokens, field.device), field.dtype)
        features = field if self.downscaler is None else self.downscaler(field)
        if self.lift is not None:
            features = self.lift(features, positions)
        tokens = self.latent_dropout(features.flatten(2).transpose(1, 2))
        for layer in self.encoder:
            tokens = layer(tokens, positions.flatten(1).T)
        return tokens


def lift(config: PlaneTransformerConfig) -> JoinCoordinates | None:
    """Give what makes features where there is no downscaler."""
    return JoinCoordinates(config.inputs, config.channels, 2) if config.down_middle is None else None


def downscaler(config: PlaneTransformerConfig) -> Downscaler | None:
    """Give the CNN from the native grid to the tokens, if any."""
    if config.down_middle is None:
        return None
    return Downscaler(
        config.inputs,
        config.channels,
        config.channels,
        config.down_middle,
        config.tokens,
        bias=False,
        activation=config.down_activation,
        reactivate=True,
        dropout=config.down_dropout,
    )


def upscaler(config: PlaneTransformerConfig) -> Upscaler | None:
    """Give the CNN from the tokens to the answer's grid, if any."""
    if config.up_middle is None:
        return None
    return Upscaler(
        config.channels,
        config.channels,
        config.up_middle,
        config.answer,
        bias=False,
        activation=config.up_activation,
        reactivate=True,
        dropout=config.up_dropout,
    )
