r"""Two networks for Burgers' equation on a periodic line, and what both of them have exactly.

A mean velocity translates the solution and changes nothing else (Galilean invariance): the networks see the velocity
without its mean, and their output is translated by the mean times t. If u(x, t) solves the equation, so does -u(-x, t):
in evaluation the mean of the predictions for both has this symmetry exactly, at twice the cost. The first and the last
step resample by Fourier series, exact for the modes that they keep, so the output does not depend on the grid.

`BurgersOperator` is a transformer for one viscosity and t = 1:

.. code-block:: text

    initial [B, N]
      -> standardise -> resample the lowest modes on P T points, P per token, and add their potential
      -> linear map -> [B, T, C]
      -> L encoder layers -> spectral layers -> one channel -> physical units -> resample on N points
    final [B, N]

The number of modes follows from the spectrum of the solution: at viscosity 0.01 the width of the steepest front is
about 0.05. The potential is the antiderivative of the initial velocity. The location of a front depends on it alone
(Hopf, Comm. Pure Appl. Math. 3, 1950), and a network that has to learn to integrate trains more slowly.

`BurgersFlowOperator` takes viscosity and time, and corrects a coarse closed form:

.. code-block:: text

    initial [B, N], viscosity [B], time [B]
      -> without its mean, on T points
      -> the closed form (Hopf, Cole) as a softmax head over K keys only: weights [B, T, K], coarse velocity [B, T]
      -> learned values of the keys, read with the same weights; initial velocity, its potential, the coarse velocity,
         the error to be expected of so coarse a sum, and the phase of that error [B, T, C]
      -> L layers: a stencil, then a gated spectral layer -> one channel, times the expected error
      -> coarse velocity + correction -> resample on N points, translated by mean times time
    final [B, N]

`training.operators.cole_hopf` is the same head with 512 keys, in which nothing is left to correct. A trapezoidal rule
of K points for a Gaussian of the variance :math:`\sigma^2` errs by :math:`2 e^{-2\pi^2 K^2 \sigma^2} \cos 2\pi K y`,
where y is its centre: the origin of the fluid. The network sees this amplitude and this phase.

Where so coarse a sum errs, and the velocity moves hardly anything, the network has seen nothing like it, and the
equation is that of heat: its solution takes over, so that a constant stays what it is.

Also exact: u -> s u, t -> t/s, nu -> s nu scales the solution, because the network sees nu t, the distance rms(u) t,
and fields in units of their own size.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Literal

import torch
from jaxtyping import Float
from pydantic import PositiveInt, model_validator
from torch import Tensor, nn

from schema.parts import Frozen
from training.nn.encoder import EncoderConfig, LocalMixing, encoder_stack
from training.nn.grids import Features, Line, circle_positions, indices
from training.nn.lines import analyse, antiderivative, resample_periodic, synthesise
from training.nn.pointwise import Normaliser
from training.nn.spectral import GatedSpectralLayer, SpectralConv, hermitian
from training.operators.cole_hopf import TIME, VISCOSITY, ColeHopfConfig, ColeHopfOperator, Column, Number, column
from training.operators.operator import Operator, OperatorKind


def symmetric(predict: Callable[..., Tensor], u: Line, *numbers: Column) -> Float[Tensor, "batch _"]:
    """Return the mean of the predictions for a velocity and for its mirror image, mirrored back."""
    return (predict(u, *numbers) - mirror(predict(-mirror(u), *numbers))) / 2


def mirror(values: Line) -> Line:
    """Return periodic values at -x. The first point keeps its index."""
    return values.flip(1).roll(1, 1)


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
    """See the first diagram of the module. The config fixes every size.

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
        final = symmetric(self.predict, coarse) if self.config.odd and not self.training else self.predict(coarse)
        final = resample_periodic(final, points, self.config.band, shift=drift * TIME)
        return self.output_normaliser.inverse(final) + drift[:, None]

    def predict(self, initial: Line) -> Features:
        """Return the standardised final velocity on the tokens `[B, T]` for a standardised initial one `[B, T P]`."""
        positions = self.positions.to(initial.dtype)
        fields = (initial, initial @ self.integral)
        patches = [values.unflatten(1, (self.config.tokens, self.config.patch)) for values in fields]
        tokens = self.lift(torch.cat([*patches, positions.expand(initial.shape[0], -1, -1)], dim=-1))
        for layer in self.encoder:
            tokens = layer(tokens, positions)
        return self.head(self.spectral(tokens.transpose(1, 2)))[:, 0]


UNIT = 0.3  # of a correction, in units of the coarse velocity's size and of the expected error
SMALLEST = 1e-6  # size of a velocity that does not vary, and of nothing
FAINT = 1e-3  # least size of the final velocity, relative to the initial one, that the network is given
QUIET = 2.5e-3  # distance rms(u) t below which the equation is that of heat; from twice of it on, the network answers
STEEPEST = 3.0  # logarithm of the largest weight within a patch, relative to that of its key
LOCAL = 20  # features of a point: 2 fields, 5 of the coarse sum, 3 of the sample, 10 phases

Tokens = Float[Tensor, "batch token"]


class BurgersFlowConfig(Frozen):
    """Sizes of the operator."""

    kind: Literal["burgers-flow"] = "burgers-flow"
    keys: PositiveInt = 20  # points of one period that the coarse closed form is summed over, K
    tokens: PositiveInt = 240  # points of the grid that the network works on, T, a multiple of the keys
    channels: PositiveInt = 48  # features of a point, C
    layers: PositiveInt = 4  # stencils and gated spectral layers, L
    modes: PositiveInt = 32  # wave numbers of a spectral layer
    local: PositiveInt = 7  # width of a stencil
    odd: bool = True  # in evaluation, average over the input and its mirror image

    @model_validator(mode="after")
    def check_tokens(self) -> BurgersFlowConfig:
        """Require a whole number of tokens per key."""
        if self.tokens % self.keys:
            raise ValueError(f"expected a multiple of {self.keys} tokens but got {self.tokens}")
        return self


class FlowLayer(nn.Module):
    """Add a stencil of every channel, then apply a gated spectral layer, to features `[batch, token, channel]`."""

    def __init__(self, config: BurgersFlowConfig) -> None:
        super().__init__()
        self.stencil = LocalMixing(config.channels, (config.tokens,), config.local, periodic=True)
        self.gated = GatedSpectralLayer(config.channels, config.modes, [True], (config.tokens,))

    def forward(self, x: Features) -> Features:
        return self.gated(x + self.stencil(x))


class BurgersFlowOperator(Operator):
    """See the second diagram of the module. The config fixes every size.

    Example:
        >>> operator = BurgersFlowOperator(BurgersFlowConfig(tokens=40, channels=8, layers=1, modes=4))
        >>> operator(torch.randn(2, 100), torch.tensor([0.01, 0.02]), torch.tensor([1.0, 0.5])).shape
        torch.Size([2, 100])
    """

    config: BurgersFlowConfig
    contains_solver = True

    angle: Tensor
    integral: Tensor
    near: Tensor
    smoothing: Tensor

    def __init__(self, config: BurgersFlowConfig) -> None:
        super().__init__()
        self.config, self.patch = config, config.tokens // config.keys
        self.remark = f"the network corrects a closed form (Hopf, Cole) that is summed over {config.keys} points"
        self.coarse = ColeHopfOperator(ColeHopfConfig(keys=config.keys, refinement=self.patch))
        near = torch.arange(config.keys)[:, None] * self.patch + torch.arange(-self.patch, self.patch + 1)
        for name, buffer in {
            "angle": 2 * math.pi * torch.arange(config.tokens) / self.patch,
            "integral": antiderivative(config.tokens) / (2 * math.pi),
            "near": near % config.tokens,
            "smoothing": smoothing(config.tokens, self.patch),
        }.items():
            self.register_buffer(name, buffer, persistent=False)
        channels = config.channels
        self.values = nn.Sequential(
            nn.Linear(2 * (2 * self.patch + 1) + 2, 2 * channels),
            nn.SiLU(),
            nn.Linear(2 * channels, 2 * channels),
            nn.SiLU(),
            nn.Linear(2 * channels, channels),
        )
        self.lift = nn.Linear(LOCAL, channels)
        self.layers = nn.ModuleList(FlowLayer(config) for _ in range(config.layers))
        last = nn.Linear(2 * channels, 1)
        self.head = nn.Sequential(nn.Linear(channels, 2 * channels), nn.SiLU(), last)
        nn.init.zeros_(last.weight)  # a fresh network corrects nothing
        nn.init.zeros_(last.bias)

    def forward(self, initial: Line, viscosity: Number | None = None, time: Number | None = None) -> Line:
        """Return the velocity `[batch, point]` at `time` (1 by default), for a viscosity (0.01), at x_i = i/n."""
        nu, t = column(viscosity, initial, VISCOSITY), column(time, initial, TIME)
        drift = initial.mean(1, keepdim=True)
        tokens, points = indices((self.config.tokens, initial.shape[1]), initial.device)
        band = self.config.tokens // 2 + 1
        final = self.predict(resample_periodic(initial - drift, tokens, band), nu, t)
        return resample_periodic(final, points, band, shift=drift[:, 0] * t[:, 0].to(drift.dtype)) + drift

    def predict(self, u: Tokens, nu: Column, t: Column) -> Tokens:
        """Return the velocity at the tokens for an initial one without mean at the tokens."""
        odd = self.config.odd and not self.training
        found = symmetric(self.corrected, u, nu, t) if odd else self.corrected(u, nu, t)
        spread = (nu * t).to(u.dtype)
        resolved = 2 * self.config.keys**2 * spread - 1  # at 1 the coarse sum errs by 3e-9
        share = torch.maximum(rms(u) * t.to(u.dtype) / QUIET - 1, resolved).clamp(0, 1)
        return share * found + (1 - share) * diffused(u, spread)

    def corrected(self, u: Tokens, nu: Column, t: Column) -> Tokens:
        """Return the same by one pass of the network, whatever moves."""
        [tokens] = indices(u.shape[1:], u.device)
        dtype, potential = u.dtype, u @ self.integral
        size = torch.maximum(rms(u), QUIET / t.to(dtype))  # as small as the network has seen
        weights, displacements = self.coarse.head(self.coarse.potential(u.double(), tokens), nu, t)
        moved = (weights * displacements).sum(-1)
        spread = (weights * displacements.square()).sum(-1) - moved.square()
        velocity = (moved / t).to(dtype)
        scale = torch.maximum(rms(velocity), FAINT * size)  # so that the gradients at rest are finite
        # The variance in units of the distance of keys squared, and the root of the error that it leads to.
        variance = (spread.to(dtype) * self.config.keys**2).clamp_min(1e-3)
        error = torch.exp(-(math.pi**2) * variance)
        numbers = torch.cat([(nu * t).to(dtype).log() / 2 + 2, (size * t.to(dtype)).log() + 1], dim=1)
        sample = torch.cat([numbers, (scale / size).log() + 1], dim=1)
        z = velocity / scale
        points = [u / size, potential / size * 6, z, z.square(), variance.log() / 2, error.square(), error]
        phases = self.phases(moved.to(dtype), nu.to(dtype) / scale * error.square())
        local = [torch.stack(points, dim=-1), sample[:, None].expand(-1, self.config.tokens, -1), phases]
        values = self.learned_values(potential / (2 * nu).to(dtype), numbers)
        x = self.lift(torch.cat(local, dim=-1)) + weights.to(dtype) @ values
        for layer in self.layers:
            x = layer(x)
        return velocity + UNIT * scale * (error @ self.smoothing) * self.head(x)[..., 0]

    def phases(self, moved: Tokens, amplitude: Tokens) -> Features:
        """Return where a point and the origin of its fluid lie between the keys, by cosines and sines.

        The amplitude is that of the expected error, up to a factor, in units of the coarse velocity's size.
        """
        here = self.angle.to(moved.dtype).expand_as(moved)
        origin = here - 2 * math.pi * self.config.keys * moved
        waves = [wave(n * angle) for angle in (here, origin) for n in (1, 2) for wave in (torch.cos, torch.sin)]
        size = 8 * math.pi * self.config.keys * amplitude
        return torch.stack([*waves, size * torch.cos(origin), size * torch.sin(origin)], dim=-1)

    def learned_values(self, potential: Tokens, numbers: Float[Tensor, "batch 2"]) -> Features:
        """Return the values of the keys, in the order of the coarse closed form: 0, -1/K, ...

        The potential is F / 2 nu; the numbers are logarithms of nu t and of the distance rms(u) t.
        """
        near = potential[:, self.near]
        near = near - near[..., self.patch : self.patch + 1]
        same = numbers[:, None].expand(-1, self.config.keys, -1)
        values: Tensor = self.values(torch.cat([near, torch.exp(-near.clamp_min(-STEEPEST)), same], dim=-1))
        return values.flip(1).roll(1, 1)


def smoothing(tokens: int, patch: int) -> Float[Tensor, "token token"]:
    """Return the matrix that averages over a patch on either side, with weights that fall like a squared cosine."""
    index = torch.arange(tokens)
    distance = (index + patch).remainder(tokens).clamp(max=2 * patch)
    window = torch.sin(math.pi / 2 * distance / patch).square()
    return torch.stack([window.roll(shift) for shift in range(tokens)]) / window.sum()


def diffused(u: Tokens, spread: Float[Tensor, "batch 1"]) -> Tokens:
    """Return the solution of the heat equation, where `spread` is nu t."""
    [points] = indices(u.shape[1:], u.device)
    waves = torch.arange(u.shape[1] // 2 + 1, device=u.device)
    decay = torch.exp(-spread * (2 * math.pi * waves.to(u.dtype)).square())
    factor = decay * hermitian(points, waves, u.dtype) / u.shape[1]
    even, odd = analyse(u, points, waves)
    return synthesise(even * factor, odd * factor, points, waves)


def rms(values: Tokens) -> Float[Tensor, "batch 1"]:
    """Return the root of the mean square of every line, at least `SMALLEST`."""
    # Larger by 1 / SMALLEST, since the exporter's optimiser takes constants below 1e-8 for 0.
    return SMALLEST * ((values / SMALLEST).square().mean(1, keepdim=True) + 1).sqrt()


OPERATOR = (
    OperatorKind("burgers", BurgersConfig, BurgersOperator),
    OperatorKind("burgers-flow", BurgersFlowConfig, BurgersFlowOperator),
)
