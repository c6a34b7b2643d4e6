r"""The transformers of the paper (Cao, NeurIPS 2021, arXiv 2105.14995, section 4) for the line, the plane and any grid.

`GridTransformer` and `LineTransformer` are the light networks, for one, two or three axes:

.. code-block:: text

    field [B, *grid] or [B, channel, *grid]
      -> join the coordinates; on the line a linear map, or layers on the graph of the points
      -> every grid point is a token [B, N, C] -> L encoder layers (-> add the features of the first map)
      -> decoder, with or without coordinates -> one channel; on the line also the frequency head -> m numbers
    output [B, *grid] or [B, m]

They have no scalers. So no size depends on the grid, and the cost grows with it. Several fields and numbers are the
channels of one field. The numbers of the line transformer
equal those of the reference project's `SimpleTransformer` (Burgers' equation), and those of the grid transformer on the
plane equal `FourierTransformer2DLite`. Coordinates are x_i = i/(n-1) with both ends included, also for periodic fields,
because the published weights were trained so. The edges of the graph join neighbouring points; they hold the graph
Laplacian and its powers, made from the grid of the input, and take memory in proportion to N^2 C.

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

import torch
from jaxtyping import Float
from pydantic import Field, NonNegativeInt, PositiveInt, model_validator
from torch import Tensor, nn
from torch.nn import functional

from training.nn.decoders import (
    DecoderConfig,
    FrequencyHead,
    FrequencyHeadConfig,
    PointwiseDecoderConfig,
    SpectralDecoderConfig,
    build_decoder,
)
from training.nn.encoder import EncoderConfig, LocalMixing, encoder_stack
from training.nn.graphs import GraphFeaturesConfig, build_graph_features, line_laplacians
from training.nn.grids import JoinCoordinates, grid_coordinates, indices, sample
from training.nn.pointwise import Activation, Dropout, Normaliser
from training.nn.scalers import (
    DeconvolutionUpscaler,
    Downscaler,
    PoolingDownscaler,
    ResidualBlock,
    Upscaler,
    deconvolved,
    pooled,
)
from training.nn.shapes import Channels, Coordinates, Features
from training.operators.operator import Operator, OperatorKind
from training.user_error import UserError

Fields = Float[Tensor, "batch ..."]
LineDecoderConfig = Annotated[
    SpectralDecoderConfig | PointwiseDecoderConfig | FrequencyHeadConfig, Field(discriminator="kind")
]


class GridTransformerConfig(EncoderConfig):
    """Options of a grid transformer. The defaults of the decoder are the published ones for Navier-Stokes."""

    kind: Literal["grid-transformer"] = "grid-transformer"
    dimensions: Literal[1, 2, 3] = 2
    inputs: PositiveInt = 1  # channels of the field, without the coordinates
    local: Literal[0] = 0  # local mixing needs a fixed token grid
    latent_dropout: float = 0.0  # on the features before the decoder
    normalise: bool = True  # standardise input and output by the training fields' mean and deviation
    decoder: DecoderConfig = SpectralDecoderConfig(coordinates=False, channels=20, modes=12, hidden=20)


class GridTransformer(Operator):
    """See the first diagram of the module. The config fixes every size but those of the grid.

    Example:
        >>> operator = GridTransformer(GridTransformerConfig(dimensions=2, channels=16, layers=1))
        >>> operator(torch.randn(2, 24, 30)).shape
        torch.Size([2, 24, 30])
    """

    config: GridTransformerConfig

    def __init__(self, config: GridTransformerConfig) -> None:
        super().__init__()
        self.config = config
        statistics = () if config.inputs == 1 else (config.inputs, *(1 for _ in range(config.dimensions)))
        self.input_normaliser, self.output_normaliser = Normaliser(statistics), Normaliser()
        self.lift = self.first_map()
        self.encoder = encoder_stack(config, config.dimensions)
        self.latent_dropout = Dropout(config.latent_dropout)
        self.decoder = self.last_map()

    def first_map(self) -> nn.Module:
        """Return a new map from the field's channels to features."""
        return JoinCoordinates(self.config.inputs, self.config.channels, self.config.dimensions)

    def last_map(self) -> nn.Module:
        """Return a new map from features to values."""
        return build_decoder(self.config.decoder, self.config.channels, self.config.dimensions)

    def fit_normalisers(self, *tensors: Tensor) -> None:
        """Set the statistics to those of the training fields, per channel, if `normalise` is set."""
        *inputs, outputs = tensors
        if self.config.normalise:
            self.input_normaliser.fit(self.joined(*inputs))
            self.output_normaliser.fit(outputs)

    def joined(self, *inputs: Tensor) -> Fields:
        """Return fields `[B, (component), *grid]` and numbers `[B]` as the channels of one field; one as it is."""
        if len(inputs) == 1:
            return inputs[0]
        axes = self.config.dimensions
        sides = next(each for each in inputs if each.ndim > 1).shape[-axes:]
        channels = []
        for each in inputs:
            field = each if each.ndim > 1 else each.reshape(-1, *(1,) * axes).expand(-1, *sides)
            channels.append(field if field.ndim == axes + 2 else field[:, None])
        return torch.cat(channels, dim=1)

    def forward(self, *inputs: Tensor) -> Fields:
        field = self.joined(*inputs)
        standard = self.input_normaliser(field)
        return self.output_normaliser.inverse(self.solve(standard[:, None] if self.config.inputs == 1 else standard))

    def solve(self, field: Channels) -> Fields:
        """Return the standardised output for a standardised field `[B, channel, *grid]`."""
        coordinates = grid_coordinates(indices(field.shape[2:], field.device), field.dtype, reverse=True)
        tokens = self.encode(field, coordinates)
        return self.decode(self.latent_dropout(tokens), coordinates)

    def encode(self, field: Channels, coordinates: Coordinates) -> Features:
        """Return the tokens after the encoder, of shape `[B, N, C]`."""
        tokens = self.lift(field, coordinates).flatten(2).transpose(1, 2)
        for layer in self.encoder:
            tokens = layer(tokens, coordinates.flatten(1).T)
        return tokens

    def decode(self, tokens: Features, coordinates: Coordinates) -> Fields:
        """Return the values for tokens after the encoder."""
        return self.decoder(tokens.transpose(1, 2).unflatten(2, coordinates.shape[1:]), coordinates)[:, 0]


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


def sized(problem: Any, sides: tuple[int, ...]) -> dict[str, Any]:
    """Return what a problem's description decides: the axes, and a channel per component of a field and per parameter.

    Raises:
        UserError: The problem has several outputs, or a vector: the network has one channel of output.
    """
    if len(problem.outputs) > 1 or any(one.components for one in problem.outputs):
        raise UserError(f"{problem.name}: expected one scalar output for the grid-transformer")
    channels = sum(max(1, len(one.components)) for one in problem.inputs) + len(problem.parameters)
    return {"dimensions": len(sides), "inputs": channels}


OPERATOR = (
    OperatorKind("line-transformer", LineTransformerConfig, LineTransformer),
    OperatorKind("plane-transformer", PlaneTransformerConfig, PlaneTransformer),
    OperatorKind("grid-transformer", GridTransformerConfig, GridTransformer, sized),
)
