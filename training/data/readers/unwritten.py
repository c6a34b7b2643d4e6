"""What a file of chunks does not hold, and every reader takes for its fill value: mostly 0, which looks like data.

HDF5 has no chunk of what was never written, as by a solver that was stopped. Zarr leaves out chunks of the fill value,
and a copy of its folder may lack others: both look the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import h5py

from training.data.readers.hdf5 import text

NO_VARIABLE = "This is a netCDF dimension but not a netCDF variable"
"""How the attribute `NAME` begins of a data set that stands for a dimension of netCDF-4 without coordinates."""
MOST_NAMED = 3  # arrays; of others their number is said


class Gap(NamedTuple):
    """An array, and how many of its chunks are not there."""

    name: str
    missing: int
    chunks: int
    fill: Any


def unwritten(paths: Iterable[Path]) -> list[str]:
    """Return which arrays of files lack chunks, in sentences; files of other formats have none."""
    found = [(path, gap) for path in paths for gap in (gaps_of_zarr(path) if is_zarr(path) else gaps_of_hdf5(path))]
    lines = [
        f"{path.name}: {gap.missing} of {gap.chunks} chunks of {gap.name!r} are not there, and read as {gap.fill}: "
        + ("zarr leaves out chunks of that value, or a copy is not whole" if is_zarr(path) else "nothing wrote them")
        for path, gap in found[:MOST_NAMED]
    ]
    return lines + ([f"chunks of {len(found) - MOST_NAMED} other arrays are not there"] * (len(found) > MOST_NAMED))


def is_zarr(path: Path) -> bool:
    """Return whether a path is a folder of zarr."""
    return any((path / name).is_file() for name in ("zarr.json", ".zgroup", ".zarray"))


def gaps_of_zarr(path: Path) -> Iterator[Gap]:
    """Return the arrays of a folder of zarr that lack chunks."""
    import zarr  # noqa: PLC0415 -- it takes long to import

    node = zarr.open(path, mode="r")
    every = [("array", node)] if isinstance(node, zarr.Array) else node.members(max_depth=None)
    for name, one in every:
        if isinstance(one, zarr.Array) and (missing := one.nchunks - one.nchunks_initialized) > 0:
            yield Gap(name, missing, one.nchunks, one.fill_value)


def gaps_of_hdf5(path: Path) -> Iterator[Gap]:
    """Return the data sets of an HDF5 file that lack chunks; a data set without chunks has all its values or none."""
    if not path.is_file() or not h5py.is_hdf5(path):
        return
    found: list[tuple[str, h5py.Dataset]] = []
    with opened(path) as file:
        file.visititems(lambda name, one: found.append((name, one)) if isinstance(one, h5py.Dataset) else None)
        for name, one in found:
            if not one.size or one.is_virtual or one.external or text(one.attrs.get("NAME")).startswith(NO_VARIABLE):
                continue
            chunks = math.prod(-(-side // part) for side, part in zip(one.shape, one.chunks or one.shape, strict=True))
            there = one.id.get_num_chunks() if one.chunks else chunks * (one.id.get_storage_size() > 0)
            if there < chunks:
                yield Gap(name, chunks - there, chunks, one.fillvalue)


def missing_filters(path: Path) -> list[str]:
    """Return the filters by which data sets of an HDF5 file are packed, and which its library does not have here."""
    found: dict[int, str] = {}

    def note(_: str, item: h5py.HLObject) -> None:
        if isinstance(item, h5py.Dataset):
            packing = item.id.get_create_plist()
            for number, *_rest, name in map(packing.get_filter, range(packing.get_nfilters())):
                if not h5py.h5z.filter_avail(number):
                    found[number] = f"{number} ({name.decode(errors='replace').strip()})"

    with opened(path) as file:
        file.visititems(note)
    return list(found.values())


def opened(path: Path) -> h5py.File:
    """Open an HDF5 file, which a reader may hold open: HDF5 refuses another kind of locking than that reader's."""
    try:
        return h5py.File(path, "r", locking=False)
    except OSError:
        return h5py.File(path, "r")  # as xarray does
