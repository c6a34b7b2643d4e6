r"""The step operator of the Kuramoto-Sivashinsky equation: the general one, whose finest waves are damped.

.. math::
    u_{n+1} = m + T\,D\,(v_n + S(v_n, L)), \qquad \hat D(k) = \exp\bigl(-(q/q_0)^{16}\bigr), \quad q = 2\pi k/L.

The equation damps a wave of number q by :math:`\exp(2 (q^2 - q^4))` within two units of time, so that the state holds
nothing of the fine waves that it held a frame before. The network sees hardly any of them in its training, and would
let them grow slowly from frame to frame. D leaves the waves that the attractor holds as they are, and commutes with
shifts and reflections.

The equation is Galilean invariant: with the mean m of u, which is conserved, v = u - m satisfies the same equation in
a frame that moves with the velocity m. So the network sees v alone, and T shifts the result by m times the time of a
frame.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import PositiveFloat, model_validator
from torch import Tensor

from training.nn.lines import analyse, synthesise
from training.nn.spectral import hermitian
from training.operators.operator import OperatorKind
from training.operators.trajectory import TrajectoryConfig, TrajectoryOperator, expect_one_state

SQUARINGS = 4  # the exponent of q / q_0 is two to the power of this


class KuramotoSivashinskyConfig(TrajectoryConfig):
    """Sizes of the operator."""

    kind: Literal["kuramoto-sivashinsky"] = "kuramoto-sivashinsky"  # type: ignore[assignment] # a kind of its own
    # The wave number q_0 where a wave is damped by a factor of e per frame. Waves beyond the working grid are dropped.
    cut: PositiveFloat = 3.6
    interval: PositiveFloat = 2.0  # the time of a frame

    @model_validator(mode="after")
    def check_state(self) -> KuramotoSivashinskyConfig:
        """Require the one state of the equation, and nothing that the step does not do."""
        expect_one_state(self)
        return self


class KuramotoSivashinskyOperator(TrajectoryOperator):
    """Roll a step operator out, and damp its finest waves.

    Example:
        >>> from training.operators.field import FieldConfig
        >>> step = FieldConfig(
        ...     input_components=(0,),
        ...     input_scales=("linear",),
        ...     parameter_scales=("linear",),
        ...     output_components=(0,),
        ...     output_scales=("linear",),
        ...     periodic=(True,),
        ...     points=("left",),
        ...     working=(32,),
        ... )
        >>> config = KuramotoSivashinskyConfig(step=step, components=(0,), states=(0,), conserved=(True,))
        >>> frames = torch.zeros(2, 5, dtype=torch.int32)
        >>> KuramotoSivashinskyOperator(config)(torch.randn(2, 32), torch.full((2,), 22.0), frames).shape
        torch.Size([2, 5, 32])
    """

    config: KuramotoSivashinskyConfig

    def advance(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Return u of the next frame, and the period as it is."""
        u, length = inputs
        mean = u.mean(dim=-1, keepdim=True)
        v = u - mean
        increment = self.damped(v + self.step(v, length), length, mean * self.config.interval) - u
        return [u + self.without_mean(increment), length]

    def damped(self, u: Tensor, length: Tensor, shift: Tensor) -> Tensor:
        """Damp the fine waves of `[batch, point]` of the periods L `[batch]`, and shift each by `[batch, 1]`."""
        [working] = self.config.step.working
        points = torch.arange(u.shape[-1], device=u.device)
        wave = torch.arange(working // 2 + 1, device=u.device)
        resolved = (2 * wave <= points[-1:] + 1).to(u.dtype)
        weight = hermitian(points, wave, u.dtype) * resolved / (points[-1:] + 1).to(u.dtype)
        exponent = (2 * math.pi / self.config.cut) * wave.to(u.dtype) / length.reshape(-1, 1)
        for _ in range(SQUARINGS):
            exponent = exponent * exponent
        factor = weight * torch.exp(-exponent)
        turns = shift / length.reshape(-1, 1)
        angle = 2 * math.pi * (turns - torch.round(turns)) * wave.to(u.dtype)
        cosine, sine = factor * torch.cos(angle), factor * torch.sin(angle)
        even, odd = analyse(u, points, wave)
        return synthesise(even * cosine - odd * sine, odd * cosine + even * sine, points, wave)


OPERATOR = OperatorKind("kuramoto-sivashinsky", KuramotoSivashinskyConfig, KuramotoSivashinskyOperator)
