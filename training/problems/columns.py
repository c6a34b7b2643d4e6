"""The arrays of a user's files as the tensors of the problem file: their layout, and checks of shapes."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import accumulate
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schema.parts import Parameter, Quantity
from training.data.readers import (
    NUMBERS,
    DataFile,
    LazyArray,
    arranged,
    as_column,
    as_components,
    counts_all,
    in_order,
    is_complex,
    last_axis_at,
    numbering,
    of_points_in_cells,
)
from training.problems.completed import (
    CHANGES,
    for_all,
    in_series,
    in_space,
    samples_of,
    steady,
    unrolled,
    with_mask,
    with_points,
)
from training.problems.problem_file import ProblemFile, in_each
from training.problems.sections import DataError
from training.problems.wire_names import wire_name

NUMERIC = "fiub"  # kinds of dtype that become float32


@dataclass(frozen=True)
class Part:
    """The samples of one tensor in one file."""

    path: Path
    array: LazyArray  # as stored
    tensor: Quantity | Parameter  # what the problem file says of it
    shape: tuple[int, ...]  # of one sample: `[(time), (component), *grid]`, on points `[point, (component)]`
    timed: bool = False  # whether it has a time axis

    @property
    def label(self) -> str:
        """Name file and array for an error message."""
        return f"{self.path}: {self.array.name!r}"

    def arrange(self, values: NDArray[Any]) -> NDArray[Any]:
        """Bring samples as they are stored into the tensor's layout."""
        if isinstance(self.tensor, Quantity):
            if self.tensor.frame is not None:
                values = values[:, self.tensor.frame]
            if self.tensor.components and self.tensor.component_axis == "last" and not self.tensor.scalar:
                values = np.moveaxis(values, -1, 2 if self.timed else 1)
        elif self.tensor.column is not None:
            values = values.reshape(len(values), -1)[:, self.tensor.column]
        if self.tensor.offset:
            values = values.astype(np.float64) - self.tensor.offset
        return values.reshape(len(values), *self.shape)


@dataclass(frozen=True)
class Column:
    """One tensor of the problem over all files."""

    name: str
    parts: tuple[Part, ...]

    @property
    def on_grid(self) -> bool:
        """Whether it is a field, and no number or numbers per sample."""
        tensor = self.parts[0].tensor
        return isinstance(tensor, Quantity) and not tensor.scalar

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of samples in each part."""
        return tuple(part.array.samples for part in self.parts)

    @property
    def samples(self) -> int:
        return self.starts[-1]

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """The number of the first sample of each part, and of all samples."""
        return tuple(accumulate(self.sizes, initial=0))

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Of one sample, with as many points as any file has where samples have their own."""
        return tuple(map(max, zip(*(part.shape for part in self.parts), strict=True)))

    def blocks(self) -> Iterator[tuple[int, Part, NDArray[Any]]]:
        """Read all samples in order: the first one's number over all files, the part it is in, and the samples.

        Samples with fewer points than others are padded with zeros.

        Raises:
            DataError: A part holds something else than real numbers.
        """
        for start, part in zip(self.starts, self.parts, strict=False):
            for offset, values in part.array.blocks():
                if values.dtype.kind not in NUMERIC:  # whatever the file's description says
                    raise DataError(f"{part.label} holds {values.dtype}; expected real numbers")
                yield start + offset, part, self.padded(part.arrange(values))

    def padded(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return samples of a part with zeros at the points that they lack."""
        missing = [(0, most - side) for most, side in zip(self.shape, values.shape[1:], strict=True)]
        return np.pad(values, [(0, 0), *missing]) if any(map(sum, missing)) else values

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Read some samples by their numbers over all files."""
        found = []
        for index in range(bisect_right(self.starts, start) - 1, bisect_left(self.starts, stop)):
            first, part = self.starts[index], self.parts[index]
            low, high = max(start - first, 0), min(stop - first, part.array.samples)
            if low < high:
                found.append(self.padded(part.arrange(part.array.read(low, high))))
        return found[0] if len(found) == 1 else np.concatenate(found)


def columns_of(
    problem: ProblemFile, files: Sequence[DataFile], others: Mapping[str, Sequence[DataFile]] = MappingProxyType({})
) -> dict[str, Column]:
    """Find every tensor's arrays in the open data files of a problem file, in order.

    `others` are the open files of tensors that have files of their own, by their names.

    Raises:
        ReadError: A file lacks an array.
        DataError: An array has another rank or other numbers of components than the problem file says.
    """
    originals, output = files, problem.outputs[0]
    check_order(problem, files, others)
    pieces = [(piece, file) for file in files for piece in arranged(file, problem.data.sample)]
    files = [numbered(problem, piece) for piece, _ in pieces]
    apart = {
        name: [piece for file in each for piece in arranged(file, problem.data.sample)] for name, each in others.items()
    }
    # One mesh or mask for all samples has no axis of them that `arranged` could have brought to the front.
    turned = problem.data.sample == "last"
    sources = [file if turned and not file.pieces else piece for piece, file in pieces]
    if problem.scattered:
        counted = [sum(file.array(output.array).samples for file in apart.get(output.name, ()))]
        files = [with_points(problem, file, source, *counted) for file, source in zip(files, sources, strict=True)]
    if problem.mask is not None:
        files = [with_mask(problem, file, source) for file, source in zip(files, sources, strict=True)]
    for file in files:
        check_file(problem, file)
    found = {}
    # A field has its samples on the first axis, whereas numbers may be a row of all samples.
    fields = (one for one in (*problem.output_fields, *problem.inputs) if not one.static)
    lead = next(fields, output)
    samples = sum(file.array(lead.array).samples for file in apart.get(lead.name) or files)
    for name, one in problem.in_files.items():
        own = apart.get(name, [])
        arrays = [(file.path, in_space(file, one, file.array(one.array))) for file in (own or files)]
        if own and not one.components and (isinstance(one, Parameter) or one.scalar):
            arrays = unrolled(arrays, samples)
        if isinstance(one, Quantity) and one.static:
            value = (others[name] if own else originals)[0].array(one.array)
            arrays = [(file.path, for_all(value, samples_of(problem, file))) for file in files]
        if problem.data.time == "last" and problem.has_frames(one):
            arrays = [(path, last_axis_at(array, 1) if array.dimensions is None else array) for path, array in arrays]
        arrays = [(path, of_a_series(problem, one, array, path)) for path, array in arrays]
        arrays = [(path, on_axes(problem, one, array)) for path, array in arrays]
        arrays = beside_meshes(arrays, [file for _, file in pieces] if own else [], problem.point_axes.get(name, 1))
        if isinstance(one, Quantity) and one.complex:
            axis = -1 if one.component_axis == "last" else 2 if problem.has_frames(one) else 1
            if real := [array for _, array in arrays if not is_complex(array)]:
                raise DataError(f"{files[0].path}: {real[0].name!r} holds {real[0].dtype}; expected complex numbers")
            arrays = [(path, as_components(array, axis)) for path, array in arrays]
        # On points the components stay behind them.
        tensor = one.model_copy(update={"component_axis": "first"}) if problem.scattered else one
        timed = name in problem.timed
        parts = (Part(path, array, tensor, shape(problem, name, array, path), timed) for path, array in arrays)
        found[name] = Column(name, tuple(parts))
    return found


def numbered(problem: ProblemFile, file: DataFile) -> DataFile:
    """Return a file whose rows `[1, sample]` of parameters and scalars are `[sample]`."""
    every: tuple[Quantity | Parameter, ...] = (*problem.parameters, *problem.scalars)
    numbers = [one for one in every if not one.components and one.name in problem.in_files]
    arrays = {**file.parts, **file.arrays}
    keys = {one.array for one in numbers if one.array in arrays and in_each(one)}
    known = {one.array for one in problem.fields if in_each(one)} & arrays.keys()
    samples = max((arrays[each].samples for each in sorted(known)), default=0)
    rows = {key: as_column(arrays[key]) for key in keys if arrays[key].shape == (1, samples)}
    return replace(file, arrays={**file.arrays, **rows}) if samples > 1 else file


def of_a_series(problem: ProblemFile, one: Quantity | Parameter, found: LazyArray, path: Path) -> LazyArray:
    """Return a steady array without the axis of time that a series of meshes gives it."""
    if not problem.scattered or problem.has_frames(one) or not in_series(found):
        return found
    return steady(found, path, CHANGES)


def on_axes(problem: ProblemFile, one: Quantity | Parameter, found: LazyArray) -> LazyArray:
    """Return an array whose axes the file names with those of the grid in the order of the problem file.

    Of a vector the axis with another name than those of the grid has the components.
    """
    if problem.scattered or found.dimensions is None:
        return found
    names = [wire_name(name) for name in found.dimensions]
    if one.components and len(other := {*names} - {*problem.axis_names, "time", "component"}) == 1:
        names[names.index(other.pop())] = "component"
    return in_order(replace(found, dimensions=tuple(names)), problem.axis_names)


def beside_meshes(
    arrays: list[tuple[Path, LazyArray]], meshes: Sequence[DataFile], axis: int
) -> list[tuple[Path, LazyArray]]:
    """Return arrays of files of their own without the points of meshes that are in no cell, where each has its mesh."""
    if len(arrays) != len(meshes):
        return arrays
    pairs = zip(arrays, meshes, strict=True)
    return [(path, of_points_in_cells(array, mesh.in_cells, axis)) for (path, array), mesh in pairs]


def check_file(problem: ProblemFile, file: DataFile) -> None:
    """Refuse a file without samples, with strings for numbers, with other regions, or unequal numbers of samples."""
    keys = {one.array for one in problem.in_files.values()}
    for name, values in file.regions.items():
        named = {value for value in values if f"{name}={value}" in keys}
        if named < values and any(key.rpartition("=")[0] == name for key in keys):
            missing = min(values - named)
            raise DataError(f"{file.path}: expected an input with the key '{name}={missing}', since cells have it")
    arrays = [file.array(one.array) for one in problem.in_files.values() if in_each(one)]
    parts = {one.array for one in problem.fields if one.complex}
    for one in arrays:
        if one.dtype.kind not in NUMERIC and not (is_complex(one) and one.name in parts):
            raise DataError(f"{file.path}: {one.name!r} holds {one.dtype}; expected real numbers")
        if one.samples == 0:
            raise DataError(f"{file.path}: {one.name!r} has shape {one.shape}; expected samples on its first axis")
        if one.samples != arrays[0].samples:
            raise DataError(
                f"{file.path}: expected as many samples in {one.name!r} as in {arrays[0].name!r} "
                f"but found {one.samples} and {arrays[0].samples}"
            )


def check_order(problem: ProblemFile, files: Sequence[DataFile], others: Mapping[str, Sequence[DataFile]]) -> None:
    """Refuse tensors from files of their own that say that their samples are in another order than those of the others.

    They are matched by their places, so a sample would have the values of another.
    """
    if not others or problem.data.sample not in {"first", "last"}:
        return
    lead = numbering(files)
    for tensor, each in others.items():
        static = getattr(problem.stored[tensor], "static", False)
        for name, values in ({} if static else numbering(each)).items():
            counts = name in NUMBERS and counts_all(values)
            known = lead.get(name, np.sort(values) if counts else values)
            if known.shape != values.shape or not (unlike := differ(known, values)).any():
                continue  # other numbers of samples are refused later
            at = int(unlike.argmax())
            raise DataError(
                f"{each[0].path}: {name!r} is {values[at]} at sample {at}, and expected is {known[at]}, "
                + (f"as in {files[0].path}" if name in lead else f"since nothing numbers those of {files[0].path}")
                + ": bring the samples into one order"
            )


def differ(some: NDArray[Any], others: NDArray[Any]) -> NDArray[np.bool_]:
    """Return where numbers differ, floating ones by more than their types do, or where texts do."""
    kinds = {some.dtype.kind, others.dtype.kind}
    if "f" in kinds <= {*NUMERIC}:
        return ~np.isclose(some, others, rtol=1e-6, atol=0)
    return np.asarray(some.astype(str) != others.astype(str))


def mismatch(path: Path, array: str, wanted: str, seen: str) -> DataError:
    """Return the error of an array that is not what its problem file says."""
    return DataError(f"{path}: expected {wanted} in {array!r} but found {seen}")


def shape(problem: ProblemFile, name: str, found: LazyArray, path: Path) -> tuple[int, ...]:
    """Return the shape of a tensor's sample, `[(component)]` of numbers and `[(time), (component), *grid]` of a field.

    Axes of one value are dropped where there are more axes than names: `[sample, 1, *grid]` is a scalar field.

    Raises:
        DataError: The array has other axes or components than the problem file says.
    """
    one, sides = problem.in_files[name], found.shape[1:]
    unexpected = partial(mismatch, path, found.name)
    if isinstance(one, Parameter) and one.per_frame:
        if len(sides) != 1 and not (len(sides) == 2 and sides[1] == 1):
            raise unexpected("axes [sample, time]", f"shape {found.shape}")
        return sides[:1]
    if isinstance(one, Parameter) or one.scalar:
        if expected := unlike_numbers(one, math.prod(sides)):
            raise unexpected(expected, f"shape {found.shape}")
        return (len(one.components),) if one.components else ()
    time, grid = ("time",) if problem.has_frames(one) else (), problem.axis_names
    components = ("component",) if one.components else ()
    axes = (*time, *grid, *components) if one.component_axis == "last" else (*time, *components, *grid)
    if not components and len(sides) > len(axes):
        kept = (*sides[: len(time)], *(side for side in sides[len(time) :] if side > 1))
        sides = kept if len(kept) == len(axes) else sides
    if len(sides) != len(axes):
        changes = len(sides) == len(axes) + 1 and problem.time is not None and not time
        reason = ": `per_frame = true` if it changes in time" if changes else ""
        raise unexpected(f"axes [{', '.join(('sample', *axes))}]", f"shape {found.shape}{reason}")
    side = dict(zip(axes, sides, strict=True))
    if components and side["component"] != len(one.components):
        wanted = f"{len(one.components)} components ({', '.join(one.components)})"
        raise unexpected(wanted, f"{side['component']} (shape {found.shape})")
    if one.frame is not None and not -side["time"] <= one.frame < side["time"]:
        raise unexpected(f"a frame {one.frame}", f"{side['time']} (shape {found.shape})")
    if misplaced := swapped(problem, one, found):
        said = ", ".join(("sample", *(found.dimensions or ())))
        wanted = f"the axes in their order, {', '.join(('sample', *axes))}"
        raise unexpected(wanted, f"{said}: {misplaced!r} is another")
    order = (*grid, *components) if problem.scattered else (*components, *grid)
    return tuple(side[axis] for axis in (*(time if name in problem.timed else ()), *order))


def swapped(problem: ProblemFile, one: Quantity, found: LazyArray) -> str:
    """Return the axis of a file that has the name of another axis of the grid than the one in its place; or empty."""
    if problem.scattered or found.dimensions is None:
        return ""
    names = [*found.dimensions[: -1 if one.components and one.component_axis == "last" else None]]
    pairs = zip(names[-len(problem.axes) :], problem.axis_names, strict=False)
    return next((name for name, axis in pairs if name != axis and name in problem.axis_names), "")


def unlike_numbers(one: Quantity | Parameter, count: int) -> str:
    """Say what is expected of numbers where a sample has another count of them than their table says."""
    if one.components:
        wanted = f"{len(one.components)} numbers per sample ({', '.join(one.components)})"
        return "" if count == len(one.components) else wanted
    column = one.column if isinstance(one, Parameter) else None
    if column is None:
        ways = "`column` names one of several, `components`" if isinstance(one, Parameter) else "`components`"
        return "" if count == 1 else f"one number per sample ({ways} all of them)"
    return "" if -count <= column < count else f"a column {column}"
