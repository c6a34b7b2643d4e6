"""What a problem is: quantities, axes, time and limits, of the same classes in problem files and built-in problems.

A `Schema` declares what is mapped to what. A problem file is a schema with where the data are; a `Description` is one
with what is known once there are samples. Checkpoints and cards carry a `Description`, so a model needs no file. It is
the single source of the names on the wire. A `SequenceDescription` is that of a problem of sequences.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    PositiveFloat,
    PositiveInt,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from schema.faults import PartError
from schema.parts import Axis, Frozen, Name, Parameter, Quantity, check_names, check_symmetries

#: By which names files have the times of frames.
TIMES = frozenset({"t", "time", "times", "t_coordinate", "timesteps", "time_steps", "tspan", "sim_time"})
#: The largest part of a step in time by which two steps may differ.
UNEVEN = 1e-2


class SizeLimits(Frozen):
    """Points per axis, or tokens of a sequence: the accepted range, and the sizes that are measured and warmed up.

    Metrics are labelled with the declared sizes.
    """

    minimum: PositiveInt = Field(description="Fewest points per axis.")
    maximum: PositiveInt = Field(description="Most points per axis.")
    declared: tuple[PositiveInt, ...] = Field(description="Points per axis of the grids that errors are published for.")

    @property
    def sizes(self) -> tuple[int, ...]:
        """All declared numbers of points."""
        return self.declared

    @model_validator(mode="after")
    def check_order(self) -> Self:
        """Require minimum <= declared <= maximum."""
        if not all(self.minimum <= size <= self.maximum for size in (self.minimum, *self.sizes)):
            raise ValueError(f"expected minimum <= declared <= maximum but got {self.model_dump()}")
        return self


class GridLimits(SizeLimits):
    """The limits of a grid; `unequal` lists declared grids whose axes have different numbers of points."""

    unequal: tuple[tuple[PositiveInt, ...], ...] = Field(
        default=(), description="Further such grids, with different points per axis."
    )
    ends: tuple[tuple[float, ...], ...] = Field(
        default=(),
        description="Per axis: first and last position in the training data; empty where their files do not say it.",
    )

    @property
    def sizes(self) -> tuple[int, ...]:
        return (*self.declared, *(side for sides in self.unequal for side in sides))


class Grid(GridLimits):
    """The grids that a model accepts: points per axis and their location. The points of a sequence are its tokens."""

    axes: tuple[str, ...] = Field(description="Names of the grid's axes.")
    points: str = Field(description="Where the points lie, in words and a formula.")
    lengths: tuple[float, ...] = Field(default=(), description="Length of each axis in the problem's units.")
    boundaries: tuple[str, ...] = Field(default=(), description="Per axis: wall, periodic or open.")
    guessed: tuple[str, ...] = Field(
        default=(), description="What was guessed of the axes: `row.length`, `row.boundary`, `row.points`."
    )

    @model_validator(mode="after")
    def check_axes(self) -> Self:
        """Require points for every axis."""
        if any(len(shape) != len(self.axes) for shape in self.unequal):
            raise ValueError(f"expected shapes of {len(self.axes)} axes but got {self.unequal}")
        return self

    @cached_property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        return (*((points,) * len(self.axes) for points in self.declared), *self.unequal)

    @property
    def usual(self) -> tuple[int, ...]:
        """The points per axis of a request that does not say them: the first shape of the training, or the smallest."""
        return next(iter(self.shapes), (self.minimum,) * len(self.axes))

    @cached_property
    def most_points(self) -> float:
        """Points of the largest of them; infinite where there is none."""
        return max(map(math.prod, self.shapes), default=math.inf)


class Time(Frozen):
    """The time axis of trajectories."""

    step: PositiveFloat = Field(description="Time between two frames.")
    history: PositiveInt = Field(default=1, description="Frames of every state that a prediction starts from.")


class Frames(Time):
    """The time axis of trajectories, with what is known once there are samples."""

    states: tuple[Name, ...] = Field(
        description="The inputs that are states, in the order of the outputs that go on from them."
    )
    trained: PositiveInt = Field(description="Frames of a training trajectory that follow its history.")
    maximum: PositiveInt = Field(description="The most frames that one request may ask for.")


def tables(kind: type[Frozen]) -> BeforeValidator:
    """Read tables by name, as problem files have them, where a tuple of objects with names is expected."""
    adapter: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[Name, kind])  # type: ignore[valid-type]

    def read(value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        for name, table in value.items():
            if isinstance(table, Mapping) and table.get("name", name) != name:
                raise ValueError(f"{name}.name: the name is that of the table (`key` names data)")
        named = {name: {"name": name, **one} if isinstance(one, Mapping) else one for name, one in value.items()}
        try:
            return tuple(adapter.validate_python(named).values())
        except ValidationError as error:
            raise PartError(error, keyed="key" in kind.model_fields) from error

    return BeforeValidator(read)


Quantities = Annotated[tuple[Quantity, ...], tables(Quantity)]
Parameters = Annotated[tuple[Parameter, ...], tables(Parameter)]
Axes = Annotated[tuple[Axis, ...], tables(Axis)]


class Schema(Frozen):
    """A map from fields and parameters to fields on a grid and numbers: what problem files and descriptions declare.

    Without any input field, the one tensor that a request may send for it is `grid`, whose shape says on which grid
    the outputs are wanted; see `takes_grid`.
    """

    name: Name  # in recipes, checkpoints and cards; of a problem file also the model's on the wire
    title: str  # one line for lists
    equation: str  # what is solved, in words or symbols
    inputs: Quantities = ()  # the input fields, in the order of the operator's arguments
    parameters: Parameters = ()  # numbers per sample
    outputs: Quantities = Field(min_length=1)  # the output fields
    axes: Axes = Field(min_length=1)  # the axes of every field, in the order of the arrays' axes
    symmetries: tuple[str, ...] = ()  # names of the exact symmetries; see `training.data.augment`
    symmetries_location: ClassVar[str] = ""  # where a user wrote them, for error messages

    @property
    def scattered(self) -> bool:
        """Whether every sample has its own points."""
        return self.axes[0].points == "scattered"

    @property
    def axis_names(self) -> tuple[str, ...]:
        return tuple(axis.name for axis in self.axes)

    @property
    def output_names(self) -> tuple[str, ...]:
        return tuple(output.name for output in self.outputs)

    @property
    def argument_names(self) -> tuple[str, ...]:
        """The names of inputs and parameters, in the order of the operator's arguments."""
        return tuple(one.name for one in (*self.inputs, *self.parameters))

    @property
    def tensors(self) -> tuple[Quantity | Parameter, ...]:
        """All inputs, parameters and outputs."""
        return (*self.inputs, *self.parameters, *self.outputs)

    @property
    def takes_grid(self) -> bool:
        """Whether a request says the grid of the outputs, since there is no input on it."""
        return not self.inputs

    @property
    def fields(self) -> tuple[Quantity, ...]:
        """All inputs, and the outputs that are fields."""
        return (*self.inputs, *self.output_fields)

    @property
    def output_fields(self) -> tuple[Quantity, ...]:
        return tuple(one for one in self.outputs if not one.scalar)

    @property
    def scalars(self) -> tuple[Quantity, ...]:
        """The outputs that are a number per sample, or one per component."""
        return tuple(one for one in self.outputs if one.scalar)

    @property
    def states(self) -> dict[str, str]:
        """The outputs of trajectories by the inputs that they start from; of steady fields there are none."""
        return {}

    @property
    def timed(self) -> frozenset[str]:
        """The names of the tensors whose data have a time axis, all frames of which are read."""
        return frozenset()

    @property
    def weights(self) -> str | None:
        """The name in the data file of the weights of points; None where all points count alike."""
        return None

    @property
    def point_axes(self) -> dict[str, int]:
        """Which axis of arrays `[sample, (time), point, (component)]` counts points, by field; none on a grid."""
        return {one.name: 2 if one.name in self.timed else 1 for one in self.fields} if self.scattered else {}

    def __getitem__(self, name: str) -> Quantity | Parameter:
        """Return the input, parameter or output of a name."""
        for tensor in self.tensors:
            if tensor.name == name:
                return tensor
        raise KeyError(name)

    @model_validator(mode="after")
    def check_fields(self) -> Schema:
        """Require a field among inputs and outputs, and something to map from; refuse scalar inputs."""
        if not self.inputs and not self.parameters:
            raise ValueError("inputs: expected at least one input or parameter")
        if not self.fields:
            raise ValueError("expected a field among inputs and outputs: numbers alone need no network on a grid")
        if found := [one.name for one in self.inputs if one.scalar]:
            raise ValueError(f"inputs.{found[0]}.scalar: expected it of outputs; numbers that go in are [parameters]")
        if [*self.outputs] != [*self.output_fields, *self.scalars]:
            raise ValueError(f"outputs.{self.scalars[0].name}: expected scalars after all fields")
        return self

    @model_validator(mode="after")
    def check_names_and_symmetries(self) -> Schema:
        """Require different names, and symmetries that axes and fields have."""
        location = self.name
        try:
            check_names(tensor.name for tensor in self.tensors)
            check_names(self.axis_names)
            location = self.symmetries_location or self.name
            check_symmetries(self.symmetries, self.axes, self.tensors)
        except ValueError as error:
            raise ValueError(f"{location}: {error}") from error
        return self


class Description(Schema):
    """A problem once there are samples, in words and limits that a model's card has."""

    boundary: str  # the boundary condition, in words
    points: str  # where the grid points lie, in words
    grid: GridLimits  # limits of the grid
    distribution: str  # the distribution of the inputs
    # Points per axis of the outputs where they do not lie on the inputs' grid.
    output_grid: tuple[PositiveInt, ...] | None = None
    untested: str = ""  # inputs for which the problem's models have not been measured
    frames: Frames | None = None  # the time axis, where the outputs are trajectories
    # The input that is 1 inside the domain and 0 outside, where other fields mean nothing; None for the whole grid.
    mask: Name | None = Field(default=None, exclude_if=lambda mask: mask is None)

    @property
    def time(self) -> Time | None:
        """The time axis, by its name in problem files."""
        return self.frames

    @model_validator(mode="after")
    def check_sides(self) -> Description:
        """Require one number of points per axis."""
        for sides in (*self.grid.unequal, *([] if self.output_grid is None else [self.output_grid])):
            if len(sides) != len(self.axes):
                raise ValueError(f"{self.name}: expected points for the axes {self.axis_names} but got {sides}")
        return self


PADDING = "<pad>"
#: Padding, then the 256 bytes: byte b of a text in UTF-8 is token b + 1.
BYTES = (PADDING, *(f"<0x{byte:02X}>" for byte in range(256)))


class SequenceDescription(Frozen):
    """A map from sequences of tokens to a label each, or to one for every token.

    Tokens are INT32 `[batch, length]`, padded by 0 at the end, and the output holds FP32 logits `[batch, label]` or
    `[batch, length, label]`. Pattern and vocabulary alone decide how a text becomes tokens, so any client can do what
    `encode` does.
    """

    name: str  # name in recipes and checkpoints
    title: str  # one line for lists
    task: str  # what the network does, in words
    # Names of the input tensors: `("tokens",)`, or `("first", "second")` for a pair.
    inputs: tuple[str, ...] = ("tokens",)
    output: str = "logits"  # name of the output tensor
    vocabulary: tuple[str, ...]  # text of each token; token 0 is padding
    # Regular expression whose matches are the tokens of a text, with white space between them; None where the tokens
    # are the text's bytes in UTF-8 and the vocabulary is `BYTES`.
    pattern: str | None
    labels: tuple[str, ...]  # name of each class
    # `sequence` for logits `[batch, label]`, `token` for logits `[batch, length, label]`.
    answer: Literal["sequence", "token"] = "sequence"
    length: SizeLimits  # limits of a sequence, of each of a pair
    distribution: str  # what the network was trained on

    @model_validator(mode="after")
    def expect_distinct_names(self) -> SequenceDescription:
        """Require padding as token 0, and one name for every token and every class."""
        if self.vocabulary[:1] != (PADDING,):
            raise ValueError(f"expected {PADDING!r} as token 0 but got {self.vocabulary[:1]}")
        if len({*self.vocabulary}) < len(self.vocabulary) or len({*self.labels}) < len(self.labels):
            raise ValueError("expected the vocabulary and the labels to be different from one another")
        if self.pattern is None and self.vocabulary != BYTES:
            raise ValueError("expected the vocabulary of bytes where there is no pattern")
        return self

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text.

        Raises:
            ValueError: A part of the text is no token; the message names it and its position.
        """
        if self.pattern is None:
            return [byte + 1 for byte in text.encode()]
        numbers = {entry: number for number, entry in enumerate(self.vocabulary)}
        tokens, end = [], 0
        for match in re.finditer(self.pattern, text):
            self.expect_space(text, end, match.start())
            if match[0] not in numbers:
                raise ValueError(
                    f"expected a token of the vocabulary at character {match.start()} but got {match[0]!r}"
                )
            tokens.append(numbers[match[0]])
            end = match.end()
        self.expect_space(text, end, len(text))
        return tokens

    def expect_space(self, text: str, start: int, end: int) -> None:
        """Require white space alone between two tokens, from the end of one to the start of the other."""
        if rest := text[start:end].strip():
            position = text.index(rest, start)
            raise ValueError(
                f"expected tokens such as {self.vocabulary[1]!r} at character {position} but got {rest[:20]!r}"
            )
