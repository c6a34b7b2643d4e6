r"""The step operator of two-dimensional flow: a coarse solver inside the network, and a learned correction.

.. math::
    \omega_{n+1} = P\,S(\omega_n, \nu) + \tanh_b\, R_\theta(P S \omega_n,\ P S \omega_n - P\omega_n,\
    \omega_n - P\omega_n,\ \nu)

P keeps the wave numbers up to K. S solves the equation for them over the time between two frames
(`VorticityStep`): the force, the viscosity and the advection by the resolved flow are known, not
learned. The network R adds what the unresolved wave numbers do, without a mean, since the mean of the vorticity is
conserved. What it sees is cut off at b deviations of the training samples, and what it adds saturates at b deviations,
so that rollouts stay finite: the solver damps, and a correction cannot grow with the state.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple, cast

import torch
from pydantic import PositiveFloat, PositiveInt, model_validator
from torch import Tensor, nn

from training.nn.grids import indices
from training.nn.spectral import band_limited, waves
from training.operators.operator import OperatorKind
from training.operators.trajectory import TrajectoryConfig, TrajectoryOperator, expect_one_state

FITTED = 64
"""Samples that the solver advances together when statistics are taken."""


class NavierStokesConfig(TrajectoryConfig):
    """Sizes of the operator.

    Attributes:
        step: The network R: its inputs are the solver's result, its increment and the unresolved part.
    """

    kind: Literal["navier-stokes"] = "navier-stokes"  # type: ignore[assignment] # a kind of its own
    resolved: PositiveInt = 12  # the largest wave number K of the solver
    substeps: PositiveInt = 12  # its steps between two frames
    interval: PositiveFloat = 1.0  # the time between two frames
    force: PositiveFloat = 0.1  # the amplitude of the force
    bound: PositiveFloat = 20.0  # largest input and correction, in deviations of the training samples'

    @model_validator(mode="after")
    def check_state(self) -> NavierStokesConfig:
        """Require the one state of the equation, and nothing that the step does not do."""
        expect_one_state(self)
        return self


class NavierStokesOperator(TrajectoryOperator):
    """Roll the solver and its correction out. Before training, the correction is zero.

    Example:
        >>> from training.operators.field import FieldConfig
        >>> step = FieldConfig(
        ...     input_components=(0, 0, 0),
        ...     input_scales=("linear",) * 3,
        ...     parameter_scales=("log",),
        ...     output_components=(0,),
        ...     output_scales=("linear",),
        ...     periodic=(True, True),
        ...     points=("left", "left"),
        ...     working=(16, 16),
        ...     band_limited=True,
        ...     gated=True,
        ...     layers=0,
        ...     modes=4,
        ... )
        >>> config = NavierStokesConfig(step=step, components=(0,), states=(0,), conserved=(True,), resolved=5)
        >>> frames = torch.zeros(2, 3, dtype=torch.int32)
        >>> NavierStokesOperator(config)(torch.randn(2, 16, 16), torch.full((2,), 1e-3), frames).shape
        torch.Size([2, 3, 16, 16])
    """

    config: NavierStokesConfig
    contains_solver = True

    def __init__(self, config: NavierStokesConfig) -> None:
        super().__init__(config)
        self.solver = VorticityStep(config.resolved, config.substeps, config.interval, config.force)
        last = cast("nn.Linear", self.step.head[-1])
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)

    @torch.no_grad()
    def fit_normalisers(self, *tensors: Tensor) -> None:
        """Take the statistics of training samples: vorticity, viscosity, and the vorticity of the next frame."""
        vorticity, viscosity, following = tensors
        parts = [self.prepared(*some) for some in zip(vorticity.split(FITTED), viscosity.split(FITTED), strict=True)]
        solved, increment, unresolved = (torch.cat(each) for each in zip(*parts, strict=True))
        self.step.fit_normalisers(solved, increment, unresolved, viscosity, following - solved)

    def advance(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Return the vorticity of the next frame, and the viscosity as it is."""
        vorticity, viscosity = inputs
        prepared = self.prepared(vorticity, viscosity)
        correction = self.bounded(self.step(*self.cut(prepared), viscosity))
        return [prepared[0] + self.without_mean(correction), viscosity]

    def prepared(self, vorticity: Tensor, viscosity: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return what the network sees `[batch, *grid]`: the solver's result, its increment, the unresolved part."""
        grid = indices(vorticity.shape[1:], vorticity.device)
        coarse = [torch.arange(self.solver.side, device=vorticity.device)] * 2
        resolved = self.carried(vorticity[:, None], coarse)
        solved = self.solver(resolved[:, 0], viscosity)[:, None]
        fine = self.carried(torch.cat([resolved, solved], dim=1), grid)
        before, after = fine.unbind(1)
        return after, after - before, vorticity - before

    def carried(self, fields: Tensor, sides: Sequence[Tensor]) -> Tensor:
        """Carry the resolved wave numbers of `[batch, channel, *grid]` to another grid."""
        return band_limited(fields, sides, self.config.step.rules, [self.config.resolved + 1] * 2)

    def cut(self, fields: Sequence[Tensor]) -> list[Tensor]:
        """Return the inputs of the network, cut off far outside of the training samples."""
        largest = self.config.bound * self.step.input_normaliser.deviation.flatten()
        pairs = zip(fields, largest.unbind(), strict=True)
        return [torch.minimum(torch.maximum(field, -most), most) for field, most in pairs]

    def bounded(self, correction: Tensor) -> Tensor:
        """Return a correction that saturates."""
        largest = self.config.bound * self.step.output_normaliser.deviation.flatten()
        return largest * torch.tanh(correction / largest)


STABLE = 2 * math.sqrt(2)
"""Largest product of a step and a frequency that the Runge-Kutta method of order four does not amplify: 2 sqrt 2."""


class Decay(NamedTuple):
    """Factors of a viscous decay over a step and over half of one, `[batch, last wave number, ...]`."""

    whole: Tensor
    half: Tensor


class VorticityStep(nn.Module):
    r"""Advance forced two-dimensional flow by a fixed time, pseudo-spectrally and on a coarse grid.

    .. math::
        \omega_t + c\,(u \cdot \nabla\omega) = \nu \Delta\omega + f, \qquad
        u = (\psi_y, -\psi_x), \quad -\Delta\psi = \omega

    on the periodic unit square, for the waves of |k| <= K. Products are taken on 3K + 1 points or more per axis, so
    that none folds onto a kept wave. Viscosity is integrated exactly, by an integrating factor, the rest by the
    Runge-Kutta method of order four. That is stable for speeds up to 2 sqrt 2 / (2 pi K h), where h is the step; a
    faster flow is slowed down to it, c < 1. Advection moves vorticity and makes none, whatever c is, so the result
    stays bounded by what the force puts in and the viscosity takes out.

    Transforms are matrix products. A spectrum is stored by its half of nonnegative wave numbers of the last axis,
    `[batch, last wave number, part and first wave number]`, its real parts before its imaginary ones.

    Args:
        modes: The largest wave number K.
        substeps: Steps of time, of equal length.
        interval: The time that they take together.
        force: The force's amplitude A: f = A (sin 2 pi (x + y) + cos 2 pi (x + y)).

    Example:
        >>> step = VorticityStep(modes=3, substeps=4, interval=1.0, force=0.0)
        >>> wave = torch.sin(2 * torch.pi * torch.arange(10) / 10).expand(1, 10, 10)
        >>> after = step(wave, torch.tensor([0.01]))  # a wave of one direction only decays
        >>> torch.allclose(after, math.exp(-0.01 * (2 * math.pi) ** 2) * wave, atol=1e-6)
        True
    """

    forward_last: Tensor
    forward_first: Tensor
    inverse_first: Tensor
    inverse_last: Tensor
    velocity: Tensor
    strain: Tensor
    squares: Tensor
    source: Tensor
    kept: Tensor

    def __init__(self, modes: int, substeps: int, interval: float, force: float) -> None:
        super().__init__()
        self.modes, self.substeps, self.step = modes, substeps, interval / substeps
        self.speed = STABLE / (self.step * 2 * math.pi * modes)
        self.side = 3 * modes + 1 + (modes + 1) % 2  # even, and enough for products
        for name, values in constants(modes, self.side, force).items():
            self.register_buffer(name, values.to(torch.get_default_dtype()), persistent=False)

    def forward(self, vorticity: Tensor, viscosity: Tensor) -> Tensor:
        """Return the vorticity `[batch, side, side]` after the interval, of which the waves of |k| <= K are used."""
        spectrum = self.kept * self.transform(vorticity)
        rate = -viscosity[:, None, None] * self.squares
        decay = Decay(torch.exp(self.step * rate), torch.exp((self.step / 2) * rate))
        slowed = self.slowing(spectrum)
        for _ in range(self.substeps):
            spectrum = self.advance(spectrum, decay, slowed)
        return self.inverse(spectrum)

    def advance(self, v: Tensor, decay: Decay, slowed: Tensor) -> Tensor:
        """Take one step of the integrating-factor method of order four."""
        h, held = self.step, decay.half * v
        first = self.change(v, slowed)
        second = self.change(held + (h / 2) * (decay.half * first), slowed)
        third = self.change(held + (h / 2) * second, slowed)
        last = self.change(decay.half * (held + h * third), slowed)
        return decay.whole * (v + (h / 6) * first) + (h / 3) * (decay.half * (second + third)) + (h / 6) * last

    def change(self, v: Tensor, slowed: Tensor) -> Tensor:
        """Return the spectrum of f - c u grad w: the curl of the divergence of u u."""
        across, along = self.inverse(self.velocities(v)).unbind(1)
        products = torch.stack([along * along - across * across, across * along], dim=1)
        moved = (self.transform(products) * self.strain).sum(dim=1)
        return self.source + slowed * moved

    def velocities(self, v: Tensor) -> Tensor:
        """Return the spectra of both components of the velocity, `[batch, 2, ...]`."""
        real, imaginary = v[..., : 2 * self.modes + 1], v[..., 2 * self.modes + 1 :]
        return torch.cat([-imaginary, real], dim=-1)[:, None] * self.velocity

    def slowing(self, v: Tensor) -> Tensor:
        """Return c `[batch, 1, 1]`, which is 1 for flows within the limit of speed."""
        fastest = self.inverse(self.velocities(v)).square().sum(dim=1).flatten(1).amax(dim=1)
        return (self.speed * torch.rsqrt(torch.clamp(fastest, min=self.speed**2)))[:, None, None]

    def transform(self, fields: Tensor) -> Tensor:
        """Return the spectra `[..., last wave number, part and first wave number]` of fields `[..., side, side]`."""
        return swapped(fields @ self.forward_last, self.modes + 1) @ self.forward_first

    def inverse(self, spectra: Tensor) -> Tensor:
        """Return the fields `[..., side, side]` of spectra."""
        return swapped(spectra @ self.inverse_first, self.side) @ self.inverse_last


def swapped(x: Tensor, length: int) -> Tensor:
    """Return `[..., length, part and i]` of `[..., i, part and length]`: the other axis' turn to be transformed."""
    return torch.cat([x[..., :length], x[..., length:]], dim=-2).transpose(-1, -2)


def constants(modes: int, side: int, force: float) -> dict[str, Tensor]:
    """Compute the matrices of the transforms and the factors of the equation's terms, in double precision."""
    points = torch.arange(side, dtype=torch.float64)
    first, last = torch.arange(-modes, modes + 1).double(), torch.arange(modes + 1).double()
    n = torch.tensor([side])
    (cos, sin), (cos_last, sin_last) = (
        waves(points.long(), numbers.long(), n, torch.float64) for numbers in (first, last)
    )
    twice = torch.where(last > 0, 2.0, 1.0)
    kx, ky = 2 * math.pi * first.repeat(2)[None, :], 2 * math.pi * last[:, None]
    squares = kx**2 + ky**2
    inverse = torch.where(squares > 0, 1 / squares.clamp(min=1.0), 0.0)
    kept = (squares <= (2 * math.pi * modes) ** 2 * (1 + 1e-9)).double()
    phase = points[:, None] + points
    source = force * (torch.sin(2 * math.pi * phase / side) + torch.cos(2 * math.pi * phase / side))
    forward_last = torch.cat([cos_last, -sin_last], dim=1) / side
    forward_first = torch.cat([torch.cat([cos, -sin], dim=1), torch.cat([sin, cos], dim=1)]) / side
    return {
        "forward_last": forward_last,
        "forward_first": forward_first,
        "inverse_first": torch.cat([torch.cat([cos.T, sin.T], dim=1), torch.cat([-sin.T, cos.T], dim=1)]),
        "inverse_last": torch.cat([(cos_last * twice).T, -(sin_last * twice).T]),
        "velocity": torch.stack([ky * inverse, -kx * inverse]),
        "strain": kept * torch.stack([kx * ky, kx**2 - ky**2]),
        "kept": kept,
        "squares": squares,
        "source": swapped(source @ forward_last, modes + 1) @ forward_first,
    }


OPERATOR = OperatorKind("navier-stokes", NavierStokesConfig, NavierStokesOperator)
