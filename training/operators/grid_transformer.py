r"""The transformer of the paper for any grid, without scalers (Cao, NeurIPS 2021, arXiv 2105.14995, section 4).

.. code-block:: text

    field [B, *grid] or [B, channel, *grid]
      -> join the coordinates -> every grid point is a token [B, N, C] -> L encoder layers
      -> decoder, with or without coordinates -> one channel
    output [B, *grid]

No size depends on the grid, and the cost grows with it. Several fields and numbers are the channels of one field. On
the plane the numbers equal those of the reference project's `FourierTransformer2DLite`. Coordinates are x_i = i/(n-1)
with both ends included, also for periodic fields, because the published weights were trained so. `research.cao2021`
has the paper's other transformers, for the line and with scalers.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from jaxtyping import Float
from pydantic import PositiveInt
from torch import Tensor, nn

from training.messages import UserError
from training.nn.decoders import DecoderConfig, SpectralDecoderConfig, build_decoder
from training.nn.encoder import EncoderConfig, encoder_stack
from training.nn.grids import Channels, Coordinates, Features, JoinCoordinates, grid_coordinates, indices
from training.nn.pointwise import Dropout, Normaliser
from training.operators.operator import Operator, OperatorKind

Fields = Float[Tensor, "batch ..."]


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
    """See the diagram of the module. The config fixes every size but those of the grid.

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
        axes = self.config.dimensions
        if len(inputs) == 1:
            return inputs[0][:, 0] if self.config.inputs == 1 and inputs[0].ndim == axes + 2 else inputs[0]
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


def sized(problem: Any, sides: tuple[int, ...]) -> dict[str, Any]:
    """Return what a problem's description decides: the axes, and a channel per component of a field and per parameter.

    Raises:
        UserError: The problem has several outputs, or a vector: the network has one channel of output. Or it has no
            field on a grid, or numbers with components, which would be taken for the points of a field.
    """
    if len(problem.outputs) > 1 or any(one.components for one in problem.outputs):
        raise UserError(f"{problem.name}: expected one scalar output for the grid-transformer")
    if problem.scattered or not problem.inputs:
        raise UserError(f"{problem.name}: expected an input field on a grid for the grid-transformer")
    if vectors := [one.name for one in problem.parameters if one.components]:
        found = f"expected parameters of one number for the grid-transformer but {vectors[0]} has components"
        raise UserError(f"{problem.name}: {found}")
    channels = sum(max(1, len(one.components)) for one in problem.inputs) + len(problem.parameters)
    return {"dimensions": len(sides), "inputs": channels}


OPERATOR = OperatorKind("grid-transformer", GridTransformerConfig, GridTransformer, sized)
