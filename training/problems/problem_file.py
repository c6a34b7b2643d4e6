"""The problem file: a TOML document that says what a user's simulations are and where they lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, PositiveFloat, ValidationError, field_serializer, field_validator, model_validator

from physics import registry as classical
from schema.card import FRAME, GRID, QUALITY
from schema.faults import PartError, faults
from schema.parts import Parameter, Quantity, locations
from schema.problem import Axes, Description, Frames, GridLimits, Schema
from training.files import read_toml
from training.problems.integrals import integral_of
from training.problems.problem import PROBLEMS
from training.problems.sections import (
    INSIDE,
    DataSection,
    MaskSection,
    PointsSection,
    ProblemFileError,
    SymmetrySection,
    TimeSection,
    extent,
    guessed_of_axes,
    refusal,
    unconfirmed,
    with_mask,
    with_points,
)

AXES = 3  # the most axes of a grid
WEIGHTS = "weights"  # the array of samples that says how much every point counts in the loss and in errors
MOST_POINTS = 1_000_000  # of a sample that a model accepts, or four times those of its data where that is more
FEWEST_POINTS = 4  # the least number of points of a sample
#: The ends of the names of graphs that are exported beside a model: its derivatives and refinement, and a format.
COMPANIONS = ("_vjp", "_jvp", "_refined", "_torchscript")
RESERVED = frozenset({*QUALITY, "failed", "outside", "quality", "solved_by"})  # what responses say about errors
FINEST = {1: 8192, 2: 1024, 3: 128}  # the most points per axis that a model accepts, by the number of axes
LONGEST = 1000  # the most frames of one rollout, or ten times those of a training trajectory where that is more
ENDS = {"wall": "walls", "periodic": "periodic", "open": "open ends"}


class ProblemFile(Schema):
    """A problem and where its data are. Inputs, parameters, outputs and axes are tables by name, here and in recipes.

    With `points` its one axis, first input and first parameter follow from that section; with `mask` the last input.
    Outputs that are scalars follow the fields.
    """

    symmetries_location = "symmetries.exact"
    title: str = ""
    equation: str = ""
    # What one sample costs with the solver that made the data; for the report.
    solver_seconds: PositiveFloat | None = None
    data: DataSection
    axes: Axes = Field(min_length=1, max_length=AXES)
    time: TimeSection | None = None
    points: PointsSection | None = None
    mask: MaskSection | None = None
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 1127802

    @model_validator(mode="before")
    @classmethod
    def add_tensors(cls, values: Any) -> Any:
        """Make the input of `[mask]`, the last one, and the axis, first input and first parameter of `[points]`.

        What a recipe holds has them already, and stays as it is.
        """
        for section, added in (("mask", with_mask), ("points", with_points)):
            if isinstance(values, Mapping) and values.get(section) is not None:
                values = added(values)
        return values

    @field_validator("outputs", mode="after")
    @classmethod
    def fields_first(cls, outputs: tuple[Quantity, ...]) -> tuple[Quantity, ...]:
        """Return the outputs with scalars behind the fields, those that are integrals of outputs last."""
        return tuple(sorted(outputs, key=lambda one: (one.scalar, one.integral_of is not None)))

    @field_validator("symmetries", mode="before")
    @classmethod
    def read_symmetries(cls, value: Any) -> Any:
        """Read the section `symmetries`."""
        try:
            return SymmetrySection.model_validate(value).exact if isinstance(value, Mapping) else value
        except ValidationError as error:
            raise PartError(error) from error

    @field_serializer("symmetries")
    def symmetry_section(self, symmetries: tuple[str, ...]) -> SymmetrySection:
        """Write symmetries as they are read."""
        return SymmetrySection(exact=symmetries)

    @field_serializer("inputs", "parameters", "outputs", "axes")
    def as_tables(self, items: tuple[Any, ...]) -> dict[str, Any]:
        """Write tables as they are read."""
        return {one.name: one for one in items}

    @model_validator(mode="after")
    def check_axes(self) -> ProblemFile:
        """Refuse points that the boundary rules out."""
        for axis in self.axes:
            name = axis.name
            if axis.points == "strided" or (axis.points == "scattered" and self.points is None):
                raise ValueError(f"axes.{name}.points: Input should be 'cells', 'nodes' or 'left'")
            if axis.boundary == "periodic" and axis.points == "nodes":
                raise ValueError(
                    f'axes.{name}: points "nodes" of a periodic axis hold its first point twice: use "cells" or "left"'
                )
            if axis.boundary != "periodic" and axis.points == "left":
                raise ValueError(f'axes.{name}: points "left" are for a periodic axis')
        return self

    @model_validator(mode="after")
    def check_taken_names(self) -> ProblemFile:
        """Refuse the names of graphs beside a model, of the weights and of what responses say of errors."""
        if ends := [end for end in COMPANIONS if self.name.endswith(end)]:
            raise ValueError(f"name: expected none that ends in {ends[0]}, as that of a graph beside a model does")
        names = [tensor.name for tensor in self.tensors]
        if WEIGHTS in names and self.weights is not None:
            raise ValueError(f"{WEIGHTS}: the name is that of the weights of [points] (`key` names data)")
        for name, said, used in ((GRID, "says the grid", self.takes_grid), (FRAME, "counts frames", self.time)):
            if used and name in names:
                raise ValueError(f"expected another name than {name!r}, by which a request {said} (`key` names data)")
        if taken := [name for name in names if name in RESERVED]:
            raise ValueError(f"expected other names than {taken}, which responses use for errors (`key` names data)")
        return self

    @model_validator(mode="after")
    def check_supported(self) -> ProblemFile:
        """Refuse linear outputs, linear inputs where networks have no layers for them, and coarse meshes or frames.

        And what would say nothing: defaults of outputs, and where time is in arrays without frames.
        """
        if any(one.integral_of is None for one in self.scalars) and any(one.linear for one in self.inputs):
            raise ValueError(f"outputs.{self.scalars[0].name}: expected no scalars beside linear inputs")
        if found := [one.name for one in self.outputs if one.linear]:
            raise ValueError(f"outputs.{found[0]}.linear: expected it of inputs only")
        found = [one.name for one in self.inputs if one.linear]
        if found and (self.time or self.points or self.mask or len(self.axes) > 2):
            expected = "expected fields on a line or a plane, without [time], [points] and [mask]"
            raise ValueError(f"inputs.{found[0]}.linear: {expected}")
        if found := [one.name for one in self.outputs if one.default is not None]:
            raise ValueError(f"outputs.{found[0]}.default: expected it of inputs and parameters only")
        if self.data.time == "last" and not any(map(self.has_frames, self.tensors)):
            raise ValueError("data.time: expected it with [time], or with a frame of an input or an output")
        if self.data.coarse is not None and (self.time is not None or self.points is not None):
            raise ValueError("data.coarse: expected none with [time] or [points]")
        return self

    @model_validator(mode="after")
    def check_time(self) -> ProblemFile:
        """Require that every output of trajectories is the state that one input begins with."""
        if self.time is None:
            return self
        if self.scalars:
            raise ValueError(f"outputs.{self.scalars[0].name}: expected no scalars with [time]")
        keys = [(one.files, one.array) for one in self.inputs]
        for output in self.outputs:
            if keys.count((output.files, output.array)) != 1:
                expected = f"expected one input with the key {output.array!r}, the state it starts from"
                raise ValueError(f"outputs.{output.name}: {expected}")
            if output.positive:
                raise ValueError(f"outputs.{output.name}: a positive state of a trajectory is not supported")
            start = self.inputs[keys.index((output.files, output.array))]
            if {start.frame, output.frame} != {None}:
                raise ValueError(f"inputs.{start.name}: expected no frame: with [time] all frames are read")
            if start.components != output.components:
                raise ValueError(f"inputs.{start.name}: expected the components of outputs.{output.name}")
            if start.offset != output.offset:
                raise ValueError(f"inputs.{start.name}: expected the offset of outputs.{output.name}")
        return self

    @model_validator(mode="after")
    def check_scalars(self) -> ProblemFile:
        """Refuse scalars that are said to be what only fields are."""
        for one in self.scalars:
            said = {"frame": one.frame is not None, "static": one.static, "complex": one.complex is not None}
            for key in (key for key, wrong in said.items() if wrong):
                raise ValueError(f"outputs.{one.name}.{key}: expected it of fields, not of a scalar")
        return self

    @model_validator(mode="after")
    def check_integrals(self) -> ProblemFile:
        """Refuse integrals of what is no output or over what is no part of the domain."""
        for part in ("inputs", "outputs"):
            for one in getattr(self, part):
                if one.integral_of is None and (one.over != ("domain",) or one.factor != 1):
                    raise ValueError(f"{part}.{one.name}: expected over and factor with integral_of only")
        for one in self.integrals:
            integral_of(self, one)
        return self

    @model_validator(mode="after")
    def check_per_frame(self) -> ProblemFile:
        """Require inputs and parameters of trajectories, which are no states, where values change in time."""
        for part in ("inputs", "parameters", "outputs"):
            for one in getattr(self, part):
                label = f"{part}.{one.name}.per_frame"
                if one.per_frame is None:
                    continue
                if self.time is None:
                    raise ValueError(f"{label}: expected it with [time] only")
                if part == "outputs" or one.name in self.states:
                    raise ValueError(f"{label}: expected it of inputs that are known in advance, and this is a state")
                taken = [key for key in ("static", "frame", "column") if getattr(one, key, None) not in {None, False}]
                taken += ["components"] if part == "parameters" and one.components else []
                if taken:
                    raise ValueError(f"{label}: expected none with {taken[0]}")
        return self

    @model_validator(mode="after")
    def check_conserved(self) -> ProblemFile:
        """Refuse a conserved mean of what is no output, or on a grid with ends."""
        conserved = self.time.conserved if self.time is not None else ()
        if unknown := [name for name in conserved if name not in self.output_names]:
            raise ValueError(f"time.conserved: expected outputs but got {', '.join(unknown)}")
        if conserved and any(axis.boundary != "periodic" for axis in self.axes):
            raise ValueError("time.conserved: expected periodic axes only")
        if conserved and self.mask is not None:
            raise ValueError(
                "time.conserved: expected none with [mask]: the mean over the grid is not that of the domain"
            )
        return self

    @property
    def states(self) -> dict[str, str]:
        """The outputs of trajectories by the inputs that they start from, which have the same key."""
        if self.time is None:
            return {}
        outputs = {(one.files, one.array): one.name for one in self.outputs}
        keys = {one.name: (one.files, one.array) for one in self.inputs}
        return {name: outputs[key] for name, key in keys.items() if key in outputs}

    @property
    def timed(self) -> frozenset[str]:
        """The names of the tensors whose data have a time axis, all frames of which are read."""
        if self.time is None:
            return frozenset()
        return frozenset({*self.output_names, *(one.name for one in self.tensors if one.per_frame)})

    def has_frames(self, one: Quantity | Parameter) -> bool:
        """Return whether an array of the data has a time axis."""
        return (isinstance(one, Quantity) and one.frame is not None) or one.name in self.timed

    @property
    def stored(self) -> dict[str, Quantity | Parameter]:
        """What samples have: inputs, parameters and outputs, of a state only the output; and weights of points."""
        states = self.states
        found = {one.name: one for one in self.tensors if one.name not in states}
        return found | ({} if self.weights is None else {WEIGHTS: Quantity(name=WEIGHTS, key=self.weights)})

    @property
    def integrals(self) -> tuple[Quantity, ...]:
        """The outputs that are integrals of others."""
        return tuple(one for one in self.outputs if one.integral_of is not None)

    @property
    def in_files(self) -> dict[str, Quantity | Parameter]:
        """What data files hold: all that samples have but integrals, which are computed from the data of fields."""
        computed = {one.name for one in self.integrals if one.key is None and not one.files}
        return {name: one for name, one in self.stored.items() if name not in computed}

    @property
    def weights(self) -> str | None:
        """The name in the data file of the weights of points; None where all points count alike."""
        return self.points.weights if self.points is not None else None

    @property
    def point_axes(self) -> dict[str, int]:
        return super().point_axes | ({} if self.weights is None else {WEIGHTS: 1})

    @property
    def of_coarse(self) -> ProblemFile | None:
        """The same problem with the coarse samples as its data; None where there are none."""
        if self.data.coarse is None:
            return None
        own = {"files": self.data.coarse.files, "format": self.data.coarse.format, "finetune": None, "coarse": None}
        tables: dict[str, Any] = {
            part: tuple(one.model_copy(update={"files": ()}) for one in getattr(self, part))
            for part in ("inputs", "parameters", "outputs")
        }
        data = self.data.model_copy(update={**own, "validation": 0, "test": 0})
        return self.model_copy(update={"data": data, **tables})

    def without_data(self, field: Quantity) -> Quantity:
        """Return a field without what its file says of the data."""
        order = "last" if self.scattered and field.components and not field.scalar else "first"
        in_file = {"key": None, "offset": 0.0, "files": (), "frame": None, "static": False, "complex": None}
        in_file |= {"linear": False}
        return field.model_copy(update={"meaning": field.in_words, "component_axis": order, **in_file})

    def describe(
        self,
        sides: tuple[int, ...],
        samples: int,
        frames: int | None = None,
        box: Sequence[Sequence[float]] = (),
        ends: tuple[tuple[float, ...], ...] = (),
    ) -> Description:
        """Describe the problem for checkpoint and card by what its training samples have.

        `box` is their lowest and highest coordinate along every dimension, where they have points, and `ends` the first
        and the last position along every axis of a grid, where their files say it.
        """
        time = None
        if self.time is not None and frames is not None:
            following, starts = frames - self.time.history, {state: name for name, state in self.states.items()}
            time = Frames(
                step=self.time.step,
                history=self.time.history,
                states=tuple(starts[name] for name in self.output_names),
                trained=following,
                maximum=max(LONGEST, 10 * following),
            )
        if self.scattered:
            boundary, points = "as in the data", extent(box)
            grid = GridLimits(minimum=FEWEST_POINTS, maximum=max(MOST_POINTS, 4 * sides[0]), declared=sides)
        else:
            boundary = "; ".join(f"{axis.name}: {ENDS[axis.boundary]}{axis.mark('boundary')}" for axis in self.axes)
            points, equal = locations(self.axes), len(set(sides)) == 1
            grid = GridLimits(
                minimum=max(4, min(sides) // 4),
                maximum=min(max(*sides, FINEST[len(sides)]), 4 * max(sides)),
                declared=sides[:1] if equal else (),
                unequal=() if equal else (sides,),
                ends=ends,
            )
        in_file: dict[str, Any] = {"key": None, "offset": 0.0, "files": (), "column": None}
        return Description(
            name=self.name,
            title=self.title or self.name,
            equation=self.equation,
            inputs=tuple(map(self.without_data, self.inputs)),
            parameters=tuple(one.model_copy(update={"meaning": one.in_words, **in_file}) for one in self.parameters),
            outputs=tuple(map(self.without_data, self.outputs)),
            axes=self.axes,
            symmetries=self.symmetries,
            boundary=boundary,
            points=points,
            grid=grid,
            distribution=f"the {samples} training samples of the problem file {self.name!r}",
            untested="inputs unlike the training samples, and other grids than theirs",
            frames=time,
            mask=INSIDE if self.mask is not None else None,
        )


def in_each(one: Quantity | Parameter) -> bool:
    """Return whether every data file has samples of a tensor."""
    return not one.files and not (isinstance(one, Quantity) and one.static)


def is_taken(name: str) -> bool:
    """Return whether a built-in problem has a name: its solver would be taken for that of the user's equation.

    No problem of the training is imported for it, since some need torch.
    """
    return classical.has(name) or PROBLEMS.listed(name)


def find_problem_file(name: str) -> ProblemFile | None:
    """Read the problem file that a command's argument names; None for a recipe, which may be a TOML file, too.

    Raises:
        UserError: As `read_problem_file`; also where it names a TOML file that is not there.
    """
    path = Path(name)
    known = path.suffix == ".toml" and "outputs" in read_toml(path)
    return read_problem_file(path) if known else None


def read_problem_file(path: Path) -> ProblemFile:
    """Read and check a problem file.

    Raises:
        UserError: It is missing, no TOML, has an unknown key or a wrong value, or a built-in problem's name; or a guess
            of outputs, of the sample axis or of time that is not confirmed.
    """
    document, text = read_toml(path), path.read_text(encoding="utf-8")
    if marked := unconfirmed(text):
        raise ProblemFileError(refusal(path, document, marked))
    for axis, entries in guessed_of_axes(text).items():
        if isinstance(table := document.get("axes", {}).get(axis), dict):
            table.setdefault("guessed", entries)
    try:
        found = ProblemFile.model_validate(document)
    except ValidationError as error:
        raise ProblemFileError(f"{path}: {faults(error)}") from error
    if is_taken(found.name):
        expected = f"expected a name of your own, such as own_{found.name}"
        raise ProblemFileError(f"{path}: name: {expected}, but {found.name} is a built-in problem")
    return found
