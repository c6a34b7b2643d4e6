"""Samples that others computed: their interface, and the MATLAB files of the benchmarks in the folder of DATA_PATH.

Protocol of Cao (2021) for the files: training takes the first samples of one file, testing takes the last samples of
another or of the same one. Validation samples follow the training samples; where the training file is too short for
them, they are the first samples of the test file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

VARIABLE = "DATA_PATH"  # the environment variable that names the folder with published files

Array = NDArray[np.float32]
Stream = Literal["train", "test"]


@runtime_checkable
class Published(Protocol):
    """Samples of a problem that others computed."""

    @property
    def points(self) -> str:
        """Where the grid points lie, in words."""

    @property
    def files(self) -> str:
        """The names of the files."""

    def available(self, mesh: int) -> bool:
        """Return whether the samples are used for requests with `mesh` points per axis."""

    def read(self, stream: Stream, name: str, counts: Mapping[str, int]) -> Array:
        """Read as many samples `[sample, *grid]` of a quantity as a stream counts, fewer where there are no more."""


def data_folder() -> Path | None:
    """Return the folder that the user named for published files."""
    folder = os.environ.get(VARIABLE)
    return Path(folder) if folder else None


@dataclass(frozen=True)
class MatlabFiles:
    """The files of one benchmark."""

    train: str  # name of the file with training samples
    test: str  # name of the file with test samples
    arrays: Mapping[str, str]  # the name in the files of each quantity, by its name on the wire
    points: str  # where the grid points lie, in words

    @property
    def files(self) -> str:
        """Both names."""
        return f"{self.train} {self.test}"

    def available(self, mesh: int) -> bool:
        """Return whether DATA_PATH holds the files and their fields have `mesh` points per axis."""
        folder = data_folder()
        if folder is None or not all((folder / name).is_file() for name in (self.train, self.test)):
            return False
        with array(folder / self.train, next(iter(self.arrays.values()))) as found:
            return mesh in found.shape[-1:]

    def read(self, stream: Stream, name: str, counts: Mapping[str, int]) -> Array:
        """Read one quantity `[sample, *grid]`; see `Published.read`."""
        folder, key, test = data_folder() or Path(), self.arrays[name], counts["test"]
        if stream == "test":
            fields = load(folder / self.test, key)
            return fields[max(len(fields) - test, 0) :]
        train = load(folder / self.train, key)
        if self.train == self.test:
            return train[: max(len(train) - test, 0)][: counts["train"]]
        if len(train) >= counts["train"]:
            return train[: counts["train"]]
        other = load(folder / self.test, key)
        return np.concatenate([train, other[: max(len(other) - test, 0)][: counts["train"] - len(train)]])


def load(path: Path, name: str) -> Array:
    """Read one array `[sample, *grid]` of a MATLAB file as float32; errors are those of `array`."""
    with array(path, name) as found:
        return np.asarray(found.read(), dtype=np.float32)


@contextmanager
def array(path: Path, name: str) -> Iterator[Any]:
    """Open one array `[sample, *grid]`, a `LazyArray`, of a MATLAB file of any version from 5 on."""
    from training.data.readers import open_file  # noqa: PLC0415 -- the samples' package imports the problems

    with open_file(path, "mat") as file:
        yield file.array(name)
