"""What every reader returns: the arrays of one file, described at once and read a few samples at a time."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from training.user_error import UserError

Rows = Callable[[int, int], NDArray[Any]]


class ReadError(UserError):
    """A data file cannot be read: the message names the file and says what was expected and what was found."""


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
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    rows: Rows
    dimensions: tuple[str, ...] | None = None
    units: str = ""
    meaning: str = ""
    shared: bool = False

    @classmethod
    def of(cls, name: str, values: NDArray[Any]) -> LazyArray:
        """Describe an array in memory."""
        return cls(name, values.shape, values.dtype, lambda start, stop: values[start:stop])

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
    """

    path: Path
    format: str
    arrays: Mapping[str, LazyArray]
    coordinates: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    boundaries: Mapping[str, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    def array(self, name: str) -> LazyArray:
        """Return the array of that name.

        Raises:
            ReadError: There is none; the message lists those that there are.
        """
        if name not in self.arrays:
            raise ReadError(f"{self.path}: expected an array {name!r} but found {', '.join(sorted(self.arrays))}")
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
