"""The vectors of a field model: which inputs they are, on which grid, and what the other inputs are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import Field, ValidationError

from serving.catalogue.card import FRAME, Card, Tensor
from serving.document import Document
from serving.errors import Problem
from serving.quality import Outside, Policy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from serving.catalogue.card import Parameter
    from serving.umbridge.model import Vector

    Shape = tuple[int, ...]

Points = Annotated[int, Field(strict=True, ge=1, lt=2**31)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Several = Field(min_length=1, max_length=64)


class FieldConfig(Document):
    """The member `config` of a request for a field model.

    Attributes:
        grid: Points per axis, one number for all axes or one for each; by default the smallest grid of the card.
        inputs: The inputs and parameters that are vectors, in order; by default those without a default.
        parameters: Numbers for others: a constant field, or the value of a parameter.
        version: The version of the model; by default the newest.
        frames: Frames of a trajectory.
        tolerance: As in `predict`, for evaluations.
        outside: As in `predict`, for evaluations.
    """

    grid: Points | Annotated[tuple[Points, ...], Several] | None = None
    inputs: Annotated[tuple[str, ...], Several] | None = None
    parameters: Annotated[dict[str, Number], Field(max_length=64)] = Field(default={})
    version: Points | None = None
    frames: Points | None = None
    tolerance: Annotated[Number, Field(gt=0)] | None = None
    outside: Outside = "answer"

    @property
    def policy(self) -> Policy:
        """What the caller wants where an output may not be accurate enough."""
        return Policy(self.tolerance, self.outside, frames=self.frames)


def field_config(config: Mapping[str, Any]) -> FieldConfig:
    """Return the configuration of a request.

    Raises:
        Problem: invalid-parameter: A key is unknown, or its value is none.
    """
    try:
        return FieldConfig.model_validate(config)
    except ValidationError as error:
        raise refused(error) from error


def refused(error: ValidationError) -> Problem:
    """Return the problem for the first fault of a configuration."""
    first = error.errors(include_input=False)[0]
    return Problem("invalid-parameter", f"config.{'.'.join(str(key)[:64] for key in first['loc'])}: {first['msg']}")


@dataclass(frozen=True)
class Layout:
    """The vectors of a field model for a configuration.

    Attributes:
        card: The card of the model.
        config: The configuration.
    """

    card: Card
    config: FieldConfig

    @cached_property
    def grid(self) -> Shape:
        """Points per axis.

        Raises:
            Problem: invalid-parameter: The configuration has a number for another count of axes.
            Problem: grid-out-of-limits: An axis is shorter or longer than the card allows.
        """
        limits, found = self.card.grid, self.config.grid
        if found is None:
            return default_grid(self.card)
        points = (found,) * len(limits.axes) if isinstance(found, int) else found
        if len(points) != len(limits.axes):
            raise Problem(
                "invalid-parameter", f"config.grid: expected one number, or one for each of {', '.join(limits.axes)}"
            )
        for axis, size in zip(limits.axes, points, strict=True):
            if not limits.minimum <= size <= limits.maximum:
                raise Problem(
                    "grid-out-of-limits",
                    f'config.grid has {size} points along "{axis}"; the model takes {limits.minimum} to '
                    f"{limits.maximum}",
                    array="grid",
                )
        return points

    @cached_property
    def arguments(self) -> tuple[Tensor | Parameter, ...]:
        """The inputs and parameters that are vectors.

        Raises:
            Problem: invalid-parameter: The configuration names an unknown one, or one twice, or leaves one without a
                value.
        """
        known, config = {argument.name: argument for argument in self.card.arguments}, self.config
        fixed = config.parameters
        default = tuple(name for name in known if name not in self.card.optional and name not in fixed)
        names = default if config.inputs is None else config.inputs
        for name in (*names, *fixed):
            if name not in known:
                raise Problem(
                    "invalid-parameter", f'config: "{name[:64]}" is no input of the model; there are {", ".join(known)}'
                )
        if len({*names, *fixed}) != len(names) + len(fixed):
            raise Problem("invalid-parameter", "config: expected every input once, in inputs or in parameters")
        if missing := [name for name in known if name not in {*names, *fixed, *self.card.optional}]:
            raise Problem(
                "invalid-parameter", f"config: expected {missing[0]} in inputs, or a number for it in parameters"
            )
        if not names:
            raise Problem("invalid-parameter", "config: expected at least one input that is a vector")
        return tuple(known[name] for name in names)

    @cached_property
    def input_sizes(self) -> list[int]:
        """The size of each input vector."""
        return [math.prod(self._shape(argument)) for argument in self.arguments]

    @cached_property
    def output_sizes(self) -> list[int]:
        """The size of each output vector."""
        return [math.prod(self._shape(tensor)) for tensor in self.card.outputs]

    def arrays(self, vectors: Sequence[Vector]) -> dict[str, NDArray[Any]]:
        """Return one sample of the model's inputs for the vectors; what has a default may be missing.

        Args:
            vectors: One per argument, of its size.
        """
        known = {argument.name: argument for argument in self.card.arguments}
        sent = dict(zip((argument.name for argument in self.arguments), vectors, strict=True))
        sizes = {name: math.prod(self._shape(known[name])) for name in self.config.parameters}
        numbers = {name: np.full(sizes[name], value) for name, value in self.config.parameters.items()}
        return {name: self.array(known[name], vector) for name, vector in (sent | numbers).items()}

    def array(self, argument: Tensor | Parameter, vector: Vector) -> NDArray[Any]:
        """Return one sample of an input or an output."""
        return vector.reshape(self._shape(argument)) if isinstance(argument, Tensor) else vector.reshape(())

    def _shape(self, argument: Tensor | Parameter) -> Shape:
        """Return the shape of one sample; a parameter is a vector of one number."""
        found = shape(self.card, argument, self.grid, self.config.policy.count(self.card))
        if found is None:
            raise Problem("invalid-parameter", f"the size of {argument.name} is known only once it is computed")
        return found


def default_grid(card: Card) -> Shape:
    """Return the smallest grid that errors are published for, or else the smallest that is accepted."""
    return min(card.grid.shapes, key=math.prod, default=(card.grid.minimum,) * len(card.grid.axes))


def shape(card: Card, argument: Tensor | Parameter, grid: Shape, frames: int | None) -> Shape | None:
    """Return the shape of one sample of an input, a parameter or an output on a grid; None where it does not follow."""
    known: dict[str, int | None] = {**dict(zip(card.grid.axes, grid, strict=True)), FRAME: frames}
    axes = zip(argument.axes[1:], argument.sizes[1:], strict=True)
    sizes = [known.get(axis) if size is None else size for axis, size in axes]
    if not isinstance(argument, Tensor):
        return (1,)
    return None if None in sizes else tuple(size for size in sizes if size is not None)
