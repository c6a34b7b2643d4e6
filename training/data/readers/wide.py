"""Tables whose rows are fields: a column for each point, `u_0` to `u_1023`, or numbers alone, as of `numpy.savetxt`."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from training.data.readers.data_file import LazyArray

FEW = 16
"""The most columns of one name that are a number per sample each; of more, every one is a point."""
INDICES = re.compile(r"(.*?)((?:[\s_.,:;\-\[\](]+\d+)+)[\])]*")  # `u_0`, `u[3, 4]`
NUMBER = re.compile(r"(.*\D)(\d+)")  # `u12`


def fields_in(names: Collection[str]) -> dict[str, tuple[tuple[int, ...], list[str]]]:
    """Return the fields that columns have the points of: by their names the sides, and the columns in their order.

    Example:
        >>> sides, columns = fields_in(["nu", *(f"u_{row}_{column}" for row in range(4) for column in range(5))])["u"]
        >>> sides, columns[1], fields_in(["x1", "x2"])
        ((4, 5), 'u_0_1', {})
    """
    found: dict[tuple[str, int], dict[tuple[int, ...], str]] = {}
    for name in names:
        if (match := INDICES.fullmatch(name) or NUMBER.fullmatch(name)) and match[1]:
            at = tuple(map(int, re.findall(r"\d+", match[2])))
            found.setdefault((match[1], len(at)), {})[at] = name
    return {
        stem: (sides_of(each), [each[at] for at in sorted(each)])
        for (stem, _), each in found.items()
        if len(each) > FEW and sides_of(each) and stem not in names
    }


def with_fields(columns: Mapping[str, LazyArray]) -> tuple[dict[str, LazyArray], dict[str, LazyArray]]:
    """Return the columns of a table with fields in place of those of their points, and these, by their names."""
    arrays, points = dict(columns), dict[str, LazyArray]()
    for name, (sides, names) in fields_in(columns).items():
        points |= {each: arrays.pop(each) for each in names}
        values = np.stack([points[each].read() for each in names], axis=1).reshape(-1, *sides)
        arrays[name] = LazyArray.of(name, values, units=points[names[0]].units)
    return arrays, points


def sides_of(places: Collection[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the sides of the grid that some places fill, counted from 0 or 1; none where they fill none."""
    lines = [sorted({*line}) for line in zip(*places, strict=True)]
    counted = all(line[0] in {0, 1} and line[-1] - line[0] == len(line) - 1 for line in lines)
    sides = tuple(len(line) for line in lines if len(line) > 1)
    return sides if counted and math.prod(sides) == len(places) else ()


def matrix(lines: Sequence[Sequence[str]]) -> NDArray[np.float64] | None:
    """Return the numbers of a table without names, or with those that pandas gives columns: 0, 1, 2 and so on.

    None where there are few columns, or the first line may have the coordinates of the points.
    """
    if lines[0][:1] == [""]:  # above the index of pandas
        lines = [line[1:] for line in lines]
    if len(lines) < 2 or len(lines[0]) <= FEW:
        return None
    try:
        values = np.array(lines, np.float64)
    except ValueError:  # texts, or lines of unequal lengths
        return None
    steps = np.diff(values)
    if values[0, 0] in {0, 1} and (steps[0] == 1).all():
        return values[1:]
    grows = np.abs(np.sign(steps).sum(axis=1)) == steps.shape[1]
    return None if grows[0] and not grows.all() else values
