r"""The Darcy operator: takes a permeability on any grid of the unit square, gives the pressure on the same grid.

.. code-block:: text

    coefficient [B, H, W]
      -> average to the working grid [B, F, F] -> standardise
      -> join what a few conjugate gradients make of it, if the recipe wants any: features [B, 1 or 4, F, F]
      -> Downscaler -> tokens [B, T*T, C] -> L encoder layers -> Upscaler -> [B, D, F, F]
      -> join the features' own fine detail and coordinates -> spectral layers -> one channel
      -> standard units -> plus the iterate -> interpolate to [B, H, W] -> times a factor that vanishes on the walls
    solution [B, H, W]

All sizes inside are fixed by the recipe; only the first and the last resampling see the grid of the question, so the
cost hardly depends on it and any grid, square or not, is answered by the same weights.

With `steps` = 0 the network is alone. Otherwise it learns what the iterate lacks: the iterations not made, and the
difference between the working grid's equation and the fine one's, which no iteration on that grid would find.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from training.nn.conjugate_gradients import ConjugateGradients
from training.nn.encoder import EncoderConfig, LocalMixing, encoder_stack, square_positions
from training.nn.normaliser import Normaliser
from training.nn.resampling import Downscaler, Upscaler, convolution, coordinates, resample, sample
from training.nn.shapes import Carried, Channels, Plane
from training.nn.spectral import SpectralConv

#: Distance of the outermost grid points from the wall: half a cell of the benchmark's mesh, in units of the square.
WALL = 0.5 / 421


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
    local: int = 3  # stencil of the depthwise convolution beside the attention; 0 leaves it out
    stem: int = 32  # channels of the CNN at the working grid
    decoder: int = 32  # channels of the spectral decoder, D
    modes: int = 12
    spectral: int = 2  # spectral layers
    steps: int = 0  # conjugate gradients whose result the network corrects; 0 leaves the network alone
    open_end: bool = False  # the fields' grid has no point at the far walls, and its points' values are to be kept
    dropout: float = 0.0


class DarcyOperator(nn.Module):
    """See the module's picture; `config` fixes every size."""

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
        """Take the statistics of the training fields; the output's are those of what the network has to give."""
        if self.config.open_end:
            coefficients, solutions = closed(coefficients), functional.pad(solutions, (0, 1, 0, 1))
        self.input_normaliser.fit(coefficients)
        if self.iterate is None:
            rows, columns = (torch.arange(side) for side in solutions.shape[1:])
            self.output_normaliser.fit(solutions / wall_factor(rows, columns, solutions.dtype))
            return
        working = torch.arange(self.config.working)
        wanted = resample(solutions, working, working) / wall_factor(working, working, solutions.dtype)
        self.output_normaliser.fit(wanted - self.iterate.fit(coefficients))

    def forward(self, coefficient: Plane) -> Plane:
        if self.config.open_end:
            coefficient = closed(coefficient)
        rows, columns = (torch.arange(side, device=coefficient.device) for side in coefficient.shape[1:])
        known, fine = self.features(coefficient)
        quotient = self.output_normaliser.inverse(self.decode(self.encode(fine), fine)) + known
        solution = resample(quotient, rows, columns) * wall_factor(rows, columns, coefficient.dtype)
        return solution[:, :-1, :-1] if self.config.open_end else solution

    def features(self, coefficient: Plane) -> tuple[Tensor, Carried]:
        """Give what is known of solution / wall factor (zero, or `[B, F, F]`), and the channels `[B, _, F, F]`."""
        working = torch.arange(self.config.working, device=coefficient.device)
        carry = sample if self.config.open_end else resample
        fine = carry(self.input_normaliser(coefficient), working, working)[:, None]
        if self.iterate is None:
            return torch.zeros((), dtype=coefficient.dtype, device=coefficient.device), fine
        known, channels = self.iterate(coefficient)
        return known, torch.cat([fine, channels], dim=1)

    def encode(self, fine: Channels) -> Carried:
        """Give token features `[B, C, T, T]` of the fine ones `[B, _, F, F]`."""
        features = self.downscaler(fine)
        tokens = features.flatten(2).transpose(1, 2)
        for layer in self.encoder:
            tokens = layer(tokens, self.positions.to(tokens.dtype))
        return tokens.transpose(1, 2).unflatten(2, features.shape[2:])

    def decode(self, latent: Carried, fine: Channels) -> Plane:
        """Give the standardised quotient solution / wall factor `[B, F, F]`."""
        working = torch.arange(self.config.working, device=fine.device)
        places = torch.stack(torch.broadcast_tensors(*coordinates(working, working, fine.dtype)))
        places = places.expand(fine.shape[0], -1, -1, -1)
        joined = self.join(torch.cat([self.upscaler(latent), self.detail(fine), places], dim=1))
        return self.head(self.spectral(joined))[:, 0]


class Iterate(nn.Module):
    """Give what conjugate gradients on the working grid know, as a quotient by the wall factor and as channels.

    The coefficient of a working point is the geometric mean of the arithmetic and the harmonic average around it:
    between the two lies what a current along or across the cut cells sees.

    Args:
        working: side of the working grid, F.
        steps: conjugate gradients.
    """

    FEATURES = 3

    def __init__(self, working: int, steps: int) -> None:
        super().__init__()
        self.working = working
        self.gradients = ConjugateGradients(working, steps, WALL)
        self.solution_normaliser, self.residual_normaliser = Normaliser(), Normaliser()

    @torch.no_grad()
    def fit(self, coefficients: Plane) -> Carried:
        """Take the statistics of the channels and give the quotients of all training fields."""
        solved = [self.solve(part)[:2] for part in coefficients.split(16)]
        solutions, residuals = (torch.cat(parts) for parts in zip(*solved, strict=True))
        self.solution_normaliser.fit(solutions)
        self.residual_normaliser.fit(residuals)
        return self.quotient(solutions)

    def forward(self, coefficient: Plane) -> tuple[Carried, Carried]:
        """Give iterate / wall factor `[B, F, F]`, and iterate, residual and variation `[B, 3, F, F]` standardised."""
        solution, residual, variation = self.solve(coefficient)
        channels = self.solution_normaliser(solution), self.residual_normaliser(residual), variation
        return self.quotient(solution), torch.stack(channels, dim=1)

    def solve(self, coefficient: Plane) -> tuple[Carried, Carried, Carried]:
        """Give iterate, preconditioned residual, and how much the coefficient varies within a working cell."""
        working = torch.arange(self.working, device=coefficient.device)
        arithmetic, inverse = (resample(x, working, working) for x in (coefficient, 1 / coefficient))
        solution, residual = self.gradients(torch.sqrt(arithmetic / inverse))
        return solution, residual, arithmetic * inverse - 1

    def quotient(self, solution: Plane) -> Plane:
        working = torch.arange(self.working, device=solution.device)
        return solution / wall_factor(working, working, solution.dtype)


def closed(field: Plane) -> Carried:
    """Extend a field by one row and one column, which repeat the last ones, to the far walls."""
    return functional.pad(field, (0, 1, 0, 1), mode="replicate")


def wall_factor(rows: Tensor, columns: Tensor, dtype: torch.dtype) -> Plane:
    """Give 16 x(1-x) y(1-y) as [1, row, column]: 0 on the walls, half a fine cell outside the grid, 1 in the middle."""
    y, x = (WALL + (1 - 2 * WALL) * s for s in coordinates(rows, columns, dtype))
    return (16 * (y * (1 - y)) * (x * (1 - x)))[None]
