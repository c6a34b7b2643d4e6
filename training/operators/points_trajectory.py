r"""The step operator on points that stay where they are: the next frame of fields on a mesh from the last ones.

.. math::
    u_{n+1} = u_n + S(x, u_{n-h+1}, \dots, u_n, c, p), \qquad n = 0, 1, \dots

It is `training.operators.trajectory` with the network of steady fields on points (`training.operators.points`) as its
step S. The points x are the same in all frames, so where they are on the latent grid, with the weights of scatter and
gather, is computed once per rollout. States are `[batch, (history), point, (component)]`. What padding holds changes
nothing, and it is 0 in every frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Literal

import torch
from pydantic import model_validator
from torch import Tensor

from training.operators.operator import OperatorKind
from training.operators.points import LatticeLocation, Points, PointsConfig, PointsOperator, canonical
from training.operators.trajectory import Advance, TrajectoryConfig, TrajectoryOperator


class PointsTrajectoryConfig(TrajectoryConfig):
    """Sizes of a step operator on points."""

    kind: Literal["points-trajectory"] = "points-trajectory"  # type: ignore[assignment]  # a kind of its own
    # The network of one step. A state of several frames enters as a vector with a component per frame and component.
    step: PointsConfig  # type: ignore[assignment]  # of points

    @model_validator(mode="after")
    def check_points(self) -> PointsTrajectoryConfig:
        """Refuse means that stay what they are: those over points are not those over the domain."""
        if any(self.conserved):
            raise ValueError("expected nothing conserved on points")
        return self


class PointsTrajectoryOperator(TrajectoryOperator):
    """Roll a step operator on points out.

    Example:
        >>> step = PointsConfig(
        ...     input_components=(0,),
        ...     input_scales=("linear",),
        ...     output_components=(0,),
        ...     output_scales=("linear",),
        ...     box=((0, 1), (0, 2)),
        ...     latent=8,
        ... )
        >>> config = PointsTrajectoryConfig(step=step, components=(0,), states=(1,), conserved=(False,))
        >>> points, heat, counts = torch.rand(3, 50, 2), torch.rand(3, 50), torch.full((3,), 40.0)
        >>> PointsTrajectoryOperator(config)(points, heat, counts, torch.zeros(3, 5, dtype=torch.int32)).shape
        torch.Size([3, 5, 50])
    """

    config: PointsTrajectoryConfig
    step: PointsOperator

    scattered = True

    def __init__(self, config: PointsTrajectoryConfig) -> None:
        super().__init__(config, PointsOperator)
        self.scattered_config = self.of_last_frame()

    def canonical(self, *arguments: Tensor) -> tuple[Tensor, ...]:
        """Return what `PointsOperator.canonical` does, of the last frame of every state."""
        return canonical(self.scattered_config, self.of_one_frame(arguments))

    def of_last_frame(self) -> PointsConfig:
        """Return the sizes of the step with states of one frame."""
        components = [*self.config.step.input_components]
        for index, count in zip(self.config.states, self.config.components, strict=True):
            components[index - 1] = count  # the first argument is that of the coordinates
        return self.config.step.model_copy(update={"input_components": tuple(components)})

    def stepping(self, inputs: Sequence[Tensor]) -> Advance:
        """Return what makes the steps of a rollout, with the points' places on the latent grid."""
        points = Points.of(self.config.step, self.stepped(self.at(inputs, 0)))
        return partial(self.advance, location=self.step.lattice.locate(points.coordinates))

    def advance(self, inputs: Sequence[Tensor], location: LatticeLocation | None = None) -> list[Tensor]:
        """Return the inputs of one step with states moved on by one frame, the rest as it is."""
        arguments = self.stepped(inputs)
        increments = self.step(*arguments, location=location)
        increments = (increments,) if isinstance(increments, Tensor) else increments
        valid, moved = Points.of(self.config.step, arguments).valid, list(inputs)
        for increment, index in zip(increments, self.config.states, strict=True):
            mask = valid.reshape(*valid.shape, *(1,) * (increment.ndim - 2))
            following = torch.where(mask, self.last(inputs[index]) + increment, 0.0)
            moved[index] = following if self.config.history == 1 else self.appended(inputs[index], following)
        return moved

    def stepped(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Return the arguments of the step: frames and components of a state on the last axis."""
        found = list(inputs)
        for index in self.config.states if self.config.history > 1 else ():
            found[index] = inputs[index].movedim(1, 2).flatten(2)  # [batch, point, frame and component]
        return found


OPERATOR = OperatorKind("points-trajectory", PointsTrajectoryConfig, PointsTrajectoryOperator)
