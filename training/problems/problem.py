"""A problem: its description and the code that belongs to it, one object with one file per problem.

`PROBLEMS` finds them by name: those of this folder, and those of the entry points `petrov.problems` of other packages.
Samples that others computed are a part of a problem, too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from schema.parts import Parameter, Quantity, check_symmetries
from schema.problem import Description
from training.data.readers import open_file
from training.messages import Registry

if TYPE_CHECKING:
    from torch import Tensor

    from training.operators.trajectory import TrajectoryConfig
    from training.problems.problem_file import ProblemFile

Fields = Mapping[str, NDArray[Any]]
"""Arrays of one sample by their names on the wire: fields `[*grid]`, and parameters `[]`."""

VARIABLE = "DATA_PATH"  # the environment variable that names the folder with published files

Array = NDArray[np.float32]
Stream = Literal["train", "test"]  # the groups of a file of samples

Sampler = Callable[[np.random.SeedSequence, int], Fields]
Starts = Mapping[str, NDArray[np.float64]]
"""Arrays of trajectories by name: `[sample, ...]` each."""


class MissingPartError(NotImplementedError):
    """A problem lacks the requested part, such as a sampler; the message names both."""


@runtime_checkable
class Published(Protocol):
    """Samples of a problem that others computed."""

    @property
    def points(self) -> str:
        """Where the grid points lie, in words."""

    @property
    def files(self) -> str:
        """The names of the files."""

    def state(self) -> str:
        """Return what tells the files from others of the same names: sizes and times of change."""

    def available(self, mesh: int) -> bool:
        """Return whether the samples are used for requests with `mesh` points per axis."""

    def read(self, stream: Stream, name: str, counts: Mapping[str, int]) -> Array:
        """Read as many samples `[sample, *grid]` of a quantity as a stream counts, fewer where there are no more."""


def data_folder() -> Path | None:
    """Return the folder that the user named for published files."""
    folder = os.environ.get(VARIABLE)
    return Path(folder) if folder else None


@dataclass(frozen=True)
class MatlabFiles:
    """The MATLAB files of one benchmark in the folder of DATA_PATH.

    Protocol of Cao (2021): training takes the first samples of one file, testing takes the last samples of another or
    of the same one. Validation samples follow the training samples; where the training file is too short for them, they
    are the first samples of the test file.
    """

    train: str  # name of the file with training samples
    test: str  # name of the file with test samples
    arrays: Mapping[str, str]  # the name in the files of each quantity, by its name on the wire
    points: str  # where the grid points lie, in words

    @property
    def files(self) -> str:
        """Both names."""
        return f"{self.train} {self.test}"

    def state(self) -> str:
        """Return sizes and times of change of both."""
        stats = [((data_folder() or Path()) / name).stat() for name in (self.train, self.test)]
        return " ".join(f"{one.st_size} {one.st_mtime_ns}" for one in stats)

    def available(self, mesh: int) -> bool:
        """Return whether DATA_PATH holds the files and their fields have `mesh` points per axis."""
        folder = data_folder()
        if folder is None or not all((folder / name).is_file() for name in (self.train, self.test)):
            return False
        with matlab(folder / self.train, next(iter(self.arrays.values()))) as found:
            return mesh in found.shape[-1:]

    def read(self, stream: Stream, name: str, counts: Mapping[str, int]) -> Array:
        """Read one quantity `[sample, *grid]`; see `Published.read`."""
        folder, key, test = data_folder() or Path(), self.arrays[name], counts["test"]
        if stream == "test":
            fields = read_matlab(folder / self.test, key)
            return fields[max(len(fields) - test, 0) :]
        train = read_matlab(folder / self.train, key)
        if self.train == self.test:
            return train[: max(len(train) - test, 0)][: counts["train"]]
        if len(train) >= counts["train"]:
            return train[: counts["train"]]
        other = read_matlab(folder / self.test, key)
        return np.concatenate([train, other[: max(len(other) - test, 0)][: counts["train"] - len(train)]])


@contextmanager
def matlab(path: Path, name: str) -> Iterator[Any]:
    """Open one array `[sample, *grid]`, a `LazyArray`, of a MATLAB file of any version from 5 on."""
    with open_file(path, "mat") as file:
        yield file.array(name)


def read_matlab(path: Path, name: str) -> Array:
    """Read one array `[sample, *grid]` of a MATLAB file as float32."""
    with matlab(path, name) as found:
        return np.asarray(found.read(), dtype=np.float32)


@dataclass(frozen=True)
class Conditions:
    """What a classical solver knows besides the inputs."""

    mesh: int  # points per axis that the truth was computed on
    # Standard deviation of the noise on the input `[*grid]`, in the input's units; 0 where there is none.
    noise: float | NDArray[np.floating[Any]] = 0.0

    @property
    def wall(self) -> float:
        """The distance from the outermost points to the wall, in sides of the square: half a cell of the mesh."""
        return 0.5 / self.mesh


@dataclass(frozen=True)
class Baseline:
    """The best classical method that sees what the network sees."""

    method: str  # in words
    # Maps the inputs of one sample to its outputs on the inputs' own grid.
    solve: Callable[[Fields, Conditions], Fields]
    # A solve takes seconds or minutes: it is measured on a few samples, on trained grids, if requested.
    slow: bool = False
    noise: bool = False  # the method is made for noisy inputs; others are measured without noise only


@dataclass(frozen=True)
class Trajectories:
    """Trajectories that a solver makes: a problem file, and what takes the place of its data files."""

    file: ProblemFile
    # Draws the first states, and numbers, of all trajectories from a seed; `count` says how many, if given.
    draw: Callable[..., Starts]
    # Returns all frames that follow some of these, and their numbers, by the keys in the problem file.
    follow: Callable[[Starts], Starts]
    # Makes the problem's own operator of the general one that a preset chooses; None where that is used.
    adapt: Callable[[TrajectoryConfig], TrajectoryConfig] | None = None


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A problem with its code. A problem that is read from a user's file has a description and no code.

    Functions have to be importable by name, because worker processes receive the object.
    """

    description: Description
    # Draws one sample from a seed and points per axis of the stored mesh: inputs, parameters and outputs.
    sampler: Sampler | None = None
    trajectories: Trajectories | None = None  # the samples of a problem in time, in place of a sampler
    baseline: Baseline | None = None
    # Samples that others computed; they are used where they are available.
    published: Published | None = field(default=None)
    # The problem whose samples this one uses, with names in other roles; by default its own.
    samples_of: Problem | None = None
    # Inputs and parameters with a default that samples do not hold; models take them where their operators do.
    optional: tuple[Quantity | Parameter, ...] = ()
    # Draws the optional inputs of a sample from a generator and points per axis of the mesh. Calibrations vary them in
    # a half of their new samples.
    vary: Callable[[np.random.Generator, int], Fields] | None = None
    # Bounds the relative energy-norm distance `[batch, 1]` to the discrete solution, from tensors `[batch, *grid]`: the
    # inputs, then the output. Every model of the problem reports it.
    certificate: Callable[..., Tensor] | None = None
    # The input a of the energy norm (int a |grad u|^2)^(1/2) on a plane; None where there is none.
    energy_weight: str | None = None
    # What the file of stored samples says: where `{mesh}` points with `{intervals}` between them lie, and constants.
    grid_points: str = ""
    constants: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        found = self.description  # which is no longer checked where it is a changed copy
        check_symmetries(found.symmetries, found.axes, found.tensors)

    @property
    def name(self) -> str:
        """The name in recipes, checkpoints and cards."""
        return self.description.name

    @property
    def source(self) -> Problem:
        """The problem whose files hold the samples."""
        return self.samples_of or self

    def description_for(self, optional: bool) -> Description:
        """Return the data part, with the optional inputs and parameters if an operator takes them."""
        known = {tensor.name for tensor in self.description.tensors}
        added = [tensor for tensor in self.optional if optional and tensor.name not in known]
        inputs = [tensor for tensor in added if isinstance(tensor, Quantity)]
        parameters = [tensor for tensor in added if isinstance(tensor, Parameter)]
        return self.description.model_copy(
            update={
                "inputs": (*self.description.inputs, *inputs),
                "parameters": (*self.description.parameters, *parameters),
            }
        )

    @property
    def of_samples(self) -> Problem:
        """The problem without the optional parameters, which no samples hold."""
        optional = {tensor.name for tensor in self.optional}
        kept = tuple(parameter for parameter in self.description.parameters if parameter.name not in optional)
        return replace(self, description=self.description.model_copy(update={"parameters": kept}))

    def sample(self, seed: np.random.SeedSequence, mesh: int) -> Fields:
        """Draw one sample from its own random stream, on a stored mesh: inputs, parameters and outputs by name.

        Raises:
            MissingPartError: The problem has no sampler.
        """
        return self.require_sampler()(seed, mesh)

    def require_sampler(self) -> Sampler:
        """Return the sampler; see `sample` for the error."""
        if self.sampler is None:
            raise MissingPartError(f"the problem {self.name!r} has no sampler: its samples have to be given")
        return self.sampler

    def require_vary(self) -> Callable[[np.random.Generator, int], Fields]:
        """Return what draws the optional inputs.

        Raises:
            MissingPartError: The problem has none to draw.
        """
        if self.vary is None:
            raise MissingPartError(f"the problem {self.name!r} varies no inputs")
        return self.vary

    def solve(self, inputs: Fields, conditions: Conditions) -> Fields:
        """Solve one sample classically on its own grid, from inputs and parameters by name: outputs by name.

        Raises:
            MissingPartError: The problem has no classical solver.
        """
        return self.require_baseline().solve(inputs, conditions)

    def require_baseline(self) -> Baseline:
        """Return the classical method; see `solve` for the error."""
        if self.baseline is None:
            raise MissingPartError(f"the problem {self.name!r} has no classical solver")
        return self.baseline

    def require_trajectories(self) -> Trajectories:
        """Return the trajectories that a solver makes.

        Raises:
            MissingPartError: The problem has none.
        """
        if self.trajectories is None:
            raise MissingPartError(f"the problem {self.name!r} has no trajectories")
        return self.trajectories


PROBLEMS = Registry("problem", Problem, "training.problems", "PROBLEM", "petrov.problems")


def trajectories_of(name: str) -> Trajectories | None:
    """Return the trajectories of the built-in problem of a name, or None where there are none."""
    return PROBLEMS[name].trajectories if name in PROBLEMS else None


def with_code(description: Description) -> Problem:
    """Return the problem of a stored description, with the code of the known problem of its name where there is one."""
    if description.name in PROBLEMS:
        return replace(PROBLEMS[description.name], description=description)
    return Problem(description=description)
