"""The draft of samples that have points of their own: mesh files, and clouds in arrays."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from schema.card import AREA, BOUNDARY, COORDINATES, DISTANCE
from schema.problem import UNEVEN
from training.data.readers import DataFile, LazyArray, last_name
from training.problems.ambiguity import times_of
from training.problems.draft_file import Draft, DraftError, Tensor, plain_name, shown
from training.problems.draft_stacked import add_sensors
from training.problems.problem_file import FEWEST_POINTS
from training.problems.roles import assign_roles, doubt_of_number, is_positive, nothing, sort_out, unresolved_in
from training.problems.sections import SPACE
from training.problems.wire_names import wire_name

# Names of arrays of coordinates, and of numbers of points.
POINTS = """
xy xyz coordinates coordinate coords coord points pos position positions nodes vertices locations pointcloud trunk x1
"""
COUNTS = """
n count counts n_points npoints num_points n_nodes num_nodes lengths
"""
STEPS = frozenset({"dt", "delta_t", "time_step", "timestep", "step_size", "frame_dt", "dt_save", "dt_frame"})
"""Names of numbers that may be the time between two frames."""
IN_ADVANCE = "inputs: it changes in time and is no output, so every request needs its future: else name it in OUTPUTS"


def mesh(made: Draft, file: DataFile, outputs: Sequence[str]) -> Draft:
    """Complete the draft for mesh files, or series of meshes, one sample each, by the fields of the first one."""
    made.points, made.cells = {"dimensions": file.arrays[COORDINATES].shape[-1]}, AREA in file.arrays
    frames = next((one.shape[1] for one in file.arrays.values() if is_timed(one)), 0)
    for one in file.arrays.values():
        points = file.arrays[COORDINATES].shape[:2]
        if is_timed(one):
            add_frames(made, one, outputs, changes=bool((one.read() != one.read()[:, :1]).any()))
        elif frames and one.shape[1:3] == (frames, points[1]):  # of a file beside the series
            add_frames(made, one, outputs, changes=True)
        elif frames and one.shape[1:] == (frames,):
            made.tensors.append(number_per_frame(one))
        elif one.shape == points[:1]:
            if not sort_out(made, one, outputs):
                made.tensors.append(number_of_mesh(one, is_output=one.name in outputs and not frames))
        elif one.shape[:2] != points:
            made.left_out[one.name] = (
                f"its shape {' x '.join(map(str, one.shape[1:]))} is not that of {points[1]} points"
            )
        elif one.name not in {COORDINATES, AREA}:
            vector, role = len(one.shape) > 2, "inputs" if one.name in {BOUNDARY, DISTANCE} - {*outputs} else ""
            made.tensors.append(Tensor(wire_name(one.name), one, role, one.shape[-1] if vector else 0))
    made.tensors.sort(key=lambda tensor: tensor.role == "parameters")
    assign_roles(made, file, outputs)
    made.remarks += said_of_places(file.arrays[COORDINATES])
    nodes = file.arrays[COORDINATES].read()[0]
    if several := len(nodes) - len(np.unique(nodes, axis=0)):
        made.points["merge"] = True
        made.remarks.append(f"{several} nodes are where others are: `merge` takes the mean of their values")
    kind = "series of meshes" if file.format == "series" else "file"
    made.remarks.append(f"every {kind} is one sample; {file.path.name} has {file.arrays[COORDINATES].shape[1]} points")
    time_step(made, np.asarray(file.coordinates.get("time", ()), np.float64))
    return made


def said_of_places(coordinates: LazyArray) -> list[str]:
    """Say which coordinates of points are too far from the origin for float32 to hold how they vary."""
    return unresolved_in(COORDINATES, coordinates, SPACE[: coordinates.shape[-1]], -1)


def is_timed(one: LazyArray) -> bool:
    """Return whether an array of a series of meshes has an axis of time."""
    return (one.dimensions or ("",))[0] == "time"


def add_frames(made: Draft, one: LazyArray, outputs: Sequence[str], *, changes: bool) -> None:
    """Add a field `[sample, time, point, (component)]`: a state with what follows, a forcing, or a steady input.

    Without `changes` it is the same in all frames of the first sample.
    """
    name, components = wire_name(one.name), one.shape[3] if len(one.shape) > 3 else 0
    found = Tensor(name, one, "inputs", components)
    if not changes and one.name not in outputs:
        made.tensors.append(found)
    elif outputs and one.name not in outputs:
        made.tensors.append(replace(found, per_frame=True, guess=IN_ADVANCE))
    else:
        made.tensors += [replace(found, name=f"{name}_first"), replace(found, role="outputs")]
        made.remarks.append(f"{one.name} has frames: the draft learns the step from one frame to the next")
        made.moving = True


def number_of_mesh(one: LazyArray, *, is_output: bool) -> Tensor:
    """Return an array `[sample]` as an output that is a number or as a parameter."""
    if is_output:
        return Tensor(wire_name(one.name), one, "outputs", scalar=True)
    return Tensor(wire_name(one.name), one, "parameters", guess=doubt_of_number(one))


def number_per_frame(one: LazyArray) -> Tensor:
    """Return an array `[sample, time]` as a parameter that has a value for every frame."""
    return Tensor(wire_name(one.name), one, "parameters", per_frame=True, guess=IN_ADVANCE)


def time_step(made: Draft, times: NDArray[np.float64]) -> None:
    """Set the time between two frames, where there are any, to what times say."""
    if made.moving and len(times) > 1 and np.isfinite(times).all() and times[-1] > times[0]:
        made.step, apart = float(f"{(times[-1] - times[0]) / (len(times) - 1):.6g}"), np.diff(times)
        if np.ptp(apart) > UNEVEN * made.step:
            made.guesses["step"] = (
                f"the mean, but frames are from {apart.min():g} to {apart.max():g} apart, and one network makes all "
                "steps: leave out frames, or interpolate in time"
            )
    elif made.moving and (said := {name: one for name, one in made.constants.items() if plain_name(name) in STEPS}):
        name, made.step = next((name, one) for name, one in said.items())
        made.guesses["step"] = f"{name} is {made.step:g}, unless that is the step of a solver that saves fewer frames"
    elif made.moving:
        made.guesses["step"] = "the file does not say how much time is between two frames"


def refuse_moving(arrays: Sequence[LazyArray], path: Path) -> None:
    """Refuse trajectories on points that move, `[sample, time, point, dimension]`.

    Raises:
        DraftError: There are such coordinates, and a field beside them.
    """
    for one in arrays:
        if len(one.shape) == 4 and one.shape[-1] in {2, 3} and is_called(one, POINTS) and not one.dimensions:
            beside = [each for each in arrays if each is not one and each.shape[:3] == one.shape[:3]]
            if beside and moves(one):
                raise DraftError(
                    f"{path}: expected points [sample, point, dimension] that stay where they are but those of "
                    f"{one.described} beside {beside[0].described} move: save displacements from them as a field"
                )


def moves(coordinates: LazyArray) -> bool:
    """Return whether the first sample's points `[sample, time, point, dimension]` move; padding is left out."""
    values = coordinates.read(0, 1)
    return bool((np.nan_to_num(values) != np.nan_to_num(values[:, :1])).any())


def is_called(one: LazyArray, names: str) -> bool:
    """Return whether an array has one of some names, or one of them is a word of its name."""
    return bool({last_name(one), *re.split(r"[^a-z]+", last_name(one))} & {*names.split()})


def doubt_of_one_solution(fields: Sequence[LazyArray], times: LazyArray | None) -> str:
    """Say why the first axis may count the points of one solution rather than samples; empty where nothing says so.

    An array has two or three coordinates for each of them, as `X_star [point, 2]`, and times count another axis of one.
    """
    called = (one for one in fields if len(one.shape) == 2 and one.shape[1] in {2, 3} and is_called(one, f"{POINTS} x"))
    points, frames = next(called, None), 0 if times is None else max(times.shape)
    if points is None or not any(frames in one.shape[1:] for one in fields):
        return ""
    return (
        f"the first axis ({points.samples}), or are these the points of one solution, at {shown(points)}? Then save "
        f"those of several as arrays [sample, time, point], beside {points.name}"
    )


def coordinates_of(arrays: Sequence[LazyArray]) -> LazyArray | None:
    """Return the array of the coordinates of a cloud, `[sample, point, dimension]`, or `[point, dimension]` of one.

    Its name says that it may be one, and there are fields `[sample, point]` beside it.
    """
    for one in arrays:
        *lead, last = one.shape or (0,)
        if not is_called(one, POINTS) or last not in {2, 3} or one.dimensions or not lead:
            continue
        points = lead[-1]
        fields = [each for each in arrays if each is not one and points in each.shape[1:3]]
        if points >= FEWEST_POINTS and any(len(lead) == 1 or each.samples == lead[0] for each in fields):
            still = len(lead) == 3 and any(each.shape[:3] == one.shape[:3] for each in fields)
            return one if len(lead) < 3 or still else None
    return None


def cloud(
    made: Draft, file: DataFile, outputs: Sequence[str], arrays: Sequence[LazyArray], coordinates: LazyArray
) -> Draft:
    """Complete the draft for points in arrays, padded to one number where counts say how many are valid."""
    points, dimensions = coordinates.shape[-2:]
    others = [one for one in arrays if one is not coordinates]
    on_points = [one for one in others if len(one.shape) in {2, 3} and one.shape[1] == points]
    timed = [one for one in others if len(one.shape) in {3, 4} and one.shape[2] == points and one not in on_points]
    times = times_of([one for one in others if one not in on_points and one.name not in outputs]) if timed else None
    alone = len(coordinates.shape) == 2
    samples = (on_points or timed)[0].samples if alone else coordinates.samples
    made.points = {"coordinates": coordinates.name, "dimensions": dimensions}
    if coordinates.name in file.sources:  # the section has no files of its own
        sources = {label: (tuple(map(str, paths)), key) for label, (paths, key) in file.sources.items()}
        made.files = sources[coordinates.name][0]
        made.sources = {label: (paths, key) for label, (paths, key) in sources.items() if paths != made.files}
    if times is not None:
        made.left_out[times.name] = "it holds times: see the section [time]"
    for one in (one for one in others if one is not times):
        name, shape = wire_name(one.name), " x ".join(map(str, one.shape))
        if one in on_points and one.samples == samples:
            components = one.shape[2] if len(one.shape) == 3 else 0
            made.tensors.append(Tensor(name, one, "", components, positive=not components and is_positive(one)))
        elif one in timed and one.samples == samples:
            add_frames(made, one, outputs, changes=True)
        elif one.shape == (samples,) and one.name not in outputs and is_count(one, points):
            made.points["counts"] = one.name
        elif number := as_number(one, samples, timed[0].shape[1] if timed else 0, outputs):
            made.tensors.append(number)
        else:
            made.left_out[one.name] = f"its shape {shape} is not [{samples} samples, {points} points]"
    if len(made.tensors) == 1:  # on points alone no output depends
        add_sensors(made, others, samples, outputs)
    made.tensors.sort(key=lambda tensor: tensor.role == "parameters")
    frames_of_cloud(made, timed, times)
    assign_roles(made, file, outputs)
    if len(coordinates.shape) == 2 and not (made.of("inputs") or made.of("parameters")):
        raise DraftError(nothing(made, file, "an input field or a parameter beside the points of all samples"))
    made.remarks += said_of_places(coordinates)
    made.remarks.append(
        f"all samples have the points {shown(coordinates)}"
        if alone
        else f"every sample has points of its own, at {shown(coordinates)}"
    )
    return made


def as_number(one: LazyArray, samples: int, frames: int, outputs: Sequence[str]) -> Tensor | None:
    """Return an array as a number of every sample of a cloud, or of every frame; None where it is none."""
    if one.samples != samples or not one.shape:
        return None
    name, single = wire_name(one.name), all(side == 1 for side in one.shape[1:])
    if one.name in outputs and len(one.shape) < 3:
        several = 0 if single else one.shape[1]
        return Tensor(name, one, "outputs", several, scalar=True, positive=is_positive(one))
    if frames and one.shape[1:] == (frames,):
        return number_per_frame(one)
    return Tensor(name, one, "parameters", guess=doubt_of_number(one)) if single else None


def frames_of_cloud(made: Draft, timed: Sequence[LazyArray], times: LazyArray | None) -> None:
    """Mark the axis of time of clouds, where there is any, beside which other fields are inputs."""
    if made.moving:
        count = f"of {timed[0].shape[1]}: {shown(timed[0])} has it before its points"
        made.guesses["time"] = f"time is the first axis behind the samples', {count}"
        made.tensors = [replace(one, role=one.role or "inputs") for one in made.tensors]
    time_step(made, np.asarray(() if times is None else times.read(), np.float64).ravel())


def is_count(one: LazyArray, most: int) -> bool:
    """Return whether numbers may be those of the valid points of every sample."""
    values = one.read()
    fits = (values == np.floor(values)).all() and values.min() >= FEWEST_POINTS and values.max() <= most
    return one.name.rpartition("/")[2].lower() in COUNTS.split() and bool(fits)
