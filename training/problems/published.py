"""Samples that others computed: their interface, and the MATLAB files of the benchmarks in the folder of DATA_PATH.

Protocol of Cao (2021) for the files: training takes the first samples of one file, testing takes the last samples of
another or of the same one. Validation samples follow the training samples; where the training file is too short for
them, they are the first samples of the test file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

import h5py
import numpy as np
from numpy.typing import NDArray
from scipy.io import loadmat, whosmat

from training.user_error import UserError

VARIABLE = "DATA_PATH"
"""The environment variable that names the folder with published files."""

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
        """Return whether the samples are used for requests with `mesh` points per axis.

        Raises:
            ValueError: A file lacks an array.
        """

    def read(self, stream: Stream, name: str, counts: Mapping[str, int]) -> Array:
        """Read the requested samples of one quantity, of training and validation or of the test.

        Args:
            stream: Training (and validation) samples, or test samples.
            name: The quantity's name on the wire.
            counts: How many samples of each stream are requested.

        Returns:
            Fields `[sample, *grid]`, fewer than requested where the files hold fewer.
        """


def data_folder() -> Path | None:
    """Return the folder that the user named for published files."""
    folder = os.environ.get(VARIABLE)
    return Path(folder) if folder else None


@dataclass(frozen=True)
class MatlabFiles:
    """The files of one benchmark.

    Attributes:
        train: Name of the file with training samples.
        test: Name of the file with test samples.
        arrays: The name in the files of each quantity, by its name on the wire.
        points: Where the grid points lie, in words.
    """

    train: str
    test: str
    arrays: Mapping[str, str]
    points: str

    @property
    def files(self) -> str:
        """Both names."""
        return f"{self.train} {self.test}"

    def available(self, mesh: int) -> bool:
        """Return whether DATA_PATH holds the files and their fields have `mesh` points per axis.

        Raises:
            ValueError: An array is missing.
        """
        folder = data_folder()
        if folder is None or not all((folder / name).is_file() for name in (self.train, self.test)):
            return False
        return mesh in shape(folder / self.train, next(iter(self.arrays.values())))[-1:]

    def read(self, stream: Stream, name: str, counts: Mapping[str, int]) -> Array:
        """Read one quantity `[sample, *grid]`; see `Published.read`."""
        if stream == "test":
            return self._last(name, counts["test"])
        train = self._load(self.train, name)
        if self.train == self.test:
            return train[: max(len(train) - counts["test"], 0)][: counts["train"]]
        if len(train) >= counts["train"]:
            return train[: counts["train"]]
        other = self._load(self.test, name)
        return np.concatenate([train, other[: max(len(other) - counts["test"], 0)][: counts["train"] - len(train)]])

    def _last(self, name: str, count: int) -> Array:
        fields = self._load(self.test, name)
        return fields[max(len(fields) - count, 0) :]

    def _load(self, file: str, name: str) -> Array:
        return load((data_folder() or Path()) / file, self.arrays[name])


def load(path: Path, name: str) -> Array:
    """Read one array `[sample, *grid]` of a MATLAB file, of version 5 or (HDF5) 7.3, as float32.

    Raises:
        ValueError: The file does not hold it.
    """
    shape(path, name)
    if h5py.is_hdf5(path):
        with h5py.File(path, "r") as file:
            # MATLAB stores columns first, so HDF5 shows the axes in reverse.
            return np.asarray(file[name], dtype=np.float32).T
    return np.asarray(loadmat(path, variable_names=[name])[name], dtype=np.float32)


def shape(path: Path, name: str) -> tuple[int, ...]:
    """Return the shape `[sample, *grid]` of an array of a MATLAB file without reading the array.

    Raises:
        ValueError: The file does not hold it.
    """
    if h5py.is_hdf5(path):
        with h5py.File(path, "r") as file:
            shapes = {key: item.shape[::-1] for key, item in file.items() if isinstance(item, h5py.Dataset)}
    else:
        shapes = {key: tuple(size) for key, size, _ in whosmat(path)}
    if name not in shapes:
        raise UserError(f"expected an array {name!r} in {path.name} but found {', '.join(sorted(shapes))}")
    return shapes[name]
