"""Checks of a user's data before any training: their shapes, and all values in one pass over what the columns read."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schema.parts import Parameter, Quantity
from training.problems.columns import Column, Part
from training.problems.problem_file import FEWEST_POINTS, WEIGHTS, ProblemFile
from training.problems.sections import INSIDE, DataError
from training.problems.summary import Spread, Summary

FLAT = 1e-10  # points whose least squared extent is this part of their greatest are degenerate
LEAST = float(np.finfo(np.float32).tiny)  # below it float32 has fewer digits, and networks compute with none
FEWEST = 4  # the least number of points along an axis
FILLS = (
    *(-999.0, -9999.0, -99999.0, -32767.0, -32768.0, -2147483647.0, -2147483648.0, 999999.0, -999999.0, 1e15),
    *(1e20, -1e20, 1e30, -1e30, -1e34, -9.99e33, -9.99e8, 1e35, 1e36),
    *(9.969209968386869e36, 3.4028234663852886e38, -3.4028234663852886e38),  # of netCDF, and the ends of float32
)
"""Numbers that programs write where a value is missing."""
SPLITS = ("training", "validation", "test")
Sink = Callable[[str, int, NDArray[np.float32]], None]


def check(problem: ProblemFile, columns: dict[str, Column], sink: Sink | None = None) -> dict[str, Summary]:
    """Read every value once, refuse what training could not use, pass the rest on in float32, and summarise tensors.

    Raises:
        DataError: Arrays do not fit one another, a value is not finite or not positive where it has to be, an output is
            constant, or zero in a sample or a frame, or one sample is in two splits.
    """
    check_samples(problem, columns)
    check_together(problem, columns)
    found = {name: Summary(name, components_of(column)) for name, column in columns.items()}
    counts = counts_of(columns) if problem.scattered else None
    if problem.mask is not None:
        check_mask(columns[INSIDE])
    for name, start, part, stored in together(columns):
        values, valid = defined(problem, columns, counts, name, start, stored)
        with np.errstate(over="ignore", invalid="ignore"):
            narrow = np.ascontiguousarray(values, dtype=np.float32)
        weighs = name == WEIGHTS and problem.weights is not None
        on_grid = columns[name].on_grid
        maskable = on_grid and not problem.scattered and problem.mask is None
        check_values(part, start, values, narrow, maskable=maskable)
        if on_grid and name in problem.output_names:
            check_size(part, start, narrow, problem.time.history if problem.time is not None and part.timed else None)
        if weighs:
            check_weights(part, start, narrow, valid)
        if name == "coordinates" and valid is not None:
            check_coordinates(part, start, values, valid[:, :, 0])
        axis = -1 if problem.scattered or not on_grid else 2 if part.timed else 1
        found[name].add(narrow, valid, values, axis)
        if valid is not None and (weighs or name in problem.output_names):
            narrow *= valid  # 0 where predictions are 0, too: it takes no part in errors
        if sink is not None:
            sink(name, start, narrow)
    check_variation(problem, columns, found)
    check_duplicates(problem, columns, found)
    return found


def components_of(column: Column) -> tuple[Spread, ...]:
    """Return what is found of each component of a tensor, by its name; nothing of one that is no vector."""
    part = column.parts[0]
    a_number_per_frame = isinstance(part.tensor, Parameter) and part.timed
    return () if a_number_per_frame else tuple(map(Spread, part.tensor.components))


def check_variation(problem: ProblemFile, columns: Mapping[str, Column], found: Mapping[str, Summary]) -> None:
    """Refuse tensors that vary by less than float32 holds, and outputs that do not vary."""
    for name, summary in found.items():
        if 0 < summary.deviation < LEAST:
            label = columns[name].parts[0].label
            raise DataError(f"{label} varies by {summary.deviation:.2g}; expected {LEAST:.2g} or more: another unit")
    for name in problem.output_names:
        if found[name].minimum == found[name].maximum:
            label, lost = columns[name].parts[0].label, "".join(f" ({said})" for said in found[name].unresolved)
            raise DataError(f"{label} is {found[name].minimum:g} everywhere: nothing to learn{lost}")


def check_samples(problem: ProblemFile, columns: Mapping[str, Column]) -> None:
    """Refuse tensors from files of their own with another number of samples than the others."""
    output = columns[problem.output_names[0]]
    for one in columns.values():
        if one.samples != output.samples:
            raise DataError(
                f"{one.parts[0].label} has {one.samples} samples and {output.parts[0].label} {output.samples}; "
                "expected as many"
            )


def check_together(problem: ProblemFile, columns: dict[str, Column]) -> None:
    """Refuse fields on different or too small grids, and trajectories that are too short or of unequal lengths."""
    if problem.time is not None:
        check_frames_together(problem.time.history, problem, columns)
    if problem.scattered:
        check_points_together(problem, columns)
        return
    rank = len(problem.axes)
    lead, *fields = (part for column in columns.values() if column.on_grid for part in column.parts)
    for one in fields:
        if one.shape[-rank:] != lead.shape[-rank:]:
            raise DataError(
                f"{one.label} has the grid {one.shape[-rank:]} and {lead.label} {lead.shape[-rank:]}; "
                "expected one grid for all fields"
            )
    sides = lead.shape[-rank:]
    if "transpose" in problem.symmetries and len({*sides}) == rank:
        raise DataError(f"{lead.label} has the grid {sides}: symmetries.exact: no transpose of it has as many points")
    for axis, side in zip(problem.axes, sides, strict=True):
        if side < FEWEST:
            raise DataError(
                f"{lead.label} has {side} points along the axis {axis.name!r}; expected at least {FEWEST}: name few "
                "layers as `components` of a vector field instead"
            )


def check_frames_together(history: int, problem: ProblemFile, columns: dict[str, Column]) -> None:
    """Refuse trajectories that are too short or of unequal lengths."""
    timed = (*problem.output_names, *(name for name in columns if name in problem.timed - {*problem.output_names}))
    first, *others = (part for name in timed for part in columns[name].parts)
    if first.shape[0] < 1 + history:
        raise DataError(f"{first.label} has {first.shape[0]} frames; expected at least {1 + history}")
    for one in others:
        if one.shape[0] != first.shape[0]:
            raise DataError(
                f"{one.label} has {one.shape[0]} frames and {first.label} {first.shape[0]}; expected as many in all: "
                f"cut longer trajectories to {min(one.shape[0], first.shape[0])} frames, or into several"
            )


def check_points_together(problem: ProblemFile, columns: dict[str, Column]) -> None:
    """Refuse fields with another number of points than the coordinates of the same samples, in whatever files."""
    lead = columns["coordinates"]
    for name, axis in ((name, axis) for name, axis in problem.point_axes.items() if name in columns):
        column = columns[name]
        pairs = np.stack([np.repeat(range(len(each.parts)), [*each.sizes]) for each in (column, lead)], axis=1)
        for one, other in ((column.parts[first], lead.parts[last]) for first, last in np.unique(pairs, axis=0)):
            points = one.shape[axis - 1]
            if points != other.shape[0]:
                raise DataError(f"{one.label} has {points} points and {other.label} {other.shape[0]}; expected as many")


def together(columns: Mapping[str, Column]) -> Iterator[tuple[str, int, Part, NDArray[Any]]]:
    """Read all samples of all columns, a block of each in turn: of files with several of them one after the other.

    The result is, for every block, the name of the column, the number of the first sample, its part and the samples.
    """
    waiting = {name: column.blocks() for name, column in columns.items()}
    reached = dict.fromkeys(waiting, 0)
    while waiting:
        name = min(waiting, key=lambda one: reached[one])
        block = next(waiting[name], None)
        if block is None:
            del waiting[name]
            continue
        start, part, stored = block
        reached[name] = start + len(stored)
        yield name, start, part, stored


def check_mask(column: Column) -> None:
    """Refuse a mask with other values than 0 and 1, and samples that lie outside as a whole."""
    for start, part, values in column.blocks():
        refuse(part, start, values, (values != 0) & (values != 1), "1 inside the domain and 0 outside")
        empty = ~values.reshape(len(values), -1).any(axis=1)
        if empty.any():
            raise DataError(
                f"{part.label}: no point of sample {start + int(empty.argmax())} is inside the domain; expected some"
            )


def defined(
    problem: ProblemFile,
    columns: dict[str, Column],
    counts: NDArray[np.int64] | None,
    name: str,
    start: int,
    values: NDArray[Any],
) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
    """Return samples with the value of their first valid point at padding and outside a domain, and a mask of those.

    The mask broadcasts to `values`, whose first sample is `start`; it is None where they are defined everywhere.
    """
    count = len(values)
    if not columns[name].on_grid:
        return values, None
    if counts is not None:
        axis = problem.point_axes[name]
        valid = np.arange(values.shape[axis]) < counts[start : start + count, np.newaxis]
        valid = valid.reshape(count, *(1,) * (axis - 1), -1, *(1,) * (values.ndim - axis - 1))
        return np.where(valid, values, np.take(values, [0], axis)), valid
    if problem.mask is not None and name != INSIDE:
        inside = columns[INSIDE].read(start, start + count) == 1
        lead, grid = values.shape[: values.ndim - inside.ndim + 1], inside.shape[1:]
        at = inside.reshape(count, -1).argmax(axis=1)
        first = values.reshape(count, -1, math.prod(grid))[np.arange(count), :, at].reshape(*lead, *(1,) * len(grid))
        valid = inside.reshape(count, *(1,) * (len(lead) - 1), *grid)
        return np.where(valid, values, first), valid
    return values, None


def counts_of(columns: dict[str, Column]) -> NDArray[np.int64]:
    """Return the numbers of valid points `[sample]`, after a check of them.

    Raises:
        DataError: One is no whole number, or larger than there are points.
    """
    found, lead = [], columns["coordinates"].parts
    points = {id(part): one for part, one in zip(columns["counts"].parts, lead, strict=True)}
    for start, part, values in columns["counts"].blocks():
        most = points[id(part)].shape[0]
        bad = ~((values >= FEWEST_POINTS) & (values <= most) & (values == np.floor(values)))
        if bad.any():
            sample = int(bad.argmax())
            raise DataError(
                f"{part.label} is {values[sample]:g} at sample {start + sample}; expected a whole number from "
                f"{FEWEST_POINTS} to {most}, the points of {points[id(part)].array.name!r}"
            )
        found.append(values.astype(np.int64))
    return np.concatenate(found)


def check_coordinates(part: Part, start: int, values: NDArray[Any], valid: NDArray[np.bool_]) -> None:
    """Refuse samples whose points lie on a line or in a plane, or twice at one place in float32, and name them."""
    for number, (points, mask) in enumerate(zip(values.astype(np.float64), valid, strict=True), start):
        exact = points[mask]
        cloud = exact.astype(np.float32).astype(np.float64)
        sizes = np.linalg.svd((cloud - cloud.mean(axis=0)).T @ (cloud - cloud.mean(axis=0)), compute_uv=False)
        if sizes[-1] <= FLAT * sizes[0]:
            raise DataError(
                f"{part.label}: the points of sample {number} are degenerate, they span fewer than "
                f"{cloud.shape[1]} dimensions"
            )
        order = np.lexsort(cloud.T)
        same = (np.diff(cloud[order], axis=0) == 0).all(axis=1)
        if same.any():
            at = int(same.argmax())
            first, second = sorted(map(int, order[at : at + 2]))
            raise DataError(
                f"{part.label}: points {first} and {second} of sample {number} are both at "
                f"{tuple(map(float, cloud[first]))}; expected every point once ({int(same.sum())} such points): "
                f"{apart_by(exact, first, second)}"
            )


def apart_by(cloud: NDArray[np.float64], first: int, second: int) -> str:
    """Say how two points that are one in float32 can be distinguished, or be one point."""
    one, other = cloud[[first, second]]
    if (one == other).all():
        return "`merge = true` in [points] makes them one, with the mean of their values"
    origin = np.floor(cloud.min(axis=0))
    if ((one - origin).astype(np.float32) != (other - origin).astype(np.float32)).any():
        return (
            "float32 does not tell them apart so far from the origin: subtract one, such as "
            f"{tuple(map(float, origin))}, from all coordinates, here and in requests"
        )
    return (
        f"they are {np.linalg.norm(one - other):.2g} apart, which float32 does not tell: leave one out, or save both "
        "at one place, with `merge = true` in [points]"
    )


def check_weights(part: Part, start: int, values: NDArray[np.float32], valid: NDArray[np.bool_] | None) -> None:
    """Refuse negative weights of points, and samples in which no point counts."""
    refuse(part, start, values, values < 0, "a weight of at least 0")
    empty = ~(values > 0 if valid is None else (values > 0) & valid).any(axis=1)
    if empty.any():
        raise DataError(f"{part.label} is 0 everywhere in sample {start + int(empty.argmax())}; expected weights")


def check_values(part: Part, start: int, values: NDArray[Any], narrow: NDArray[np.float32], *, maskable: bool) -> None:
    """Refuse values of a part, from the sample `start` on, that training cannot use, and name the first one.

    A field that is `maskable` could have a domain that is not the whole grid.
    """
    advice = ", or the array in [mask] where NaN is outside the domain" if maskable and np.isnan(narrow).any() else ""
    refused = [(~np.isfinite(narrow), f"a finite number within the range of float32{advice}")]
    if isinstance(part.tensor, Quantity) and part.tensor.positive:
        refused.append((narrow <= 0, "a positive number"))
    if isinstance(part.tensor, Parameter):
        low, high = part.tensor.minimum, part.tensor.maximum
        refused.append((narrow < (-np.inf if low is None else low), f"at least {low}"))
        refused.append((narrow > (np.inf if high is None else high), f"at most {high}"))
    for bad, expected in refused:
        refuse(part, start, values, bad, expected)


def check_size(part: Part, start: int, narrow: NDArray[np.float32], history: int | None) -> None:
    """Refuse outputs that are zero everywhere in a sample, whose relative error is not defined.

    Of trajectories, which have a `history` of frames that the network sees, every frame behind it has an error.
    """
    undefined = "its relative error is not defined"
    zero = ~narrow.reshape(len(narrow), -1).any(axis=1)
    if zero.any():
        sample = start + int(zero.argmax())
        raise DataError(f"{part.label} is zero everywhere in sample {sample}: {undefined}; leave the sample out")
    if history is None:
        return
    frames = narrow[:, history:]
    still = np.asarray(~frames.reshape(*frames.shape[:2], -1).any(axis=2))
    if still.any():
        sample, frame = (int(i) for i in np.unravel_index(int(still.argmax()), still.shape))
        raise DataError(
            f"{part.label} is zero everywhere in frame {history + frame} of sample {start + sample}: {undefined} "
            f"({int(still.any(axis=1).sum())} of these {len(still)} samples have such frames); start all trajectories "
            "behind it or end them before it, or leave the sample out"
        )


def refuse(part: Part, start: int, values: NDArray[Any], bad: NDArray[np.bool_], expected: str) -> None:
    """Name the first of the bad values of a part, from the sample `start` on, if there are any.

    Raises:
        DataError: There is one.
    """
    if count := int(bad.sum()):
        sample, *index = (int(i) for i in np.unravel_index(int(bad.argmax()), bad.shape))
        where = f"sample {start + sample}" + (f", index {tuple(index)}" if index else "")
        raise DataError(
            f"{part.label} is {values[(sample, *index)]} at {where}; expected {expected} "
            f"({count} such value{'s' * (count > 1)} among these {len(bad)} samples)"
        )


def check_duplicates(problem: ProblemFile, columns: dict[str, Column], found: dict[str, Summary]) -> None:
    """Refuse a sample whose inputs and parameters, or whole trajectory, are those of a sample in another split."""
    names = [name for name in columns if problem.time is not None or name not in problem.output_names]
    lead = columns[names[0]]
    train, validation, _ = problem.data.counts(lead.samples)
    seen: dict[bytes, int] = {}
    for sample, digests in enumerate(zip(*(found[name].digests for name in names), strict=True)):
        first = seen.setdefault(b"".join(digests), sample)
        splits = [SPLITS[(one >= train) + (one >= train + validation)] for one in (first, sample)]
        if splits[0] != splits[1]:
            raise DataError(
                f"{lead.parts[0].path}: samples {first} ({splits[0]}) and {sample} ({splits[1]}) have equal inputs: "
                "leave one out, or the figures on unseen samples would be too good; steps in time are no samples"
            )


def remarks(columns: dict[str, Column], found: dict[str, Summary]) -> list[str]:
    """Return what is allowed and yet worth a look, in sentences."""
    lines = []
    for name, column in columns.items():
        summary, units = found[name], column.parts[0].tensor.units
        if name == "counts" and "coordinates" in columns:
            continue  # of points, which no network learns from
        if summary.minimum == summary.maximum:
            lines.append(f"{name} is {summary.minimum:g} everywhere: the model cannot learn what it changes")
        elif summary.constant:
            lines.append(f"{name} is constant in {summary.constant} of {column.samples} samples")
        lines += [f"{name}: {said}" for said in summary.unresolved]
        if filled := missing_values(name, summary.minimum, summary.maximum):
            lines.append(filled)
        said = {part.array.units: part.path.name for part in reversed(column.parts) if part.array.units}
        if len(said) > 1:
            listed = " and ".join(f"{unit!r} in {file}" for unit, file in reversed(said.items()))
            lines.append(f"{name} has units {listed}: values are taken as they are, so bring them to one unit")
        elif said.keys() - {units} and units != "1":
            lines.append(f"{name} has units {units!r} here and {', '.join(said)!r} in the data file")
    return lines


def missing_values(name: str, *extremes: float) -> str:
    """Say that the least or the greatest value of an array may stand for missing ones; empty where none does."""
    found = next((each for each in extremes if np.isclose(each, FILLS, rtol=1e-6, atol=0).any()), None)
    if found is None:
        return ""
    return f"{name} has the value {found:g}, which may stand for missing ones: save NaN there, and name it in [mask]"
