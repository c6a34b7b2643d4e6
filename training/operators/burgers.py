r"""The Burgers operator: takes an initial velocity on any periodic grid, gives the velocity at t = 1 there.

.. code-block:: text

    initial [B, N]
      -> standardise -> lowest modes, sampled on P T points, P of them a token -> linear map -> [B, T, C]
      -> L encoder layers -> spectral layers -> one channel -> standard units -> lowest modes, sampled on N points
    final [B, N]

The first and the last step are exact for the modes they keep, so the answer does not depend on the grid of the
question. The solution's own spectrum decides how many are needed: at viscosity 0.01 the steepest front is some 0.05
wide.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn

from training.encoder import EncoderConfig, LocalMixing, circle_positions, encoder_stack
from training.normaliser import Normaliser
from training.shapes import Carried, Line
from training.spectral import SpectralConv, resample_periodic


class BurgersConfig(EncoderConfig):
    """Sizes of a Burgers operator."""

    kind: Literal["burgers"] = "burgers"
    tokens: int = 256  # T
    patch: int = 1  # points of the initial velocity in a token, P: it is rougher than the final one
    band: int = 128  # wave numbers carried in and out, as far as the points in and the tokens out resolve them
    channels: int = 64  # features of a token, C
    heads: int = 2
    layers: int = 4
    feedforward: int = 128
    local: int = 7  # stencil of the depthwise convolution beside the attention; 0 leaves it out
    decoder: int = 48  # channels of the spectral decoder
    modes: int = 24
    spectral: int = 2  # spectral layers
    dropout: float = 0.0


class BurgersOperator(nn.Module):
    """See the module's picture; `config` fixes every size."""

    positions: Tensor

    def __init__(self, config: BurgersConfig) -> None:
        super().__init__()
        self.config = config
        self.input_normaliser, self.output_normaliser = Normaliser(), Normaliser()
        self.lift = nn.Linear(config.patch + 2, config.channels)
        self.register_buffer("positions", circle_positions(config.tokens), persistent=False)
        self.encoder = encoder_stack(
            config,
            coordinates=2,
            local=lambda: LocalMixing(config.channels, (config.tokens,), config.local, periodic=True),
        )
        widths = [config.channels] + [config.decoder] * config.spectral
        self.spectral = nn.Sequential(*(SpectralConv(a, b, config.modes, 1) for a, b in pairwise(widths)))
        self.head = nn.Sequential(
            nn.Conv1d(widths[-1], 2 * config.decoder, 1), nn.SiLU(), nn.Conv1d(2 * config.decoder, 1, 1)
        )

    def fit_normalisers(self, initial: Line, final: Line) -> None:
        """Take the statistics of the training fields."""
        self.input_normaliser.fit(initial)
        self.output_normaliser.fit(final)

    def forward(self, initial: Line) -> Line:
        patches = torch.arange(self.config.tokens * self.config.patch, device=initial.device)
        points = torch.arange(initial.shape[1], device=initial.device)
        coarse = resample_periodic(self.input_normaliser(initial), patches, self.config.band)
        return self.output_normaliser.inverse(resample_periodic(self.solve(coarse), points, self.config.band))

    def solve(self, initial: Line) -> Carried:
        """Give the standardised final velocity on the tokens `[B, T]` of a standardised initial one `[B, T P]`."""
        positions = self.positions.to(initial.dtype)
        places = positions.expand(initial.shape[0], -1, -1)
        patches = initial.unflatten(1, (self.config.tokens, self.config.patch))
        tokens = self.lift(torch.cat([patches, places], dim=-1))
        for layer in self.encoder:
            tokens = layer(tokens, positions)
        return self.head(self.spectral(tokens.transpose(1, 2)))[:, 0]
