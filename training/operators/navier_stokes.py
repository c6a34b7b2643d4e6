r"""The step operator of two-dimensional flow: a coarse solver inside the network, and a learned correction.

.. math::
    \omega_{n+1} = P\,S(\omega_n, \nu) + \tanh_b\, R_\theta(P S \omega_n,\ P S \omega_n - P\omega_n,\
    \omega_n - P\omega_n,\ \nu)

P keeps the wave numbers up to K. S solves the equation for them over the time between two frames
(`training.nn.spectral.vorticity`): the force, the viscosity and the advection by the resolved flow are known, not
learned. The network R adds what the unresolved wave numbers do, without a mean, since the mean of the vorticity is
conserved. What it sees is cut off at b deviations of the training samples, and what it adds saturates at b deviations,
so that rollouts stay finite: the solver damps, and a correction cannot grow with the state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, cast

import torch
from pydantic import PositiveFloat, PositiveInt
from torch import Tensor, nn

from training.nn.resampling.transfer import band_limited
from training.nn.spectral.vorticity import VorticityStep
from training.operators.operator import OperatorKind
from training.operators.trajectory import TrajectoryConfig, TrajectoryOperator

FITTED = 64
"""Samples that the solver advances together when statistics are taken."""


class NavierStokesConfig(TrajectoryConfig):
    """Sizes of the operator.

    Attributes:
        step: The network R: its inputs are the solver's result, its increment and the unresolved part.
        resolved: The largest wave number K of the solver.
        substeps: Its steps between two frames.
        interval: The time between two frames.
        force: The amplitude of the force.
        bound: Largest input and correction, in deviations of the training samples'.
    """

    kind: Literal["navier-stokes"] = "navier-stokes"  # type: ignore[assignment] # a kind of its own
    resolved: PositiveInt = 12
    substeps: PositiveInt = 12
    interval: PositiveFloat = 1.0
    force: PositiveFloat = 0.1
    bound: PositiveFloat = 20.0


class NavierStokesOperator(TrajectoryOperator):
    """Roll the solver and its correction out. Before training, the correction is zero.

    Args:
        config: The sizes.

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
        """Return what the network sees, each `[batch, *grid]`: the solver's result, its increment, the unresolved part.

        Args:
            vorticity: `[batch, *grid]`.
            viscosity: `[batch]`.
        """
        grid = [torch.arange(side, device=vorticity.device) for side in vorticity.shape[1:]]
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


OPERATOR = OperatorKind("navier-stokes", NavierStokesConfig, NavierStokesOperator)
