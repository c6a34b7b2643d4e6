r"""The Darcy operator: takes a permeability on any grid of the unit square, gives the pressure on the same grid.

.. code-block:: text

    coefficient [B, H, W]
      -> standardise -> average to the working grid [B, 1, F, F]
      -> Downscaler -> tokens [B, T*T, C] -> L encoder layers -> Upscaler -> [B, D, F, F]
      -> join the coefficient's own fine features and coordinates -> spectral layers -> one channel
      -> standard units -> interpolate to [B, H, W] -> times a factor that vanishes on the walls
    solution [B, H, W]

All sizes inside are fixed by the recipe; only the first and the last resampling see the grid of the question, so the
cost hardly depends on it and any grid, square or not, is answered by the same weights.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from training.encoder import EncoderConfig, LocalMixing, encoder_stack, square_positions
from training.normaliser import Normaliser
from training.scaling import Downscaler, Upscaler, convolution, coordinates, resample
from training.shapes import Carried, Channels, Plane
from training.spectral import SpectralConv

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
    dropout: float = 0.0


class DarcyOperator(nn.Module):
    """See the module's picture; `config` fixes every size."""

    positions: Tensor

    def __init__(self, config: DarcyConfig) -> None:
        super().__init__()
        self.config = config
        self.input_normaliser, self.output_normaliser = Normaliser(), Normaliser()
        self.downscaler = Downscaler(1, config.channels, config.stem, config.middle, config.tokens)
        self.register_buffer("positions", square_positions(config.tokens), persistent=False)
        self.encoder = encoder_stack(
            config,
            coordinates=2,
            local=lambda: LocalMixing(config.channels, (config.tokens, config.tokens), config.local),
        )
        self.upscaler = Upscaler(config.channels, config.decoder, config.middle, config.working)
        self.detail = convolution(1, config.decoder)
        self.join = nn.Conv2d(2 * config.decoder + 2, config.decoder, 1)
        self.spectral = nn.Sequential(
            *(SpectralConv(config.decoder, config.decoder, config.modes, 2) for _ in range(config.spectral))
        )
        self.head = nn.Sequential(
            nn.Conv2d(config.decoder, 2 * config.decoder, 1), nn.SiLU(), nn.Conv2d(2 * config.decoder, 1, 1)
        )

    def fit_normalisers(self, coefficients: Plane, solutions: Plane) -> None:
        """Take the statistics of the training fields; the output's are those of solution / wall factor."""
        rows, columns = (torch.arange(side) for side in solutions.shape[1:])
        self.input_normaliser.fit(coefficients)
        self.output_normaliser.fit(solutions / wall_factor(rows, columns, solutions.dtype))

    def forward(self, coefficient: Plane) -> Plane:
        working = torch.arange(self.config.working, device=coefficient.device)
        rows, columns = (torch.arange(side, device=coefficient.device) for side in coefficient.shape[1:])
        fine = resample(self.input_normaliser(coefficient), working, working)[:, None]
        decoded = self.decode(self.encode(fine), fine)
        solution = resample(self.output_normaliser.inverse(decoded), rows, columns)
        return solution * wall_factor(rows, columns, coefficient.dtype)

    def encode(self, fine: Channels) -> Carried:
        """Give token features `[B, C, T, T]` of the standardised coefficient `[B, 1, F, F]`."""
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


def wall_factor(rows: Tensor, columns: Tensor, dtype: torch.dtype) -> Plane:
    """Give 16 x(1-x) y(1-y) as [1, row, column]: 0 on the walls, half a fine cell outside the grid, 1 in the middle."""
    y, x = (WALL + (1 - 2 * WALL) * s for s in coordinates(rows, columns, dtype))
    return (16 * (y * (1 - y)) * (x * (1 - x)))[None]
