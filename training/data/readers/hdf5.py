"""HDF5 with arrays under any names, or with one group per sample."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from training.data.readers.data_file import DataFile, LazyArray, ReadError, damage_named


@contextmanager
def open_hdf5(path: Path) -> Iterator[DataFile]:
    """Open an HDF5 file that follows no known layout."""
    with opened(path) as file:
        yield describe(path, file)


@contextmanager
def opened(path: Path) -> Iterator[h5py.File]:
    """Open a file for reading, without HDF5's own lock.

    Raises:
        ReadError: It is no HDF5 file, or a damaged one.
    """
    with damage_named(path, "an HDF5 file"):
        file = h5py.File(path, "r", locking=False)
    with file:
        with damage_named(path, "an HDF5 file"):
            refuse_other_files(path, file)
        yield file


def refuse_other_files(path: Path, file: h5py.File) -> None:
    """Refuse what would read another file than the user's: its bytes would become training data.

    Raises:
        ReadError: There is an external link, a virtual data set, or one with external storage.
    """

    def kind(name: str | bytes, link: object) -> tuple[str | bytes, str] | None:
        if isinstance(link, h5py.ExternalLink):
            return name, "a link to another file"
        item = file[name] if isinstance(link, h5py.HardLink) else None
        if isinstance(item, h5py.Dataset) and (item.is_virtual or item.external):
            return name, "a virtual data set" if item.is_virtual else "external storage"
        return None

    if found := file.visititems_links(kind):
        raise ReadError(f"{path}: {found[0]!r} is {found[1]}, which is not read: copy its numbers into the file")


def describe(path: Path, file: h5py.File) -> DataFile:
    """Describe the arrays of an open file."""
    if groups := sample_groups(file):
        found = {name: stacked(file, groups, name) for name in datasets(file[groups[0]])}
        remark = f"one group per sample: {groups[0]} … {groups[-1]}"
        return DataFile(path, "hdf5", found, remarks=(remark,))
    return DataFile(path, "hdf5", {name: array(file[name], name) for name in datasets(file)})


def datasets(group: h5py.Group) -> list[str]:
    """List the paths of all datasets below a group, in the file's order."""
    names: list[str] = []
    group.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
    return names


def array(dataset: h5py.Dataset, name: str, dimensions: tuple[str, ...] | None = None) -> LazyArray:
    """Describe a dataset whose first axis counts samples."""
    return LazyArray(
        name,
        dataset.shape,
        dataset.dtype,
        lambda start, stop: dataset[start:stop],
        dimensions=dimensions,
        units=text(dataset.attrs.get("units")),
        meaning=text(dataset.attrs.get("long_name", dataset.attrs.get("meaning"))),
    )


def sample_groups(file: h5py.Group) -> list[str]:
    """List the groups that hold one sample each, in the order of their numbers; none where the file is otherwise.

    They are groups with a number in their names, at least two, that hold datasets of the same names and shapes.
    """
    groups = [name for name, item in file.items() if isinstance(item, h5py.Group) and re.search(r"\d", name)]
    if len(groups) < 2 or len(groups) < len(file):
        return []
    shapes = {frozenset((name, file[group][name].shape) for name in datasets(file[group])) for group in groups}
    return sorted(groups, key=natural) if len(shapes) == 1 and shapes != {frozenset()} else []


def stacked(file: h5py.Group, groups: list[str], name: str, dimensions: tuple[str, ...] | None = None) -> LazyArray:
    """Describe one dataset of every sample's group as an array over the samples."""
    first = file[groups[0]][name]

    def rows(start: int, stop: int) -> NDArray[Any]:
        return np.stack([file[group][name][()] for group in groups[start:stop]])

    shape = (len(groups), *first.shape)
    return LazyArray(name, shape, first.dtype, rows, dimensions, text(first.attrs.get("units")))


def natural(name: str) -> tuple[Any, ...]:
    """Return a sort key in which 10 follows 9."""
    return tuple(int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name))


def text(value: Any) -> str:
    """Return an attribute as text; empty where there is none."""
    if value is None:
        return ""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
