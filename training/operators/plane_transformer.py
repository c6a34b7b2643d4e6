r"""The network of the paper for the plane: from a field on any grid to an output there or on a fixed grid.

.. code-block:: text

    field [B, H, W]
      -> interpolate to the native grid -> standardise point by point
      -> Downscaler, or join the coordinates -> residual blocks, if any -> tokens [B, T, C] -> L encoder layers
      -> Upscaler
      -> decoder with the coordinates -> one channel -> physical units point by point -> zeros on the outermost points
      -> interpolate to the grid of the input, if the output's grid is the native one
    output [B, H, W] or [B, h, w]

The native grid is fixed, so scalers with strides (`down_kind = "pooling"`, `up_kind = "deconvolution"`) serve any grid
as the interpolating ones do: fields are interpolated to it first.

On the native grid the numbers equal those of the reference project's `FourierTransformer2D` (Cao, NeurIPS 2021, arXiv
2105.14995, section 4: Darcy flow and its inverse problem).
"""

from __future__ import annotations

from typing import Literal

from jaxtyping import Float
from pydantic import NonNegativeInt, PositiveInt, model_validator
from torch import Tensor, nn
from torch.nn import functional

from training.nn.activations import Activation
from training.nn.coordinates import JoinCoordinates, grid_coordinates, indices
from training.nn.decoders import DecoderConfig, SpectralDecoderConfig, build_decoder
from training.nn.dropout import Dropout
from training.nn.encoder import EncoderConfig, LocalMixing, encoder_stack
from training.nn.normaliser import Normaliser
from training.nn.resampling.interpolation import Downscaler, Upscaler, sample
from training.nn.resampling.pooling import DeconvolutionUpscaler, PoolingDownscaler, deconvolved, pooled
from training.nn.residual_block import ResidualBlock
from training.nn.shapes import Channels, Coordinates, Features
from training.operators.operator import Operator, OperatorKind

Sides = tuple[PositiveInt, PositiveInt]
Planes = Float[Tensor, "batch *channel row column"]
Output = Float[Tensor, "batch _ _"]


class PlaneTransformerConfig(EncoderConfig):
    """Options of a plane transformer. Every grid is (rows, columns)."""

    kind: Literal["plane-transformer"] = "plane-transformer"
    inputs: PositiveInt = 1  # channels of the field
    grid: Sides  # the native grid
    down_kind: Literal["interpolation", "pooling"] = "interpolation"
    down_middle: Sides | None = None  # of an interpolation, between native and token grid; None: no downscaler
    tokens: Sides
    residual_blocks: NonNegativeInt = 0  # convolutional, on the token grid before the encoder
    up_kind: Literal["interpolation", "deconvolution"] = "interpolation"
    up_middle: Sides | None = None  # of an interpolation, between token grid and output; None: no upscaler
    output: Sides
    boundary: Literal["dirichlet", "free"] = "dirichlet"  # dirichlet: the outermost points are zero
    down_activation: Activation = "relu"
    up_activation: Activation = "silu"
    down_dropout: float = 0.0
    up_dropout: float = 0.0
    latent_dropout: float = 0.0  # on the tokens before the encoder and on the features before the decoder
    decoder: DecoderConfig = SpectralDecoderConfig(joined=32)

    @model_validator(mode="after")
    def sizes_fit(self) -> PlaneTransformerConfig:
        """Refuse sizes that differ where there is no scaler, and more modes than the output's grid resolves.

        Raises:
            ValueError: The sizes do not fit.
        """
        if (made := scaled(self)) != (self.tokens, self.output):
            raise ValueError(f"expected tokens and output {made} of these scalers but got {self.tokens}, {self.output}")
        if self.down_kind == "interpolation" and self.down_middle is None and self.tokens != self.grid:
            raise ValueError(f"without down_middle, expected tokens to be the grid {self.grid} but got {self.tokens}")
        if self.up_kind == "interpolation" and self.up_middle is None and self.output != self.tokens:
            raise ValueError(f"without up_middle, expected output to be tokens {self.tokens} but got {self.output}")
        most = min(self.output) // 2 + 1
        if isinstance(self.decoder, SpectralDecoderConfig) and self.decoder.modes > most:
            raise ValueError(f"expected at most {most} modes on the grid {self.output} but got {self.decoder.modes}")
        return self


class PlaneTransformer(Operator):
    """See the diagram of the module. The config fixes every size.

    Example:
        >>> sizes = {"down_middle": (11, 11), "tokens": (7, 7), "up_middle": (11, 11), "output": (15, 15)}
        >>> decoder = SpectralDecoderConfig(modes=5)
        >>> operator = PlaneTransformer(PlaneTransformerConfig(grid=(15, 15), **sizes, layers=1, decoder=decoder))
        >>> operator(torch.randn(2, 20, 30)).shape
        torch.Size([2, 20, 30])
    """

    config: PlaneTransformerConfig

    def __init__(self, config: PlaneTransformerConfig) -> None:
        super().__init__()
        self.config = config
        channel = () if config.inputs == 1 else (config.inputs,)
        self.input_normaliser = Normaliser((*channel, *config.grid), relative=False)
        self.output_normaliser = Normaliser(config.output, relative=False)
        self.lift, self.downscaler, self.upscaler = lift(config), downscaler(config), upscaler(config)
        self.blocks = nn.Sequential(*(residual_block(config) for _ in range(config.residual_blocks)))
        self.latent_dropout = Dropout(config.latent_dropout)
        self.encoder = encoder_stack(config, 2, lambda: LocalMixing(config.channels, config.tokens, config.local))
        self.decoder = build_decoder(config.decoder, config.channels, 2)

    def fit_normalisers(self, fields: Planes, outputs: Output) -> None:
        """Set the statistics to those of the training fields, interpolated to the native grid, and of their outputs."""
        self.input_normaliser.fit(sample(fields, *indices(self.config.grid, fields.device)))
        self.output_normaliser.fit(sample(outputs, *indices(self.config.output, outputs.device)))

    def forward(self, field: Planes, boundary: Output | None = None) -> Output:
        """Return the output; `boundary`, of its shape, is added to all of it."""
        native = self.input_normaliser(sample(field, *indices(self.config.grid, field.device)))
        output = self.output_normaliser.inverse(self.solve(native[:, None] if self.config.inputs == 1 else native))
        if self.config.boundary == "dirichlet":
            output = functional.pad(output[:, 1:-1, 1:-1], (1, 1, 1, 1))
        if self.config.output == self.config.grid:
            output = sample(output, *indices(field.shape[-2:], field.device))
        return output if boundary is None else output + boundary

    def solve(self, field: Channels) -> Output:
        """Return the standardised output for a standardised field, both on their native grids."""
        tokens = self.encode(field)
        latent = tokens.transpose(1, 2).unflatten(2, self.config.tokens)
        coordinates = coordinates_of(self.config.output, field)
        join = self.decoder.join
        if isinstance(self.upscaler, Upscaler) and join is not None and not self.config.latent_dropout:
            # A linear map at every point commutes with interpolation. It usually reduces the channels, so it is cheaper
            # before the last interpolation.
            features = self.upscaler(latent, join.map_features) + join.map_coordinates(coordinates)
            return self.decoder.decode(features)[:, 0]
        features = self.latent_dropout(latent if self.upscaler is None else self.upscaler(latent))
        return self.decoder(features, coordinates)[:, 0]

    def encode(self, field: Channels) -> Features:
        """Return the tokens after the encoder, of shape `[B, T, C]`."""
        positions = coordinates_of(self.config.tokens, field)
        features = field if self.downscaler is None else self.downscaler(field)
        if self.lift is not None:
            features = self.lift(features, positions)
        tokens = self.latent_dropout(self.blocks(features).flatten(2).transpose(1, 2))
        for layer in self.encoder:
            tokens = layer(tokens, positions.flatten(1).T)
        return tokens


def scaled(config: PlaneTransformerConfig) -> tuple[Sides, Sides]:
    """Return the grids of tokens and output: those of the config, but where strides decide them."""
    tokens, output = config.tokens, config.output
    if config.down_kind == "pooling":
        tokens = pooled(config.grid[0]), pooled(config.grid[1])
    if config.up_kind == "deconvolution":
        output = deconvolved(tokens[0]), deconvolved(tokens[1])
    return tokens, output


def coordinates_of(grid: Sides, like: Tensor) -> Coordinates:
    """Return the coordinates of a grid in the order of the published weights, with device and dtype of `like`."""
    return grid_coordinates(indices(grid, like.device), like.dtype, reverse=True)


def lift(config: PlaneTransformerConfig) -> JoinCoordinates | None:
    """Return the layer that computes token features where there is no downscaler."""
    scales = config.down_middle is not None or config.down_kind == "pooling"
    return None if scales else JoinCoordinates(config.inputs, config.channels, 2)


def downscaler(config: PlaneTransformerConfig) -> Downscaler | PoolingDownscaler | None:
    """Return the CNN from the native grid to the tokens, if any."""
    if config.down_kind == "pooling":
        return PoolingDownscaler(
            config.inputs, config.channels, activation=config.down_activation, dropout=config.down_dropout
        )
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


def residual_block(config: PlaneTransformerConfig) -> ResidualBlock:
    """Return one block of the CNN on the token grid."""
    return ResidualBlock(
        config.channels,
        config.channels,
        residual=True,
        double=True,
        activation=config.down_activation,
        dropout=config.down_dropout,
    )


def upscaler(config: PlaneTransformerConfig) -> Upscaler | DeconvolutionUpscaler | None:
    """Return the CNN from the tokens to the output's grid, if any."""
    if config.up_kind == "deconvolution":
        return DeconvolutionUpscaler(config.channels, activation=config.up_activation, dropout=config.up_dropout)
    if config.up_middle is None:
        return None
    return Upscaler(
        config.channels,
        config.channels,
        config.up_middle,
        config.output,
        bias=False,
        activation=config.up_activation,
        reactivate=True,
        dropout=config.up_dropout,
    )


OPERATOR = OperatorKind("plane-transformer", PlaneTransformerConfig, PlaneTransformer)
