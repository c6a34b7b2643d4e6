"""What arrays without named axes leave open: which axis counts samples, and whether another one counts time.

By convention the first axis counts samples. Neighbours along it are independent, while fields change little from one
grid point to the next: where the values contradict the convention, or the shapes do and the values say nothing, the
draft asks. The first numbers of a file decide, so that large files are described at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schema.problem import TIMES
from training.data.readers import NUMBERS, SPACE, LazyArray, last_name, roughness, tells_apart
from training.problems.checks import FILLS

COMPONENTS = 4  # the most components that an unnamed axis is taken for
READ = 1 << 24  # bytes of an array that are looked at
MOST_ROWS = 64
STEPS = frozenset(
    {"t", "time", "times", "step", "steps", "timestep", "frame", "frames", "snapshot", "iteration", "iter"}
)
CLEAR = 3.0  # axes along which the roughness differs by this factor are told apart
NOISE = 0.4  # a roughness from which on neighbours have little in common
ELONGATED = 1.5  # a grid whose longest side is so many times longer relative to its shortest is the less likely one
LONG = 2.0  # a plane with sides of a larger ratio may as well be a line in time


def smoothness(fields: Sequence[LazyArray]) -> tuple[float, float]:
    """Return the roughness along the first and along a grid's axis, of the field where they differ most.

    One that is the same along an axis, as a domain repeated for every sample or a coordinate, tells nothing.
    """
    found = [(1.0, 1.0)]
    for one in fields:
        values = one.read(0, int(np.clip(READ // max(1, one.sample_bytes), 2, MOST_ROWS))).astype(np.float64)
        if len(one.shape) > 2 and one.shape[-1] <= COMPONENTS:  # components may have unlike means
            values = values[..., 0]
        elif len(one.shape) > 3 and one.shape[1] <= COMPONENTS:
            values = values[:, 0]
        with np.errstate(over="ignore"):  # what float32 does not hold stands for nothing missing
            stored = values.astype(np.float32)
        values[~np.isfinite(values) | np.isin(stored, np.asarray(FILLS, np.float32))] = np.nan
        if np.isfinite(values).any():
            scaled = values / (np.nanmax(np.abs(values)) or 1.0)  # squares of 1e-200 would be zero
            along, across = roughness(scaled, 0), roughness(scaled, -1)
            found += [(max(along, 1e-9), max(across, 1e-9))] if min(along, across) > 0 else []
    return max(found, key=lambda pair: abs(np.log(pair[0] / pair[1])))


def sample_axis(fields: Sequence[LazyArray], others: Sequence[LazyArray], files: int) -> tuple[str, str]:
    """Return what counts samples (`first` or `last` axis, or `file`), and why it may be otherwise; empty where clear.

    Args:
        fields: Arrays of more than a number per sample, all of the same number of samples.
        others: All other arrays of numbers.
        files: How many data files there are.
    """
    lead = max(fields, key=lambda one: len(one.shape))
    # Where the last axis counts samples, fields that are the same for all have none.
    fields = [one for one in fields if one.shape != lead.shape[:-1]]
    shape = lead.shape
    first, last = (f"the first axis ({shape[0]})", f"the last axis ({shape[-1]})")
    if files > 1 and (lines := of_one_solution(lead, others)):
        return "file", f"files, one solution each, since {' and '.join(lines)} count its axes"
    if (
        (times := times_of(others)) is not None
        and max(times.shape) == shape[0]
        and (np.diff(times.read().ravel()) > 0).all()
    ):
        moved = f"np.moveaxis({fields[0].name}, 0, 1)"
        return "first", f"{first}, which {times.name} may count as times: then move it behind the samples', {moved}"
    # Whether the last axis may count them, too.
    same = shape[-1] > COMPONENTS and {one.shape[-1] for one in fields} == {shape[-1]}
    alike = same and shape[-1] != shape[0]
    vectors = {max(one.shape): one.name for one in others if one.shape and is_list(one)}
    counted = f"as many as {vectors[shape[-1]]} has" if alike and shape[-1] in vectors else ""
    if shape[0] in vectors and not counted:
        return "first", ""
    along, across = smoothness(fields)
    smooth, turned_smooth = along >= CLEAR * across, across >= CLEAR * along
    kept, turned = ([side for side in sides if side > COMPONENTS] or [1] for sides in (shape[1:], shape[:-1]))
    uneven = len(shape) > 2 and ELONGATED * max(turned) / min(turned) < max(kept) / min(kept)
    if samples_second(lead):
        said = (
            f"{first}, or the second ({shape[1]}), along which values change most: then np.moveaxis({lead.name}, 1, 0)"
        )
        return "first", said
    still = max(along, across) < NOISE  # one sample alone, too, or samples in the order of a parameter
    cases = (
        (smooth, "first", f"{first}, or {last}, {counted}?" if counted else ""),
        (counted, "last", f"{last}, {counted}, rather than {first}"),
        (same and turned_smooth, "last", f"{last}, along which values change more than along {first}"),
        (files > 1 and (still or len(shape) == 2), "file", f"files, one sample each, rather than by {first}"),
        (still, "first", f"{first}, along which values change smoothly, or is every file one sample?"),
        (alike and len(shape) == 2 and shape[0] < shape[1], "first", f"{first}, or {last}?"),
        (alike and uneven, "last", f"{last}, rather than {first}: the grid is more even"),
    )
    return next(((where, doubt) for holds, where, doubt in cases if holds), ("first", ""))


def samples_second(field: LazyArray) -> bool:
    """Return whether values change along the second axis much more than along the first and the last, as of frames."""
    if len(field.shape) < 3 or field.shape[1] <= COMPONENTS or field.shape[0] <= COMPONENTS:
        return False
    values = field.read(0, int(np.clip(READ // max(1, field.sample_bytes), 2, MOST_ROWS))).astype(np.float64)
    if not np.isfinite(values).all():
        return False
    scaled = values / (np.abs(values).max() or 1.0)
    along, second, across = (roughness(scaled, axis) for axis in (0, 1, -1))
    return second >= CLEAR * max(along, across)


def of_one_solution(field: LazyArray, others: Sequence[LazyArray]) -> list[str]:
    """Return the lines of times and coordinates of which each counts another axis of a field; none where one is left.

    No axis of it counts samples then: of `u [t, x]` beside `t` and `x`.
    """
    found = list[str]()
    left = [one for one in others if one.shape and last_name(one) in TIMES | SPACE and is_line(one)]
    for side in field.shape:
        one = next((one for one in left if max(one.shape) == side), None)
        if one is None:
            return []
        left.remove(one)
        found.append(one.name)
    return found


def is_line(one: LazyArray) -> bool:
    """Return whether an array is one line of numbers that grow or fall all along it."""
    if one.dimensions is not None or int(np.prod(one.shape)) != max(one.shape) or max(one.shape) < 2:
        return False
    steps = np.diff(one.read().ravel().astype(np.float64))
    return bool((steps > 0).all() or (steps < 0).all())


def is_list(one: LazyArray) -> bool:
    """Return whether an array is one line of numbers that are no times or coordinates by its name."""
    return int(np.prod(one.shape)) == max(one.shape) and last_name(one) not in TIMES | SPACE


def doubt_of_time(sides: tuple[int, ...], others: Sequence[LazyArray]) -> tuple[int, str]:
    """Return which axis of a grid may count time, and why; an empty text where nothing says so.

    Args:
        sides: Points per axis of the grid.
        others: The arrays of numbers that are no fields.
    """
    times = times_of(others)
    if times is not None and max(times.shape) in sides:
        return sides.index(max(times.shape)), f"{times.name} has {max(times.shape)} values, too"
    if len(sides) == 3 and len({*sides}) == 2 and sides[0] != sides[2]:
        odd = 0 if sides[1] == sides[2] else 2
        return odd, f"it has {sides[odd]} points, and both others {sides[1]}"
    if len({*sides}) == 3:
        odd = 0 if sides[0] < sides[2] else 2
        return odd, f"it has {sides[odd]} points, and the others {sides[1]} and {sides[2 - odd]}"
    if len(sides) == 2 and max(sides) > LONG * min(sides):
        return 0 if sides[0] < sides[1] else 1, f"it has {min(sides)} points, and the other {max(sides)}"
    return 0, ""


def doubt_of_points(fields: Sequence[LazyArray], sides: tuple[int, ...]) -> str:
    """Say why arrays `[sample, point]` may be those of a cloud rather than of a line; empty where nothing says so.

    Args:
        fields: Arrays of more than a number per sample, all of the same number of samples.
        sides: Points per axis of the grid.
    """
    if len(sides) > 1:
        return ""
    if pairs := [one for one in fields if len(one.shape) == 3 and {2, 3} & {one.shape[1], one.shape[2]}]:
        return f"{pairs[0].name} may hold coordinates: then name it in [points] instead of [axes]"
    if len(fields) > 2 and {"x", "y"} <= {*map(last_name, fields)}:
        return "x and y may be coordinates: then [points] takes one array [sample, point, 2] of both"
    return ""


def repeated_row(one: LazyArray) -> LazyArray | None:
    """Return the times or coordinates that an array [sample, point] repeats for every sample; None of other arrays."""
    if last_name(one) not in TIMES | SPACE or len(one.shape) != 2 or min(one.shape) < 2:
        return None
    values = one.read()
    alike = values.dtype.kind in "fiu" and (values == values[:1]).all()
    return LazyArray.of(one.name, values[0]) if alike else None


def times_of_samples(one: LazyArray) -> NDArray[Any] | None:
    """Return the times [sample, frame] of an array that has them for every sample, each rising; None of others."""
    if last_name(one) not in TIMES or len(one.shape) != 2 or min(one.shape) < 2 or one.dtype.kind not in "fiu":
        return None
    values = one.read().astype(np.float64)
    return values if (np.diff(values, axis=1) > 0).all() else None


def along_one_axis(one: LazyArray) -> tuple[int, NDArray[Any]] | None:
    """Return the one axis along which coordinates on a whole grid vary, and their line; None of other arrays."""
    if last_name(one) not in SPACE or one.dtype.kind not in "fiu" or one.samples * one.sample_bytes > READ:
        return None
    values = one.read()
    varying = [axis for axis, side in enumerate(values.shape) if side > 1 and (values != values.take([0], axis)).any()]
    if len(varying) != 1 or sum(side > 1 for side in values.shape) < 2:
        return None
    return varying[0], values[tuple(slice(None) if axis == varying[0] else 0 for axis in range(values.ndim))]


def lines_of_grids(arrays: Mapping[str, LazyArray]) -> dict[str, LazyArray]:
    """Return lines in place of coordinates on a whole grid, as `numpy.meshgrid` makes them: X and Y of one shape.

    Each varies along an axis of its own. One alone may be a field.
    """
    found = {
        name: line
        for name, one in arrays.items()
        if one.dimensions is None and (line := along_one_axis(one)) is not None
    }
    return {
        name: LazyArray.of(name, values, units=arrays[name].units)
        for name, (axis, values) in found.items()
        if any(arrays[other].shape == arrays[name].shape and along != axis for other, (along, _) in found.items())
    }


def numbers_samples(one: LazyArray, samples: int) -> bool:
    """Return whether an array is that of the numbers of samples, by its name and its values."""
    if last_name(one) not in NUMBERS or one.shape != (samples,) or one.dtype.kind not in "fiu":
        return False  # floating numbers, too: whole ones become these where their file says which are missing
    return tells_apart(one.read())


def times_of(arrays: Sequence[LazyArray]) -> LazyArray | None:
    """Return the array whose name says that it holds the times of frames; None where there is none."""
    for one in arrays:
        count = max(one.shape, default=0)
        if last_name(one) in TIMES and count > 1 and int(np.prod(one.shape)) == count:
            return one
    return None


def frames_of(fields: Sequence[LazyArray], times: LazyArray | None, outputs: Sequence[str]) -> dict[str, set[str]]:
    """Return which fields may be trajectories by their shapes, and whether time is their `first` axis or the `last`.

    It is behind the samples' axis, has as many points as there are times or, where no axis has, is the one axis that a
    field has more than another; of the latter it is taken for time where without it there would be no output. Or it has
    as many points as there are numbers of every sample, and two axes or more follow.
    """
    numbers = {one.shape[1] for one in fields if len(one.shape) == 2}
    found: dict[str, set[str]] = {}
    by_times: dict[str, set[str]] = {}
    by_numbers: dict[str, set[str]] = {}
    for one in fields:
        own = one.shape[1:]
        for where, rest, count in (("last", own[:-1], own[-1]), ("first", own[1:], own[0])):
            if not rest or min(rest) <= COMPONENTS:
                continue
            beside = sum(each.shape[1:] == rest for each in fields)
            if times is not None and count == max(times.shape):
                by_times.setdefault(one.name, set()).add(where)
            elif where == "first" and len(rest) > 1 and count in numbers:
                by_numbers.setdefault(one.name, set()).add(where)
            elif count > COMPONENTS and beside and (one.name in outputs or beside < 2):
                found.setdefault(one.name, set()).add(where)
    return by_times or found or by_numbers
