r"""The operator for Burgers' equation: from the initial velocity on any periodic grid to the velocity at t = 1.

.. code-block:: text

    initial [B, N]
      -> standardise -> resample the lowest modes on P T points, P per token, and add their potential
      -> linear map -> [B, T, C]
      -> L encoder layers -> spectral layers -> one channel -> physical units -> resample on N points
    final [B, N]

The first and the last step are exact for the modes that they keep, so the output does not depend on the grid. The
number of modes follows from the spectrum of the solution: at viscosity 0.01 the width of the steepest front is about
0.05.

A mean velocity translates the solution and changes nothing else (Galilean invariance). The network sees the velocity
without its mean, and its output is translated by the mean times t.

The potential is the antiderivative of the initial velocity. The location of a front depends on it alone (Hopf, Comm.
Pure Appl. Math. 3, 1950), and a network that has to learn to integrate trains more slowly.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn

from training.nn.coordinates import circle_positions, indices
from training.nn.encoder import EncoderConfig, LocalMixing, encoder_stack
from training.nn.normaliser import Normaliser
from training.nn.shapes import Features, Line
from training.nn.spectral.convolution import SpectralConv, antiderivative, resample_periodic
from training.operators.operator import Operator, OperatorKind

TIME = 1.0  # of the final velocity, on a line of length 1


class BurgersConfig(EncoderConfig):
    """Sizes of a Burgers operator."""

    kind: Literal["burgers"] = "burgers"
    tokens: int = 256  # T
    patch: int = 1  # points of the initial velocity per token, P; it is rougher than the final one
    odd: bool = False  # in evaluation, average over the input and its mirror image
    band: int = 128  # wave numbers of both resamplings, as far as the grids resolve them
    channels: int = 64  # features of a token, C
    heads: int = 2
    layers: int = 4
    feedforward: int = 128
    local: int = 7  # stencil of the depthwise convolution beside the attention; 0: no convolution
    decoder: int = 48  # channels of the spectral decoder
    modes: int = 24
    spectral: int = 2  # spectral layers
    dropout: float = 0.0


class BurgersOperator(Operator):
    """See the diagram of the module. The config fixes every size.

    Example:
        >>> operator = BurgersOperator(BurgersConfig(tokens=32, channels=8, heads=2, layers=1))
        >>> operator(torch.randn(2, 100)).shape
        torch.Size([2, 100])
    """

    config: BurgersConfig

    positions: Tensor
    integral: Tensor

    def __init__(self, config: BurgersConfig) -> None:
        super().__init__()
        self.config = config
        points = config.tokens * config.patch
        self.input_normaliser, self.output_normaliser = Normaliser(), Normaliser()
        self.lift = nn.Linear(2 * config.patch + 2, config.channels)
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
        """Set the statistics to those of the training fields."""
        self.input_normaliser.fit(initial)
        self.output_normaliser.fit(final)

    def forward(self, initial: Line) -> Line:
        patches, points = indices((self.config.tokens * self.config.patch, initial.shape[1]), initial.device)
        drift = initial.mean(1)
        coarse = resample_periodic(self.input_normaliser(initial - drift[:, None]), patches, self.config.band)
        final = resample_periodic(self.predict(coarse), points, self.config.band, shift=drift * TIME)
        return self.output_normaliser.inverse(final) + drift[:, None]

    def predict(self, initial: Line) -> Features:
        """Return the standardised final velocity on the tokens `[B, T]` for a standardised initial one `[B, T P]`.

        If u(x, t) solves the equation, so does -u(-x, t). A network learns this symmetry approximately. The mean of
        both predictions has it exactly, at twice the cost.
        """
        if self.training or not self.config.odd:
            return self.predict_once(initial)
        return (self.predict_once(initial) - mirror(self.predict_once(-mirror(initial)))) / 2

    def predict_once(self, initial: Line) -> Features:
        """Return the same by one pass of the network."""
        positions = self.positions.to(initial.dtype)
        fields = (initial, initial @ self.integral)
        patches = [values.unflatten(1, (self.config.tokens, self.config.patch)) for values in fields]
        tokens = self.lift(torch.cat([*patches, positions.expand(initial.shape[0], -1, -1)], dim=-1))
        for layer in self.encoder:
            tokens = layer(tokens, positions)
        return self.head(self.spectral(tokens.transpose(1, 2)))[:, 0]


def mirror(values: Line) -> Line:
    """Return periodic values at -x. The first point keeps its index."""
    return values.flip(1).roll(1, 1)


OPERATOR = OperatorKind("burgers", BurgersConfig, BurgersOperator)
