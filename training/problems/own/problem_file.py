"""The problem file: a TOML document that says what a user's simulations are and where they lie."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    field_validator,
    model_validator,
)

from physics import registry as classical
from training.files import read_toml
from training.problems.registry import PROBLEMS
from training.user_error import UserError

NAME = r"^[a-z][a-z0-9_]*$"
Name = Annotated[str, Field(pattern=NAME, max_length=48)]
Format = Literal["auto", "npy", "npz", "hdf5", "mat", "pt", "zarr", "netcdf", "pdebench", "well"]
Boundary = Literal["wall", "periodic", "open"]
Points = Literal["cells", "nodes", "left"]
AXES = 3
"""The most axes of a grid."""
QUALITY = frozenset(
    {"correction", "error_bound", "error_estimate", "misfit", "novelty", "outside", "quality", "solved_by"}
)
"""What responses say about errors, by these names."""


class ProblemFileError(UserError):
    """A problem file cannot be used: the message names the file, the key, what was expected and what was found."""


def checked_share(value: float | int) -> float | int:  # noqa: PYI041 -- annotations are checked at run time
    """Return a share between 0 and 1, or a whole number of samples.

    Raises:
        ValueError: It is neither.
    """
    if 0 < value < 1:
        return value
    if value >= 1 and value == value // 1:
        return int(value)
    raise ValueError("expected a share between 0 and 1 or a whole number of samples")


Share = Annotated[float | int, AfterValidator(checked_share)]


def is_taken(name: str) -> bool:
    """Return whether a built-in problem has a name: its solver would be taken for that of the user's equation."""
    return name in PROBLEMS or name in classical.problems()


class Section(BaseModel):
    """A table of the problem file; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class DataSection(Section):
    """Where the simulations are, and which of them are kept apart.

    Attributes:
        files: Relative to the problem file; patterns such as `run-*.h5` are allowed; several files are concatenated.
        format: The files' layout; `auto` decides by suffix and contents.
        validation: Share or number of samples for every decision, taken from the end, before the test samples.
        test: Share or number of samples that are used once, for the card, taken from the end.
    """

    files: tuple[str, ...] = Field(min_length=1)
    format: Format = "auto"
    validation: Share = 0.1
    test: Share = 0.1

    def counts(self, samples: int) -> tuple[int, int, int]:
        """Return the numbers of training, validation and test samples.

        Raises:
            ProblemFileError: A split would be empty.
        """
        validation, test = (count(share, samples) for share in (self.validation, self.test))
        train = samples - validation - test
        if min(train, validation, test) < 1:
            raise ProblemFileError(
                f"data: expected at least one sample for training, validation and test but {samples} samples give "
                f"{train}, {validation} and {test}"
            )
        return train, validation, test


class QuantitySection(Section):
    """One tensor on the wire: its name in the file, its units and its meaning.

    Attributes:
        key: Name in the data file; by default the name of the table.
        units: As people write them.
        meaning: In words, for the card and for error messages.
    """

    key: str | None = None
    units: str = "1"
    meaning: str = ""


class FieldSection(QuantitySection):
    """A field `[sample, *grid]`, or `[sample, component, *grid]` where `components` names them.

    Attributes:
        positive: Whether every value is above zero, as of a conductivity.
        components: Names of a vector's components.
        component_axis: Whether the components' axis is the first after the samples' or the last.
        frame: Which frame of a trajectory `[sample, time, *grid]` this is, negative numbers counting from the end.
        default: The value everywhere of an input that a request leaves out; none makes it required.
    """

    positive: bool = False
    components: tuple[Name, ...] = ()
    component_axis: Literal["first", "last"] = "first"
    frame: int | None = None
    default: float | None = None


class ParameterSection(QuantitySection):
    """One number per sample.

    Attributes:
        default: The value where a request leaves the parameter out; none makes it required.
        minimum: The least value, checked in the data and in requests; none for no bound.
        maximum: The greatest value, likewise.
    """

    default: float | None = None
    minimum: float | None = None
    maximum: float | None = None

    @model_validator(mode="after")
    def check_bounds(self) -> ParameterSection:
        """Require minimum <= default <= maximum."""
        known = [bound for bound in (self.minimum, self.default, self.maximum) if bound is not None]
        if known != sorted(known):
            raise ValueError(f"expected minimum <= default <= maximum but got {known}")
        return self


class AxisSection(Section):
    """One axis of the grid.

    Attributes:
        length: From wall to wall, or one period.
        boundary: What is at its ends; `open` assumes nothing.
        points: `cells` for the centres of equal cells, `nodes` for points on both ends, `left` for a periodic axis
            whose first point is on its left end and whose last one is one step before the other.
    """

    length: PositiveFloat = 1.0
    boundary: Boundary = "open"
    points: Points = "cells"

    @model_validator(mode="after")
    def check_points(self) -> AxisSection:
        """Refuse points that the boundary rules out."""
        if self.boundary == "periodic" and self.points == "nodes":
            raise ValueError('points "nodes" of a periodic axis hold its first point twice: use "cells" or "left"')
        if self.boundary != "periodic" and self.points == "left":
            raise ValueError('points "left" are for a periodic axis')
        return self


class SymmetrySection(Section):
    """The symmetries that hold exactly for equation, data and boundary; none by default."""

    exact: tuple[str, ...] = ()


class TimeSection(Section):
    """The time axis of trajectories `[sample, time, *grid]`.

    Attributes:
        step: Time between two frames.
        history: Frames that the network sees.
        horizon: Frames of the rollouts that are compared on validation samples; by default a quarter of a trajectory.
        conserved: Outputs whose mean over a periodic grid stays exactly what it is.
    """

    step: PositiveFloat
    history: PositiveInt = 1
    horizon: PositiveInt | None = None
    conserved: tuple[Name, ...] = ()


class ProblemFile(Section):
    """A whole problem file.

    Attributes:
        name: Of the model, on the wire.
        title: One line for lists.
        equation: In words or symbols, for the card.
        solver_seconds: What one sample costs with the solver that made the data; for the report.
    """

    name: Name
    title: str = ""
    equation: str = ""
    solver_seconds: PositiveFloat | None = None
    data: DataSection
    inputs: dict[Name, FieldSection] = Field(min_length=1)
    parameters: dict[Name, ParameterSection] = Field(default_factory=dict)
    outputs: dict[Name, FieldSection] = Field(min_length=1)
    axes: dict[Name, AxisSection] = Field(min_length=1, max_length=AXES)
    symmetries: SymmetrySection = SymmetrySection()
    time: TimeSection | None = None
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 1127802

    @field_validator("symmetries")
    @classmethod
    def keep_once(cls, section: SymmetrySection) -> SymmetrySection:
        """Refuse a symmetry that is named twice."""
        if len({*section.exact}) < len(section.exact):
            raise ValueError(f"expected every symmetry once but got {', '.join(section.exact)}")
        return section

    @model_validator(mode="after")
    def check_names(self) -> ProblemFile:
        """Refuse one name for two tensors, and the names of what responses say about errors."""
        names = [*self.inputs, *self.parameters, *self.outputs]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"expected different names for inputs, parameters and outputs but {twice} occur twice")
        if taken := [name for name in names if name in QUALITY]:
            raise ValueError(f"expected other names than {taken}, which responses use for errors (`key` names data)")
        return self

    @model_validator(mode="after")
    def check_symmetries(self) -> ProblemFile:
        """Refuse symmetries that the axes do not have."""
        known = possible_symmetries(self.axes)
        if unknown := [name for name in self.symmetries.exact if name not in known]:
            raise ValueError(f"symmetries.exact: expected some of {', '.join(known)} but got {', '.join(unknown)}")
        fields = self.inputs | self.outputs
        if vectors := [name for name, section in fields.items() if section.components and self.symmetries.exact]:
            raise ValueError(f"symmetries.exact: expected none with vector fields ({', '.join(vectors)})")
        positive = [name for name, section in fields.items() if section.positive]
        signs = [name for name in self.symmetries.exact if name == "negate" or name.startswith("reflect_")]
        if positive and signs:
            raise ValueError(
                f"symmetries.exact: {', '.join(signs)} does not hold for positive fields ({', '.join(positive)})"
            )
        return self

    @model_validator(mode="after")
    def check_time(self) -> ProblemFile:
        """Require that every output of trajectories is the state that one input begins with."""
        if self.time is None:
            return self
        keys = [self.key(name) for name in self.inputs]
        for name, section in self.outputs.items():
            key = self.key(name)
            if keys.count(key) != 1:
                raise ValueError(f"outputs.{name}: expected one input with the key {key!r}, the state it starts from")
            if section.positive:
                raise ValueError(f"outputs.{name}: a positive state of a trajectory is not supported")
        for name, output in self.states.items():
            if {self.inputs[name].frame, self.outputs[output].frame} != {None}:
                raise ValueError(f"inputs.{name}: expected no frame: with [time] all frames are read")
            if self.inputs[name].components != self.outputs[output].components:
                raise ValueError(f"inputs.{name}: expected the components of outputs.{output}")
        return self

    @model_validator(mode="after")
    def check_conserved(self) -> ProblemFile:
        """Refuse a conserved mean of what is no output, or on a grid with ends."""
        conserved = self.time.conserved if self.time is not None else ()
        if unknown := [name for name in conserved if name not in self.outputs]:
            raise ValueError(f"time.conserved: expected outputs but got {', '.join(unknown)}")
        if conserved and any(axis.boundary != "periodic" for axis in self.axes.values()):
            raise ValueError("time.conserved: expected periodic axes only")
        return self

    @property
    def states(self) -> dict[str, str]:
        """The outputs of trajectories by the inputs that they start from, which have the same key."""
        if self.time is None:
            return {}
        outputs = {self.key(name): name for name in self.outputs}
        return {name: outputs[self.key(name)] for name in self.inputs if self.key(name) in outputs}

    def key(self, name: str) -> str:
        """Return the name in the data file of an input, parameter or output."""
        section: QuantitySection = (self.inputs | self.parameters | self.outputs)[name]
        return section.key or name


def possible_symmetries(axes: dict[str, AxisSection]) -> list[str]:
    """List the symmetries that a grid can have."""
    found = [f"{kind}_{name}" for kind in ("flip", "reflect") for name in axes]
    found += [f"shift_{name}" for name, axis in axes.items() if axis.boundary == "periodic"]
    if len(axes) == 2 and len(set(axes.values())) == 1:
        found.append("transpose")
    return [*found, "negate"]


def count(share: float | int, samples: int) -> int:  # noqa: PYI041 -- annotations are checked at run time
    """Return a number of samples that is given as a share or as itself."""
    return share if isinstance(share, int) else max(1, round(share * samples))


def read_problem_file(path: Path) -> ProblemFile:
    """Read and check a problem file.

    Raises:
        ProblemFileError: It is missing, no TOML, has an unknown key or a wrong value, or a built-in problem's name.
    """
    try:
        found = ProblemFile.model_validate(read_toml(path))
    except ValidationError as error:
        faults = "; ".join(fault(one) for one in error.errors(include_url=False))
        raise ProblemFileError(f"{path}: {faults}") from error
    if is_taken(found.name):
        expected = f"expected a name of your own, such as own_{found.name}"
        raise ProblemFileError(f"{path}: name: {expected}, but {found.name} is a built-in problem")
    return found


def fault(error: Any) -> str:
    """Return one fault that pydantic found as a sentence that begins with the key."""
    location = ".".join(str(part) for part in error["loc"] if part not in {"constrained-int", "[key]"})
    message = re.sub(r"^Value error, ", "", error["msg"])
    found = "" if error["type"] in {"missing", "value_error"} else f" (found {error['input']!r})"
    return f"{location}: {message}{found}" if location else message


def data_files(problem: ProblemFile, folder: Path) -> list[Path]:
    """Return the data files of a problem file that lies in `folder`, patterns resolved, in order.

    Raises:
        ProblemFileError: A name or a pattern fits no file.
    """
    found: list[Path] = []
    for pattern in problem.data.files:
        fitting = [Path(pattern)] if Path(pattern).is_absolute() else sorted(folder.glob(pattern))
        if not fitting or not all(path.is_file() or path.is_dir() for path in fitting):
            raise ProblemFileError(f"data.files: expected files for {pattern!r} in {folder} but there are none")
        found += fitting
    return found
