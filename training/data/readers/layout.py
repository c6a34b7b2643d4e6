"""Files and arrays in one layout: samples on the first axis, frames on the second, whichever axes the files have.

Files count samples on the first axis of their arrays, on the last one, or hold one sample each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schema.problem import UNEVEN
from training.data.readers.data_file import BLOCK, DataFile, LazyArray, ReadError, Slices

LEADING = {"time": 0, "component": 1}  # the order of named axes behind the samples'; the grid's follow
BLOCKS = 8  # that are read at once where the last axis counts samples, as each is spread over the whole array


def arranged(file: DataFile, sample: str) -> tuple[DataFile, ...]:
    """Return a file with samples on the first axis of its arrays: itself, or a file for each of its samples.

    Raises:
        ReadError: `sample` is `group`, and the file has no groups of samples.
    """
    if sample == "group" and not file.samples.startswith("one group"):
        raise ReadError(f"{file.path}: expected a group per sample, with data sets of the same names in each")
    if file.pieces:
        return file.pieces
    if sample == "last":
        arrays, parts = (
            {name: samples_last(one) if one.dimensions is None else one for name, one in each.items()}
            for each in (file.arrays, file.parts)
        )
        return (replace(file, arrays=arrays, parts=parts),)
    if sample == "file" and not file.samples:
        return (replace(file, arrays={name: as_sample(one) for name, one in file.arrays.items()}),)
    return (file,)


def samples_last(one: LazyArray) -> LazyArray:
    """Return an array whose last axis counts samples with that axis first.

    Some blocks of it are read at once and held, until others are read or its last sample was. It is read as a whole
    where its file cannot be read along the last axis.
    """
    turned = replace(one, shape=(*one.shape[-1:], *one.shape[:-1]))
    if not isinstance(one.rows, Slices):
        whole = cache(lambda: np.moveaxis(one.read(), -1, 0))
        return replace(turned, rows=lambda start, stop: whole()[start:stop])
    along, step = one.rows.last, BLOCKS * max(1, BLOCK // max(1, turned.sample_bytes))
    held: dict[int, NDArray[Any]] = {}  # what was read last, by its first sample

    def part_from(first: int) -> NDArray[Any]:
        if first not in held:
            held.clear()
            held[first] = np.moveaxis(np.asarray(along(first, min(first + step, turned.samples))), -1, 0)
        return held[first]

    def rows(start: int, stop: int) -> NDArray[Any]:
        firsts = range(start - start % step, max(stop, start + 1), step)
        found = [part_from(first)[max(start - first, 0) : stop - first] for first in firsts]
        if stop >= turned.samples:
            held.clear()
        return found[0] if len(found) == 1 else np.concatenate(found)

    return replace(turned, rows=rows)


def as_sample(one: LazyArray) -> LazyArray:
    """Return an array of one sample, which may be a number, with an axis of samples.

    Of axes with names, time and components come first.
    """
    names = None if one.dimensions is None else (one.first, *one.dimensions)
    order = sorted(range(len(one.shape)), key=lambda axis: LEADING.get(names[axis], 2) if names else 0)

    def rows(start: int, stop: int) -> NDArray[Any]:
        return np.asarray(one.rows(0, one.samples)).transpose(order)[np.newaxis][start:stop]

    shape = (1, *(one.shape[axis] for axis in order))
    return replace(one, shape=shape, rows=rows, dimensions=names and tuple(names[axis] for axis in order))


def as_column(one: LazyArray) -> LazyArray:
    """Return a row `[1, sample]` of numbers as `[sample]`."""
    return replace(one, shape=one.shape[1:], rows=lambda start, stop: one.read()[0, start:stop])


def last_axis_at(one: LazyArray, position: int, dimensions: tuple[str, ...] | None = None) -> LazyArray:
    """Return an array with its last axis, of frames or components, at a position, and the names of its new axes."""
    shape = [*one.shape[:-1]]
    shape.insert(position, one.shape[-1])

    def rows(start: int, stop: int) -> NDArray[Any]:
        return np.moveaxis(one.rows(start, stop), -1, position)

    return replace(one, shape=tuple(shape), rows=rows, dimensions=dimensions)


def of_points_in_cells(one: LazyArray, in_cells: NDArray[np.bool_] | None, axis: int = 1) -> LazyArray:
    """Return an array without the points of a mesh that are in no cell, where an axis of it has all of them.

    It is from another file than the mesh; see `DataFile.in_cells`.
    """
    if in_cells is None or one.shape[axis : axis + 1] != in_cells.shape:
        return one
    kept = np.flatnonzero(in_cells)

    def rows(start: int, stop: int) -> NDArray[Any]:
        return np.take(one.rows(start, stop), kept, axis)

    return replace(one, shape=(*one.shape[:axis], len(kept), *one.shape[axis + 1 :]), rows=rows)


def in_order(one: LazyArray, axes: Sequence[str]) -> LazyArray:
    """Return an array whose axes have the names of a grid's, in another order, with its axes in theirs."""
    names = [*(one.dimensions or ())]
    own = [name for name in names if name not in LEADING]
    if own == [*axes] or sorted(own) != sorted(axes):
        return one
    turned = iter(axes)
    places = [0, *(1 + names.index(name if name in LEADING else next(turned)) for name in names)]

    def rows(start: int, stop: int) -> NDArray[Any]:
        return np.asarray(one.rows(start, stop)).transpose(places)

    shape = tuple(one.shape[place] for place in places)
    return replace(one, shape=shape, rows=rows, dimensions=tuple(names[place - 1] for place in places[1:]))


def unlike_samples(positions: Mapping[str, NDArray[Any]]) -> tuple[str, ...]:
    """Say of times, and positions along axes, `[sample, point]` that are other ones in some samples than in the first.

    One network makes all steps, and takes all samples to lie on one grid.
    """
    said = []
    for axis, values in positions.items():
        apart = np.diff(np.asarray(values, np.float64), axis=-1)
        if apart.ndim < 2 or not apart.size:
            continue
        other = (np.abs(apart - apart[0]) > UNEVEN * np.abs(apart[0]).mean()).any(axis=1)
        if other.any():
            least, most = np.sort(apart.mean(axis=1))[[0, -1]]
            said.append(
                f"samples differ in {axis}, where points are {least:g} apart in one and {most:g} in another: the model "
                "takes them to be as in the first one"
            )
    return tuple(said)


def side_by_side(
    axis: str, found: NDArray[Any], where: object, lead: NDArray[Any], first: object
) -> tuple[str, bool, bool]:
    """Return how an axis runs at one place and at the first, in words, whether it is reversed, and whether it differs.

    Args:
        axis: Its name.
        found: Its positions `[point]` at the place.
        where: The place, a file or a group, as a sentence names it.
        lead: Its positions at the first place.
        first: The first place.
    """
    said = f"the axis {axis} runs from {found[0]:g} to {found[-1]:g} in {where} and from {lead[0]:g} to {lead[-1]:g} in"
    is_reversed = (found[-1] - found[0]) * (lead[-1] - lead[0]) < 0
    differs = (np.abs(found[[0, -1]] - lead[[0, -1]]) > UNEVEN * abs(lead[-1] - lead[0])).any()
    return f"{said} {first}", bool(is_reversed), bool(differs)
