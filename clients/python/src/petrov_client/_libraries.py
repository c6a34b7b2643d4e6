"""Libraries that some files need, and that are imported where one of these is opened.

Each function returns one of them.

Raises:
    ValueError: It is not installed; the message says how to do so.
"""

from __future__ import annotations

import importlib
import os
from functools import cache
from typing import Any


def library(name: str, advice: str) -> Any:
    """Return a library that is optional."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ValueError(advice) from error


def meshio() -> Any:
    """Return the library meshio."""
    return library("meshio", "mesh files need meshio: pip install meshio")


def hdf5() -> Any:
    """Return h5py."""
    return library("h5py", "HDF5 files need h5py: pip install h5py")


def zarr() -> Any:
    """Return the library zarr."""
    return library("zarr", "zarr folders need zarr: pip install zarr")


def scipy_io() -> Any:
    """Return SciPy's module of files."""
    return library("scipy.io", "MATLAB files need SciPy, and h5py for those of version 7.3: pip install scipy h5py")


def xarray() -> Any:
    """Return the library xarray."""
    for name in ("h5py", "h5netcdf", "xarray"):
        found = library(name, "netCDF files need three libraries: pip install xarray h5netcdf h5py")
    _hold_at_forks()
    return found


@cache
def _hold_at_forks() -> None:
    """Fork while no thread reads HDF5 by xarray: its lock would be copied as it is, and never be free in the child."""
    if hasattr(os, "register_at_fork"):
        lock = library("xarray.backends.locks", "").HDF5_LOCK
        os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)
