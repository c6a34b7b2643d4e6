"""What a problem is: quantities, axes and limits, of the same classes in problem files and built-in problems.

Checkpoints and cards carry a `Description`, so a model needs no file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, model_validator

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=48)]
Default = TypeVar("Default")


def in_files(default: Default) -> Any:
    """Declare what only problem files say: where the data are. A description leaves it out."""
    return Field(default=default, exclude_if=lambda value: value == default)


class Frozen(BaseModel):
    """A part of a description; unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Tensor(Frozen):
    """What all tensors have."""

    name: Name  # on the wire
    meaning: str = ""  # in words, for the card and for error messages
    units: str = "1"  # as people write them
    key: str | None = in_files(None)  # the name in the data files, where it is another


class Quantity(Tensor):
    """A field `[*grid]`, or `[component, *grid]` where `components` names them; on points `[point, component]`."""

    positive: bool = False  # whether every value is above zero, as of a conductivity; in a domain, inside
    components: tuple[Name, ...] = ()  # names of a vector's components
    default: float | None = None  # the value everywhere of an input that a request leaves out; none makes it required
    # Whether the components' axis of the data is the first after the samples' or the last, which it stays on points
    # alone.
    component_axis: Literal["first", "last"] = in_files("first")
    # Which frame of the data `[sample, time, *grid]` this is, negative numbers counting from the end.
    frame: int | None = in_files(None)

    @model_validator(mode="after")
    def check_default(self) -> Quantity:
        """Require a positive default of a positive quantity."""
        if self.positive and self.default is not None and self.default <= 0:
            raise ValueError(f"{self.name}: expected a positive default but got {self.default:g}")
        return self


class Parameter(Tensor):
    """A number per sample. Bounds are checked in data and in requests, which may leave it out if it has a default."""

    default: float | None = None
    minimum: float | None = None
    maximum: float | None = None

    @model_validator(mode="after")
    def check_bounds(self) -> Parameter:
        """Require minimum <= default <= maximum."""
        known = [bound for bound in (self.minimum, self.default, self.maximum) if bound is not None]
        if known != sorted(known):
            raise ValueError(f"{self.name}: expected minimum <= default <= maximum but got {known}")
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

    @property
    def far_ends(self) -> int:
        """How many far ends (0 or 1) a coarser grid has to keep when the axis is strided."""
        return 0 if self.points == "left" else 1


CENTRES = "x_i = (i + 1/2) {length:g}/n"
LOCATIONS = {
    "cells": CENTRES,
    "strided": CENTRES,  # on the mesh itself
    "nodes": "x_i = i {length:g}/(n - 1)",
    "left": "x_i = i {length:g}/n",
}


def locations(axes: Iterable[Axis]) -> str:
    """Say where the n points of every axis of a stored grid lie."""
    return "; ".join(f"{axis.name}: {LOCATIONS[axis.points].format(length=axis.length)}" for axis in axes)


class GridLimits(Frozen):
    """Points per axis: the accepted range, and the sizes that are measured, warmed up and labelled in metrics.

    `unequal` lists declared grids whose axes have different numbers of points.
    """

    minimum: PositiveInt
    maximum: PositiveInt
    declared: tuple[PositiveInt, ...]
    unequal: tuple[tuple[PositiveInt, ...], ...] = ()

    @model_validator(mode="after")
    def check_order(self) -> GridLimits:
        """Require minimum <= declared <= maximum."""
        sizes = (self.minimum, *self.declared, *(side for sides in self.unequal for side in sides))
        if not all(self.minimum <= size <= self.maximum for size in sizes):
            raise ValueError(f"expected minimum <= declared <= maximum but got {self.model_dump()}")
        return self


class Frames(Frozen):
    """The time axis of a problem of trajectories."""

    step: PositiveFloat  # time between two frames
    history: PositiveInt = 1  # frames of every state that a prediction starts from
    states: tuple[Name, ...]  # the inputs that are states, in the order of the outputs that go on from them
    trained: PositiveInt  # frames of a training trajectory that follow its history
    maximum: PositiveInt  # the most frames that one request may ask for


class Description(Frozen):
    """A map from fields and parameters to fields on a grid."""

    name: Name  # name in recipes, checkpoints and cards
    title: str  # one line for lists
    equation: str  # what is solved, in words
    boundary: str  # the boundary condition, in words
    # The input fields, in the order of the operator's arguments.
    inputs: Annotated[tuple[Quantity, ...], Field(min_length=1)]
    parameters: tuple[Parameter, ...] = ()  # numbers per sample
    outputs: Annotated[tuple[Quantity, ...], Field(min_length=1)]  # the output fields
    axes: Annotated[tuple[Axis, ...], Field(min_length=1)]  # the axes of every field, in the order of the arrays' axes
    points: str  # where the grid points lie, in words
    grid: GridLimits  # limits of the grid
    distribution: str  # the distribution of the inputs
    # Points per axis of the outputs where they do not lie on the inputs' grid.
    output_grid: tuple[PositiveInt, ...] | None = None
    symmetries: tuple[str, ...] = ()  # names of the exact symmetries; see `training.problems.symmetries`
    untested: str = ""  # inputs for which the problem's models have not been measured
    frames: Frames | None = None  # the time axis, where the outputs are trajectories
    # The input that is 1 inside the domain and 0 outside, where other fields mean nothing; None for the whole grid.
    mask: Name | None = Field(default=None, exclude_if=lambda mask: mask is None)

    @property
    def scattered(self) -> bool:
        """Whether every sample has its own points."""
        return self.axes[0].points == "scattered"

    @property
    def axis_names(self) -> tuple[str, ...]:
        return tuple(axis.name for axis in self.axes)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All inputs, parameters and outputs."""
        return (*self.inputs, *self.parameters, *self.outputs)

    @model_validator(mode="after")
    def check_names(self) -> Description:
        """Require different names for different tensors and axes."""
        for names in (tuple(tensor.name for tensor in self.tensors), self.axis_names):
            if repeated := sorted(name for name, count in Counter(names).items() if count > 1):
                raise ValueError(f"{self.name}: expected different names but found {', '.join(repeated)} repeatedly")
        return self

    @model_validator(mode="after")
    def check_grids(self) -> Description:
        """Require one number of points per axis."""
        for sides in (*self.grid.unequal, *([] if self.output_grid is None else [self.output_grid])):
            if len(sides) != len(self.axes):
                raise ValueError(f"{self.name}: expected points for the axes {self.axis_names} but got {sides}")
        return self
