r"""The general step operator: the next frame of a trajectory from the last ones, applied again and again.

.. math::
    u_{n+1} = u_n + S(u_{n-h+1}, \dots, u_n, c, p), \qquad n = 0, 1, \dots

with h frames of history, steady fields c and parameters p. The step S is a general operator
(`training.operators.field`) on the increments, whose size its normaliser takes from the data. Where a state's mean over
a periodic grid is conserved, the mean of its increment is subtracted. On periodic axes the waves of every new state may
be bounded by those of the training states (`training.nn.spectral.wave_bounds`), so that long rollouts stay finite;
training itself goes without.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, cast

import torch
from pydantic import BaseModel, ConfigDict, NonNegativeInt, PositiveInt, model_validator
from torch import Tensor, nn

from training.nn.spectral.wave_bounds import WaveBounds
from training.operators.field import FieldConfig, FieldOperator
from training.operators.operator import Operator, OperatorKind


class TrajectoryConfig(BaseModel):
    """Sizes of a step operator.

    Attributes:
        step: The network of one step. A state of several frames enters as a vector with a component per frame and
            component; the outputs are the increments.
        history: Frames of every state that the step sees.
        components: Components of every state, 0 for a scalar field.
        states: Per output the index of the input that it starts from.
        conserved: Per output whether its mean over the grid stays what it is.
        bounded: Whether the waves of the states are bounded by those of the training states. All axes are periodic.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["trajectory"] = "trajectory"
    step: FieldConfig
    history: PositiveInt = 1
    components: tuple[NonNegativeInt, ...]
    states: tuple[NonNegativeInt, ...]
    conserved: tuple[bool, ...]
    bounded: bool = False

    @model_validator(mode="after")
    def check_lengths(self) -> TrajectoryConfig:
        """Require one entry per output."""
        if not len(self.states) == len(self.components) == len(self.conserved) == len(self.step.output_components):
            raise ValueError("expected as many states, components and conserved as the step has outputs")
        if self.bounded and not all(self.step.periodic):
            raise ValueError("expected periodic axes only with bounded")
        return self


class TrajectoryOperator(Operator):
    """Roll a step operator out.

    Args:
        config: The sizes.

    Example:
        >>> step = FieldConfig(
        ...     input_components=(0,),
        ...     input_scales=("linear",),
        ...     output_components=(0,),
        ...     output_scales=("linear",),
        ...     periodic=(True,),
        ...     points=("left",),
        ...     working=(32,),
        ... )
        >>> config = TrajectoryConfig(step=step, components=(0,), states=(0,), conserved=(True,))
        >>> frames = torch.zeros(2, 5, dtype=torch.int32)
        >>> TrajectoryOperator(config)(torch.randn(2, 32), frames).shape
        torch.Size([2, 5, 32])
    """

    config: TrajectoryConfig

    def __init__(self, config: TrajectoryConfig) -> None:
        super().__init__()
        self.config = config
        self.step = FieldOperator(config.step)
        bounded = config.components if config.bounded else ()
        self.bounds = nn.ModuleList(WaveBounds(components, config.step.working) for components in bounded)

    @torch.no_grad()
    def fit_normalisers(self, *tensors: Tensor) -> None:
        """Take the statistics of training samples: the arguments without `frame`, then the next frame of every state.

        Args:
            tensors: States as `advance` takes them, steady fields, parameters, then `[sample, (component), *grid]`.
        """
        count = len(tensors) - len(self.config.states)
        arguments, following = tensors[:count], tensors[count:]
        pairs = zip(following, self.config.states, strict=True)
        increments = [after - self.last(arguments[index]) for after, index in pairs]
        self.step.fit_normalisers(*self.stepped(arguments), *increments)
        for bounds, after, index in zip(self.bounds, following, self.config.states, strict=False):  # or no bounds
            cast("WaveBounds", bounds).fit(torch.cat([self.last(arguments[index]), after]))

    def forward(self, *arguments: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Return the trajectories that follow.

        Args:
            arguments: Inputs in their order, a state as `[batch, (history), (component), *grid]` (no history axis for
                one frame) and a steady field as `[batch, (component), *grid]`; parameters `[batch]`; and a tensor
                `[batch, frame]` whose shape says how many frames are wanted.

        Returns:
            Per state `[batch, frame, (component), *grid]`: one tensor, or a tuple of several.
        """
        *inputs, frame = arguments
        found = self.rollout(inputs, frame.shape[1])
        return found[0] if len(found) == 1 else tuple(found)

    def canonical(self, *arguments: Tensor) -> tuple[Tensor, ...]:
        """Return the last frames of states, steady fields and parameters, without the argument that counts frames."""
        inputs = [each for each in arguments if each.is_floating_point()]
        for index in self.config.states:
            inputs[index] = self.last(inputs[index])
        return tuple(inputs)

    def rollout(self, inputs: Sequence[Tensor], frames: int) -> list[Tensor]:
        """Return the following frames `[batch, frame, (component), *grid]` of every state."""
        made = []
        for _ in range(frames):
            inputs = self.advance(inputs)
            made.append([self.last(inputs[index]) for index in self.config.states])
        return [torch.stack(each, dim=1) for each in zip(*made, strict=True)]

    def advance(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Return the inputs of the next step: states moved on by one frame, the rest as it is."""
        increments = self.step(*self.stepped(inputs))
        increments = (increments,) if isinstance(increments, Tensor) else increments
        moved = list(inputs)
        outputs = zip(increments, self.config.states, self.config.conserved, strict=True)
        for position, (increment, index, conserved) in enumerate(outputs):
            following = self.last(inputs[index]) + (self.without_mean(increment) if conserved else increment)
            if self.bounds and not self.training:  # the loss has to see the waves that are too large
                following = self.bounds[position](following)
            moved[index] = following if self.config.history == 1 else self.appended(inputs[index], following)
        return moved

    def last(self, state: Tensor) -> Tensor:
        """Return the last frame of a state."""
        return state if self.config.history == 1 else state[:, -1]

    def appended(self, state: Tensor, following: Tensor) -> Tensor:
        """Return the history with a frame more at its end and one fewer at its start."""
        return torch.cat([state[:, 1:], following[:, None]], dim=1)

    def without_mean(self, field: Tensor) -> Tensor:
        """Return a field without its mean over the grid."""
        axes = len(self.config.step.working)
        return field - field.mean(dim=[*range(field.ndim - axes, field.ndim)], keepdim=True)

    def stepped(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Return the arguments of the step: frames and components of a state on one axis."""
        found = list(inputs)
        for index, components in zip(self.config.states, self.config.components, strict=True):
            if self.config.history > 1 and components:
                found[index] = inputs[index].flatten(1, 2)
        return found


OPERATOR = OperatorKind("trajectory", TrajectoryConfig, TrajectoryOperator)
