"""Exodus files, as MOOSE and Cubit write them: a mesh in blocks of cells, and fields of nodes and cells in every step.

They are netCDF: HDF5, or its classic format, of which an array is a view of the file, so that none is larger than the
file. Cells of several blocks have their numbers as the cell data `block`. Nodes of quadratic cells come in the order of
VTK.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from training.data.readers.guards import MOST_BYTES, check_heaps, check_inside

SUFFIXES = frozenset({".e", ".exo", ".ex2"})
#: The kind of cells, and the number of their corners, by how the names of types begin.
KINDS = {
    "TRI": ("triangle", 3),
    "QUA": ("quad", 4),
    "SHE": ("quad", 4),
    "TET": ("tetra", 4),
    "HEX": ("hexahedron", 8),
    "WED": ("wedge", 6),
    "PYR": ("pyramid", 5),
    "BAR": ("line", 2),
    "BEA": ("line", 2),
    "TRU": ("line", 2),
    "EDG": ("line", 2),
    "SPH": ("vertex", 1),
    "CIR": ("vertex", 1),
}
#: The nodes of quadratic cells in the order of VTK.
ORDER = {
    "hexahedron20": (*range(12), *range(16, 20), *range(12, 16)),
    "hexahedron27": (*range(12), *range(16, 20), *range(12, 16), 23, 24, 25, 26, 21, 22, 20),
    "wedge15": (*range(9), 12, 13, 14, 9, 10, 11),
    "wedge18": (*range(9), 12, 13, 14, 9, 10, 11, 15, 16, 17),
}
#: Types of the classic format by number: bytes, letters, and numbers of two to eight bytes.
TYPES = dict(enumerate((">i1", "S1", ">i2", ">i4", ">f4", ">f8", ">u1", ">u2", ">u4", ">i8", ">u8"), start=1))
OF_STEP = "it is a number of the whole step, such as a result: save it in a table beside the files"
HDF5 = b"\x89HDF\r\n\x1a\n"  # how such files begin
DIMENSION, VARIABLE, ATTRIBUTE = 10, 11, 12  # marks of the lists in a header


@dataclass(frozen=True)
class Variable:
    """An array of a file, which is read where it is sliced."""

    array: Any
    kind: str  # of cells; empty of other arrays

    def read(self, *index: int) -> npt.NDArray[Any]:
        """Return the part of the array at an index of its first axes.

        Raises:
            ValueError: It is larger than what a mesh file may hold.
        """
        size = math.prod(self.array.shape[len(index) :]) * self.array.dtype.itemsize
        if size > MOST_BYTES:
            raise ValueError(f"an array of {size:,} bytes is more than the {MOST_BYTES // 2**20} MiB that are read")
        return np.asarray(self.array[index or ...])


Variables = Mapping[str, Variable]


@contextmanager
def opened(path: Path) -> Iterator[Variables]:
    """Open a file, and yield its arrays by name.

    Raises:
        ValueError: It is no netCDF file, or its header says more than the file holds.
    """
    with path.open("rb") as file:
        start = file.read(len(HDF5))
        classic = start[:4] in {b"CDF\1", b"CDF\2", b"CDF\5"}
    if not classic and start != HDF5:
        raise ValueError("it is neither HDF5 nor netCDF")
    if classic:
        yield _Header(np.memmap(path, np.uint8, "r")).variables()
        return
    import h5py  # noqa: PLC0415  few files need it

    with h5py.File(path, "r", locking=False) as file:
        for name in file:
            check_inside(file, name, path)
        check_heaps(path, file)
        arrays = {name: each for name, each in file.items() if hasattr(each, "dtype")}
        yield {name: Variable(each, _text(each.attrs.get("elem_type", b""))) for name, each in arrays.items()}


class _Header:
    """The header of a file in netCDF's classic format, read from its begin to its end."""

    def __init__(self, content: npt.NDArray[np.uint8]) -> None:
        self.content, self.at = content, 4
        self.count = 8 if content[3] == 5 else 4  # bytes of a number of things
        self.offset = 4 if content[3] == 1 else 8

    def number(self, width: int) -> int:
        """Read a whole number."""
        if self.at + width > len(self.content):
            raise ValueError("the header is longer than the file")
        self.at += width
        return int.from_bytes(self.content[self.at - width : self.at].tobytes(), "big")

    def type(self) -> np.dtype[Any]:
        """Read the number of a type."""
        if (found := self.number(4)) not in TYPES:
            raise ValueError(f"expected a type from 1 to {len(TYPES)} but found {found}")
        return np.dtype(TYPES[found])

    def letters(self, width: int = 1) -> bytes:
        """Read a number of things, and so many of them."""
        size = self.number(self.count) * width
        if self.at + size > len(self.content):
            raise ValueError("the header is longer than the file")
        found = self.content[self.at : self.at + size].tobytes()
        self.at += -(-size // 4) * 4
        return found

    def members(self, mark: int) -> range:
        """Read how a list begins, and return the numbers of its members, each of which takes some bytes."""
        found, count = self.number(4), self.number(self.count)
        if (found != mark and (found or count)) or count > len(self.content):
            raise ValueError("the header is no header of netCDF")
        return range(count)

    def attributes(self) -> dict[str, bytes]:
        """Read the attributes of the file or of an array, as bytes."""
        found = {}
        for _ in self.members(ATTRIBUTE):
            name = self.letters().decode(errors="replace")
            found[name] = self.letters(self.type().itemsize)
        return found

    def variables(self) -> dict[str, Variable]:
        """Return all arrays by name."""
        records = self.number(self.count)
        sides = []
        for _ in self.members(DIMENSION):
            self.letters()
            sides.append(self.number(self.count))
        self.attributes()
        listed = []
        for _ in self.members(VARIABLE):
            name = self.letters().decode(errors="replace")
            axes = [self.number(self.count) for _ in range(self.number(self.count))]
            kind, dtype = self.attributes().get("elem_type", b""), self.type()
            self.number(self.count)  # bytes, which follow from the axes
            listed.append((name, [sides[each] for each in axes], _text(kind), dtype, self.number(self.offset)))
        held = [math.prod(shape[1:]) * dtype.itemsize for _, shape, _, dtype, _ in listed if shape and not shape[0]]
        step = held[0] if len(held) == 1 else sum(-(-size // 4) * 4 for size in held)  # bytes of a record of all arrays
        return {
            name: Variable(self.array(name, shape, dtype, offset, step, records), kind)
            for name, shape, kind, dtype, offset in listed
        }

    def array(
        self, name: str, shape: list[int], dtype: np.dtype[Any], offset: int, step: int, records: int
    ) -> npt.NDArray[Any]:
        """Return an array as a view of the file.

        Raises:
            ValueError: It ends behind the file.
        """
        recorded = bool(shape) and shape[0] == 0
        sides = [records, *shape[1:]] if recorded else shape
        strides = [math.prod(sides[axis + 1 :]) * dtype.itemsize for axis in range(len(sides))]
        if recorded:
            strides[0] = step
        if not math.prod(sides):
            return np.empty(sides, dtype)
        end = offset + dtype.itemsize + sum((side - 1) * stride for side, stride in zip(sides, strides, strict=True))
        if end > len(self.content):
            raise ValueError(
                f'"{name}" {sides} would end at byte {end:,} of a file of {len(self.content):,}: the file is cut off, '
                "or its header is damaged"
            )
        return np.ndarray(tuple(sides), dtype, self.content.data, offset, tuple(strides))


def times_of(path: Path) -> tuple[float, ...]:
    """Return the times of the steps of a file; none where it has a mesh alone."""
    with opened(path) as data:
        return tuple(map(float, data["time_whole"].read())) if "time_whole" in data else ()


def meshes_of(path: Path, steps: Iterable[int] | None = None) -> Iterator[Any]:
    """Read the mesh of a file with the fields of some steps, or of every step, one after the other.

    It is read once where there are no steps. What is left out of the fields, and why, is `left_out` in its `info`.
    """
    import meshio  # noqa: PLC0415  few files need it

    with opened(path) as data:
        points = _points(data)
        blocks = [name for name in map("connect{}".format, range(1, len(data) + 1)) if name in data]
        cells = [_block(name, data[name]) for name in blocks]
        numbers = data["eb_prop1"].read() if "eb_prop1" in data else np.arange(1, len(data) + 1)
        own = [numbers[int(name.removeprefix("connect")) - 1] for name in blocks]  # a block without cells has none
        still = {"block": [np.full(len(each), number) for (_, each), number in zip(cells, own, strict=True)]}
        count = len(data["time_whole"].array) if "time_whole" in data else 0
        for step in range(max(1, count)) if steps is None else steps:
            of_cells = dict(_cell_data(data, blocks, step))
            some = (name for name in _names(data, "elem") if name not in of_cells)
            of_cells |= still if len(cells) > 1 else {}
            left_out = dict.fromkeys(some, "not every block of cells has it") | dict.fromkeys(
                _names(data, "glo"), OF_STEP
            )
            yield meshio.Mesh(points, cells, dict(_point_data(data, step)), of_cells, info={"left_out": left_out})


def _points(data: Variables) -> npt.NDArray[np.float64]:
    """Return the coordinates of the nodes `[node, dimension]`."""
    along = [data[name].read() for name in ("coordx", "coordy", "coordz") if name in data]
    if not along and "coord" not in data:
        raise ValueError("it has no coordinates of nodes")
    return np.asarray(data["coord"].read() if "coord" in data else along, np.float64).T


def _block(name: str, connect: Variable) -> tuple[str, npt.NDArray[np.int64]]:
    """Return the cells of a block: their type by meshio's name, and their nodes, which the file counts from 1."""
    nodes, said = connect.read().astype(np.int64) - 1, connect.kind.upper()
    if said[:3] not in KINDS:
        raise ValueError(f"{name} has cells of the type {said or 'none'}, which is not known")
    count = nodes.shape[1]
    base, corners = ("triangle", 3) if said[:3] == "SHE" and count in {3, 6} else KINDS[said[:3]]
    kind = base if count == corners else f"{base}{count}"
    return kind, nodes[:, ORDER[kind]] if kind in ORDER else nodes


def _names(data: Variables, kind: str) -> list[str]:
    """Return the names of the fields of nodes (`nod`) or of cells (`elem`)."""
    stored = data[f"name_{kind}_var"].read() if f"name_{kind}_var" in data else ()
    return [_text(each) for each in stored]


def _text(name: Any) -> str:
    """Return a name, which is bytes, or an array of letters, without its padding."""
    joined = b"".join(np.ravel(name).tolist()) if isinstance(name, np.ndarray) else name
    found = joined.decode(errors="replace") if isinstance(joined, bytes) else str(joined)
    return re.split("\0", found)[0].strip()


def _point_data(data: Variables, step: int) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """Return the fields of nodes of a step by name."""
    for number, name in enumerate(_names(data, "nod"), start=1):
        if "vals_nod_var" in data:  # of old files
            yield name, _native(data["vals_nod_var"].read(step, number - 1))
        elif f"vals_nod_var{number}" in data:
            yield name, _native(data[f"vals_nod_var{number}"].read(step))


def _cell_data(data: Variables, blocks: list[str], step: int) -> Iterator[tuple[str, list[npt.NDArray[Any]]]]:
    """Return the fields of cells of a step by name, those that all blocks have."""
    for number, name in enumerate(_names(data, "elem"), start=1):
        stored = [f"vals_elem_var{number}eb{each.removeprefix('connect')}" for each in blocks]
        if all(each in data for each in stored):
            yield name, [_native(data[each].read(step)) for each in stored]


def _native(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return numbers in the order of bytes of this machine."""
    return values.astype(values.dtype.newbyteorder("="))
