"""What data files say of the times of frames and of where the points of a grid lie, beside what a problem file says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schema.problem import TIMES, UNEVEN
from training.data.readers import DataFile, last_name, side_by_side
from training.problems.problem_file import ProblemFile
from training.problems.sections import DataError
from training.problems.wire_names import wire_name

LIKE = 1e-3  # the largest part by which the extent of an axis may differ from what its file says


def unlike_times(problem: ProblemFile, files: Sequence[DataFile]) -> list[str]:
    """Return what is worth a look in the times of frames that files say, in sentences.

    Raises:
        DataError: Times descend, or a series of meshes has steps of another length than the first one.
    """
    if problem.time is None:
        return []
    steps: dict[float, DataFile] = {}  # the first file that has each
    lines: list[str] = []
    for file in files:
        times = times_in(file, problem)
        if times.dtype.kind not in "fiu" or times.ndim != 1 or len(times) < 2 or not np.isfinite(times).all():
            continue
        apart = np.diff(times.astype(np.float64))
        usual = float(np.median(apart))
        if usual < 0:
            raise DataError(
                f"{file.path}: its times descend, from {times[0]:g} to {times[-1]:g}; a network steps forward in time: "
                "save the frames in that order"
            )
        if np.ptp(apart) > UNEVEN * abs(usual) and not lines:
            lines.append(
                f"{file.path.name} has from {apart.min():g} to {apart.max():g} between two frames: one network makes "
                "all steps, expected equal ones"
            )
        if any(abs(usual - one) <= UNEVEN * abs(one) for one in steps):
            continue
        if steps and file.format == "series":
            first, other = next(iter(steps.items()))
            raise DataError(
                f"{file.path}: expected {first:g} between two frames, as in {other.path}, but found {usual:g}: one "
                "network makes steps of one length"
            )
        steps[usual] = file
    if len(steps) > 1:
        said = ", ".join(f"{step:g} in {file.path.name}" for step, file in steps.items())
        lines.append(f"files have other times between two frames: {said}; one network makes steps of one length")
    wanted = problem.time.step
    if steps and all(abs(step - wanted) > UNEVEN * abs(step) for step in steps):
        lines.append(
            f"the data have {next(iter(steps)):g} between two frames and [time] says step = {wanted:g}: another unit?"
        )
    return lines


def times_in(file: DataFile, problem: ProblemFile) -> NDArray[Any]:
    """Return the times of frames that a file says: by the name of an axis, or in a line of as many rising numbers.

    Of some programs, lines of times have one number more than there are frames.
    """
    if "time" in file.coordinates:
        return np.asarray(file.coordinates["time"])
    used = {one.array for one in problem.in_files.values()}
    states = [file.arrays[one.array] for one in problem.outputs if one.array in file.arrays]
    counts = {side + more for one in states for side in one.shape for more in (0, 1)}
    for one in file.arrays.values():
        line = one.shape and int(np.prod(one.shape)) == max(one.shape) in counts
        if line and last_name(one) in TIMES and one.name not in used and one.dtype.kind in "fiu":
            values = one.read().ravel()
            if (np.diff(values) > 0).all():
                return values
    return np.empty(0)


def known_positions(problem: ProblemFile, files: Sequence[DataFile]) -> dict[str, list[tuple[DataFile, NDArray[Any]]]]:
    """Return by axis of the grid the files that say where its points lie, with their positions `[point]`."""
    found: dict[str, list[tuple[DataFile, NDArray[Any]]]] = {}
    for axis in () if problem.scattered else problem.axis_names:
        each = [
            (file, np.asarray(one))
            for file in files
            for name, one in file.coordinates.items()
            if wire_name(name) == axis
        ]
        numbers = [(file, one) for file, one in each if one.dtype.kind in "fiu" and len(one) > 1]
        found[axis] = [(file, one) for file, one in numbers if np.isfinite(one).all()]  # a card holds no NaN
    return found


def unlike_positions(by_axis: Mapping[str, Sequence[tuple[DataFile, NDArray[Any]]]]) -> list[str]:
    """Return what is worth a look in the positions of grid points that files say, in sentences.

    Raises:
        DataError: An axis runs in the opposite direction in another file, whose fields would be mirrored.
    """
    lines: list[str] = []
    for axis, known in by_axis.items():
        for file, positions in known[1:]:
            first, lead = known[0]
            said, is_reversed, differs = side_by_side(axis, positions, file.path, lead, first.path)
            if is_reversed:
                raise DataError(
                    f"{file.path}: {said}; expected one direction in all files: "
                    f"turn one, as xarray's sortby('{axis}') does"
                )
            if differs and not any(axis in line for line in lines):
                lines.append(f"{said}: the model takes all samples to lie on one grid")
    return lines


def unlike_axes(problem: ProblemFile, by_axis: Mapping[str, Sequence[tuple[DataFile, NDArray[Any]]]]) -> list[str]:
    """Return where the positions of points that files say are not those of `[axes]`, in sentences."""
    lines: list[str] = []
    for axis in problem.axes:
        for file, positions in by_axis.get(axis.name, ()):
            if positions.ndim > 1:
                break
            apart, step = np.abs(np.diff(positions.astype(np.float64))), axis.spacing(len(positions))
            span, expected = float(apart.sum()), step * len(apart)
            if (np.abs(apart - apart.mean()) > UNEVEN * apart.mean()).any():
                lines.append(
                    f"the axis {axis.name} has from {apart.min():g} to {apart.max():g} between two points in "
                    f"{file.path}: gradients, integrals and other grids take its points to be equally spaced"
                )
                break
            if abs(span - expected) > max(step / 2, LIKE * span):
                lines.append(
                    f"the points of the axis {axis.name} extend over {span:g} in {file.path}, and those of "
                    f'[axes.{axis.name}] over {expected:g}, by length = {axis.length:g} and points = "{axis.points}"'
                )
                break
    return lines
