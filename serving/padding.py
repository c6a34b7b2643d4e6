"""Samples on unequal numbers of points in one array, and calls on few numbers of points."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schema.card import COORDINATES, COUNTS, Card
from serving.triton import Batch

STEP = 1.25  # between the numbers of points that calls are padded to


def unequal(arrays: Mapping[str, NDArray[Any]], card: Card) -> dict[str, tuple[int, ...]]:
    """Return the shapes that arrays of arrays have once they are padded: samples of unequal numbers of points."""
    found = {}
    for tensor in card.inputs:
        array, axis = arrays.get(tensor.name), len(tensor.leading)
        if array is not None and array.dtype == object:
            first = array[0].shape
            most = max(each.shape[axis] for each in array)
            found[tensor.name] = (len(array), *first[:axis], most, *first[axis + 1 :])
    return found


def rectangular(arrays: Mapping[str, NDArray[Any]], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, NDArray[Any]]:
    """Return arrays in the shapes of those that are `unequal`, with NaN behind the shorter samples."""
    found = dict(arrays)
    for name, shape in shapes.items():
        found[name] = np.full(shape, np.nan)
        for place, each in zip(found[name], arrays[name], strict=True):
            place[tuple(map(slice, each.shape))] = each
    return found


def padded(arrays: Batch, card: Card) -> Batch:
    """Return a call on points, padded to the next of few numbers of points, so that Triton merges calls.

    Triton merges calls of one shape. The numbers are `STEP` apart, from the least that the model takes on, and padding
    is like the last point. The outputs have as many points.
    """
    points = arrays[COORDINATES].shape[1]
    size = card.grid.minimum
    while size < points:
        size = math.ceil(STEP * size)
    added = min(size, card.grid.maximum) - points
    if added <= 0:
        return arrays
    axis = card.grid.axes[0]
    more = {
        tensor.name: np.pad(arrays[tensor.name], [(0, added if each == axis else 0) for each in tensor.axes], "edge")
        for tensor in card.inputs
        if axis in tensor.axes
    }
    counts = arrays[COUNTS]
    return {**arrays, **more, COUNTS: np.where(counts == 0, np.float32(points), counts)}
