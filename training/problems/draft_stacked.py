"""The draft of files that say less than others: one array alone, with channels or frames, and the data of DeepONets.

An array `[sample, channel, *grid]` with nothing beside it holds inputs and outputs in one axis, one
`[sample, time, *grid]` states; both are asked for. Files of DeepONets have values at sensors, which may be on no grid
of the outputs, and the points of these (`branch`, `trunk` and `output`, or `X0`, `X1` and `y` of DeepXDE).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from schema.problem import TIMES
from training.data.readers import SPACE, DataFile, LazyArray, last_name
from training.problems.ambiguity import COMPONENTS, NOISE, STEPS, of_one_solution, smoothness
from training.problems.draft_file import Draft, DraftError, Tensor, shown
from training.problems.roles import is_positive
from training.problems.wire_names import wire_name

NUMBERED = re.compile(r"(.*?)(\d+)((?:\.\D+)?)")  # `step_0001`, and `sample_1.u` of records
COUNTED = STEPS | {"sample", "samples", "case", "run", "sim", "simulation", "trajectory", "realization"}
"""Words of names that a number follows, which counts them."""
SENSORS = 128
"""The most numbers of a sample that are one parameter with components."""


def lone_array(arrays: Sequence[LazyArray]) -> LazyArray | None:
    """Return the one array, with two axes or more behind that of the samples, beside which there are lines at most."""
    along = TIMES | SPACE
    found = [
        one for one in arrays if one.shape and (last_name(one) not in along or np.prod(one.shape) > max(one.shape))
    ]
    return found[0] if len(found) == 1 and len(found[0].shape) > 2 and found[0].dimensions is None else None


def channels(one: LazyArray) -> str:
    """Return whether the `first` axis behind the samples' of a lone array, or the `last`, has channels; or nothing."""
    sides = one.shape[1:]
    if len(sides) > 3 or (len(sides) == 3 and 1 in sides):
        return ""
    return next((where for where, at in (("first", 0), ("last", -1)) if 1 < sides[at] <= COMPONENTS), "")


def time_of(one: LazyArray) -> str:
    """Return where the frames of a lone array are by its shape: `last` where its other axes alone are alike.

    Of four axes behind the samples' a short one holds components.

    Raises:
        DraftError: They are between the components and the grid.
    """
    sides = one.shape[1:]
    few = next((at for at in (0, 3, 2) if sides[at] <= COMPONENTS), None) if len(sides) == 4 else None
    own = [at for at in range(len(sides)) if at != few]
    if len(own) != 3:
        return "first"
    first, second, third = (sides[at] for at in own)
    where = "last" if first == second != third > COMPONENTS else "first"
    if (few, where) == (0, "first") and not first == second == third:  # [sample, component, time, *grid]
        raise between(one, 2, f"seems to count frames behind {few_of(sides[0])}")
    if (few, where) == (3, "last"):
        raise between(one, 3, f"seems to count frames before {few_of(sides[3])}")
    return where


def few_of(count: int) -> str:
    """Name components by how many they are."""
    return f"{count} component{'s' * (count > 1)}"


def between(one: LazyArray, axis: int, reason: str) -> DraftError:
    """Return the error of an array whose axis of time is between others."""
    return DraftError(
        f"{shown(one)}: expected time on the first or on the last axis behind the samples' but axis {axis} {reason}: "
        f"save np.moveaxis({one.name}, {axis}, 1)"
    )


def refuse_series(arrays: Sequence[LazyArray], file: DataFile, outputs: Sequence[str]) -> None:
    """Refuse a lone array `[…, row, column]` whose first axis seems to count frames, unless it is called an output.

    Raises:
        DraftError: It does.
    """
    if (one := lone_array(arrays)) is None or len(one.shape) > 3 or one.name in outputs:
        return
    along, across = smoothness([one])
    if channels(one) or file.samples or not along < NOISE > across or one.samples < 2 * COMPONENTS:
        return
    raise DraftError(
        f"{file.path}: expected samples but found {shown(one)} alone, whose values change smoothly along its first "
        f"axis, as the frames of one trajectory do: {lines_that_cut(file, one)}; "
        f"save inputs and outputs as arrays of their own; or, if it counts samples, say OUTPUTS={one.name}"
    )


def refuse_named_series(arrays: Sequence[LazyArray], file: DataFile) -> None:
    """Refuse a lone array whose first axis is that of time by its name, as one variable of ERA5.

    Raises:
        DraftError: It is.
    """
    if len(arrays) == 1 and arrays[0].first.lower() in TIMES:
        raise DraftError(
            f"{file.path}: expected samples but found {shown(arrays[0])} alone, whose first axis is "
            f"{arrays[0].first}, the frames of one trajectory: {lines_that_cut(file, arrays[0])}"
        )


def lines_that_cut(file: DataFile, one: LazyArray) -> str:
    """Say how a series of frames becomes trajectories."""
    count, frames = cut(one.samples)
    sides = ", ".join(map(str, one.shape[1:]))
    return (
        f"cut it into shorter ones, [sample, time, ...], with "
        f"np.savez('cut.npz', u=a[:{count * frames}].reshape({count}, {frames}, {sides})), a = {loaded(file, one)}"
    )


def refuse_numbered(file: DataFile, outputs: Sequence[str]) -> None:
    """Refuse arrays of one shape whose names differ by a number, a sample or a frame each, unless one is an output.

    Raises:
        DraftError: There are such arrays.
    """
    alike: dict[tuple[str, str, tuple[int, ...]], list[tuple[str, str]]] = {}
    for name, one in file.arrays.items():
        if (found := NUMBERED.fullmatch(name)) and one.dimensions is None and (len(one.shape) > 1 or found[3]):
            alike.setdefault((found[1], found[3], one.shape), []).append((found[2], name))
    for (start, end, shape), each in alike.items():
        padded = {len(number) for number, _ in each}
        counted = re.split(r"[^a-z]+", start.lower().strip("_-. "))[-1] in COUNTED
        several = len(each) > 2 and (counted or (len(padded) == 1 and padded.pop() > 2))
        if file.samples or not several or {*outputs} & {name for _, name in each}:
            continue
        group, _, stem = start.rpartition("/") if file.format == "hdf5" else ("", "", start)
        field, where = f"[{end[1:]!r}]" if end else "[()]", f"f[{group!r}]" if group else "f"
        raise DraftError(
            f"{file.path}: expected an array of all samples but found {len(each)} of one shape, {each[0][1]} … "
            f"{each[-1][1]} [{' x '.join(map(str, shape))}], a sample or a frame each: stack them, "
            f"np.stack([{where}[n]{field} for n in sorted({where}, key=lambda n: (len(n), n)) "
            f"if n.startswith({stem!r})]), f the open file, and save [sample, ...], or [sample, time, ...] of several "
            "runs where they are frames; or name the outputs among them"
        )


def cut(samples: int) -> tuple[int, int]:
    """Return how many trajectories of how many frames a series is cut into."""
    frames = max(COMPONENTS + 1, min(20, samples // 10))
    return samples // frames, frames


def refuse_one_run(file: DataFile) -> None:
    """Refuse a file of one run where runs are samples.

    Raises:
        DraftError: It is one.
    """
    one = next(iter(file.arrays.values()), None)
    if file.format != "dedalus" or one is None:
        return
    count, frames = cut(one.samples)
    parts = []
    for name, each in file.arrays.items():
        shape = ", ".join(map(str, (count, frames, *each.shape[1:])))
        parts.append(f"{wire_name(name)}=f['tasks/{name}'][:{count * frames}].reshape({shape})")
    raise DraftError(
        f"{file.path}: expected the files of several runs, each of which is a sample, but found one of {one.samples} "
        f"frames: describe those of all runs, 'runs/*/{file.path.name}'; or learn the step in time from this run "
        f"alone, cut into trajectories, f = h5py.File('{file.path.name}'); np.savez('cut.npz', {', '.join(parts)})"
    )


def refuse_one_solution(field: LazyArray, others: Sequence[LazyArray], file: DataFile) -> None:
    """Refuse a file of one solution, all of whose axes coordinates and times count, as `u [x, t]` beside `x` and `t`.

    Raises:
        DraftError: It is one.
    """
    if lines := of_one_solution(field, others):
        raise DraftError(
            f"{file.path}: expected samples but found one solution, since {' and '.join(lines)} count the axes of "
            f"{shown(field)}: save arrays [sample, ...] of several solutions, or a file for each, and describe all"
        )


def loaded(file: DataFile, one: LazyArray) -> str:
    """Return the expression that loads an array with NumPy."""
    name = file.path.name
    if one.dimensions is not None:
        return f"xarray.open_dataset('{name}')['{one.name}'].values"
    return f"np.load('{name}')" if file.format == "npy" else f"np.load('{name}')['{one.name}']"


def add_channels(made: Draft, one: LazyArray, where: str) -> str:
    """Add the channels of a lone array as fields, the last of them as the output, and return the doubt of it."""
    count = one.shape[1 if where == "first" else -1]
    made.time = where
    for channel in range(count):
        part = channel_of(one, where, channel)
        role = "outputs" if channel == count - 1 else "inputs"
        name = f"{wire_name(one.name)}_{channel}"
        made.tensors.append(Tensor(name, one, role, frame=channel, positive=is_positive(part)))
    axis = "second" if where == "first" else "last"
    made.remarks.append(f"`frame` is the number on the {axis} axis of {one.name}, from 0 to {count - 1}")
    return (
        f"outputs: the last of the {count} on the {axis} axis of {shown(one)}, and the others are inputs: rename "
        "their tables where it is otherwise; or are these frames in time, or the components of a vector?"
    )


def channel_of(one: LazyArray, where: str, channel: int) -> LazyArray:
    """Return one channel of an array."""
    shape = (one.shape[0], *(one.shape[2:] if where == "first" else one.shape[1:-1]))
    at = (slice(None), channel) if where == "first" else (..., channel)
    return replace(one, shape=shape, rows=lambda start, stop: one.rows(start, stop)[at])


def add_sensors(made: Draft, arrays: Sequence[LazyArray], samples: int, outputs: Sequence[str]) -> None:
    """Add arrays `[sample, number]` that are on no grid as parameters with components: there is no other input."""
    for one in arrays:
        fits = len(one.shape) == 2 and one.samples == samples and 1 < one.shape[1] <= SENSORS
        if not fits or one.name in outputs or one.name not in made.left_out:
            continue
        del made.left_out[one.name]
        guess = "numbers of every sample, as of sensors, on no grid of the outputs; or interpolate them to its points"
        made.tensors.append(Tensor(wire_name(one.name), one, "parameters", one.shape[1], components_guess=guess))
