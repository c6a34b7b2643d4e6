"""PDEBench's two HDF5 layouts: one file of arrays (`.hdf5`), and one group per sample (`.h5`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from training.data.readers.data_file import DataFile, LazyArray, ReadError
from training.data.readers.hdf5 import array, natural, opened, sample_groups

FLOW = ("density", "pressure", "Vx", "Vy", "Vz")
AXES = ("x", "y", "z")


@contextmanager
def open_pdebench(path: Path) -> Iterator[DataFile]:
    """Open a file of either layout, whichever it is."""
    with opened(path) as file:
        if is_per_sample(file):
            yield per_sample(path, file)
        elif is_single(file):
            yield single(path, file)
        else:
            raise ReadError(
                f"{path}: expected PDEBench's `tensor`, `density` or groups with `data` and `grid`, "
                f"but found {', '.join(file)}"
            )


def is_single(file: h5py.File) -> bool:
    """Return whether a file has the layout of arrays with an `x-coordinate` beside them."""
    return "x-coordinate" in file and ("tensor" in file or "density" in file)


def is_per_sample(file: h5py.File) -> bool:
    """Return whether a file has the layout of one group per sample, with `data` and `grid` in each."""
    groups = sample_groups(file)
    return bool(groups) and "data" in file[groups[0]] and "grid" in file[groups[0]]


def single(path: Path, file: h5py.File) -> DataFile:
    """Describe a file of arrays: Darcy flow, a scalar in one dimension, or compressible flow."""
    coordinates = {name: np.asarray(file[f"{name}-coordinate"]) for name in AXES if f"{name}-coordinate" in file}
    if "nu" in file:
        return darcy(path, file, coordinates)
    names = [name for name in ("tensor", *FLOW) if name in file]
    dimensions = ("time", *AXES[: file[names[0]].ndim - 2])
    arrays = {name: array(file[name], name, dimensions) for name in names}
    return DataFile(
        path, "pdebench", arrays, coordinates | times(file), remarks=("trajectories [sample, time, *grid]",)
    )


def darcy(path: Path, file: h5py.File, coordinates: dict[str, NDArray[Any]]) -> DataFile:
    """Describe Darcy flow: `nu` [sample, x, y] in, `tensor` [sample, 1, x, y] out."""
    tensor = file["tensor"]
    solution = LazyArray(
        "tensor", (len(tensor), *tensor.shape[2:]), tensor.dtype, lambda start, stop: tensor[start:stop, 0], AXES[:2]
    )
    beta = file.attrs.get("beta")
    source = () if beta is None else (f"the source is beta = {np.asarray(beta).item():g} everywhere",)
    found = {"nu": array(file["nu"], "nu", AXES[:2]), "tensor": solution}
    return DataFile(path, "pdebench", found, coordinates, remarks=("Darcy flow", *source))


def per_sample(path: Path, file: h5py.File) -> DataFile:
    """Describe a file of groups: `data` [time, *grid, component] in each, with its grid beside it."""
    groups = sorted(file, key=natural)
    first = file[groups[0]]
    data, grid = first["data"], first["grid"]
    sides, components = data.shape[1:-1], data.shape[-1]
    axes = AXES[: len(sides)]

    def rows(start: int, stop: int) -> NDArray[Any]:
        return np.stack([np.moveaxis(file[group]["data"][()], -1, 1) for group in groups[start:stop]])

    shape = (len(groups), len(data), components, *sides)
    found = LazyArray("data", shape, data.dtype, rows, ("time", "component", *axes))
    coordinates = {name: np.asarray(grid[name]) for name in axes if name in grid}
    remark = f"one group per sample: {groups[0]} … {groups[-1]}"
    time = {"time": np.asarray(grid["t"])} if "t" in grid else {}
    return DataFile(path, "pdebench", {"data": found}, coordinates | time, remarks=(remark,))


def times(file: h5py.File) -> dict[str, NDArray[Any]]:
    """Return the times; their number is often one more than that of the frames, so only the step means something."""
    return {"time": np.asarray(file["t-coordinate"])} if "t-coordinate" in file else {}
