"""An HDF5 file of samples with units and provenance, read back on coarser grids.

Layout: groups `train` and `test`. Each has one float32 dataset `[sample, *grid]` per quantity and `[sample]` per
parameter under the names on the wire, one chunk per field, and `done` `[sample]`, which is 1 where the sample is there.
Attributes say what the numbers are.

The program may be killed at any time while it writes samples. So changes of a file's structure happen in a copy that
replaces the file when it is whole. Filling a file changes numbers only, in space that is already allocated (hence no
compression), and a sample is marked as done after its fields have been handed to the system.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import h5py
import numpy as np
from numpy.typing import NDArray

from physics.numerics.averages import block_mean, common_grid
from training.data import derivatives
from training.data.pair import only_pair
from training.problems.problem import Problem
from training.problems.registry import PROBLEMS
from training.problems.schema import Description
from training.user_error import UserError

Split = Literal["train", "validation", "test"]
STREAMS: dict[Split, str] = {"train": "train", "validation": "train", "test": "test"}
"""The stored group that holds each split: validation samples follow the training samples."""

Array = NDArray[np.float32]
Points = int | tuple[int, ...]


@dataclass(frozen=True)
class Samples:
    """Inputs and outputs of a problem.

    Attributes:
        inputs: `[sample, *grid]` in physical units.
        outputs: `[sample, *grid]` in physical units. Where the problem fixes its output grid they lie on the common
            grid of `physics.numerics.averages`, on which symmetries are exact.
        problem: The problem.
        provenance: Where the samples come from.
        gradients: The outputs' gradients on the stored mesh, as `training.data.derivatives` computes them; None if not
            requested.
        parameters: `[sample]` per parameter of the problem, in its order.
    """

    inputs: Array
    outputs: Array
    problem: Problem
    provenance: str
    gradients: Array | None = None
    parameters: tuple[Array, ...] = ()

    @property
    def targets(self) -> Array:
        """What a network has to predict: the outputs on the output grid."""
        return targets(self.problem.description, self.outputs)

    @cached_property
    def deviation(self) -> Array:
        """The inputs' standard deviation at each grid point, the unit of noise."""
        return self.inputs.std(axis=0)


@dataclass(frozen=True)
class Layout:
    """What a file is made for: its problem, points per axis, samples of each stream, and its remaining attributes."""

    description: Description
    mesh: int
    counts: Mapping[str, int]
    attributes: Mapping[str, str | int | float]

    @property
    def grid(self) -> tuple[int, ...]:
        """Points along each axis of a stored field."""
        return (self.mesh,) * len(self.description.axes)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of one sample of every tensor, by name."""
        described = self.description
        fields = (*described.inputs, *described.outputs)
        shapes = {one.name: (*([len(one.components)] if one.components else []), *self.grid) for one in fields}
        return shapes | {one.name: () for one in described.parameters}


def read(
    path: Path,
    split: Split,
    count: int,
    points: Points,
    *,
    after: int = 0,
    problem: Problem | None = None,
    gradients: bool = False,
) -> Samples:
    """Read the first `count` samples of a split, strided to `points` points per axis.

    One stored field at a time is in memory besides the result, and a file that is still being filled may be read.

    Args:
        path: The file.
        split: Which samples.
        count: How many.
        points: Points per axis, one number for all axes or one per axis.
        after: How many training samples come before the validation samples; required for these, else 0.
        problem: What the samples are for, where the file serves several problems; by default the file's own.
        gradients: Read the outputs' gradients, too.

    Returns:
        The samples.

    Raises:
        ValueError: The stored mesh cannot be strided to `points`, fewer than `count` samples are there, they are for
            another problem, or `after` does not fit the split.
        NotImplementedError: The problem has several inputs or outputs.
    """
    if (split == "validation") != (after > 0):
        raise ValueError(f"expected the number of training samples for validation, else 0, but got {after} for {split}")
    stream, rows = STREAMS[split], slice(after, after + count)
    with opened(path) as file:
        wanted, ready = _requested(file, problem).of_samples, max(finished(file, stream) - after, 0)
        pair, group = only_pair(wanted.description), file[stream]
        steps = strides(wanted.description, group[pair.output.name].shape[1], points)
        if ready < count:
            raise UserError(f"expected {count} samples in {split} of {path} but {ready} are there: prepare them first")
        inputs = _strided(group[pair.input.name], rows, steps)
        outputs = _outputs(group[pair.output.name], rows, steps, wanted.description)
        slopes = _slopes(group[pair.output.name], rows, steps) if gradients else None
        numbers = tuple(group[parameter.name][rows] for parameter in wanted.description.parameters)
        return Samples(inputs, outputs, wanted, str(file.attrs["provenance"]), slopes, numbers)


def deviation(path: Path, count: int, problem: Problem) -> Array:
    """Compute the inputs' standard deviation at each point of the stored mesh.

    One stored field at a time is in memory; deviations about the first field lose no digits to a large mean.

    Args:
        path: The file.
        count: How many training samples to take, from the first on.
        problem: Whose input.

    Returns:
        The deviation `[*grid]`, in the input's units.
    """
    with opened(path) as file:
        fields = file["train"][only_pair(problem.description).input.name]
        first = fields[0].astype(np.float64)
        total, squares = np.zeros_like(first), np.zeros_like(first)
        for index in range(count):
            apart = fields[index] - first
            total += apart
            squares += apart**2
    variance = squares / count - (total / count) ** 2
    return np.sqrt(np.maximum(variance, 0)).astype(np.float32)


def targets(description: Description, outputs: Array) -> Array:
    """Return outputs `[sample, *grid]`, as they were read, on the problem's output grid."""
    sides = description.output_grid
    return outputs if sides is None else block_mean(outputs, sides)


def strides(description: Description, mesh: int, points: Points) -> tuple[int, ...]:
    """Return the step along each axis from `mesh` points to `points`.

    Args:
        description: The problem, whose axes say which points a coarser grid has to keep.
        mesh: Stored points per axis.
        points: Wanted points, one number for all axes or one per axis.

    Returns:
        A step per axis.

    Raises:
        ValueError: There is none, or `points` has another number of axes.
    """
    sides = points if isinstance(points, tuple) else (points,) * len(description.axes)
    if len(sides) != len(description.axes):
        raise UserError(f"expected points for the axes {description.axis_names} of {description.name} but got {points}")
    return tuple(_stride(description, index, mesh, side) for index, side in enumerate(sides))


def _stride(description: Description, index: int, mesh: int, points: int) -> int:
    if points not in (sizes := grids(description, mesh, index)):
        raise UserError(f"cannot stride {mesh} points of {description.name} to {points}; possible are {sizes}")
    end = description.axes[index].far_ends
    return (mesh - end) // (points - end)


def mesh(path: Path, split: Split) -> int:
    """Return the points per axis of the stored fields of a split."""
    with opened(path) as file:
        first = next(field for field in file[STREAMS[split]].values() if field.ndim > 1)
        return int(first.shape[1])


def grids(description: Description, mesh: int, index: int = 0) -> list[int]:
    """List the numbers of points that striding an axis of `mesh` points gives.

    Args:
        description: The problem.
        mesh: Stored points.
        index: Which axis.

    Returns:
        Numbers of points, ascending.
    """
    end = description.axes[index].far_ends
    return [n for n in range(end + 1, mesh + 1) if (mesh - end) % (n - end) == 0]


def finished(file: h5py.File, stream: str) -> int:
    """Count the samples of a stream from the first up to the first one that is missing."""
    done = file[stream]["done"][:]
    return int(len(done) if done.all() else done.argmin())


def missing(file: h5py.File, stream: str, count: int) -> list[int]:
    """List those of the first `count` samples that are not there yet."""
    return [int(index) for index in np.flatnonzero(file[stream]["done"][:count] == 0)]


def write(file: h5py.File, stream: str, index: int, fields: Mapping[str, NDArray[Any]]) -> None:
    """Write one sample, and mark it as done only when its arrays have been handed to the system.

    Args:
        file: The file.
        stream: The group.
        index: The sample's number.
        fields: Inputs, parameters and outputs by name.
    """
    group = file[stream]
    for name, array in fields.items():
        group[name][index] = array
    file.flush()
    group["done"][index] = 1
    file.flush()


def create(path: Path, layout: Layout, source: h5py.File | None = None) -> None:
    """Make a file with room for the layout's samples and take over those that `source` already has.

    Args:
        path: The file.
        layout: What it is made for.
        source: A smaller file of the same samples.
    """
    described = layout.description
    with opened(path, "w") as file:
        file.attrs.update(
            problem=described.name,
            title=described.title,
            equation=described.equation,
            boundary=described.boundary,
            distribution=described.distribution,
            mesh=layout.mesh,
            **layout.attributes,
        )
        for stream, count in layout.counts.items():
            group = file.create_group(stream)
            allocate(group, layout, count)
            if source is not None:
                _copy(source[stream], group)


def room(file: h5py.File) -> dict[str, int]:
    """Return for how many samples of each stream the file was made."""
    return {stream: len(file[stream]["done"]) for stream in ("train", "test")}


@contextmanager
def opened(path: Path, mode: Literal["r", "r+", "w"] = "r") -> Iterator[h5py.File]:
    """Open a file without HDF5's own lock, which would keep readers from a file that is being filled."""
    with h5py.File(path, mode, locking=False) as file:
        yield file


def allocate(group: h5py.Group, layout: Layout, count: int) -> None:
    """Make a stream's datasets for `count` samples of the layout's grid."""
    _dataset(group, "done", (count,), h5py.h5t.NATIVE_UINT8)
    for name, shape in layout.shapes.items():
        _dataset(group, name, (count, *shape), h5py.h5t.IEEE_F32LE)
    for tensor in layout.description.tensors:
        group[tensor.name].attrs.update(units=tensor.units, meaning=tensor.meaning)


def _dataset(group: h5py.Group, name: str, shape: tuple[int, ...], kind: Any) -> None:
    early = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    early.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    early.set_obj_track_times(False)
    if shape[0] > 0 and len(shape) > 1:
        early.set_chunk((1, *shape[1:]))
    h5py.h5d.create(group.id, name.encode(), kind, h5py.h5s.create_simple(shape), early)


def _copy(source: h5py.Group, target: h5py.Group) -> None:
    for name in target:
        for index in range(min(len(source[name]), len(target[name]))):
            target[name][index] = source[name][index]


def _requested(file: h5py.File, problem: Problem | None) -> Problem:
    stored = str(file.attrs["problem"])
    if problem is None:
        return PROBLEMS[stored]
    if problem.source.name != stored:
        raise UserError(f"expected samples of {problem.name} but {file.filename} holds those of {stored}")
    return problem


def _strided(dataset: h5py.Dataset, rows: slice, steps: tuple[int, ...]) -> Array:
    sides = tuple(-(-points // step) for points, step in zip(dataset.shape[1:], steps, strict=True))
    return _each(dataset, rows, sides, lambda field: field[_every(steps)])


def _outputs(dataset: h5py.Dataset, rows: slice, steps: tuple[int, ...], description: Description) -> Array:
    if description.output_grid is None:
        return _strided(dataset, rows, steps)
    common = common_grid(description.output_grid)
    strides(description, dataset.shape[1], common)  # a common grid of other points would lie elsewhere
    return _each(dataset, rows, common, lambda field: block_mean(field, common))


def _slopes(dataset: h5py.Dataset, rows: slice, steps: tuple[int, ...]) -> Array:
    gradients = (derivatives.gradient(dataset[index])[_every(steps)] for index in range(rows.start, rows.stop))
    return np.stack(list(gradients))


def _each(dataset: h5py.Dataset, rows: slice, sides: tuple[int, ...], change: Callable[[Array], Array]) -> Array:
    # One stored field at a time is in memory.
    changed = np.empty((rows.stop - rows.start, *sides), dtype=np.float32)
    for field, index in zip(changed, range(rows.start, rows.stop), strict=True):
        field[...] = change(dataset[index])
    return changed


def _every(steps: tuple[int, ...]) -> tuple[slice, ...]:
    return tuple(slice(None, None, step) for step in steps)
