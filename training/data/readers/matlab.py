"""MATLAB: versions 5 to 7 by SciPy; version 7.3, which is HDF5 with reversed axes, by h5py."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray
from scipy import io
from scipy.io.matlab import MatReadError

from training.data.readers.data_file import DataFile, LazyArray, damage_named
from training.data.readers.hdf5 import opened

TYPES = {"double": "f8", "single": "f4", "logical": "?", "char": "U1", "int8": "i1", "uint8": "u1", "int16": "i2"} | {
    "uint16": "u2",
    "int32": "i4",
    "uint32": "u4",
    "int64": "i8",
    "uint64": "u8",
}


@contextmanager
def open_matlab(path: Path) -> Iterator[DataFile]:
    """Open a `.mat` file of any version from 5 on."""
    if h5py.is_hdf5(path):
        with opened(path) as file:
            names = [name for name, item in file.items() if isinstance(item, h5py.Dataset)]
            yield DataFile(path, "mat", {name: reversed_axes(file[name], name) for name in names})
        return
    with damage_named(path, "a MATLAB file"):
        listed = contents(path)
    yield DataFile(path, "mat", {name: whole(path, name, shape, kind) for name, shape, kind in listed})


def contents(path: Path) -> list[tuple[Any, ...]]:
    """List name, shape and class of the variables of a file of version 5 to 7."""
    try:
        return list(io.whosmat(path))
    except MatReadError as error:
        raise ValueError(str(error)) from error


def reversed_axes(dataset: h5py.Dataset, name: str) -> LazyArray:
    """Describe a variable of version 7.3: MATLAB's first axis, which counts samples, is the last in the file."""

    def rows(start: int, stop: int) -> NDArray[Any]:
        return np.asarray(dataset[..., start:stop]).T

    return LazyArray(name, dataset.shape[::-1], dataset.dtype, rows)


def whole(path: Path, name: str, shape: tuple[int, ...], kind: str) -> LazyArray:
    """Describe a variable of version 5 to 7, which is read as a whole when it is first needed."""

    @cache
    def values() -> NDArray[Any]:
        with damage_named(path, "a MATLAB file"):
            return np.asarray(io.loadmat(path, variable_names=[name])[name])

    return LazyArray(name, shape, np.dtype(TYPES.get(kind, "O")), lambda start, stop: values()[start:stop])
