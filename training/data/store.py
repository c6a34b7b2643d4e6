"""Takes pairs of fields, keeps them in an HDF5 file with units and provenance, gives them back on a coarser grid.

Layout: groups `train` and `test`, in each two float32 datasets [sample, *grid] under the names on the wire, one chunk a
sample, and `done` [sample], 1 where the sample is there. What the numbers are is said in attributes.

The program may be killed at any time while it writes samples. So whatever changes a file's structure happens in a copy
that takes its place when it is whole; filling it in changes numbers only, in space that is already allocated (hence no
compression), and a sample is marked as done after its fields have been handed to the system.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import h5py
import numpy as np
from numpy.typing import NDArray

from physics.averages import block_mean, common_grid
from training.data import derivatives
from training.problems.problem import PROBLEMS, Problem

Split = Literal["train", "validation", "test"]
STREAMS: dict[Split, str] = {"train": "train", "validation": "train", "test": "test"}
"""The stored group that holds each split: validation samples follow the training samples."""

Array = NDArray[np.float32]
Points = int | tuple[int, ...]

WITHOUT_FAR_END = ("burgers", "neuralop_darcy")
"""Problems whose grids have no point at the far end of an axis."""

SOURCES = {"darcy_inverse": "darcy"}
"""Problems whose samples are those of another one, with input and output exchanged."""


@dataclass(frozen=True)
class Samples:
    """Inputs and outputs of a problem [sample, *grid] in physical units, and where they come from.

    `gradients` are those of the outputs on the stored mesh, as `training.data.derivatives` gives them, if asked for.
    The outputs of a problem that fixes its answer's grid lie on the common grid of `physics.averages`, where
    symmetries are exact; `answers` are what a network is to give.
    """

    inputs: Array
    outputs: Array
    problem: str
    provenance: str
    gradients: Array | None = None

    @property
    def answers(self) -> Array:
        """The outputs on the grid of the answer."""
        return answer(self.problem, self.outputs)

    @cached_property
    def deviation(self) -> Array:
        """The inputs' deviation at each grid point: the unit of noise."""
        return self.inputs.std(axis=0)


@dataclass(frozen=True)
class Layout:
    """What a file is made for: its problem, points per axis, samples of each split, and its remaining attributes."""

    problem: Problem
    mesh: int
    counts: Mapping[str, int]
    attributes: Mapping[str, str | int | float]

    @property
    def grid(self) -> tuple[int, ...]:
        """Points along each axis of a stored field."""
        return (self.mesh,) * len(self.problem.axes)


def read(
    path: Path,
    split: Split,
    count: int,
    points: Points,
    *,
    after: int = 0,
    problem: str | None = None,
    gradients: bool = False,
) -> Samples:
    """Read the first `count` samples of a split, strided to `points` points per axis.

    One stored field at a time is in memory besides the result, and a file that is still being filled may be read.

    Args:
        path: The file.
        split: Which samples.
        count: How many.
        points: Points per axis, one number for all axes or one for each.
        after: How many training samples come before the validation samples; required for these, else 0.
        problem: What the samples are for, where the file serves several problems; by default the file's own.
        gradients: Give the outputs' gradients too.

    Raises:
        ValueError: the stored mesh cannot be strided to `points`, fewer than `count` samples are there, they are for
            another problem, or `after` does not fit the split.
    """
    if (split == "validation") != (after > 0):
        raise ValueError(f"expected the number of training samples for validation, else 0, but got {after} for {split}")
    stream, rows = STREAMS[split], slice(after, after + count)
    with opened(path) as file:
        asked, ready = _asked(file, problem), max(finished(file, stream) - after, 0)
        mesh = file[stream][asked.output.name].shape[1]
        steps = strides(asked, mesh, points)
        if ready < count:
            raise ValueError(f"expected {count} samples in {split} of {path} but {ready} are there: prepare them first")
        group = file[stream]
        inputs = _strided(group[asked.input.name], rows, steps)
        outputs = _outputs(group[asked.output.name], rows, steps, asked)
        slopes = _slopes(group[asked.output.name], rows, steps) if gradients else None
        return Samples(inputs, outputs, asked.name, str(file.attrs["provenance"]), slopes)


def deviation(path: Path, count: int, problem: Problem) -> Array:
    """Give the inputs' deviation at each point of the stored mesh over the first `count` training samples `[*grid]`.

    One stored field at a time is in memory; deviations about the first field lose no digits to a large mean.
    """
    with opened(path) as file:
        fields = file["train"][problem.input.name]
        first = fields[0].astype(np.float64)
        total, squares = np.zeros_like(first), np.zeros_like(first)
        for index in range(count):
            apart = fields[index] - first
            total += apart
            squares += apart**2
    variance = squares / count - (total / count) ** 2
    return np.sqrt(np.maximum(variance, 0)).astype(np.float32)


def answer(problem: str, outputs: Array) -> Array:
    """Give outputs `[sample, *grid]`, as they were read, on the grid of the problem's answer."""
    sides = PROBLEMS[problem].answer
    return outputs if sides is None else block_mean(outputs, sides)


def source(problem: str) -> str:
    """Name the problem whose files hold the samples of `problem`."""
    return SOURCES.get(problem, problem)


def strides(problem: Problem, mesh: int, points: Points) -> tuple[int, ...]:
    """Give the step along each axis from `mesh` points to `points`.

    Raises:
        ValueError: there is none, or `points` has another number of axes.
    """
    sides = points if isinstance(points, tuple) else (points,) * len(problem.axes)
    if len(sides) != len(problem.axes):
        raise ValueError(f"expected points for the axes {problem.axes} of {problem.name} but got {points}")
    return tuple(stride(problem, mesh, side) for side in sides)


def stride(problem: Problem, mesh: int, points: int) -> int:
    """Give the step from `mesh` to `points` points.

    Raises:
        ValueError: there is none.
    """
    if points not in (sizes := grids(problem, mesh)):
        raise ValueError(f"cannot stride {mesh} points of {problem.name} to {points}; possible are {sizes}")
    end = far_ends(problem)
    return (mesh - end) // (points - end)


def grids(problem: Problem, mesh: int) -> list[int]:
    """List the points per axis of the grids that striding `mesh` points gives."""
    end = far_ends(problem)
    return [n for n in range(end + 1, mesh + 1) if (mesh - end) % (n - end) == 0]


def far_ends(problem: Problem) -> int:
    """Count the far ends of an axis that striding has to keep: a periodic line has none, a square or cube has one."""
    return 0 if problem.name in WITHOUT_FAR_END else 1


def finished(file: h5py.File, split: str) -> int:
    """Count the samples of a split from the first up to the first one that is missing."""
    done = file[split]["done"][:]
    return int(len(done) if done.all() else done.argmin())


def missing(file: h5py.File, split: str, count: int) -> list[int]:
    """List those of the first `count` samples that are not there yet."""
    return [int(index) for index in np.flatnonzero(file[split]["done"][:count] == 0)]


def write(file: h5py.File, split: str, index: int, fields: tuple[Array, Array]) -> None:
    """Write one sample, and only when its fields are out of our hands mark it as done."""
    problem = PROBLEMS[str(file.attrs["problem"])]
    group = file[split]
    group[problem.input.name][index], group[problem.output.name][index] = fields
    file.flush()
    group["done"][index] = 1
    file.flush()


def create(path: Path, layout: Layout, source: h5py.File | None = None) -> None:
    """Make a file with room for the layout's samples and take over those that `source` already has."""
    with opened(path, "w") as file:
        file.attrs.update(
            problem=layout.problem.name,
            title=layout.problem.title,
            equation=layout.problem.equation,
            boundary=layout.problem.boundary,
            distribution=layout.problem.distribution,
            mesh=layout.mesh,
            **layout.attributes,
        )
        for split, count in layout.counts.items():
            group = file.create_group(split)
            allocate(group, layout, count)
            if source is not None:
                _copy(source[split], group)


def room(file: h5py.File) -> dict[str, int]:
    """Say for how many samples of each split the file was made."""
    return {split: len(file[split]["done"]) for split in ("train", "test")}


@contextmanager
def opened(path: Path, mode: Literal["r", "r+", "w"] = "r") -> Iterator[h5py.File]:
    """Open a file without HDF5's own lock, which would keep readers from a file that is being filled."""
    with h5py.File(path, mode, locking=False) as file:
        yield file


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a path to write to; it takes the place of `path` if all goes well and vanishes otherwise."""
    aside = path.with_name(path.name + ".part")
    try:
        yield aside
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def allocate(group: h5py.Group, layout: Layout, count: int) -> None:
    """Make a split's datasets for `count` samples of the layout's grid."""
    early = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    early.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    early.set_obj_track_times(False)
    done = h5py.h5s.create_simple((count,))
    h5py.h5d.create(group.id, b"done", h5py.h5t.NATIVE_UINT8, done, early)
    if count > 0:
        early.set_chunk((1, *layout.grid))
    for quantity in (layout.problem.input, layout.problem.output):
        space = h5py.h5s.create_simple((count, *layout.grid))
        h5py.h5d.create(group.id, quantity.name.encode(), h5py.h5t.IEEE_F32LE, space, early)
        group[quantity.name].attrs.update(units=quantity.units, meaning=quantity.meaning)


def _copy(source: h5py.Group, target: h5py.Group) -> None:
    for name in target:
        for index in range(min(len(source[name]), len(target[name]))):
            target[name][index] = source[name][index]


def _asked(file: h5py.File, problem: str | None) -> Problem:
    own = str(file.attrs["problem"])
    if source(problem or own) != own:
        raise ValueError(f"expected samples of {problem} but {file.filename} holds those of {own}")
    return PROBLEMS[problem or own]


def _strided(dataset: h5py.Dataset, rows: slice, steps: tuple[int, ...]) -> Array:
    sides = tuple(-(-points // step) for points, step in zip(dataset.shape[1:], steps, strict=True))
    return _each(dataset, rows, sides, lambda field: field[_every(steps)])


def _outputs(dataset: h5py.Dataset, rows: slice, steps: tuple[int, ...], problem: Problem) -> Array:
    if problem.answer is None:
        return _strided(dataset, rows, steps)
    common = common_grid(problem.answer)
    strides(problem, dataset.shape[1], common)  # a common grid of other points would lie elsewhere
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
