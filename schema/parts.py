"""The parts of a problem: fields, numbers, axes, and the symmetries that these can have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    PositiveFloat,
    ValidationError,
    model_validator,
)

from schema.faults import faults

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=48)]
Default = TypeVar("Default")
Document = TypeVar("Document", bound=BaseModel)


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
    """A part of a description or of a recipe; unknown keys are errors, and so are numbers that are not finite."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="wrap")
    @classmethod
    def check_truths(cls, values: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:
        """Refuse true and false for numbers, also in lists, which Pydantic takes for 1 and 0."""
        made = validate(values)
        if isinstance(values, Mapping):
            for name, value in values.items():
                if taken_for_number(value, getattr(made, name, value)):
                    raise ValueError(f"{name}: expected a number (found {str(value).lower()})")
        return made


def taken_for_number(value: Any, made: Any) -> bool:
    """Return whether something that is true or false became a number."""
    if isinstance(value, bool):
        return type(made) in {int, float} or (
            isinstance(made, tuple) and any(type(each) in {int, float} for each in made)
        )
    both = isinstance(value, list | tuple) and isinstance(made, tuple) and len(value) == len(made)
    return both and any(map(taken_for_number, value, made))


def validated(kind: type[Document], document: Any, source: object, error: type[ValueError] = ValueError) -> Document:
    """Return a document of a kind.

    Raises:
        ValueError: A sentence that names where the document is from, and the keys that are wrong, missing or unknown.
    """
    try:
        return kind.model_validate(document)
    except ValidationError as found:
        raise error(f"{source}: {faults(found)}") from found


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
