r"""The transformers of Cao (NeurIPS 2021, arXiv 2105.14995, section 4) for the line, and for the plane with scalers.

`LineTransformer` is a `training.operators.grid_transformer.GridTransformer` on the line:

.. code-block:: text

    field [B, N] or [B, channel, N]
      -> a linear map at every point, or layers on the graph of the points: tokens [B, N, C]
      -> L encoder layers (-> add the features of the first map)
      -> decoder -> one channel, or the frequency head -> m numbers
    output [B, N] or [B, m]

Its numbers equal those of the reference project's `SimpleTransformer` (Burgers' equation). The edges of the graph join
neighbouring points; they hold the graph Laplacian and its powers, made from the grid of the input, and take memory in
proportion to N^2 C.

`PlaneTransformer` has scalers:

.. code-block:: text

    field [B, H, W]
      -> interpolate to the native grid -> standardise point by point
      -> Downscaler, or join the coordinates -> residual blocks, if any -> tokens [B, T, C] -> L encoder layers
      -> Upscaler
      -> decoder with the coordinates -> one channel -> physical units point by point -> zeros on the outermost points
      -> interpolate to the grid of the input, if the output's grid is the native one
    output [B, H, W] or [B, h, w]

The native grid is fixed, so scalers with strides (`down_kind = "pooling"`, `up_kind = "deconvolution"`) serve any grid
as the interpolating ones do: fields are interpolated to it first. On the native grid the numbers equal those of the
reference project's `FourierTransformer2D` (Darcy flow and its inverse problem).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from jaxtyping import Float
from pydantic import Field, NonNegativeInt, PositiveInt, model_validator
from torch import Tensor, nn
from torch.nn import functional

from research.cao2021.graphs import GraphFeaturesConfig, build_graph_features, line_laplacians
from research.cao2021.layers import (
    DeconvolutionUpscaler,
    FrequencyHead,
    FrequencyHeadConfig,
    PoolingDownscaler,
    ResidualBlock,
    deconvolved,
    pooled,
)
from training.nn.decoders import DecoderConfig, PointwiseDecoderConfig, SpectralDecoderConfig, build_decoder
from training.nn.encoder import EncoderConfig, LocalMixing, encoder_stack
from training.nn.grids import Channels, Coordinates, Features, JoinCoordinates, grid_coordinates, indices, sample
from training.nn.pointwise import Activation, Dropout, Normaliser
from training.nn.scalers import Downscaler, Upscaler
from training.operators.grid_transformer import Fields, GridTransformer, GridTransformerConfig
from training.operators.operator import Operator, OperatorKind

LineDecoderConfig = Annotated[
    SpectralDecoderConfig | PointwiseDecoderConfig | FrequencyHeadConfig, Field(discriminator="kind")
]


class LineTransformerConfig(GridTransformerConfig):
    """Options of a line transformer. The defaults of the decoder are the published ones for Burgers' equation."""

    kind: Literal["line-transformer"] = "line-transformer"  # type: ignore[assignment]  # a kind of its own
    dimensions: Literal[1] = 1
    graph: GraphFeaturesConfig | None = None  # layers on the graph of the points; None: a linear map at every point
    periodic: bool = False  # the ends of the line are neighbours in the graph
    feature_residual: bool = False  # add the features of the first map after the encoder
    normalise: bool = False
    decoder: LineDecoderConfig = SpectralDecoderConfig(  # type: ignore[assignment]  # one more kind
        coordinates=False, channels=48, modes=16, hidden=48
    )


class LineTransformer(GridTransformer):
    """See the first diagram of the module. The config fixes every size but that of the grid.

    Example:
        >>> operator = LineTransformer(LineTransformerConfig(attention="fourier", channels=16, layers=1))
        >>> operator(torch.randn(2, 100)).shape
        torch.Size([2, 100])
    """

    config: LineTransformerConfig

    def first_map(self) -> nn.Module:
        if self.config.graph is None:
            return nn.Linear(self.config.inputs, self.config.channels)
        return build_graph_features(self.config.graph, self.config.inputs, self.config.channels)

    def last_map(self) -> nn.Module:
        if isinstance(self.config.decoder, FrequencyHeadConfig):
            return FrequencyHead(self.config.decoder, self.config.channels)
        return super().last_map()

    def encode(self, field: Channels, coordinates: Coordinates) -> Features:
        points, graph = field.transpose(1, 2), self.config.graph
        if graph is None:
            tokens = features = self.lift(points)
        else:
            [index] = indices(points.shape[1:2], points.device)
            edges = line_laplacians(index, graph.powers, points.dtype, periodic=self.config.periodic)
            tokens = features = self.lift(points, edges)
        for layer in self.encoder:
            tokens = layer(tokens, coordinates.T)
        return tokens + features if self.config.feature_residual else tokens

    def decode(self, tokens: Features, coordinates: Coordinates) -> Fields:
        if isinstance(self.decoder, FrequencyHead):
            return self.decoder(tokens)[..., 0]
        return super().decode(tokens, coordinates)


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
        tokens, output = self.tokens, self.output
        if self.down_kind == "pooling":  # strides decide the grids
            tokens = pooled(self.grid[0]), pooled(self.grid[1])
        if self.up_kind == "deconvolution":
            output = deconvolved(tokens[0]), deconvolved(tokens[1])
        if (tokens, output) != (self.tokens, self.output):
            raise ValueError(
                f"expected tokens and output {(tokens, output)} of these scalers but got {self.tokens}, {self.output}"
            )
        if self.down_kind == "interpolation" and self.down_middle is None and self.tokens != self.grid:
            raise ValueError(f"without down_middle, expected tokens to be the grid {self.grid} but got {self.tokens}")
        if self.up_kind == "interpolation" and self.up_middle is None and self.output != self.tokens:
            raise ValueError(f"without up_middle, expected output to be tokens {self.tokens} but got {self.output}")
        most = min(self.output) // 2 + 1
        if isinstance(self.decoder, SpectralDecoderConfig) and self.decoder.modes > most:
            raise ValueError(f"expected at most {most} modes on the grid {self.output} but got {self.decoder.modes}")
        return self


class PlaneTransformer(Operator):
    """See the second diagram of the module. The config fixes every size.

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
        inputs, channels = config.inputs, config.channels
        down: dict[str, Any] = {"activation": config.down_activation, "dropout": config.down_dropout}
        up: dict[str, Any] = {"activation": config.up_activation, "dropout": config.up_dropout}
        plain: dict[str, Any] = {"bias": False, "reactivate": True}
        self.input_normaliser = Normaliser((*(() if inputs == 1 else (inputs,)), *config.grid), relative=False)
        self.output_normaliser = Normaliser(config.output, relative=False)
        self.lift: JoinCoordinates | None = None
        self.downscaler: Downscaler | PoolingDownscaler | None = None
        self.upscaler: Upscaler | DeconvolutionUpscaler | None = None
        if config.down_kind == "pooling":
            self.downscaler = PoolingDownscaler(inputs, channels, **down)
        elif config.down_middle is None:
            self.lift = JoinCoordinates(inputs, channels, 2)
        else:
            self.downscaler = Downscaler(inputs, channels, channels, config.down_middle, config.tokens, **plain, **down)
        if config.up_kind == "deconvolution":
            self.upscaler = DeconvolutionUpscaler(channels, **up)
        elif config.up_middle is not None:
            self.upscaler = Upscaler(channels, channels, config.up_middle, config.output, **plain, **up)
        self.blocks = nn.Sequential(
            *(
                ResidualBlock(channels, channels, residual=True, double=True, **down)
                for _ in range(config.residual_blocks)
            )
        )
        self.latent_dropout = Dropout(config.latent_dropout)
        self.encoder = encoder_stack(config, 2, lambda: LocalMixing(channels, config.tokens, config.local))
        self.decoder = build_decoder(config.decoder, channels, 2)

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


def coordinates_of(grid: Sides, like: Tensor) -> Coordinates:
    """Return the coordinates of a grid in the order of the published weights, with device and dtype of `like`."""
    return grid_coordinates(indices(grid, like.device), like.dtype, reverse=True)


LINE = OperatorKind("line-transformer", LineTransformerConfig, LineTransformer)
PLANE = OperatorKind("plane-transformer", PlaneTransformerConfig, PlaneTransformer)
