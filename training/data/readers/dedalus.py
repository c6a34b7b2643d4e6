"""The output of Dedalus: a file holds frames of one run, `tasks` with the coordinates of their axes in `scales`.

Every file is one sample `[time, (component), *grid]`. Axes of one size between time and the grid are those of vectors
and tensors. Bases on equally spaced points are Fourier's, whose axes are periodic.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from training.data.readers.data_file import DataFile, LazyArray, ReadError
from training.data.readers.hdf5 import opened, text

EVEN = 1e-6  # the part of a step by which the points of a Fourier basis differ
RECORDS = frozenset({"wall_time", "timestep", "iteration", "write_number", "world_time", "constant"})


def is_dedalus(file: h5py.File) -> bool:
    """Return whether an HDF5 file is an output of Dedalus."""
    return {"scales", "tasks"} <= {*file} and "sim_time" in file["scales"]


@contextmanager
def open_dedalus(path: Path) -> Iterator[DataFile]:
    """Open a file of frames of one run."""
    with opened(path) as file:
        times = np.asarray(file["scales/sim_time"], np.float64)
        if not times.size:
            raise ReadError(
                f"{path}: expected frames of a run but found none, as where it ended before the first output"
            )
        tasks = {name: item for name, item in file["tasks"].items() if isinstance(item, h5py.Dataset) and item.ndim}
        arrays = {name: task(item, name) for name, item in tasks.items()}
        positions = {axis: values for item in tasks.values() for axis, values in positions_of(item).items()}
        even = {axis: "periodic" for axis, values in positions.items() if is_even(values)}
        yield DataFile(
            path,
            "dedalus",
            arrays,
            {**positions, "time": times},
            even,
            parts={f"tasks/{name}": replace(one, name=f"tasks/{name}") for name, one in arrays.items()},
            remarks=(f"Dedalus: {len(times)} frames of one run, from sim_time {times[0]:g} to {times[-1]:g}",),
            left_out={
                f"scales/{name}": "what Dedalus records of every frame" for name in file["scales"] if name in RECORDS
            },
        )


def axes_of(item: h5py.Dataset) -> list[str]:
    """Return the names of a task's axes behind time; empty ones for those of components.

    Tasks without any, as other programs copy them, have numbers for names.
    """
    found = [text(dimension.label) for dimension in item.dims][1:]
    return found if any(found) else [f"axis_{number}" for number, _ in enumerate(found)]


def task(item: h5py.Dataset, name: str) -> LazyArray:
    """Describe a task, the components of a vector or tensor on one axis."""
    axes = axes_of(item)
    lead = [side for side, axis in zip(item.shape[1:], axes, strict=True) if not axis]
    grid = [side for side, axis in zip(item.shape[1:], axes, strict=True) if axis]
    shape = (item.shape[0], *([prod(lead)] if lead else []), *grid)
    dimensions = (*(["component"] if lead else []), *(axis for axis in axes if axis))
    rows = partial(values_of, item, shape[1:])
    return LazyArray(name, shape, item.dtype, rows, dimensions, first="time")


def values_of(item: h5py.Dataset, shape: tuple[int, ...], start: int, stop: int) -> NDArray[Any]:
    """Read some frames."""
    values = np.asarray(item[start:stop])
    return values.reshape(len(values), *shape)


def positions_of(item: h5py.Dataset) -> dict[str, NDArray[np.float64]]:
    """Return the coordinates of a task's axes."""
    found = {}
    for name, dimension, side in zip(axes_of(item), [*item.dims][1:], item.shape[1:], strict=True):
        values = [
            np.asarray(scale, np.float64).ravel() for scale in dimension.values() if isinstance(scale, h5py.Dataset)
        ]
        if name and values and len(values[0]) == side:
            found[name] = values[0]
    return found


def is_even(values: NDArray[np.float64]) -> bool:
    """Return whether points are equally spaced."""
    steps = np.diff(values)
    return len(steps) > 1 and bool(np.ptp(steps) < EVEN * abs(steps.mean()))
