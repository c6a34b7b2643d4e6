r"""The Burgers operator: takes an initial velocity on any periodic grid, gives the velocity at t = 1 there.

.. code-block:: text

    initial [B, N]
      -> standardise -> lowest modes, sampled on P T points, P of them a token, beside their potential
      -> linear map -> [B, T, C]
      -> L encoder layers -> spectral layers -> one channel -> standard units -> lowest modes, sampled on N points
    final [B, N]

The first and the last step are exact for the modes they keep, so the answer does not depend on the grid of the
question. The solution's own spectrum decides how many are needed: at viscosity 0.01 the steepest front is some 0.05
wide.

A mean velocity carries the solution along and changes nothing else (Galileo): the network sees what is left without
it, and its answer is moved by as much as the mean goes until t = 1.

The potential is the initial velocity's antiderivative. Where a front ends up depends on nothing else (Hopf, Comm. Pure
Appl. Math. 3, 1950), and a network that has to integrate by itself learns more slowly.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn

from training.nn.encoder import EncoderConfig, LocalMixing, circle_positions, encoder_stack
from training.nn.normaliser import Normaliser
from training.nn.shapes import Carried, Line
from training.nn.spectral import SpectralConv, antiderivative, resample_periodic

TIME = 1.0  # of the final velocity, on a line of length 1


class BurgersConfig(EncoderConfig):
    """Sizes of a Burgers operator."""

    kind: Literal["burgers"] = "burgers"
    tokens: int = 256  # T
    patch: int = 1  # points of the initial velocity in a token, P: it is rougher than the final one
    potential: bool = True  # a token sees its points' potential too
    odd: bool = False  # in evaluation, the mean of what is answered and of what the mirrored question's answer mirrors
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
    integral: Tensor

    def __init__(self, config: BurgersConfig) -> None:
        super().__init__()
        self.config = config
        points, seen = config.tokens * config.patch, config.patch * (2 if config.potential else 1)
        self.input_normaliser, self.output_normaliser = Normaliser(), Normaliser()
        self.lift = nn.Linear(seen + 2, config.channels)
        self.register_buffer("positions", circle_positions(config.tokens), persistent=False)
        self.register_buffer("integral", antiderivative(points), persistent=False)
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
        drift = initial.mean(1)
        coarse = resample_periodic(self.input_normaliser(initial - drift[:, None]), patches, self.config.band)
        final = resample_periodic(self.answer(coarse), points, self.config.band, shift=drift * TIME)
        return self.output_normaliser.inverse(final) + drift[:, None]

    def answer(self, initial: Line) -> Carried:
        """Give the standardised final velocity on the tokens `[B, T]` of a standardised initial one `[B, T P]`.

        If u(x, t) solves the equation, so does -u(-x, t). A network learns that in part; half the sum of both answers
        keeps it exactly, at twice the price.
        """
        if self.training or not self.config.odd:
            return self.solve(initial)
        return (self.solve(initial) - mirror(self.solve(-mirror(initial)))) / 2

    def solve(self, initial: Line) -> Carried:
        """Answer as `answer` does, by one pass of the network."""
        positions = self.positions.to(initial.dtype)
        places = positions.expand(initial.shape[0], -1, -1)
        seen = [initial, initial @ self.integral] if self.config.potential else [initial]
        patches = [values.unflatten(1, (self.config.tokens, self.config.patch)) for values in seen]
        tokens = self.lift(torch.cat([*patches, places], dim=-1))
        for layer in self.encoder:
            tokens = layer(tokens, positions)
        return self.head(self.spectral(tokens.transpose(1, 2)))[:, 0]


def mirror(values: Line) -> Line:
    """Give periodic values at -x: the first point stays."""
    return values.flip(1).roll(1, 1)
