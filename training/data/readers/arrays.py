"""Files of arrays under any names: NumPy's `.npy` and `.npz`, and MATLAB's.

NumPy's arrays are mapped from the disk where the file is not compressed. MATLAB's versions 5 to 7 are read by SciPy,
version 7.3, which is HDF5 with reversed axes, by h5py.
"""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from io import BufferedIOBase
from pathlib import Path
from typing import Any, Literal, cast

import h5py
import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray
from scipy import io
from scipy.io.matlab import MatReadError

from training.data.readers.data_file import (
    BLOCK,
    DataFile,
    LazyArray,
    ReadError,
    Slices,
    damage_named,
    last_part,
    without_records,
)
from training.data.readers.hdf5 import datasets, opened, text
from training.data.readers.matlab import complex_variables

PICKLED = "it holds Python objects, which are never unpickled: save them as arrays of numbers, "
READERS = 8  # of one compressed array at a time that go on where they were
FEW = 4  # the most objects that are saved as an array each
NAME = "array"
"""What the one array of a `.npy` file is called."""
CELLS = "cells of MATLAB that are not arrays of numbers of one size: save them as one array"
CLASSES = {"double": "f8", "single": "f4", "logical": "?", "char": "U1", "complex": "c16"}
CLASSES |= {f"{sign}int{8 * size}": f"{sign or 'i'}{size}" for sign in ("", "u") for size in (1, 2, 4, 8)}
"""NumPy's types of MATLAB's classes."""
NUMBERS = {*CLASSES} - {"char"}
"""Classes of variables of version 7.3 that hold numbers."""


# NumPy


@dataclass(frozen=True)
class Header:
    """What precedes the numbers of an array in the `.npy` format, and the bytes it takes."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]
    size: int


@contextmanager
def open_npy(path: Path) -> Iterator[DataFile]:
    """Open a `.npy` file; its array is called `array`."""
    with damage_named(path, "a .npy file"):
        with path.open("rb") as file:
            found = header(file)
        if found.dtype.hasobject:
            saved = numbers_of("d", found.shape, "u")
            raise ReadError(
                f"{path}: {PICKLED}d = np.load('{path.name}', allow_pickle=True); np.savez('arrays.npz', {saved})"
            )
        mapped = map_array(path, found, 0)
    yield DataFile(path, "npy", without_records({NAME: LazyArray.of(NAME, mapped)}))


@contextmanager
def open_npz(path: Path) -> Iterator[DataFile]:
    """Open an `.npz` archive, as `numpy.savez` and `numpy.savez_compressed` write it."""
    with damage_named(path, "an .npz file"), zipfile.ZipFile(path) as archive:
        members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        found = {name: member(archive, info, path) for name, info in members.items() if info.filename != name}
    arrays = {name: one for name, one in found.items() if not one.dtype.hasobject}
    left_out = dict.fromkeys([name for name in found if name not in arrays], f"{PICKLED}{saved_without(path, found)}")
    if left_out and not arrays:
        raise ReadError(f"{path}: {min(left_out)!r}: {left_out[min(left_out)]}")
    yield DataFile(path, "npz", without_records(arrays), left_out=left_out)


def saved_without(path: Path, arrays: Mapping[str, LazyArray]) -> str:
    """Return the lines that save the arrays of an archive, in which some are Python objects, as arrays of numbers."""
    parts = [
        numbers_of(f"d['{name}']", one.shape, name) if one.dtype.hasobject else f"{name}=d['{name}']"
        for name, one in arrays.items()
    ]
    return f"d = np.load('{path.name}', allow_pickle=True); np.savez('arrays.npz', {', '.join(parts)})"


def numbers_of(objects: str, shape: tuple[int, ...], name: str) -> str:
    """Return the arguments of `np.savez` for an array of Python objects: each of a few, as a branch and a trunk.

    Of many, each is a sample; one alone may be a dict.
    """
    if not shape:
        return f"**{objects}.item()"
    if len(shape) == 1 and shape[0] <= FEW:
        return ", ".join(f"{name}{number}={objects}[{number}]" for number in range(shape[0]))
    return f"{name}=np.stack(list({objects}.ravel())).astype(float)"


def member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path) -> LazyArray:
    """Describe one array of an archive: mapped, or decompressed in order. Python objects are not read."""
    name = info.filename.removesuffix(".npy")
    with archive.open(info) as file:
        found = header(cast("BufferedIOBase", file))
    if found.dtype.hasobject:
        return LazyArray.of(name, np.broadcast_to(np.empty((), found.dtype), found.shape))
    if info.compress_type == zipfile.ZIP_STORED:
        return LazyArray.of(name, map_array(path, found, start_of(path, info)))
    if (found.fortran and len(found.shape) > 1) or not found.shape:
        return LazyArray.of(name, np.asarray(np.load(path, allow_pickle=False)[name]))
    stream = Stream(path, info.filename, found)
    return LazyArray(name, found.shape, found.dtype, stream.read)


def start_of(path: Path, info: zipfile.ZipInfo) -> int:
    """Return the offset of a member's bytes: behind its local header of 30 bytes, its name and its extra field."""
    with path.open("rb") as file:
        file.seek(info.header_offset + 26)
        return int(info.header_offset + 30 + sum(struct.unpack("<HH", file.read(4))))


def map_array(path: Path, found: Header, start: int) -> NDArray[Any]:
    """Map an array's numbers from the disk; one without numbers is made anew."""
    if 0 in found.shape:
        return np.empty(found.shape, found.dtype)
    order: Literal["F", "C"] = "F" if found.fortran else "C"
    return np.memmap(path, found.dtype, "r", start + found.size, found.shape or (1,), order).reshape(found.shape)


@dataclass
class Stream:
    """Decompress an array of an archive in order, from where one of several readers has stopped, or else anew.

    Several tensors may be of one array, and a mask is read beside each field: they are at different samples in turn.
    """

    path: Path
    name: str
    found: Header
    files: list[tuple[int, BufferedIOBase]] = field(default_factory=list, init=False)
    """What decompresses, by the sample that it is at, the one that was read last at the end."""
    held: tuple[int, int, NDArray[Any]] | None = field(default=None, init=False)
    """What was read last, if it is not large."""

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Read the samples `start` to `stop`."""
        if self.held is not None and self.held[:2] == (start, stop):
            return self.held[2]
        at, file = max((each for each in self.files if each[0] <= start), key=lambda each: each[0], default=(0, None))
        if file is None:
            member = zipfile.ZipFile(self.path).open(self.name)  # noqa: SIM115 -- open until another one is needed more
            file = cast("BufferedIOBase", member)
            file.read(self.found.size)
        else:
            self.files.remove((at, file))
        for _ in range(start - at):
            file.read(self.sample_bytes)
        data = file.read((stop - start) * self.sample_bytes)
        if len(data) < (stop - start) * self.sample_bytes:
            raise ReadError(f"{self.path}: {self.name} ends before its sample {stop - 1}")
        if stop < self.found.shape[0]:
            self.files = [*self.files, (stop, file)][-READERS:]
        values = np.frombuffer(data, self.found.dtype).reshape(stop - start, *self.found.shape[1:])
        self.held = (start, stop, values) if len(data) <= BLOCK else None
        return values

    @property
    def sample_bytes(self) -> int:
        """The bytes of one sample."""
        return int(np.prod(self.found.shape[1:], dtype=np.int64)) * self.found.dtype.itemsize


def header(file: BufferedIOBase) -> Header:
    """Read what precedes the numbers of an array."""
    version = npy.read_magic(file)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, fortran, dtype = read(file)
    return Header(shape, fortran, dtype, file.tell())


# MATLAB


@contextmanager
def open_matlab(path: Path) -> Iterator[DataFile]:
    """Open a `.mat` file of any version from 5 on."""
    if h5py.is_hdf5(path):
        with opened(path) as file:
            every = [name for name in datasets(file) if not name.startswith("#")]  # `#refs#` is MATLAB's
            others = {dotted(name): no_numbers(file, name) for name in every}
            names = [name for name in every if not others[dotted(name)]]
            references = [name for name in names if file[name].dtype.hasobject]
            found = {dotted(name): reversed_axes(file[name], dotted(name)) for name in names if name not in references}
            cells = {dotted(name): referred(file, file[name], dotted(name)) for name in references}
            found |= {name: one for name, one in cells.items() if one is not None}
            left_out = {name: reason for name, reason in others.items() if reason}
            left_out |= {name: CELLS for name, one in cells.items() if one is None}
            yield DataFile(path, "mat", found, left_out=left_out)
        return
    with damage_named(path, "a MATLAB file"):
        listed = contents(path)
    arrays = {name: whole(path, name, shape, kind) for name, shape, kind in listed if kind in CLASSES}
    left_out = {name: f"a {kind} of MATLAB" for name, _, kind in listed if kind not in {*CLASSES, "struct", "cell"}}
    for name in (name for name, _, kind in listed if kind == "cell"):
        with damage_named(path, "a MATLAB file"):
            values = [np.asarray(each) for each in io.loadmat(path, variable_names=[name])[name].ravel(order="F")]
        if len({each.shape for each in values}) == 1 and values[0].dtype.kind in "fiub":
            arrays[name] = LazyArray.of(name, squeezed(np.stack(values)))
        else:
            left_out[name] = CELLS
    for name in (name for name, _, kind in listed if kind == "struct"):
        with damage_named(path, "a MATLAB file"):
            fields, reasons = fields_of(name, io.loadmat(path, variable_names=[name])[name])
        arrays |= fields
        left_out |= reasons
    yield DataFile(path, "mat", arrays, left_out=left_out)


def dotted(name: str) -> str:
    """Return the name of a struct's field as MATLAB writes it."""
    return name.replace("/", ".")


def no_numbers(file: h5py.File, name: str) -> str:
    """Say why a variable of version 7.3 holds no numbers, though its data set does; empty where it does.

    They are letters, the sides of an empty array, parts of a sparse matrix, or what MATLAB keeps of an object.
    """
    item, parent = file[name], file[name].parent
    kind = text(item.attrs.get("MATLAB_class"))
    if item.attrs.get("MATLAB_empty"):
        return "it is empty"
    if "MATLAB_sparse" in parent.attrs:
        return "a part of a sparse matrix of MATLAB"
    return f"a {kind} of MATLAB" if kind and kind not in NUMBERS and not item.dtype.hasobject else ""


def referred(file: h5py.File, cells: h5py.Dataset, name: str) -> LazyArray | None:
    """Describe the cells of a variable of version 7.3, or a field of an array of structs: every one is a sample.

    None where they are not arrays of numbers of one size.
    """
    items = [file[reference] for reference in np.ravel(cells[()]) if reference]
    arrays = [
        item for item in items if isinstance(item, h5py.Dataset) and text(item.attrs.get("MATLAB_class")) != "char"
    ]
    shapes = {item.shape[::-1] for item in arrays}
    if len(arrays) < max(1, cells.size) or len(shapes) > 1 or arrays[0].dtype.kind not in "fiu":
        return None

    def rows(start: int, stop: int) -> NDArray[Any]:
        return squeezed(np.stack([np.asarray(item).T for item in arrays[start:stop]]))

    sides = shapes.pop()
    return LazyArray(name, (len(arrays), *(() if sides == (1, 1) else sides)), arrays[0].dtype, rows)


def fields_of(name: str, found: NDArray[Any]) -> tuple[dict[str, LazyArray], dict[str, str]]:
    """Return the fields of a struct as arrays `name.field`, those of structs in it, too, and what is left out.

    Of an array of structs, every one is a sample.
    """
    arrays: dict[str, LazyArray] = {}
    left_out: dict[str, str] = {}
    for key in found.dtype.names or ():
        label, values = f"{name}.{key}", [np.asarray(each) for each in found[key].ravel()]
        if not values:
            left_out[label] = "a field of an empty struct"
        elif len(values) == 1 and values[0].dtype.names:
            inner = fields_of(label, values[0])
            arrays, left_out = arrays | inner[0], left_out | inner[1]
        elif values[0].dtype.kind not in "fiubc":
            left_out[label] = "a field of a struct that holds no numbers"
        elif len({each.shape for each in values}) > 1:
            left_out[label] = "a field that has other sizes in other structs of the array"
        else:
            arrays[label] = LazyArray.of(label, values[0] if len(values) == 1 else squeezed(np.stack(values)))
    return arrays, left_out


def squeezed(values: NDArray[Any]) -> NDArray[Any]:
    """Return arrays of structs' fields, which have at least two axes, numbers as `[sample]`."""
    return values[:, 0, 0] if values.shape[1:] == (1, 1) else values


def contents(path: Path) -> list[tuple[str, tuple[int, ...], str]]:
    """List name, shape and class of the variables of a file of version 4 to 7; the class of complex ones is `complex`.

    MATLAB calls a complex variable `double`, too, as `scipy.io.whosmat` does.
    """
    try:
        version, _ = io.matlab.matfile_version(path)
        flags = complex_variables(path) if version == 1 else []
        listed = io.whosmat(path)
    except MatReadError as error:
        raise ValueError(str(error)) from error
    if version != 1:  # version 4: `whole` refuses what turns out to be complex
        return list(listed)
    return [(name, shape, "complex" if flag else kind) for (name, shape, kind), flag in zip(listed, flags, strict=True)]


def reversed_axes(dataset: h5py.Dataset, name: str) -> LazyArray:
    """Describe a variable of version 7.3: MATLAB's first axis, which counts samples, is the last in the file."""
    rows = Slices(lambda *part: last_part(dataset, *part).T, lambda *part: np.asarray(dataset[slice(*part)]).T)
    return LazyArray(name, dataset.shape[::-1], dataset.dtype, rows)


def whole(path: Path, name: str, shape: tuple[int, ...], kind: str) -> LazyArray:
    """Describe a variable of version 5 to 7, which is read as a whole when it is first needed."""

    @cache
    def values() -> NDArray[Any]:
        with damage_named(path, "a MATLAB file"):
            found = np.asarray(io.loadmat(path, variable_names=[name])[name])
        if np.iscomplexobj(found) and kind != "complex":
            raise ReadError(f"{path}: {name!r} is complex; expected real numbers")
        return found

    return LazyArray(name, shape, np.dtype(CLASSES.get(kind, "O")), lambda start, stop: values()[start:stop])
