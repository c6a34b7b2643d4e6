"""A data file: its arrays, described at once and read a few samples at a time.

A reader is a function of a path that returns a context with a `DataFile`; `training.data.readers.formats` chooses it.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from training.messages import UserError

Rows = Callable[[int, int], NDArray[Any]]

UNEVEN = 1e-2  # the largest part of a step in time by which two steps may differ


class ReadError(UserError):
    """A data file cannot be read: the message names the file and says what was expected and what was found."""


def part(values: Any, start: int, stop: int) -> Any:
    """Return the samples `start` to `stop` of what can be sliced; a number without axes is itself in every part."""
    return values[start:stop] if values.shape else values[()]


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

    @classmethod
    def of(cls, name: str, values: Any, **said: Any) -> LazyArray:
        """Describe an array, in memory or in a file, that can be sliced; `said` are further attributes."""
        return cls(name, values.shape, np.dtype(values.dtype), partial(part, values), **said)

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

    def blocks(self, size: int = 1 << 25) -> Iterator[tuple[int, NDArray[Any]]]:
        """Read all samples in order, about `size` bytes at a time, each block with the index of its first sample."""
        step = max(1, size // max(1, self.sample_bytes))
        for start in range(0, self.samples, step):
            yield start, self.read(start, start + step)


@dataclass(frozen=True)
class DataFile:
    """The contents of one file.

    Attributes:
        path: The file, or the folder of a zarr store.
        format: The layout that it was read as.
        arrays: By name.
        coordinates: Positions of the grid points along an axis, by the axis' name, where the file tells them.
        boundaries: `wall`, `periodic` or `open` by the axis' name, where the file tells them.
        remarks: What the reader decided, in sentences, for the user to check.
        samples: How the file says which axis counts samples: the name of that axis, or the layout that defines it;
            empty where it does not, and the first axis is taken.
        outputs: The arrays that the layout itself defines as outputs.
        left_out: What the file holds besides arrays, and why it is not read, by name.
        pieces: The samples as files of one each, where they have unequal numbers of points; the arrays are then those
            of the first one.
        sources: Files and name of each array, where arrays come from files of their own.
        parts: Arrays of single splits, which problem files may name, too.
        regions: The whole numbers of the cell data of meshes that tell regions, by their names.
        validation: The number of samples for validation, before those for tests at the end, where the file says it.
        test: The number of samples for tests, where the file says it.
        cells: The length of an axis, by its name, where the file tells that values are those of the cells along it.
        in_cells: Which points of a mesh file are in cells `[point]`, where some are not, and left out; None for all.
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
    cells: Mapping[str, float] = field(default_factory=dict)
    in_cells: NDArray[np.bool_] | None = None

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


@contextmanager
def damage_named(path: Path, kind: str) -> Iterator[None]:
    """Turn a library's error about a damaged file into one that names the file.

    Raises:
        ReadError: The library could not read the file.
    """
    try:
        yield
    except ReadError:
        raise
    except (OSError, ValueError, KeyError, RuntimeError, EOFError, TypeError, BadZipFile, struct.error) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ReadError(f"{path}: expected {kind}, but it is damaged or something else ({reason})") from error


def natural(name: str | Path) -> tuple[Any, ...]:
    """Return a sort key in which 10 follows 9."""
    return tuple(int(part) if part.isdigit() else part for part in re.split(r"(\d+)", str(name)))
