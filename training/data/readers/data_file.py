"""A data file: its arrays, described at once and read a few samples at a time, and brought into one layout.

A reader is a function of a path that returns a context with a `DataFile`; `training.data.readers.formats` chooses it.
The layout has samples on the first axis, and frames on the second; `layout` brings other arrays into it. Arrays whose
axes have names are in that layout already. Of records, which have several fields, each field is an array.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.data.readers.guards import is_mistake
from training.messages import UserError

Rows = Callable[[int, int], NDArray[Any]]
BLOCK = 1 << 25
"""Bytes that are read at once, where several samples fit."""


class ReadError(UserError):
    """A data file cannot be read: the message names the file and says what was expected and what was found."""


def part(values: Any, start: int, stop: int) -> Any:
    """Return the samples `start` to `stop` of what can be sliced; a number without axes is itself in every part."""
    return values[start:stop] if values.shape else values[()]


def last_part(values: Any, start: int, stop: int) -> Any:
    """Return the same of what has samples on its last axis."""
    return values[..., start:stop] if values.shape else values[()]


@dataclass(frozen=True)
class Slices:
    """Read parts of an array `(start, stop)` along its first axis, or by `last` along its last one."""

    first: Rows
    last: Rows

    def __call__(self, start: int, stop: int) -> Any:  # a number of an array without axes
        return self.first(start, stop)


def each_way(rows: Rows, through: Callable[[Rows], Rows]) -> Rows:
    """Return what reads an array through another function, along its last axis, too, where that can be read."""
    return Slices(through(rows.first), through(rows.last)) if isinstance(rows, Slices) else through(rows)


@dataclass(frozen=True)
class LazyArray:
    """One array of a file, with the sample axis first.

    Attributes:
        name: Its name in the file; slashes separate groups.
        shape: `(sample, [time], [component], *grid)`.
        dtype: As stored.
        rows: `(start, stop)` to the samples from `start` up to `stop`.
        dimensions: The names of the axes after the sample axis where the file tells them, with `time` and `component`
            for those that are no grid axes; None where it does not.
        units: As the file says, or empty.
        meaning: As the file says, or empty.
        shared: Whether one value in the file stands for all samples.
        first: The name of the first axis, where the file tells it.
        setting: Whether it is an attribute of the file or an entry of a configuration, which may be a mere record.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    rows: Rows
    dimensions: tuple[str, ...] | None = None
    units: str = ""
    meaning: str = ""
    shared: bool = False
    first: str = ""
    setting: bool = False

    @classmethod
    def of(cls, name: str, values: Any, **said: Any) -> LazyArray:
        """Describe an array, in memory or in a file, that can be sliced; `said` are further attributes."""
        rows = Slices(partial(part, values), partial(last_part, values))
        return cls(name, values.shape, np.dtype(values.dtype), rows, **said)

    @property
    def described(self) -> str:
        """Its name, shape and type."""
        return f"{self.name} [{' x '.join(map(str, self.shape))}] {self.dtype}"

    @property
    def samples(self) -> int:
        """The number of samples."""
        return self.shape[0] if self.shape else 0

    @property
    def sample_bytes(self) -> int:
        """The bytes of one sample as stored."""
        return int(np.prod(self.shape[1:], dtype=np.int64)) * self.dtype.itemsize

    def read(self, start: int = 0, stop: int | None = None) -> NDArray[Any]:
        """Read samples `start` to `stop` into memory."""
        return np.asarray(self.rows(start, self.samples if stop is None else min(stop, self.samples)))

    def blocks(self, size: int = BLOCK, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, NDArray[Any]]]:
        """Read samples in order, about `size` bytes at a time, each block with the index of its first sample."""
        step, end = max(1, size // max(1, self.sample_bytes)), self.samples if stop is None else stop
        for first in range(start, end, step):
            yield first, self.read(first, min(first + step, end))


@dataclass(frozen=True)
class DataFile:
    """The contents of one file.

    Attributes:
        path: The file, or the folder of a zarr store.
        format: The layout that it was read as.
        arrays: By name.
        coordinates: Positions of the grid points along an axis, by the axis' name, where the file tells them; of plane
            meshes the one of all points along the axis across the plane.
        boundaries: `wall`, `periodic` or `open` by the axis' name, where the file tells them.
        remarks: What the reader decided, in sentences, for the user to check.
        samples: How the file says which axis counts samples: the name of that axis, or the layout that defines it;
            empty where it does not, and the first axis is taken.
        outputs: The arrays that the layout itself defines as outputs.
        left_out: What the file holds besides arrays, and why it is not read, by name.
        pieces: The samples as files of one each, where they have unequal numbers of points; the arrays are then those
            of the first one.
        sources: Files and name of each array, where arrays come from files of their own.
        parts: Arrays that problem files may name, too, though drafts do not: those of single splits, and coordinates.
        regions: The whole numbers of the cell data of meshes that tell regions, by their names.
        validation: The number of samples for validation, before those for tests at the end, where the file says it.
        test: The number of samples for tests, where the file says it.
        turned: The same two numbers where the last axis of arrays counts samples.
        constants: Numbers that are the same for all samples, by name, which are left out.
        cells: The length of an axis, by its name, where the file tells that values are those of the cells along it.
        numbering: What tells the samples apart, such as their numbers or names, in their order, by its name.
        in_cells: Which points of a mesh file are in cells `[point]`, where some are not, and left out; None for all.
        flat: The vectors of a plane mesh file whose component out of the plane is 0 and left out, with its number.
        texts: The columns of text of a table, by name, in which the names of files may be.
        names: The names of the groups of samples, in their order, where there are any.
        doubts: How other files are matched with its samples where nothing tells it, in sentences to be confirmed.
    """

    path: Path
    format: str
    arrays: Mapping[str, LazyArray]
    coordinates: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    boundaries: Mapping[str, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    samples: str = ""
    outputs: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    pieces: tuple[DataFile, ...] = ()
    sources: Mapping[str, tuple[tuple[Path, ...], str]] = field(default_factory=dict)
    parts: Mapping[str, LazyArray] = field(default_factory=dict)
    regions: Mapping[str, frozenset[int]] = field(default_factory=dict)
    validation: int = 0
    test: int = 0
    turned: tuple[int, int] = (0, 0)
    constants: Mapping[str, float] = field(default_factory=dict)
    cells: Mapping[str, float] = field(default_factory=dict)
    numbering: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    in_cells: NDArray[np.bool_] | None = None
    flat: Mapping[str, int] = field(default_factory=dict)
    texts: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()

    def array(self, name: str) -> LazyArray:
        """Return the array of that name.

        Raises:
            ReadError: There is none; the message lists those that there are.
        """
        if name in self.parts and name not in self.arrays:
            return self.parts[name]
        if name not in self.arrays and name.rpartition("=")[0] in self.regions:
            return LazyArray.of(name, np.zeros(self.arrays["coordinates"].shape[:2], np.float32))
        if name not in self.arrays:
            found = [one.described for one in self.arrays.values()]
            found += [f"{left} (left out: {reason})" for left, reason in self.left_out.items()]
            raise ReadError(f"{self.path}: expected an array {name!r} but found {', '.join(found) or 'none'}")
        return self.arrays[name]


MESHES = frozenset({"mesh", "series"})
"""The formats of files that have nodes, at one time or several; their arrays are in memory, and no file stays open."""
NOT_OF_THE_FILE = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EACCES, errno.EPERM, errno.EIO, errno.ESTALE}
"""Faults of the process, its rights or the disk, which say nothing of what a file holds."""
BEGINNINGS = {
    b"\x89HDF\r\n\x1a\n": "HDF5",
    b"CDF": "netCDF",
    b"\x0e\x03\x13\x01": "HDF4, which h4toh5 converts",
    b"PK\3\4": "a zip archive, such as .npz and .pt, or several files to be unpacked",
    b"\x93NUMPY": "a .npy file",
    b"\x1f\x8b": "a file of gzip, which gunzip unpacks",
    b"GRIB": "GRIB, which grib_to_netcdf, or xarray with cfgrib, saves as netCDF",
    b"# Created by Octave": "a text of Octave, which save -v7 does not write",
    b"version https://git-lfs": "a pointer of Git LFS, for which git lfs pull fetches the file",
    b"<!DOCTYPE": "a web page, as of a download that was refused",
    b"<html": "a web page, as of a download that was refused",
}
"""What a file of another suffix is by its first bytes."""


def beginning_of(path: Path) -> str:
    """Say what a file is by its first bytes, or that it has none; empty where they do not tell."""
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        start = file.read(max(map(len, BEGINNINGS)))
    kind = next((kind for first, kind in BEGINNINGS.items() if start.startswith(first)), "")
    return f"; it begins like {kind}" if kind else "" if start else "; it is empty"


@contextmanager
def damage_named(path: Path, kind: str) -> Iterator[None]:
    """Turn a library's error about a damaged file into one that names the file. A mistake of ours is raised as it is.

    Raises:
        ReadError: The library could not read the file.
    """
    try:
        yield
    except (ReadError, ImportError):
        raise
    except Exception as error:  # what damage leads to in a library is not only what the library says it raises
        if is_mistake(error):
            raise
        if isinstance(error, OSError) and error.errno in NOT_OF_THE_FILE:
            raise ReadError(f"{path} cannot be read: {os.strerror(error.errno)}") from error
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        said = f"{path}: expected {kind}, but it is damaged or something else ({reason}){beginning_of(path)}"
        raise ReadError(said) from error


def natural(name: str | Path) -> tuple[Any, ...]:
    """Return a sort key in which 10 follows 9."""
    return tuple(int(part) if part.isdigit() else part for part in re.split(r"(\d+)", str(name)))


PAIRS = {("real", "imag"), ("r", "i")}  # the names of the parts of complex numbers in HDF5


def is_complex(one: LazyArray) -> bool:
    """Return whether an array holds complex numbers, as such or as pairs of named parts."""
    return one.dtype.kind == "c" or tuple(one.dtype.names or ()) in PAIRS


def as_components(one: LazyArray, axis: int) -> LazyArray:
    """Return an array of complex numbers as their real and imaginary parts, the two components of a new axis."""
    shape = [*one.shape]
    shape.insert(axis if axis >= 0 else len(shape), 2)
    rows = partial(_stacked, one, axis)
    return replace(one, shape=tuple(shape), dtype=real_part(one).dtype, rows=rows, dimensions=None)


def _stacked(one: LazyArray, axis: int, start: int, stop: int) -> NDArray[Any]:
    return np.stack(parts(one.rows(start, stop)), axis=axis)


def real_part(one: LazyArray) -> LazyArray:
    """Return the real part of an array of complex numbers."""
    kind = one.dtype[0] if one.dtype.names else np.zeros((), one.dtype).real.dtype
    return replace(one, dtype=kind, rows=each_way(one.rows, partial(partial, _real)))


def _real(rows: Rows, start: int, stop: int) -> Any:
    return parts(rows(start, stop))[0]


def parts(values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return real and imaginary parts."""
    if names := values.dtype.names:
        return values[names[0]], values[names[1]]
    return values.real, values.imag


def without_records(arrays: Mapping[str, LazyArray]) -> dict[str, LazyArray]:
    """Return arrays of numbers in place of those of records, which have several fields: `data.k` for `k` of `data`."""
    found: dict[str, LazyArray] = {}
    for name, one in arrays.items():
        fields = one.dtype.fields
        if fields is None or is_complex(one):
            found[name] = one
            continue
        for key, (kind, *_) in fields.items():
            base, sides = kind.subdtype or (kind, ())
            label = f"{name}.{key}"
            of_one = partial(partial, _field, key)
            rows = of_one(one.rows) if sides else each_way(one.rows, of_one)
            found[label] = LazyArray(label, (*one.shape, *sides), base, rows, shared=one.shared)
    return found if len(found) == len(arrays) else without_records(found)


def _field(key: str, rows: Rows, start: int, stop: int) -> NDArray[Any]:
    return np.asarray(rows(start, stop))[key]
