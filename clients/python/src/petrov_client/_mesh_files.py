"""Guards around `meshio`, which opens whatever files a mesh file names, and inflates without a limit."""

from __future__ import annotations

import importlib
import lzma
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree as ET

#: Bytes that a mesh file may hold, inflated.
MOST_BYTES = 2**29


def library(name: str, advice: str) -> Any:
    """Return a library that is optional."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ValueError(advice) from error


def meshio() -> Any:
    """Return the library meshio."""
    return library("meshio", "mesh files need meshio: pip install meshio")


@contextmanager
def guarded(path: Path) -> Iterator[None]:
    """Let `meshio` read a file, but no other file than an HDF5 file beside it, and inflate a bounded number of bytes.

    Raises:
        ValueError: The file refers to other files, or is larger than `MOST_BYTES` when it is inflated.
    """
    if path.suffix.lower() in {".xdmf", ".xmf"}:
        _check_references(path)
    left, modules = MOST_BYTES, {"zlib": zlib, "lzma": lzma}

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
    vtu.zlib = SimpleNamespace(compress=zlib.compress, decompress=lambda data: inflate(zlib.decompressobj(), data))
    vtu.lzma = SimpleNamespace(compress=lzma.compress, decompress=lambda data: inflate(lzma.LZMADecompressor(), data))
    try:
        yield
    finally:
        vars(vtu).update(modules)


def _check_references(path: Path) -> None:
    """Check that an XDMF file refers to no other files than HDF5 files beside it, whose data are in them."""
    for item in ET.parse(path).iter():  # noqa: S314  expat bounds and ignores entities
        # `meshio` takes an element of any name for an item of data.
        text, kind = (item.text or "").strip(), item.get("Format", "XML")
        if kind == "XML":
            continue
        name, _, inside = text.partition(":")
        beside = path.resolve().parent / name
        if kind != "HDF" or Path(name).name != name or beside.is_symlink():
            raise ValueError(
                f'{path} refers to "{text[:80]}" with Format="{kind}": only an HDF5 file beside it is read'
            )
        _check_dataset(beside, inside)


def _check_dataset(path: Path, inside: str) -> None:
    """Check that a dataset of an HDF5 file is in that file, and not too large."""
    import h5py  # noqa: PLC0415  few files need it

    with h5py.File(path, "r") as group:
        for key in inside.strip("/").split("/"):
            kind = type(group.get(key, getlink=True))  # of None where it is not there
            if kind is not h5py.HardLink:
                raise ValueError(f'"{inside}" of {path} is a link to somewhere else, or is not there')
            group = group[key]  # noqa: PLW2901
        if getattr(group, "external", None) or getattr(group, "is_virtual", False):
            raise ValueError(f'"{inside}" of {path} has its data in other files')
        if getattr(group, "nbytes", 0) > MOST_BYTES:
            raise ValueError(f'"{inside}" of {path} holds more than {MOST_BYTES // 2**20} MiB')
