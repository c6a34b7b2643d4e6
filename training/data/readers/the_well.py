"""The Well's HDF5 layout: scalars, and fields of order 0, 1 and 2 with axes that are absent where nothing varies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from training.data.readers.data_file import DataFile, LazyArray
from training.data.readers.hdf5 import opened, text

ORDERS = ("t0_fields", "t1_fields", "t2_fields")
BOUNDARIES = {"WALL": "wall", "OPEN": "open", "PERIODIC": "periodic"}


@contextmanager
def open_the_well(path: Path) -> Iterator[DataFile]:
    """Open one HDF5 file of a data set of The Well."""
    with opened(path) as file:
        axes = tuple(map(text, file["dimensions"].attrs["spatial_dims"]))
        arrays = {one.name: one for one in (*fields(file, axes), *scalars(file))}
        yield DataFile(path, "well", arrays, coordinates(file, axes), boundaries(file, axes), (title(file),))


def is_the_well(file: h5py.File) -> bool:
    """Return whether an HDF5 file follows the layout."""
    return {"n_spatial_dims", "n_trajectories", "grid_type"} <= set(file.attrs) and "dimensions" in file


def title(file: h5py.File) -> str:
    """Say which data set a file belongs to."""
    return f"The Well: {text(file.attrs.get('dataset_name'))}, {text(file.attrs['grid_type'])} grid"


def fields(file: h5py.File, axes: tuple[str, ...]) -> Iterator[LazyArray]:
    """Describe the fields, tensors of order 2 with their components in one axis."""
    for order, group in enumerate(ORDERS):
        for name in map(text, file[group].attrs.get("field_names", ())) if group in file else ():
            yield field(file, file[group][name], name, order, axes)


def field(file: h5py.File, dataset: h5py.Dataset, name: str, order: int, axes: tuple[str, ...]) -> LazyArray:
    """Describe one field as `[sample, time?, component?, *grid]`."""
    samples, moving = int(file.attrs["n_trajectories"]), bool(dataset.attrs["time_varying"])
    own, varying = bool(dataset.attrs["sample_varying"]), list(map(bool, dataset.attrs["dim_varying"]))
    sides = tuple(len(file["dimensions"][axis]) for axis in axes)
    lead = 1 if moving else 0  # the time axis
    components = int(np.prod(dataset.shape[len(dataset.shape) - order :], dtype=int)) if order else 1

    def rows(start: int, stop: int) -> NDArray[Any]:
        values = dataset[start:stop] if own else np.broadcast_to(dataset[()], (stop - start, *dataset.shape))
        values = values.reshape(*values.shape[: values.ndim - order], components)
        for position, (varies, side) in enumerate(zip(varying, sides, strict=True), start=1 + lead):
            if not varies:
                values = np.repeat(np.expand_dims(values, position), side, axis=position)
        return np.moveaxis(values, -1, 1 + lead) if order else values[..., 0]

    frames = (dataset.shape[1 if own else 0],) if moving else ()
    shape = (samples, *frames, *((components,) if order else ()), *sides)
    dimensions = (*(("time",) if moving else ()), *(("component",) if order else ()), *axes)
    return LazyArray(name, shape, dataset.dtype, rows, dimensions, text(dataset.attrs.get("units")), shared=not own)


def scalars(file: h5py.File) -> Iterator[LazyArray]:
    """Describe the scalars that do not vary in time, one number per sample."""
    samples = int(file.attrs["n_trajectories"])
    for name in map(text, file["scalars"].attrs.get("field_names", ())) if "scalars" in file else ():
        dataset = file["scalars"][name]
        if not dataset.attrs["time_varying"]:
            yield scalar(dataset, name, samples, own=bool(dataset.attrs["sample_varying"]))


def scalar(dataset: h5py.Dataset, name: str, samples: int, *, own: bool) -> LazyArray:
    """Describe one scalar."""

    def rows(start: int, stop: int) -> NDArray[Any]:
        return dataset[start:stop] if own else np.full(stop - start, dataset[()])

    return LazyArray(name, (samples,), dataset.dtype, rows, (), shared=not own)


def coordinates(file: h5py.File, axes: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    """Return the positions of grid points and frames; where samples differ, those of the first."""
    names = {axis: axis for axis in axes} | ({"time": "time"} if "time" in file["dimensions"] else {})
    values = {axis: np.asarray(file["dimensions"][name]) for axis, name in names.items()}
    return {axis: value[0] if value.ndim > 1 else value for axis, value in values.items()}


def boundaries(file: h5py.File, axes: tuple[str, ...]) -> dict[str, str]:
    """Return each axis' boundary; where its two ends differ, the last one that the file lists."""
    found = {}
    for group in file.get("boundary_conditions", {}).values():
        dims = group.attrs["associated_dims"]
        named = [dims] if isinstance(dims, (str, bytes)) else list(dims)
        kind = BOUNDARIES.get(text(group.attrs["bc_type"]).upper())
        found.update({axis: kind for axis in map(text, named) if kind and axis in axes})
    return found
