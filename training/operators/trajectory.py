r"""The general step operator: the next frame of a trajectory from the last ones, applied again and again.

.. math::
    u_{n+1} = u_n + S(u_{n-h+1}, \dots, u_n, c, p), \qquad n = 0, 1, \dots

with h frames of history, fields c and parameters p, which are steady or known in advance for every frame: the step
then sees c_n (or c_{n+1}, where the data's frames are cut so; see `Tensor.per_frame`). The step S is a general operator
(`training.operators.field`) on the increments, whose size its normaliser takes from the data. Where a state's mean over
a periodic grid is conserved, the mean of its increment is subtracted. On periodic axes the waves of every new state may
be bounded by those of the training states, so that long rollouts stay finite, and damped where the trained network
makes them too energetic (`WaveBounds`); training itself goes without. Where a mask says which part of the grid is the
domain, it is the same in all frames, and so is what the step makes of it alone, which is computed once per rollout.
Every frame is 0 outside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, cast

import torch
from pydantic import Field, NonNegativeInt, PositiveInt, model_validator
from torch import Tensor, nn

from schema.parts import Frozen
from training.nn.grids import indices
from training.nn.spectral import AxisTransform, inverse, transform, transforms
from training.operators.field import INSIDE, FieldConfig, FieldOperator
from training.operators.operator import Operator, OperatorKind, within

Advance = Callable[[Sequence[Tensor]], list[Tensor]]
"""Returns the inputs of a step with states that it has moved on by one frame."""


class TrajectoryConfig(Frozen):
    """Sizes of a step operator."""

    kind: Literal["trajectory"] = "trajectory"
    # The network of one step. A state of several frames enters as a vector with a component per frame and component;
    # the outputs are the increments.
    step: FieldConfig
    history: PositiveInt = 1  # frames of every state that the step sees
    components: tuple[NonNegativeInt, ...]  # components of every state, 0 for a scalar field
    states: tuple[NonNegativeInt, ...]  # per output the index of the input that it starts from
    conserved: tuple[bool, ...]  # per output whether its mean over the grid stays what it is
    # Positions of the arguments that have a value for every step, `[batch, frame, ...]`.
    forced: tuple[NonNegativeInt, ...] = Field(default=(), exclude_if=lambda forced: not forced)
    # Whether the waves of the states are bounded by those of the training states. All axes are periodic.
    bounded: bool = False
    # Whether waves that the trained network makes too energetic are damped; only with `bounded`.
    damped: bool = Field(default=False, exclude_if=lambda damped: not damped)

    @model_validator(mode="after")
    def check_lengths(self) -> TrajectoryConfig:
        """Require one entry per output."""
        if not len(self.states) == len(self.components) == len(self.conserved) == len(self.step.output_components):
            raise ValueError("expected as many states, components and conserved as the step has outputs")
        if not {*self.states}.isdisjoint(self.forced):
            raise ValueError("expected no states among forced")
        if self.bounded and not all(self.step.periodic):
            raise ValueError("expected periodic axes only with bounded")
        if self.damped and not self.bounded:
            raise ValueError("expected bounded with damped")
        if getattr(self.step, "masked", False) and (self.bounded or any(self.conserved)):
            raise ValueError("expected nothing bounded or conserved with a mask")
        return self


#: What operators of one equation have, whose steps follow no other values of these keys.
ONE_STATE: dict[str, Any] = {
    "history": 1,
    "components": (0,),
    "states": (0,),
    "conserved": (True,),
    "forced": (),
    "bounded": False,
    "damped": False,
}


def expect_one_state(config: TrajectoryConfig) -> None:
    """Require that an operator of one equation is not asked for what its steps do not do.

    Raises:
        ValueError: A key of `ONE_STATE` has another value.
    """
    for key, expected in ONE_STATE.items():
        if (found := getattr(config, key)) != expected:
            raise ValueError(f"{key}: expected {expected!r} of the operator {config.kind!r} but got {found!r}")


class TrajectoryOperator(Operator):
    """Roll a step operator out.

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

    def __init__(self, config: TrajectoryConfig, network: Callable[[Any], nn.Module] = FieldOperator) -> None:
        super().__init__()
        self.config = config
        self.step: Any = network(config.step)
        self.mask = getattr(self.step, "mask", None)
        self.fits_damping = config.damped
        bounded = config.components if config.bounded else ()
        self.bounds = nn.ModuleList(
            WaveBounds(components, config.step.working, damped=config.damped) for components in bounded
        )

    @property
    def learned(self) -> nn.Module:
        return cast("nn.Module", self.step)

    @torch.no_grad()
    def fit_normalisers(self, *tensors: Tensor) -> None:
        """Take the statistics of training samples: arguments without `frame`, then the next frame of every state."""
        arguments, following = self.divided(tensors)
        pairs = zip(following, self.config.states, strict=True)
        increments = [after - self.last(arguments[index]) for after, index in pairs]
        self.step.fit_normalisers(*self.stepped(arguments), *increments)
        for bounds, after, index in zip(self.bounds, following, self.config.states, strict=False):  # or no bounds
            cast("WaveBounds", bounds).fit(torch.cat([self.last(arguments[index]), after]))

    @torch.no_grad()
    def fit_damping(self, *tensors: Tensor) -> None:
        """Damp the waves that a trained network makes too energetic; the tensors are those of `fit_normalisers`."""
        arguments, following = self.divided(tensors)
        for bounds in self.bounds:
            cast("WaveBounds", bounds).gains.fill_(1)  # those of an earlier model, which the training began with
        parts = zip(*(each.split(FITTED) for each in arguments), strict=True)
        steps = [self.eval().advance(part) for part in parts]
        for bounds, after, index in zip(self.bounds, following, self.config.states, strict=True):
            found = torch.cat([self.last(step[index]) for step in steps])
            cast("WaveBounds", bounds).fit_gains(found, after)

    def divided(self, tensors: Sequence[Tensor]) -> tuple[list[Tensor], Sequence[Tensor]]:
        """Return what a step sees of training samples, and the next frame of every state."""
        count = len(tensors) - len(self.config.states)
        return self.at(tensors[:count], 0), tensors[count:]

    def forward(self, *arguments: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Return the trajectories that follow, `[batch, frame, (component), *grid]`: one tensor, or a tuple of several.

        Arguments are states `[batch, (history), (component), *grid]` and steady fields `[batch, (component), *grid]` in
        their order, parameters `[batch]`, and a tensor `[batch, frame]` whose shape says how many frames are wanted.
        Fields and parameters that are known for every frame have as many, `[batch, frame, ...]`.
        """
        *inputs, frame = arguments
        found = self.rollout(inputs, frame.shape[1])
        return found[0] if len(found) == 1 else tuple(found)

    def canonical(self, *arguments: Tensor) -> tuple[Tensor, ...]:
        """Return the last frames of states, steady fields and numbers one by one, without the one that counts frames.

        Of what is known for every frame, every one of them is with the state that the first one starts from: the first
        axis of all has a row per sample and frame. Outside the domain fields have their mean value.
        """
        found = self.of_one_frame(arguments)
        if self.mask is not None:
            inside, means = found[self.mask] > INSIDE, self.step.means
            for index, mean in enumerate(means):
                vector = found[index].ndim > inside.ndim
                last = mean[-found[index].shape[1] :] if vector else mean[-1]  # of the frames of a state the last one
                found[index] = within([found[index]], inside, last)[0]
            found[self.mask] = inside.to(found[self.mask].dtype)
        numbered: tuple[Tensor, ...] = self.step.numbered(found)
        return numbered

    def of_one_frame(self, arguments: Sequence[Tensor]) -> list[Tensor]:
        """Return arguments of one frame each; where some are known for every frame, with a row per sample and frame."""
        inputs = [each for each in arguments if each.is_floating_point()]
        for index in self.config.states:
            inputs[index] = self.last(inputs[index])
        if self.config.forced:
            frames = inputs[self.config.forced[0]].shape[1]
            for index, each in enumerate(inputs):
                if index not in self.config.forced:
                    inputs[index] = each[:, None].expand(-1, frames, *each.shape[1:])
                inputs[index] = inputs[index].flatten(0, 1)
        return inputs

    def rollout(self, inputs: Sequence[Tensor], frames: int) -> list[Tensor]:
        """Return the following frames `[batch, frame, (component), *grid]` of every state."""
        made, advance = [], self.stepping(inputs)
        for number in range(frames):
            inputs = self.moved(inputs, number, advance)
            made.append([self.last(inputs[index]) for index in self.config.states])
        return [torch.stack(each, dim=1) for each in zip(*made, strict=True)]

    def after(self, inputs: Sequence[Tensor], steps: int) -> list[Tensor]:
        """Return the inputs of the rollout that goes on after some steps, without what these have seen."""
        advance = self.stepping(inputs)
        for number in range(steps):
            inputs = self.moved(inputs, number, advance)
        return [each[:, steps:] if index in self.config.forced else each for index, each in enumerate(inputs)]

    def stepping(self, inputs: Sequence[Tensor]) -> Advance:
        """Return what makes the steps of a rollout, `advance`; what all steps share is computed here, once."""
        return self.advance if self.mask is None else partial(self.advanced, masks=self.step.masks(inputs[self.mask]))

    def moved(self, inputs: Sequence[Tensor], number: int, advance: Advance) -> list[Tensor]:
        """Return inputs whose states have made a step, the one of a number."""
        found, step = list(inputs), advance(self.at(inputs, number))
        for index in self.config.states:
            found[index] = step[index]
        return found

    def at(self, inputs: Sequence[Tensor], number: int) -> list[Tensor]:
        """Return what the step of a number sees of inputs."""
        return [each[:, number] if index in self.config.forced else each for index, each in enumerate(inputs)]

    def advance(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Return the inputs of one step with states moved on by one frame, the rest as it is."""
        return self.advanced(inputs)

    def advanced(self, inputs: Sequence[Tensor], masks: Tensor | None = None) -> list[Tensor]:
        """Return what `advance` does; `masks` is what the step makes of the domain alone, where that is known."""
        increments = self.step(*self.stepped(inputs), **({} if masks is None else {"masks": masks}))
        increments = (increments,) if isinstance(increments, Tensor) else increments
        inside = None if self.mask is None else inputs[self.mask] > INSIDE
        moved = list(inputs)
        outputs = zip(increments, self.config.states, self.config.conserved, strict=True)
        for position, (increment, index, conserved) in enumerate(outputs):
            following = self.last(inputs[index]) + (self.without_mean(increment) if conserved else increment)
            if self.bounds and not self.training:  # the loss has to see the waves that are too large
                following = self.bounds[position](following)
            [following] = within([following], inside, 0.0)
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


FITTED = 64  # samples that the network advances together when its waves are compared
MARGIN = 2.0  # the bound over the largest amplitude of the training fields, which are a sample of what the flow reaches
LOOSE = 1e6  # the bound of every wave before `fit`
TINY = 1e-20  # the least square of an amplitude that is divided by, in units of the largest amplitude of all waves


class WaveBounds(nn.Module):
    r"""Bound every wave of fields on periodic axes: twice the largest amplitude that it has in the training fields.

    .. math::
        \hat u(k) \leftarrow \hat u(k) \min\Bigl(1, \frac{2 m(k)}{|\hat u(k)|}\Bigr), \qquad
        m(k) = \max_{\text{training}} |\hat u(k)|, \qquad k \ne 0.

    A learned step sees the fine waves of its training fields only, which are often tiny: the equation keeps them so.
    What it does to larger ones is left open, and over hundreds of steps they may grow until the rollout overflows. The
    bound keeps them where the network knows them, and leaves fields of the training distribution as they are. The mean
    has none. Waves that the working grid does not resolve are dropped.

    Args:
        components: Components of the field, which are bounded by themselves; 0 for a scalar field.
        working: Points per axis of the grid whose waves are kept.

    Example:
        >>> x = torch.arange(16) * (2 * torch.pi / 16)
        >>> bounds = WaveBounds(0, (8,))
        >>> bounds.fit(torch.cos(x)[None])
        >>> bounds(5 * torch.cos(x)[None]).max().round(decimals=3)
        tensor(2.)
    """

    #: What is fitted once a training is over, so that weights to start from need not have it, and may.
    FITTED = frozenset({"gains"})

    largest: Tensor
    bounds: Tensor
    gains: Tensor
    mean: Tensor

    def __init__(self, components: int, working: Sequence[int], *, damped: bool = False) -> None:
        super().__init__()
        self.scalar, channels = components == 0, max(1, components)
        self.modes = [side // 2 + 1 for side in working]
        *others, last = self.modes
        spectrum = (last, *(2 * modes for modes in reversed(others)))  # as `transform` returns it, the last axis first
        self.register_buffer("largest", torch.ones(channels, *(1 for _ in spectrum)))
        self.register_buffer("bounds", torch.full((channels, *spectrum), LOOSE))
        self.damped = damped
        if damped:
            self.register_buffer("gains", torch.ones(channels, *spectrum))
        mean = torch.zeros(spectrum, dtype=torch.bool)
        mean[(0, *reversed(others))] = True
        self.register_buffer("mean", mean, persistent=False)

    @torch.no_grad()
    def fit(self, fields: Tensor) -> None:
        """Take the largest amplitudes of training fields `[sample, (component), *grid]`."""
        x = self.channels(fields.double())
        real, imaginary = transform(x, self.axes(x))
        amplitude = torch.hypot(real, imaginary).amax(dim=0).masked_fill(self.mean, 0) / points(x)
        largest = amplitude.flatten(1).amax(dim=1).reshape(self.largest.shape)
        largest = torch.where(largest > 0, largest, 1)  # of a field without waves
        self.largest.copy_(largest)
        self.bounds.copy_(MARGIN * amplitude / largest)
        if self.damped:
            self.gains.fill_(1)

    @torch.no_grad()
    def fit_gains(self, predicted: Tensor, truth: Tensor) -> None:
        """Take the gains from fields that a network predicts and the true ones, `[sample, (component), *grid]`."""
        energies = []
        for fields in (predicted, truth):
            x = self.channels(fields.double())
            real, imaginary = transform(x, self.axes(x))
            energies.append((real.square() + imaginary.square()).sum(dim=0))
        made, true = energies
        gains = torch.where(made > true, (true / made).sqrt(), 1)
        self.gains.copy_(gains.masked_fill(self.mean, 1))

    def forward(self, fields: Tensor) -> Tensor:
        """Return fields `[batch, (component), *grid]` with bounded waves, on any grid."""
        x = self.channels(fields)
        axes = self.axes(x)
        real, imaginary = transform(x, axes)
        unit = self.largest * points(x)
        squares = (real / unit).square() + (imaginary / unit).square()
        factor = torch.clamp(self.bounds / torch.sqrt(torch.clamp(squares, min=TINY)), max=1)
        if self.damped:
            factor = factor * self.gains
        factor = torch.where(self.mean, 1, factor)
        found = inverse(real * factor, imaginary * factor, axes)
        return found[:, 0] if self.scalar else found

    def channels(self, fields: Tensor) -> Tensor:
        """Return fields as `[batch, channel, *grid]`."""
        return fields[:, None] if self.scalar else fields

    def axes(self, x: Tensor) -> list[AxisTransform]:
        """Return the axes of the transform of `[batch, channel, *grid]`: of the waves that both grids resolve.

        The layers of a network use the alias -n/2 - 1 of a wave on n points, which on finer grids is a wave by itself.
        """
        sides = indices(x.shape[2:], x.device)
        found = transforms(sides, self.modes, x.dtype)
        for position, (index, count) in enumerate(zip(sides[:-1], self.modes, strict=False)):
            wave, n = torch.arange(-count, count, device=x.device), index[-1:] + 1
            half = torch.div(n, 2, rounding_mode="floor")
            resolved = (wave >= -half.clamp(max=count - 1)) & (wave < n - half)
            found[position] = found[position]._replace(weight=resolved.to(x.dtype) / n.to(x.dtype))
        return found


def points(x: Tensor) -> Tensor:
    """Return the number of points of the grid of `[batch, channel, *grid]`, of shape `[1]`."""
    return torch.cat([each[-1:] + 1 for each in indices(x.shape[2:], x.device)]).prod(dim=0, keepdim=True).to(x.dtype)


OPERATOR = OperatorKind("trajectory", TrajectoryConfig, TrajectoryOperator)
