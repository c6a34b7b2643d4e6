"""Which layout a file has: decided by its suffix and its contents, never by the rank of its arrays."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import h5py

from training.data.readers.data_file import DataFile, ReadError
from training.data.readers.hdf5 import open_hdf5, opened
from training.data.readers.labelled import open_netcdf, open_zarr
from training.data.readers.matlab import open_matlab
from training.data.readers.numpy_files import open_npy, open_npz
from training.data.readers.pdebench import is_per_sample, is_single, open_pdebench
from training.data.readers.the_well import is_the_well, open_the_well
from training.data.readers.torch_files import open_torch

Reader = Callable[[Path], AbstractContextManager[DataFile]]

READERS: dict[str, Reader] = {
    "npy": open_npy,
    "npz": open_npz,
    "hdf5": open_hdf5,
    "mat": open_matlab,
    "pt": open_torch,
    "pdebench": open_pdebench,
    "well": open_the_well,
    "zarr": open_zarr,
    "netcdf": open_netcdf,
}
SUFFIXES = {".npy": "npy", ".npz": "npz", ".mat": "mat", ".pt": "pt", ".pth": "pt", ".zarr": "zarr"} | {
    ".nc": "netcdf",
    ".nc4": "netcdf",
    ".cdf": "netcdf",
}


def open_file(path: Path, format_: str = "auto") -> AbstractContextManager[DataFile]:
    """Open a data file with the reader of its layout.

    Args:
        path: The file, or the folder of a zarr store.
        format_: A name of `READERS`, or `auto`.

    Raises:
        ReadError: There is no such file, or its layout is not known.
    """
    if not path.exists():
        raise ReadError(f"{path}: expected a file but there is none")
    if any(not (each.is_file() or each.is_dir()) for each in (path, *(path.rglob("*") if path.is_dir() else ()))):
        raise ReadError(f"{path}: expected a regular file but found a pipe, a device or a broken link")
    if path.is_dir() and any(each.is_symlink() for each in path.rglob("*")):
        raise ReadError(f"{path}: expected a folder without links to other files")
    name = detect(path) if format_ == "auto" else format_
    if name not in READERS:
        raise ReadError(f"{path}: expected a format among auto, {', '.join(READERS)} but got {name!r}")
    return READERS[name](path)


def detect(path: Path) -> str:
    """Return the name of the reader for a file.

    Raises:
        ReadError: No reader fits.
    """
    if path.suffix.lower() in SUFFIXES:
        return SUFFIXES[path.suffix.lower()]
    if path.is_dir() and any((path / name).exists() for name in ("zarr.json", ".zgroup", ".zarray")):
        return "zarr"
    if path.is_dir():
        raise ReadError(f"{path}: expected a file or a zarr store but found a folder")
    if path.suffix.lower() in {".h5", ".hdf5", ".hdf"} or h5py.is_hdf5(path):
        return detect_hdf5(path)
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            return "npz" if any(name.endswith(".npy") for name in archive.namelist()) else "pt"
    raise ReadError(f"{path}: expected one of the formats {', '.join(READERS)}; name it as `format` if it is one")


def detect_hdf5(path: Path) -> str:
    """Return the name of the reader for an HDF5 file."""
    with opened(path) as file:
        if is_the_well(file):
            return "well"
        return "pdebench" if is_single(file) or is_per_sample(file) else "hdf5"
