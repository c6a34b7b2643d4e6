"""Which layout a file has: decided by its suffix and its contents, never by the rank of its arrays.

A reader is a function of a path that returns a context with a `DataFile`. Readers of ours are named in a table, those
of other packages by entry points of the group `petrov.readers`, whose name is the format, and the suffix that `auto`
takes for it. A reader is imported when a file needs it.
"""

from __future__ import annotations

import zipfile
from collections import Counter
from contextlib import AbstractContextManager
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import h5py

from training.data.readers.data_file import DataFile, ReadError
from training.data.readers.hdf5 import is_per_sample, is_single, is_the_well, opened

GROUP = "petrov.readers"
READERS = {
    "npy": "arrays:open_npy",
    "npz": "arrays:open_npz",
    "hdf5": "hdf5:open_hdf5",
    "mat": "arrays:open_matlab",
    "pt": "arrays:open_torch",
    "pdebench": "hdf5:open_pdebench",
    "well": "hdf5:open_the_well",
    "zarr": "labelled:open_zarr",
    "netcdf": "labelled:open_netcdf",
    "mesh": "mesh:open_mesh",
}
SUFFIXES = (
    {".npy": "npy", ".npz": "npz", ".mat": "mat", ".pt": "pt", ".pth": "pt", ".zarr": "zarr"}
    | dict.fromkeys((".nc", ".nc4", ".cdf"), "netcdf")
    | dict.fromkeys((".vtu", ".vtk", ".msh", ".xdmf", ".xmf", ".inp", ".e", ".exo"), "mesh")
)


def readers() -> dict[str, EntryPoint]:
    """Return the readers by the names of their formats: ours, then those of installed packages."""
    own = {name: EntryPoint(name, f"training.data.readers.{value}", GROUP) for name, value in READERS.items()}
    return {each.name: each for each in sorted(entry_points(group=GROUP))} | own


def open_file(path: Path, format_: str = "auto") -> AbstractContextManager[DataFile]:
    """Open a data file with the reader of its layout.

    Args:
        path: The file, or the folder of a zarr store.
        format_: A name of `readers()`, or `auto`.

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
    if name not in (known := readers()):
        raise ReadError(f"{path}: expected a format among auto, {', '.join(known)} but got {name!r}")
    found: AbstractContextManager[DataFile] = known[name].load()(path)
    return found


def meshes_in(folder: Path) -> list[Path]:
    """Return the mesh files of a folder in order, those of the most frequent suffix; none where it is no folder."""
    found = [path for path in sorted(folder.iterdir()) if path.suffix in SUFFIXES] if folder.is_dir() else []
    meshes = [path for path in found if SUFFIXES[path.suffix] == "mesh"]
    suffixes = Counter(path.suffix for path in meshes)
    return [path for path in meshes if path.suffix == max(suffixes, key=lambda each: suffixes[each])]


def detect(path: Path) -> str:
    """Return the name of the reader for a file.

    Raises:
        ReadError: No reader fits.
    """
    if path.suffix.lower() in SUFFIXES:
        return SUFFIXES[path.suffix.lower()]
    if (name := path.suffix.lower().removeprefix(".")) in readers() and name not in READERS:
        return name
    if path.is_dir() and any((path / name).exists() for name in ("zarr.json", ".zgroup", ".zarray")):
        return "zarr"
    if path.is_dir():
        raise ReadError(f"{path}: expected a file or a zarr store but found a folder")
    if path.suffix.lower() in {".h5", ".hdf5", ".hdf"} or h5py.is_hdf5(path):
        return detect_hdf5(path)
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            return "npz" if any(name.endswith(".npy") for name in archive.namelist()) else "pt"
    raise ReadError(f"{path}: expected one of the formats {', '.join(readers())}; name it as `format` if it is one")


def detect_hdf5(path: Path) -> str:
    """Return the name of the reader for an HDF5 file."""
    with opened(path) as file:
        if is_the_well(file):
            return "well"
        return "pdebench" if is_single(file) or is_per_sample(file) else "hdf5"
