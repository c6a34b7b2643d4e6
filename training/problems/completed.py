"""Arrays of a user's files completed to one for every sample: numbers in a row, a mesh or a mask for all samples.

Points at one place, as the nodes of discontinuous elements, of which every cell has its own, become one point here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schema.parts import Parameter, Quantity
from training.data.readers import MESHES, DataFile, LazyArray, as_column, last_axis_at
from training.problems.problem_file import WEIGHTS, ProblemFile, in_each
from training.problems.sections import INSIDE, SPACE, DataError

CHANGES = "it changes in time, in sample {} at frame {} first: `per_frame = true` if it is known in advance"
DOMAIN_CHANGES = "the domain of sample {} changes, at frame {} first; expected the same in all frames"


def samples_of(problem: ProblemFile, file: DataFile) -> int:
    """Return the number of samples of a file, by the last tensor that has one for each; 0 where there is none.

    Coordinates, weights and the domain may be those of all samples, and count none.
    """
    shared = {"coordinates", "counts", WEIGHTS} if problem.scattered else {INSIDE}
    counted = (one for one in reversed(problem.in_files.values()) if in_each(one) and one.name not in shared)
    return next((file.array(one.array).samples for one in counted), 0)


def unrolled(arrays: list[tuple[Path, LazyArray]], samples: int) -> list[tuple[Path, LazyArray]]:
    """Return arrays of numbers from files of their own, rows `[1, sample]` that have all samples as `[sample]`."""
    shapes = [array.shape for _, array in arrays]
    if any(len(shape) != 2 or shape[0] != 1 for shape in shapes) or sum(shape[1] for shape in shapes) != samples:
        return arrays
    return [(path, as_column(array)) for path, array in arrays]


def in_space(file: DataFile, one: Quantity | Parameter, found: LazyArray) -> LazyArray:
    """Return a vector of a plane mesh with the component across it, 0, where the problem file names it.

    In other files of the set it is another number.
    """
    across = file.flat.get(one.array, -1)
    if across < 0 or len(one.components) != len(SPACE) or found.shape[-1] != len(SPACE) - 1:
        return found

    def rows(start: int, stop: int) -> NDArray[Any]:
        return np.insert(found.rows(start, stop), across, 0, axis=-1)

    return replace(found, shape=(*found.shape[:-1], len(SPACE)), rows=rows)


def unlike_planes(files: Sequence[DataFile]) -> list[str]:
    """Say how far apart the planes of plane meshes are, in a sentence, if at all.

    Raises:
        DataError: Some lie in planes of other directions, so that their coordinates are along other axes.
    """
    meshes = [file for file in files if file.format in MESHES]
    planes = [
        (axis, file, float(file.coordinates[axis][0])) for file in meshes for axis in SPACE if axis in file.coordinates
    ]
    for axis, file, _ in planes:
        if axis != planes[0][0]:
            raise DataError(
                f"{file.path}: all its points have the same {axis}, and those of {planes[0][1].path} the same "
                f"{planes[0][0]}: expected meshes in planes of one direction; turn one into the plane of the others"
            )
    if len({value for _, _, value in planes}) < 2:
        return []
    low, high = min(planes, key=lambda each: each[2]), max(planes, key=lambda each: each[2])
    sides = f"from {low[2]:g} in {low[1].path.name} to {high[2]:g} in {high[1].path.name}"
    return [
        f"{low[0]} is left out of plane meshes that have it {sides}: if the outputs depend on it, save it as a number"
    ]


def with_points(problem: ProblemFile, file: DataFile, source: DataFile, apart: int) -> DataFile:
    """Return a file that has coordinates, weights and counts for every sample, where it has one mesh or no padding.

    `source` has the arrays of one mesh as they are stored. `apart` is the number of samples in files of their own.
    """
    coordinates, counts = problem["coordinates"].array, problem["counts"].array
    found = file.array(coordinates)
    if len(found.shape) == 4 and problem.time is not None:
        found = steady(
            found,
            file.path,
            "the points of sample {} move, at frame {} first; expected points that stay where they are: save "
            "displacements from them as a field",
        )
    samples = samples_of(problem, file) or (found.samples if len(found.shape) == 3 else apart)
    if len(found.shape) == 2:  # one mesh
        found = for_all(source.array(coordinates), samples)
    more = {coordinates: found}
    if problem.weights is not None and len(file.array(problem.weights).shape) == 1:
        more[problem.weights] = for_all(source.array(problem.weights), samples)
    arrays = {**file.arrays, **more}
    if problem.points is not None and problem.points.merge:
        timed = {problem.stored[name].array for name in problem.timed}
        arrays = {
            name: one if name in timed or not in_series(one) else steady(one, file.path, CHANGES)
            for name, one in arrays.items()
        }
        axes = {problem.stored[name].array: axis for name, axis in problem.point_axes.items() if name in problem.stored}
        arrays = merged_points(file.path, arrays, axes, coordinates, problem.weights)
        found = arrays[coordinates]
    if counts not in file.arrays and problem.points is not None and problem.points.counts is None:
        arrays[counts] = LazyArray.of(counts, np.full(samples, found.shape[1] if len(found.shape) > 1 else 0))
    return replace(file, arrays=arrays)


def steady(found: LazyArray, path: Path, sentence: str) -> LazyArray:
    """Return an array `[sample, time, …]` whose frames are all the same without the axis of time.

    What is read later is checked then; the sentence about one that changes has gaps for its sample and frame.

    Raises:
        DataError: They are not the same, when they are read.
    """

    def still(start: int, values: NDArray[Any]) -> NDArray[Any]:
        changed: NDArray[np.bool_] = np.asarray((values != values[:, :1]).any(axis=tuple(range(2, values.ndim))))
        if changed.any():
            sample = int(np.asarray(changed.any(axis=1)).argmax())
            said = sentence.format(start + sample, int(changed[sample].argmax()))
            raise DataError(f"{path}: {found.name!r}: {said}")
        return np.array(values[:, 0])  # without the other frames in memory

    names = found.dimensions and found.dimensions[1:]
    rows = partial(_by_block, found, still)
    return replace(found, shape=(found.shape[0], *found.shape[2:]), rows=rows, dimensions=names)


def _by_block(
    larger: LazyArray, through: Callable[[int, NDArray[Any]], NDArray[Any]], start: int, stop: int
) -> NDArray[Any]:
    """Return what a function of samples makes of a larger array: all of these may not fit into memory."""
    found = [through(first, values) for first, values in larger.blocks(start=start, stop=stop)]
    return np.concatenate(found) if found else through(start, larger.read(start, start))


def in_series(found: LazyArray) -> bool:
    """Return whether an array has the axis of time behind that of the samples."""
    return (found.dimensions or ("",))[0] == "time"


def with_mask(problem: ProblemFile, file: DataFile, source: DataFile) -> DataFile:
    """Return a file that has a mask for every sample, where it has one for all or where NaN mark the outside.

    `source` has a mask for all samples as it is stored. That of trajectories may have frames, all of them the same.
    """
    section = problem.mask
    if section is None or section.nan is None:
        found, samples = source.array(problem[INSIDE].array), samples_of(problem, file)
        if len(found.shape) == len(problem.axes):
            made = for_all(found, samples)
        elif problem.time is not None and len(found.shape) == len(problem.axes) + 2:
            found = file.array(found.name)
            last = problem.data.time == "last" and found.dimensions is None
            made = steady(last_axis_at(found, 1) if last else found, file.path, DOMAIN_CHANGES)
        else:
            return file
        return replace(file, arrays={**file.arrays, made.name: made})
    marked = file.array(section.nan)
    tensor = next((one for one in problem.in_files.values() if one.array == section.nan), None)
    timed = tensor is not None and problem.has_frames(tensor)
    if timed and problem.data.time == "last" and marked.dimensions is None:
        marked = last_axis_at(marked, 1)
    # Of channels, or of a trajectory of which only some frames are read.
    read = (one for one in problem.in_files.values() if isinstance(one, Quantity) and one.array == section.nan)
    frames = sorted({one.frame for one in read if one.frame is not None})
    last = isinstance(tensor, Quantity) and tensor.component_axis == "last" and bool(tensor.components)
    others = range(1 + timed, len(marked.shape) - len(problem.axes)) if not last else (len(marked.shape) - 1,)
    sides = tuple(side for axis, side in enumerate(marked.shape[1:], start=1) if axis not in others)

    def inside(_start: int, values: NDArray[Any]) -> NDArray[np.bool_]:
        known = np.asarray(~np.isnan(values).any(axis=tuple(others)))
        return np.asarray(known[:, frames].all(axis=1)) if frames else known

    if frames:
        sides = sides[1:]
    rows = partial(_by_block, marked, inside)
    made = LazyArray(problem[INSIDE].array, (marked.samples, *sides), np.dtype(np.bool_), rows)
    if timed and not frames:
        made = steady(made, file.path, f"{DOMAIN_CHANGES}, which is where {section.nan!r} is not NaN")
    return replace(file, arrays={**file.arrays, made.name: made})


def for_all(array: LazyArray, samples: int) -> LazyArray:
    """Return one value of a file as an array that has it for every sample."""
    value, shape = array.read(), (samples, *array.shape)
    names = array.dimensions if array.dimensions is None or not array.first else (array.first, *array.dimensions)

    def rows(start: int, stop: int) -> NDArray[Any]:
        return np.broadcast_to(value, (stop - start, *value.shape))

    return replace(array, shape=shape, rows=rows, dimensions=names, first="", shared=True)


# Points at one place


def merged_points(
    path: Path, arrays: Mapping[str, LazyArray], axes: Mapping[str, int], coordinates: str, weights: str | None
) -> dict[str, LazyArray]:
    """Return arrays with one point for all those at one place, in the order of the first of each.

    Args:
        path: The file.
        arrays: Those in it.
        axes: Which axis counts points, by name of the fields.
        coordinates: The name of the coordinates among them.
        weights: The name of the weights, which are summed; of other fields the mean is taken.

    Raises:
        DataError: Not the same points coincide in all samples.
    """
    lead = arrays[coordinates]
    points = lead.shape[1]
    to = coincident(lead.read(0, 1)[0])
    for start, block in lead.blocks() if not lead.shared else ():
        if bad := [start + number for number, each in enumerate(block) if (coincident(each) != to).any()]:
            raise DataError(
                f"{path}: {lead.name!r}: other points coincide in sample {bad[0]} than in sample 0, and `merge` takes "
                "the same for all"
            )
    found = dict(arrays)
    if to.max() + 1 == points:
        return found
    for name, axis in ((name, axis) for name, axis in axes.items() if name in arrays):
        one = arrays[name]
        if one.shape[axis : axis + 1] == (points,):
            shape = (*one.shape[:axis], int(to.max()) + 1, *one.shape[axis + 1 :])
            rows = partial(_merged, one, to, axis, name == weights)
            found[name] = replace(one, shape=shape, dtype=np.dtype(np.float64), rows=rows)
    return found


def coincident(points: NDArray[np.generic]) -> NDArray[np.int64]:
    """Return the number of the place of every point, counted by the first point at each."""
    _, first, to = np.unique(points, axis=0, return_index=True, return_inverse=True)
    return np.asarray(np.argsort(np.argsort(first))[to.ravel()])


def _merged(
    one: LazyArray, to: NDArray[np.int64], axis: int, summed: bool, start: int, stop: int
) -> NDArray[np.float64]:
    values = np.moveaxis(np.asarray(one.rows(start, stop), np.float64), axis, 0)
    found = np.zeros((int(to.max()) + 1, *values.shape[1:]))
    np.add.at(found, to, values)
    count = np.bincount(to).reshape(-1, *(1,) * (values.ndim - 1))
    return np.moveaxis(found if summed else found / count, 0, axis)
