"""Points at one place as one point: the nodes of discontinuous elements, of which every cell has its own."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from training.data.readers import LazyArray


class UnequalPointsError(ValueError):
    """Other points coincide in other samples of one file; the message says in which one."""


def merged_points(
    arrays: Mapping[str, LazyArray], coordinates: str, weights: str | None, timed: Collection[str] = ()
) -> dict[str, LazyArray]:
    """Return arrays with one point for all those at one place, in the order of the first of each.

    Args:
        arrays: Those of one file, `[sample, point, …]` where they are fields on the points.
        coordinates: The name of the coordinates among them.
        weights: The name of the weights, which are summed; of other fields the mean is taken.
        timed: The names of those that have frames, `[sample, time, point, …]`.

    Raises:
        UnequalPointsError: Not the same points coincide in all samples.
    """
    lead = arrays[coordinates]
    points = lead.shape[1]
    to = places(lead.read(0, 1)[0])
    for start, block in lead.blocks() if not lead.shared else ():
        if bad := [start + number for number, each in enumerate(block) if (places(each) != to).any()]:
            raise UnequalPointsError(f"other points coincide in sample {bad[0]} than in sample 0")
    found = dict(arrays)
    if to.max() + 1 == points:
        return found
    for name, one in arrays.items():
        axis = 2 if name in timed else 1
        if one.shape[axis : axis + 1] == (points,):
            shape = (*one.shape[:axis], int(to.max()) + 1, *one.shape[axis + 1 :])
            rows = partial(_merged, one, to, axis, name == weights)
            found[name] = replace(one, shape=shape, dtype=np.dtype(np.float64), rows=rows)
    return found


def places(points: NDArray[np.generic]) -> NDArray[np.int64]:
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
