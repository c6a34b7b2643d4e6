"""What a problem is: quantities, axes, time and limits, of the same classes in problem files and built-in problems.

A `Schema` declares what is mapped to what. A problem file is a schema with where the data are; a `Description` is one
with what is known once there are samples. Checkpoints and cards carry a `Description`, so a model needs no file. It is
the single source of the names on the wire. A `SequenceDescription` is that of a problem of sequences.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PositiveFloat,
    PositiveInt,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from schema.faults import PartError

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=48)]
Default = TypeVar("Default")


def in_files(default: Default) -> Any:
    """Declare what only problem files say: where the data are. A description leaves it out."""
    return Field(default=default, exclude_if=lambda value: value == default)


def frame_seen(value: Any) -> Any:
    """Read the key `per_frame`, of which true is the frame that a step starts from."""
    return ("start" if value else None) if isinstance(value, bool) else value


def one_or_several(value: Any) -> Any:
    """Read one name as a list of it."""
    return (value,) if isinstance(value, str) else value


PerFrame = Annotated[Literal["start", "end"] | None, BeforeValidator(frame_seen)]


class Frozen(BaseModel):
    """A part of a description; unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Named(Frozen):
    """What is said of every tensor, in a problem and on the wire."""

    name: str = Field(description="Its name on the wire.")
    meaning: str = Field(default="", description="In words, for cards and error messages.", examples=["permeability"])
    units: str = Field(default="1", description='As people write them; "1" of a number without any.')
    per_frame: PerFrame = Field(
        default=None,
        description="Of an input with the axis `frame`, which is known in advance: value i is that of the frame which "
        "step i starts from (`start`), or which it leads to (`end`). Null where it does not change in time.",
        exclude_if=lambda frame: frame is None,
    )


class FieldFacts(Named):
    """What is said of a field."""

    positive: bool = Field(
        default=False, description="Whether every value is above zero, as of a conductivity; in a domain, inside."
    )
    components: tuple[Name, ...] = Field(default=(), description="Names of the components of a vector field.")
    scalar: bool = Field(
        default=False,
        description="Whether it is a number per sample, or one per component, and no field. Outputs alone are.",
        exclude_if=lambda scalar: not scalar,
    )
    default: float | None = Field(
        default=None, description="The value everywhere of an input that a request leaves out; null: it must be sent."
    )

    @model_validator(mode="after")
    def check_default(self) -> Self:
        """Require a positive default of a positive quantity."""
        if self.positive and self.default is not None and self.default <= 0:
            raise ValueError(f"{self.name}: expected a positive default but got {self.default:g}")
        return self


class NumberFacts(Named):
    """What is said of a number per sample, or of one per component."""

    components: tuple[Name, ...] = Field(
        default=(), description="Names of the components, if there are several.", exclude_if=lambda names: not names
    )
    default: float | None = Field(
        default=None, description="Its value where a request leaves it out; null: it must be sent."
    )
    minimum: float | None = Field(default=None, description="The least value; null for no bound.")
    maximum: float | None = Field(default=None, description="The greatest value; null for no bound.")

    @model_validator(mode="after")
    def check_bounds(self) -> Self:
        """Require minimum <= default <= maximum."""
        known = [bound for bound in (self.minimum, self.default, self.maximum) if bound is not None]
        if known != sorted(known):
            raise ValueError(f"{self.name}: expected minimum <= default <= maximum but got {known}")
        return self


class Tensor(Named):
    """Where the data of a tensor are. A description leaves it out."""

    name: Name  # on the wire
    key: str | None = in_files(None)  # the name in the data files, where it is another
    # What is subtracted from the data before they are cast to float32: on the wire are the differences from it.
    offset: float = in_files(0.0)
    files: tuple[str, ...] = in_files(())  # the data files of this tensor alone, as those of the section `data`

    @property
    def array(self) -> str:
        """The name in the data files."""
        return self.key or self.name

    @property
    def in_words(self) -> str:
        """The meaning, or the name in words, with the offset that is not on the wire."""
        meaning = self.meaning or self.name.replace("_", " ")
        units = "" if self.units == "1" else f" {self.units}"
        return f"{meaning}, minus {self.offset:.10g}{units}" if self.offset else meaning


class Quantity(FieldFacts, Tensor):
    """A field `[*grid]`, or `[component, *grid]` where `components` names them; on points `[point, component]`.

    A `scalar` is a number per sample instead, or one per component.
    """

    # Whether the components' axis of the data is the first after the samples' or the last, which it stays on points
    # alone.
    component_axis: Literal["first", "last"] = in_files("first")
    # Complex numbers of the data are read as two components, their real and imaginary parts.
    complex: Literal["components"] | None = in_files(None)
    # Whether the outputs are linear in this input, and in all such inputs together, up to what they are without them.
    linear: bool = in_files(default=False)
    # Which frame of the data `[sample, time, *grid]` this is, negative numbers counting from the end.
    frame: int | None = in_files(None)
    static: bool = in_files(default=False)  # whether the data have one array `[*grid]` for all samples
    # The output whose integral this number is, `NAME.COMPONENT` for one of its components, times `factor`: over the
    # domain, the ends of axes, or with the product of some inputs, which say what every point measures or where a
    # region is.
    integral_of: str | None = in_files(None)
    over: Annotated[tuple[str, ...], BeforeValidator(one_or_several)] = in_files(("domain",))
    factor: float = in_files(1.0)

    @property
    def integral(self) -> str:
        """What it is the integral of, in words; empty where it is none."""
        if self.integral_of is None:
            return ""
        times = "" if self.factor == 1 else f", times {self.factor:g}"
        return f"integral of {self.integral_of} over {' and '.join(self.over)}{times}"

    @property
    def in_words(self) -> str:
        if self.meaning or not self.integral:
            return super().in_words
        return f"{super().in_words}, the {self.integral}"

    @model_validator(mode="before")
    @classmethod
    def integral_is_scalar(cls, values: Any) -> Any:
        """Take what is an integral for a number per sample."""
        return {**values, "scalar": True} if isinstance(values, Mapping) and values.get("integral_of") else values

    @model_validator(mode="before")
    @classmethod
    def name_parts(cls, values: Any) -> Any:
        """Name the components of complex data."""
        if isinstance(values, Mapping) and values.get("complex") and not values.get("components"):
            return {**values, "components": ("real", "imaginary")}
        return values


class Parameter(NumberFacts, Tensor):
    """A number per sample, or one per component.

    Bounds are checked in data and in requests, which may leave it out if it has a default.
    """

    column: int | None = in_files(None)  # which number of an array `[sample, number]` of the data

    @model_validator(mode="after")
    def check_column(self) -> Self:
        """Require one number or all of an array."""
        if self.components and self.column is not None:
            raise ValueError(f"{self.name}: expected a column or components, but found both")
        return self


class Axis(Frozen):
    """An axis of the grid."""

    name: Name
    length: PositiveFloat = 1.0  # from wall to wall, or one period, in the problem's units
    boundary: Literal["wall", "periodic", "open"] = "open"  # what lies at its ends; `open` assumes nothing
    # Where its points lie: `cells` at the centres of equal cells, `nodes` with both ends, `left` with the first end and
    # not the last, `strided` at every k-th cell centre of a finer mesh, the outermost two included; `scattered` where
    # every sample has its own points, with coordinates: the one axis of meshes and clouds.
    points: Literal["cells", "nodes", "left", "strided", "scattered"] = "cells"
    # Which of these were guessed, as comments `# guess:` of a problem file say. What is shown depends on it alone.
    guessed: tuple[Literal["length", "boundary", "points"], ...] = in_files(())

    def mark(self, *entries: str) -> str:
        """Return what is said behind what some entries give, where they were guessed."""
        return " (guessed)" if {*entries} & {*self.guessed} else ""

    @property
    def far_ends(self) -> int:
        """How many far ends (0 or 1) a coarser grid has to keep when the axis is strided."""
        return 0 if self.points == "left" else 1

    def spacing(self, points: int) -> float:
        """Return the distance between neighbours; of strided points up to the half cells beyond the outermost ones."""
        return self.length / (max(1, points - 1) if self.points in {"nodes", "strided"} else points)


CENTRES = "x_i = (i + 1/2) {length:g}/n"
LOCATIONS = {
    "cells": CENTRES,
    "strided": CENTRES,  # on the mesh itself
    "nodes": "x_i = i {length:g}/(n - 1)",
    "left": "x_i = i {length:g}/n",
}


def locations(axes: Iterable[Axis]) -> str:
    """Say where the n points of every axis of a stored grid lie."""
    return "; ".join(
        f"{axis.name}: {LOCATIONS[axis.points].format(length=axis.length)}{axis.mark('length', 'points')}"
        for axis in axes
    )


def check_names(names: Iterable[str]) -> None:
    """Require different names."""
    if repeated := sorted(name for name, count in Counter(names).items() if count > 1):
        raise ValueError(f"expected different names but found {', '.join(map(repr, repeated))} repeatedly")


def check_symmetries(
    symmetries: Collection[str], axes: Iterable[Axis], tensors: Iterable[Quantity | Parameter]
) -> None:
    """Require symmetries that the axes, the fields and the numbers have, each once; see `training.data.augment`."""
    if not symmetries:
        return
    axes, tensors = [*axes], [*tensors]
    found = [one for one in tensors if isinstance(one, Quantity)]
    if len({*symmetries}) < len(symmetries):
        raise ValueError(f"expected every symmetry once but got {', '.join(symmetries)}")
    if any(axis.points == "scattered" for axis in axes):
        raise ValueError(f"expected none on points but got {', '.join(symmetries)}")
    known = possible_symmetries(axes)
    if unknown := [name for name in symmetries if name not in known]:
        raise ValueError(f"expected some of {', '.join(known)} but got {', '.join(unknown)}")
    if vectors := [one.name for one in found if one.components and not one.scalar]:
        raise ValueError(f"expected none with vector fields ({', '.join(vectors)})")
    # Fields alone are moved: a force or a wind would have to turn with them.
    turns = [name for name in symmetries if name == "transpose" or name.startswith(("flip_", "reflect_"))]
    if turns and (vectors := [one.name for one in tensors if one.components]):
        raise ValueError(f"{', '.join(turns)}: expected none with numbers that have components ({', '.join(vectors)})")
    signs = [name for name in symmetries if name == "negate" or name.startswith("reflect_")]
    if signs and (scalars := [one.name for one in found if one.scalar]):
        raise ValueError(f"{', '.join(signs)}: expected none with numbers per sample ({', '.join(scalars)})")
    if signs and (positive := [one.name for one in found if one.positive]):
        raise ValueError(f"{', '.join(signs)} does not hold for positive fields ({', '.join(positive)})")


def possible_symmetries(axes: Collection[Axis]) -> list[str]:
    """List the symmetries that a grid can have."""
    found = [f"{kind}_{axis.name}" for kind in ("flip", "reflect") for axis in axes]
    found += [f"shift_{axis.name}" for axis in axes if axis.boundary == "periodic"]
    if len(axes) > 1 and len({(axis.length, axis.boundary, axis.points) for axis in axes}) == 1:
        found.append("transpose")
    return [*found, "negate"]


def candidate_symmetries(
    axes: Collection[Axis],
    sides: Sequence[int],
    fields: Collection[Quantity],
    exact: Sequence[str] = (),
    *,
    directed: bool = False,
) -> tuple[str, ...]:
    """Return the symmetries beside the exact ones that the axes, their points and the fields do not rule out.

    `reflect_AXIS` is none of them: it is for equations that `negate` is not for, such as that of Burgers. `directed`: a
    parameter has both signs or components. It may be a velocity, which a flip or a transposition would have to change.
    """
    if any(field.components or field.scalar for field in fields) or any(axis.points == "scattered" for axis in axes):
        return ()
    out = {*exact}
    out |= {"transpose"} if len({*sides}) > 1 else set()
    out |= {"negate"} if any(field.positive for field in fields) else set()
    turns = ("reflect_", "flip_", "transpose") if directed else ("reflect_",)
    return tuple(name for name in possible_symmetries(axes) if name not in out and not name.startswith(turns))


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

    @property
    def sizes(self) -> tuple[int, ...]:
        return (*self.declared, *(side for sides in self.unequal for side in sides))


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
