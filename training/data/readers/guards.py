"""Guards around libraries that believe what a file says.

`meshio` opens whatever files a mesh file names, and inflates without a limit. Blosc, by which zarr compresses, knows
where a chunk begins, and not where it ends. HDF5 goes from object to object of a heap by their sizes, however small.
"""

from __future__ import annotations

import importlib
import lzma
import math
import zlib
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from mmap import ACCESS_READ, mmap
from pathlib import Path
from traceback import walk_tb
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np

from training.data.readers.misread import NEW, OLD, read_right, without_ghosts
from training.data.readers.numbered import GMSH, replaced

#: Where errors of these types are mistakes of the program, whatever a file holds: its packages, and what checks types.
OWN = {__name__.partition(".")[0], "physics", "jaxtyping", "beartype"}
MISTAKES = (TypeError, AttributeError, KeyError, NameError)
#: Modules of `meshio` that make arrays as large as a file says that they are.
COUNTED = (OLD, NEW, *GMSH, "gmsh.common")
#: Bytes that a mesh file may hold, inflated.
MOST_BYTES = 2**29
BLOSC = frozenset({"Blosc", "BloscCodec"})  # of zarr 2 and 3
#: How the heap of HDF5 begins that holds what varies in length, such as texts and the lists of dimensions of netCDF-4.
HEAP = b"GCOL\1\0\0\0"
HEAP_BYTES, HEAP_HEADER = 4096, 16  # at the least, and of the heap as of every object in it
BLOSC_HEADER = 16  # bytes of a chunk, the last four of which say its size


def is_mistake(error: BaseException) -> bool:
    """Return whether an error was raised in lines of this program, not of a library, and damage leads to none such."""
    innermost = deque(walk_tb(error.__traceback__), maxlen=1)
    modules = {str(frame.f_globals.get("__name__")).partition(".")[0] for frame, _ in innermost}
    return isinstance(error, MISTAKES) and modules <= OWN


@contextmanager
def guarded(path: Path) -> Iterator[None]:
    """Let `meshio` read a file, but no other file than an HDF5 file beside it, and inflate a bounded number of bytes.

    Raises:
        ValueError: The file refers to other files, or is larger than `MOST_BYTES` when it is inflated.
    """
    if path.suffix.lower() in {".xdmf", ".xmf"}:
        _check_references(path)
    left = MOST_BYTES

    def inflate(inflater: Any, data: bytes) -> bytes:
        nonlocal left
        found: bytes = inflater.decompress(bytes(data), left + 1)
        left -= len(found)
        if left < 0:
            raise ValueError(f"{path} holds more than {MOST_BYTES // 2**20} MiB when it is inflated")
        if not inflater.eof:
            raise ValueError(f"{path} is damaged: its compressed data are cut off")
        return found

    vtu: Any = importlib.import_module("meshio.vtu._vtu")  # which inflates whatever a file says, without a limit
    inflating = {
        "zlib": SimpleNamespace(compress=zlib.compress, decompress=lambda data: inflate(zlib.decompressobj(), data)),
        "lzma": SimpleNamespace(compress=lzma.compress, decompress=lambda data: inflate(lzma.LZMADecompressor(), data)),
    }
    with ExitStack() as stack:
        for name in COUNTED:
            stack.enter_context(replaced(importlib.import_module(f"meshio.{name}"), np=_BoundedNumPy(path)))
        stack.enter_context(replaced(vtu, **inflating))
        stack.enter_context(read_right())
        yield


def read_any(path: Path) -> Any:
    """Read a mesh in one of the formats that have the suffix of its file.

    `meshio.read` prints what is wrong, and ends the program.

    Raises:
        ValueError: It is in none of them; the message says what each one found.
    """
    helpers: Any = importlib.import_module("meshio._helpers")
    reasons = []
    for kind in helpers._filetypes_from_path(path):  # noqa: SLF001
        try:
            return without_ghosts(helpers.reader_map[kind](str(path)))
        except helpers.ReadError as error:
            reasons.append(str(error) or f"it is no file of {kind}")
    raise ValueError("; ".join(reasons))


class _BoundedNumPy:
    """NumPy for a reader of a file, without arrays that are larger than the file, or than a mesh may be."""

    def __init__(self, path: Path) -> None:
        self._path, self._size = path, path.stat().st_size
        self.mgrid = self

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    def fromfile(self, file: Any, dtype: Any = float, count: Any = -1, sep: str = "") -> Any:
        """Read numbers of a file that has as many."""
        least = 2 if sep else np.dtype(dtype).itemsize  # bytes of a number
        left = self._size - file.tell()
        if int(count) * least > left + 1:
            raise ValueError(
                f"{int(count):,} numbers would follow, of which the {left:,} bytes that are left hold fewer"
            )
        return np.fromfile(file, dtype, int(count), sep)

    def empty(self, shape: Any, dtype: Any = float) -> Any:
        """Return an array as `numpy.empty` does."""
        sides = [int(side) for side in np.ravel(shape)]
        _check_size(math.prod(sides) * np.dtype(dtype).itemsize, f"an array {sides} of {self._path}")
        return np.empty(shape, dtype)

    def linspace(self, start: Any, stop: Any, count: int) -> Any:
        """Return numbers as `numpy.linspace` does."""
        _check_size(8 * int(count), f"an axis of {int(count):,} points of {self._path}")
        return np.linspace(start, stop, count)

    def __getitem__(self, index: tuple[slice, ...]) -> Any:
        sides = [int(each.stop) for each in index]
        _check_size(8 * len(sides) * math.prod(sides), f"a grid {sides} of {self._path}")
        return np.mgrid[index]


def _check_references(path: Path) -> None:
    """Check that an XDMF file refers to no other files than HDF5 files beside it, whose data are in them.

    A step is read as a whole, so its data together are not too large.
    """
    root, sizes = ET.parse(path).getroot(), dict[str, int]()  # noqa: S314  expat bounds and ignores entities
    for item in root.iter():
        # `meshio` takes an element of any name for an item of data.
        text, kind = (item.text or "").strip(), item.get("Format", "XML")
        if kind == "XML" or text in sizes:
            continue
        name, _, inside = text.partition(":")
        beside = path.resolve().parent / name
        if kind != "HDF" or Path(name).name != name or beside.is_symlink():
            raise ValueError(
                f'{path} refers to "{text[:80]}" with Format="{kind}": only an HDF5 file beside it is read'
            )
        sizes[text] = _size_of_dataset(beside, inside)
    for grid in (each for each in root.iter("Grid") if each.find("Grid") is None):
        held = sum(sizes.get((item.text or "").strip(), 0) for item in grid.iter() if item.get("Format") == "HDF")
        _check_size(held, f"a grid of {path}")


def _size_of_dataset(path: Path, inside: str) -> int:
    """Return the bytes of a dataset of an HDF5 file, after a check that it is in that file, and not too large."""
    import h5py  # noqa: PLC0415  few files need it

    with h5py.File(path, "r") as file:
        size = int(getattr(check_inside(file, inside, path), "nbytes", 0))
    _check_size(size, f'"{inside}" of {path}')
    return size


def check_inside(file: Any, inside: str, path: Path) -> Any:
    """Return a member of an HDF5 file, after a check that it is in that file."""
    import h5py  # noqa: PLC0415  few files need it

    group = file
    for key in inside.strip("/").split("/"):
        if type(group.get(key, getlink=True)) is not h5py.HardLink:  # None where it is not there
            raise ValueError(f'"{inside}" of {path} is a link to somewhere else, or is not there')
        group = group[key]
    if getattr(group, "external", None) or getattr(group, "is_virtual", False):
        raise ValueError(f'"{inside}" of {path} has its data in other files')
    return group


def _check_size(size: int, what: str) -> None:
    """Refuse what is larger than a mesh may be."""
    if size > MOST_BYTES:
        raise ValueError(f"{what} holds more than {MOST_BYTES // 2**20} MiB")


def check_heaps(path: Path, file: Any) -> None:
    """Check that the heaps of an open HDF5 file end, in a damaged one of which the library would go round forever.

    They are looked for in what is not the values of a data set.

    Raises:
        ValueError: An object of a heap has no size, or is larger than the heap.
    """
    import h5py  # noqa: PLC0415  few files need it

    values: list[tuple[int, int]] = []

    def note(_: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and not item.is_virtual and not item.external:
            if item.chunks:
                item.id.chunk_iter(lambda chunk: values.append((chunk.byte_offset, chunk.size)))
            elif (start := item.id.get_offset()) is not None:
                values.append((start, item.id.get_storage_size()))

    file.visititems(note)
    width = file.id.get_create_plist().get_sizes()[1]
    with path.open("rb") as opened, mmap(opened.fileno(), 0, access=ACCESS_READ) as content:
        start = 0
        for first, size in [*sorted(values), (len(content), 0)]:
            while (heap := content.find(HEAP, start, first)) >= 0:
                _check_heap(content, heap, width)
                start = heap + len(HEAP)
            start = max(start, first + size)


def _check_heap(content: mmap, heap: int, width: int) -> None:
    """Check the sizes of a heap's objects, numbers of `width` bytes; object 0 is what is free, its header included."""

    def number(at: int, width: int) -> int:
        return int.from_bytes(content[at : at + width], "little")

    end, place = heap + number(heap + len(HEAP), width), heap + HEAP_HEADER
    if not HEAP_BYTES <= end - heap <= len(content) - heap:
        return  # no heap, or one that the library refuses
    while place + HEAP_HEADER <= end:
        size = number(place + HEAP_HEADER // 2, width)
        step = HEAP_HEADER + -(-size // 8) * 8 if number(place, 2) else size
        if not 0 < step <= end - place:
            raise ValueError(f"the heap at byte {heap:,} holds an object of {size:,} bytes at byte {place:,}")
        place += step


def cut_chunk(path: Path, array: Any) -> tuple[Path, int, int] | None:
    """Return a cut chunk of an array in a folder of zarr, its bytes and those that it has to have; None without one.

    Blosc would go on to read the memory behind it. Chunks that are parts of a file have their own places in it.
    """
    if type(next(reversed(array.compressors), None)).__name__ not in BLOSC or array.shards is not None:
        return None
    for file in sorted((path / array.path).rglob("*")):
        if file.name.startswith(".") or file.name == "zarr.json" or not file.is_file():
            continue
        with file.open("rb") as chunk:
            said = max(int.from_bytes(chunk.read(BLOSC_HEADER)[12:], "little"), BLOSC_HEADER)
        if (size := file.stat().st_size) < said:
            return file, size, said
    return None
