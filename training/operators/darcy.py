r"""The operator for Darcy flow: from a permeability on any grid of the unit square to the pressure on the same grid.

.. code-block:: text

    coefficient [B, H, W]
      -> average to the working grid [B, F, F] -> standardise
      -> add the result of a few conjugate gradient iterations, if `steps` > 0: features [B, 1 or 4, F, F]
      -> Downscaler -> tokens [B, T*T, C] -> L encoder layers -> Upscaler -> [B, D, F, F]
      -> add convolved features and coordinates -> spectral layers -> one channel
      -> physical units -> plus the iterate -> interpolate to [B, H, W] -> times a factor that vanishes on the walls
    solution [B, H, W]

The config fixes all inner sizes. Only the first and the last resampling depend on the grid of the input. So the cost
hardly depends on the grid, and the same weights serve every grid, square or not.

With `steps` > 0 the network learns the error of the iterate: the missing iterations, and the difference between the
equation on the working grid and on the fine grid, which no iteration on the working grid would correct.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from physics.numerics.grid import WALL
from training.nn.elliptic.certified_gradients import ConjugateGradients
from training.nn.encoder import EncoderConfig, LocalMixing, encoder_stack
from training.nn.grids import (
    Channels,
    Features,
    Plane,
    grid_coordinates,
    indices,
    resample,
    sample,
    square_positions,
    unit_axis,
)
from training.nn.pointwise import Normaliser
from training.nn.scalers import Downscaler, Upscaler, convolution
from training.nn.spectral import SpectralConv
from training.operators.operator import Operator, OperatorKind


class DarcyConfig(EncoderConfig):
    """Sizes of a Darcy operator."""

    kind: Literal["darcy"] = "darcy"
    working: int = 85  # side of the working grid, F
    middle: int = 49  # side between working and token grid
    tokens: int = 29  # side of the token grid, T
    channels: int = 64  # features of a token, C
    heads: int = 4
    layers: int = 6
    feedforward: int = 128
    local: int = 3  # stencil of the depthwise convolution beside the attention; 0: no convolution
    stem: int = 32  # channels of the CNN at the working grid
    decoder: int = 32  # channels of the spectral decoder, D
    modes: int = 12
    spectral: int = 2  # spectral layers
    steps: int = 0  # conjugate gradient iterations whose result the network corrects
    open_end: bool = False  # the grid has no points at the far walls; its values are sampled and not averaged
    dropout: float = 0.0


class DarcyOperator(Operator):
    """See the diagram of the module. The config fixes every size.

    Example:
        >>> operator = DarcyOperator(DarcyConfig(working=29, middle=17, tokens=9, channels=12, layers=1))
        >>> operator(torch.rand(2, 40, 30) + 1).shape
        torch.Size([2, 40, 30])
    """

    config: DarcyConfig

    positions: Tensor

    def __init__(self, config: DarcyConfig) -> None:
        super().__init__()
        self.config = config
        self.input_normaliser, self.output_normaliser = Normaliser(), Normaliser()
        self.iterate = Iterate(config.working, config.steps) if config.steps else None
        features = 1 + (Iterate.FEATURES if config.steps else 0)
        self.downscaler = Downscaler(features, config.channels, config.stem, config.middle, config.tokens)
        self.register_buffer("positions", square_positions(config.tokens), persistent=False)
        self.encoder = encoder_stack(
            config,
            coordinates=2,
            local=lambda: LocalMixing(config.channels, (config.tokens, config.tokens), config.local),
        )
        self.upscaler = Upscaler(config.channels, config.decoder, config.middle, config.working)
        self.detail = convolution(features, config.decoder)
        self.join = nn.Conv2d(2 * config.decoder + 2, config.decoder, 1)
        self.spectral = nn.Sequential(
            *(SpectralConv(config.decoder, config.decoder, config.modes, 2) for _ in range(config.spectral))
        )
        self.head = nn.Sequential(
            nn.Conv2d(config.decoder, 2 * config.decoder, 1), nn.SiLU(), nn.Conv2d(2 * config.decoder, 1, 1)
        )

    @torch.no_grad()
    def fit_normalisers(self, coefficients: Plane, solutions: Plane) -> None:
        """Set the statistics to those of the training fields; those of the output are of the network's target."""
        if self.config.open_end:
            coefficients, solutions = closed(coefficients), functional.pad(solutions, (0, 1, 0, 1))
        self.input_normaliser.fit(coefficients)
        if self.iterate is None:
            rows, columns = indices(solutions.shape[1:])
            self.output_normaliser.fit(solutions / wall_factor(rows, columns, solutions.dtype))
            return
        working = torch.arange(self.config.working)
        quotient = resample(solutions, working, working) / wall_factor(working, working, solutions.dtype)
        self.output_normaliser.fit(quotient - self.iterate.fit(coefficients))

    def forward(self, coefficient: Plane) -> Plane:
        if self.config.open_end:
            coefficient = closed(coefficient)
        rows, columns = indices(coefficient.shape[1:], coefficient.device)
        iterate, fine = self.features(coefficient)
        quotient = self.output_normaliser.inverse(self.decode(self.encode(fine), fine)) + iterate
        solution = resample(quotient, rows, columns) * wall_factor(rows, columns, coefficient.dtype)
        return solution[:, :-1, :-1] if self.config.open_end else solution

    def features(self, coefficient: Plane) -> tuple[Tensor, Features]:
        """Return iterate / wall factor (zero, or of shape `[B, F, F]`), and the channels `[B, _, F, F]`."""
        working = torch.arange(self.config.working, device=coefficient.device)
        interpolate = sample if self.config.open_end else resample
        fine = interpolate(self.input_normaliser(coefficient), working, working)[:, None]
        if self.iterate is None:
            return torch.zeros((), dtype=coefficient.dtype, device=coefficient.device), fine
        iterate, channels = self.iterate(coefficient)
        return iterate, torch.cat([fine, channels], dim=1)

    def encode(self, fine: Channels) -> Features:
        """Return token features `[B, C, T, T]` for features `[B, _, F, F]` on the working grid."""
        features = self.downscaler(fine)
        tokens = features.flatten(2).transpose(1, 2)
        for layer in self.encoder:
            tokens = layer(tokens, self.positions.to(tokens.dtype))
        return tokens.transpose(1, 2).unflatten(2, features.shape[2:])

    def decode(self, latent: Features, fine: Channels) -> Plane:
        """Return the standardised quotient solution / wall factor, of shape `[B, F, F]`."""
        working = torch.arange(self.config.working, device=fine.device)
        coordinates = grid_coordinates((working, working), fine.dtype).expand(fine.shape[0], -1, -1, -1)
        joined = self.join(torch.cat([self.upscaler(latent), self.detail(fine), coordinates], dim=1))
        return self.head(self.spectral(joined))[:, 0]


class Iterate(nn.Module):
    """Solve approximately on the working grid; see `ConjugateGradients`.

    The coefficient of a working point is the geometric mean of the arithmetic and the harmonic average around it. The
    effective coefficient of the averaged cells lies between the two, for flow along and across their interfaces.

    Args:
        working: The side of the working grid, F.
        steps: The number of iterations.
    """

    FEATURES = 3

    def __init__(self, working: int, steps: int) -> None:
        super().__init__()
        self.working = working
        self.gradients = ConjugateGradients(working, steps, WALL)
        self.solution_normaliser, self.residual_normaliser = Normaliser(), Normaliser()

    @torch.no_grad()
    def fit(self, coefficients: Plane) -> Features:
        """Set the statistics of the channels, and return the quotients of all training fields."""
        solved = [self.solve(part)[:2] for part in coefficients.split(16)]
        solutions, residuals = (torch.cat(parts) for parts in zip(*solved, strict=True))
        self.solution_normaliser.fit(solutions)
        self.residual_normaliser.fit(residuals)
        return self.quotient(solutions)

    def forward(self, coefficient: Plane) -> tuple[Features, Features]:
        """Return iterate / wall factor `[B, F, F]`, and standardised iterate, residual and variation `[B, 3, F, F]`."""
        solution, residual, variation = self.solve(coefficient)
        channels = self.solution_normaliser(solution), self.residual_normaliser(residual), variation
        return self.quotient(solution), torch.stack(channels, dim=1)

    def solve(self, coefficient: Plane) -> tuple[Features, Features, Features]:
        """Return iterate, preconditioned residual, and the variation of the coefficient within a working cell."""
        working = torch.arange(self.working, device=coefficient.device)
        arithmetic, inverse = (resample(x, working, working) for x in (coefficient, 1 / coefficient))
        solution, residual = self.gradients(torch.sqrt(arithmetic / inverse))
        return solution, residual, arithmetic * inverse - 1

    def quotient(self, solution: Plane) -> Plane:
        working = torch.arange(self.working, device=solution.device)
        return solution / wall_factor(working, working, solution.dtype)


def closed(field: Plane) -> Features:
    """Extend a field to the far walls by a copy of its last row and of its last column."""
    return functional.pad(field, (0, 1, 0, 1), mode="replicate")


def wall_factor(rows: Tensor, columns: Tensor, dtype: torch.dtype) -> Plane:
    """Return 16 x(1-x) y(1-y) at the points of a grid, of shape `[1, row, column]`.

    It is 1 in the middle and 0 on the walls, which are `WALL` beyond the outermost points.
    """
    y, x = (WALL + (1 - 2 * WALL) * unit_axis(index, dtype) for index in (rows, columns))
    return (16 * (y * (1 - y))[:, None] * (x * (1 - x)))[None]


OPERATOR = OperatorKind("darcy", DarcyConfig, DarcyOperator)
