"""The axes of a grid in a draft: their names and sides, and their lengths, points and boundaries by coordinates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.data.readers import DataFile, LazyArray
from training.problems.ambiguity import COMPONENTS, MOST_ROWS, READ
from training.problems.checks import FEWEST
from training.problems.columns import NUMERIC
from training.problems.draft_file import Draft, are_centres, rounded
from training.problems.problem_file import AXES
from training.problems.wire_names import wire_name

LONGITUDES, WHOLE = ("longitude", "lon", "lons"), 360.0  # an axis around the globe is periodic
CHANNELS = 12  # the most points of an axis that is taken for one of channels, where fields have no other grid in common
AXIS_NAMES = {1: ("point",), 2: ("row", "column"), 3: ("depth", "row", "column")}


def grid(
    fields: Sequence[LazyArray], lines: Collection[int] = (), outputs: Collection[str] = ()
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return names and sides of the grid's axes: named in the file, or what most fields' shapes have in common.

    Of named axes those of the first field with most of them, or of the outputs where these lack some. Of grids that as
    many fields have, one that begins or ends another is preferred, whose further axis may be time or components; else
    the one with as many points as there are coordinates, `lines`, or with more points.
    """
    spatial = {
        one.name: [each for each in named_grid(one) if each[0] not in {"time", "component"}]
        for one in fields
        if one.dimensions
    }
    if along := max(spatial.values(), key=len, default=[]):
        wanted = max((axes for name, axes in spatial.items() if name in outputs), key=len, default=along)
        own = (wanted if {*wanted} < {*along} else along)[-AXES:]
        return tuple(name for name, _ in own), tuple(side for _, side in own)
    shapes = [{one.shape[1:], without_components(one.shape[1:])[0]} for one in fields]
    if not set.intersection(*shapes):
        shapes = [
            each | {rest for rest, _ in without_channels(one.shape[1:])}
            for one, each in zip(fields, shapes, strict=True)
        ]
        shapes = [set.intersection(*shapes) or each for each in shapes]
    found = Counter(sides for each in shapes for sides in each)
    many = {sides: count for sides, count in found.items() if len(sides) <= AXES and min(sides) >= FEWEST}
    most = [sides for sides, count in many.items() if count == max(many.values())]
    if not most:
        most = [min((without_components(one.shape[1:])[0] for one in fields), key=len)[-AXES:]]
    part = [
        one for one in most if any(one != other and one in (other[: len(one)], other[-len(one) :]) for other in most)
    ]
    sides = min(part, key=len) if part else max(most, key=lambda each: ({*each} <= {*lines}, np.prod(each)))
    return AXIS_NAMES[len(sides)], sides


def named_grid(one: LazyArray) -> list[tuple[str, int]]:
    """Return the axes of an array that names them, and their sides."""
    return [*zip(one.dimensions or (), one.shape[1:], strict=True)]


def with_components_named(one: LazyArray) -> LazyArray:
    """Return an array whose one axis with a name of its own and few points, too few for a grid's, holds components."""
    sides = named_grid(one) if one.dimensions else []
    space = [place for place, (name, _) in enumerate(sides) if name != "time"]
    few = [place for place in space if sides[place][1] < FEWEST]
    if len(few) != 1 or len(space) < 2 or few[0] not in {space[0], space[-1]} or "component" in dict(sides):
        return one
    return replace(one, dimensions=tuple("component" if n == few[0] else name for n, (name, _) in enumerate(sides)))


def without_components(sides: tuple[int, ...]) -> tuple[tuple[int, ...], str]:
    """Separate a short first or last axis, which is taken for components: the other axes, and where it was.

    Axes of one value hold nothing, wherever they are.
    """
    if 1 in sides and any(side > 1 for side in sides):
        return tuple(side for side in sides if side > 1), "none"
    if len(sides) > 1 and sides[0] <= COMPONENTS < 2 * sides[1] / 3:
        return sides[1:], "first"
    if len(sides) > 1 and sides[-1] <= COMPONENTS < 2 * sides[0] / 3:
        return sides[:-1], "last"
    return sides, ""


def without_channels(sides: tuple[int, ...]) -> list[tuple[tuple[int, ...], str]]:
    """Return the axes of a field but a shorter first or last one, which holds channels or frames, and where it is."""
    both = ((sides[1:], "first", sides[0]), (sides[:-1], "last", sides[-1])) if len(sides) > 1 else ()
    return [
        (rest, where) for rest, where, count in both if COMPONENTS < count <= CHANNELS and 3 * count <= 2 * min(rest)
    ]


def with_levels_named(one: LazyArray, axes: Sequence[str]) -> LazyArray:
    """Return an array that has one named axis beside those of the grid, first or last, which holds its components."""
    space = [name for name in one.dimensions or () if name != "time"]
    ends = ((space[1:], space[:1]), (space[:-1], space[-1:]))
    level = next((name for rest, name in ends if sorted(rest) == sorted(axes) and name != ["component"]), None)
    if level is None:
        return one
    return replace(one, dimensions=tuple("component" if [name] == level else name for name in one.dimensions or ()))


def axis_entry(made: Draft, file: DataFile, axis: str, side: int, beside: Sequence[LazyArray]) -> dict[str, Any]:
    """Describe one axis by its coordinates and its boundary where the file tells them.

    Of an axis without a name the coordinates may be one of the arrays `beside`, by a guess.
    """
    boundary = file.boundaries.get(axis, "open")
    entry = {"length": 1.0, "boundary": boundary, "points": "cells"}
    line = f"axes.{wire_name(axis)}"
    if axis not in file.boundaries:
        made.guesses[f"{line}.boundary"] = 'say "wall" or "periodic" if you know it'
    positions = np.asarray(file.coordinates.get(axis, ()), dtype=np.float64)
    if not are_positions(positions, side):
        named = {
            one.name: np.asarray(one.read(), np.float64).ravel()
            for one in beside
            if one.shape and one.dimensions is None and max(one.shape) == side == np.prod(one.shape)
        }
        fitting = {name: values for name, values in named.items() if are_positions(values, side)}
        positions = next(iter(fitting.values()), positions)
        if not fitting or not all(np.allclose(values, positions, atol=0) for values in fitting.values()):
            names = " or ".join(fitting)
            reason = f"{names} may hold its coordinates" if names else "the file has no coordinates"
            made.guesses[f"{line}.length"] = made.guesses[f"{line}.points"] = reason
            return entry
        made.guesses[f"{line}.length"] = f"{next(iter(fitting))} has its coordinates"
    length = file.cells.get(axis)
    if not np.allclose(np.diff(positions), np.diff(positions).mean(), rtol=1e-2, atol=0):
        made.remarks.append(
            f"axis {axis} is not equally spaced, and the model takes its points as the centres of equal cells: "
            "interpolate the data to equal spacing if it has to serve other grids"
        )
        return entry | {"length": rounded(float(np.ptp(positions)) if length is None else length)}
    if length is not None:
        return entry | {"length": rounded(length)}
    step = float(positions[-1] - positions[0]) / max(1, len(positions) - 1)
    centred = np.isclose(positions[0], step / 2, rtol=1e-3, atol=0)
    if not centred and positions[0] and are_centres(positions[0], positions[-1], step):
        centred = True
        made.guesses[f"{line}.points"] = "half a step beyond the outermost points are round numbers"
    if axis.lower() in LONGITUDES and np.isclose(abs(step) * len(positions), WHOLE, rtol=1e-3):
        made.guesses.pop(f"{line}.boundary", None)
        return {"length": WHOLE, "boundary": "periodic", "points": "left"}
    if boundary == "periodic" or centred:
        return entry | {"length": rounded(step * len(positions)), "points": "cells" if centred else "left"}
    return entry | {"length": rounded(float(np.ptp(positions))), "points": "nodes"}


def say_what_is_twice(made: Draft, axes: Sequence[str], sides: Sequence[int]) -> None:
    """Say of axes whose first and last points have the same values that these may be one point of a period."""
    fields = [one for one in made.tensors if one.role != "parameters" and not one.scalar and not one.static]
    read = [one.array.read(0, MOST_ROWS if one.array.sample_bytes * MOST_ROWS < READ else 2) for one in fields]
    for number, (axis, side) in enumerate(zip(axes, sides, strict=True)):
        found = []
        for values in read:
            grid_ = [at for at, each in enumerate(values.shape) if at and each in sides]
            if len(grid_) != len(sides) or values.shape[grid_[number]] != side or values.dtype.kind not in NUMERIC:
                return
            first, last = (np.take(values, at, grid_[number]) for at in (0, -1))
            varies = bool(first.min() < first.max())  # booleans have no difference
            found.append(varies and np.array_equal(first, last, equal_nan=values.dtype.kind == "f"))
        if found and all(found):
            made.remarks.append(
                f"the first and the last points along {axis} have the same values: if it is periodic, save one of them "
                'alone, a[..., :-1] along this axis, with boundary = "periodic" and points = "left"'
            )


def are_positions(values: NDArray[np.float64], side: int) -> bool:
    """Return whether numbers may be the positions of the points of an axis."""
    return len(values) == side and bool(np.isfinite(values).all() and np.ptp(values))
