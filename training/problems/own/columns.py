"""The arrays of the data files that belong to each tensor of a problem, in the tensor's own layout."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.data.readers import DataFile, LazyArray, ReadError, open_file
from training.problems.own.problem_file import FieldSection, ParameterSection, ProblemFile
from training.user_error import UserError

NUMERIC = "fiub"
"""Kinds of dtype that become float32."""
FEWEST = 4
"""The least number of points along an axis."""


class DataError(UserError):
    """Data do not fit their problem file: the message names file, array and, where there is one, sample and index."""


@dataclass(frozen=True)
class Part:
    """The samples of one tensor in one file, as `[sample, (time), (component), *grid]`."""

    path: Path
    array: LazyArray
    section: FieldSection | ParameterSection
    shape: tuple[int, ...]
    """Of one sample."""

    @property
    def label(self) -> str:
        """Name file and array for an error message."""
        return f"{self.path}: {self.array.name!r}"

    def arrange(self, values: NDArray[Any]) -> NDArray[Any]:
        """Bring samples as they are stored into the tensor's layout."""
        if isinstance(self.section, FieldSection):
            if self.section.frame is not None:
                values = values[:, self.section.frame]
            if self.section.components and self.section.component_axis == "last":
                values = np.moveaxis(values, -1, values.ndim - len(self.shape))
        return values.reshape(len(values), *self.shape)


@dataclass(frozen=True)
class Column:
    """One tensor of the problem over all files."""

    name: str
    parts: tuple[Part, ...]

    @property
    def samples(self) -> int:
        """The number of samples."""
        return sum(part.array.samples for part in self.parts)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample."""
        return self.parts[0].shape

    def blocks(self) -> Iterator[tuple[int, Part, NDArray[Any]]]:
        """Read all samples in order: the first one's number over all files, the part it is in, and the samples."""
        starts = accumulate((part.array.samples for part in self.parts), initial=0)
        for start, part in zip(starts, self.parts, strict=False):
            for offset, values in part.array.blocks():
                yield start + offset, part, part.arrange(values)


@contextmanager
def open_columns(problem: ProblemFile, paths: list[Path]) -> Iterator[dict[str, Column]]:
    """Open the data files and find every tensor's arrays in them.

    Args:
        problem: The problem file.
        paths: Its data files, in order.

    Raises:
        ReadError: A file cannot be read, or lacks an array.
        DataError: An array has another rank or other sides than the problem file and the other arrays say.
    """
    with ExitStack() as stack:
        files = [stack.enter_context(open_file(path, problem.data.format)) for path in paths]
        for file in files:
            check_file(problem, file)
        found = {name: column(problem, name, files) for name in names(problem)}
        check_together(problem, found)
        check_frames(problem, found)
        yield found


def names(problem: ProblemFile) -> list[str]:
    """List inputs, parameters and outputs, in this order; of a state of trajectories only the output."""
    steady = [name for name in problem.inputs if name not in problem.states]
    return [*steady, *problem.parameters, *problem.outputs]


def sections(problem: ProblemFile) -> dict[str, FieldSection | ParameterSection]:
    """Return the section of every tensor that is read."""
    every: dict[str, FieldSection | ParameterSection] = {**problem.inputs, **problem.parameters, **problem.outputs}
    return {name: every[name] for name in names(problem)}


def check_file(problem: ProblemFile, file: DataFile) -> None:
    """Refuse a file without samples, with strings for numbers, or with unequal numbers of samples.

    Raises:
        ReadError: An array is missing.
        DataError: Something else is wrong.
    """
    arrays = [file.array(problem.key(name)) for name in names(problem)]
    for array in arrays:
        if array.dtype.kind not in NUMERIC:
            raise DataError(f"{file.path}: {array.name!r} holds {array.dtype}; expected real numbers")
        if array.samples == 0:
            raise DataError(f"{file.path}: {array.name!r} has shape {array.shape}; expected samples on its first axis")
    lead = arrays[0]
    for array in arrays[1:]:
        if array.samples != lead.samples:
            raise DataError(
                f"{file.path}: expected as many samples in {array.name!r} as in {lead.name!r} "
                f"but found {array.samples} and {lead.samples}"
            )


def column(problem: ProblemFile, name: str, files: list[DataFile]) -> Column:
    """Find one tensor in all files."""
    return Column(name, tuple(part(problem, name, file) for file in files))


def part(problem: ProblemFile, name: str, file: DataFile) -> Part:
    """Check the rank of one array and find the shape of its samples."""
    section, array = sections(problem)[name], file.array(problem.key(name))
    if isinstance(section, ParameterSection):
        return Part(file.path, array, section, number_shape(file, array))
    moving = problem.time is not None and name in problem.outputs
    return Part(file.path, array, section, field_shape([*problem.axes], section, file, array, moving=moving))


def number_shape(file: DataFile, array: LazyArray) -> tuple[int, ...]:
    """Return the shape of a parameter's sample, one number.

    Raises:
        DataError: A sample holds more than one number.
    """
    if any(side != 1 for side in array.shape[1:]):
        raise DataError(f"{file.path}: expected one number per sample in {array.name!r} but found shape {array.shape}")
    return ()


def field_shape(
    grid: Sequence[str], section: FieldSection, file: DataFile, array: LazyArray, *, moving: bool
) -> tuple[int, ...]:
    """Return the shape of a field's sample as `[(time), (component), *grid]`.

    A single component without a name is dropped: `[sample, 1, *grid]` is a scalar field.

    Args:
        grid: The names of the grid's axes.
        section: The field.
        file: Where its array is.
        array: The array.
        moving: Whether the field is a trajectory, of which all frames are read.

    Raises:
        DataError: The array's shape is another than the problem file says.
    """
    time = ("time",) if section.frame is not None or moving else ()
    components = ("component",) if section.components else ()
    last = section.component_axis == "last"
    axes = (*time, *grid, *components) if last else (*time, *components, *grid)
    sides = array.shape[1:]
    if not components and len(sides) == len(axes) + 1 and sides[len(time)] == 1:
        sides = (*sides[: len(time)], *sides[len(time) + 1 :])
    if len(sides) != len(axes):
        expected = ", ".join(("sample", *axes))
        raise DataError(f"{file.path}: expected axes [{expected}] in {array.name!r} but found shape {array.shape}")
    named = dict(zip(axes, sides, strict=True))
    if components and named["component"] != len(section.components):
        raise DataError(
            f"{file.path}: expected {len(section.components)} components ({', '.join(section.components)}) in "
            f"{array.name!r} but found {named['component']} (shape {array.shape})"
        )
    kept = (*(("time",) if moving else ()), *components, *grid)
    return tuple(named[axis] for axis in kept)


def check_together(problem: ProblemFile, columns: dict[str, Column]) -> None:
    """Refuse fields on different grids, in one file or over several, and on grids of too few points.

    Raises:
        DataError: Two grids differ, or an axis is too short.
    """
    rank = len(problem.axes)
    fields = [name for name in columns if name not in problem.parameters]
    lead = columns[fields[0]].parts[0]
    for name in fields:
        for one in columns[name].parts:
            if one.shape[-rank:] != lead.shape[-rank:]:
                raise DataError(
                    f"{one.label} has the grid {one.shape[-rank:]} and {lead.label} {lead.shape[-rank:]}; "
                    "expected one grid for all fields"
                )
    for axis, side in zip(problem.axes, lead.shape[-rank:], strict=True):
        if side < FEWEST:
            raise DataError(
                f"{lead.label} has {side} points along the axis {axis!r}; expected at least {FEWEST}: name few layers "
                "as `components` of a vector field instead"
            )


def check_frames(problem: ProblemFile, columns: dict[str, Column]) -> None:
    """Refuse trajectories that are too short, or of unequal lengths.

    Raises:
        DataError: One is.
    """
    if problem.time is None:
        return
    first, *others = (one for name in problem.outputs for one in columns[name].parts)
    fewest = problem.time.history + 1
    if first.shape[0] < fewest:
        raise DataError(f"{first.label} has {first.shape[0]} frames; expected at least {fewest}")
    for one in others:
        if one.shape[0] != first.shape[0]:
            raise DataError(
                f"{one.label} has {one.shape[0]} frames and {first.label} {first.shape[0]}; expected as many in all"
            )


__all__ = ["Column", "DataError", "Part", "ReadError", "names", "open_columns", "sections"]
