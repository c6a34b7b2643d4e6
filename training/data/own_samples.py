"""A user's samples as training reads them: one HDF5 file with a chunk per field, made in one pass of checks."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from training.data.contents import checksum
from training.files import replacing
from training.problems.checks import Column, check, open_columns, remarks
from training.problems.problem_file import ProblemFile, data_files

STATISTICS = ("minimum", "maximum", "mean", "deviation")


def prepare(problem: ProblemFile, folder: Path, data: Path) -> Path:
    """Check a user's files and copy what training reads into one file, unless that was done before.

    The file's name tells what the data files hold and what the problem file says of their tensors, so a change of
    either makes a new one, and the same data copied or made again do not.

    Args:
        problem: The problem file.
        folder: The folder that its file names are relative to.
        data: The folder of samples.

    Returns:
        The samples' file.

    Raises:
        ProblemFileError: A data file is missing.
        ReadError: A data file cannot be read.
        DataError: The data do not fit the problem file.
    """
    paths = data_files(problem, folder)
    data.mkdir(parents=True, exist_ok=True)
    known = data / f"own-{problem.name}.json"
    with FileLock(f"{known}.lock"):
        contents = checksum(paths, known)
        digest = hashlib.sha256(problem.identity() + contents.encode()).hexdigest()[:12]
        path = data / f"own-{problem.name}-{digest}.h5"
        if not path.exists():
            with replacing(path) as aside, open_columns(problem, paths) as columns:
                write(problem, columns, aside)
    return path


def write(problem: ProblemFile, columns: dict[str, Column], path: Path) -> None:
    """Check all values and write them as float32, with a summary per tensor."""
    with h5py.File(path, "w", locking=False) as file:
        for name, column in columns.items():
            shape = (column.samples, *column.shape)
            file.create_dataset(name, shape, np.float32, chunks=chunk(problem, column))

        def sink(name: str, start: int, values: NDArray[np.float32]) -> None:
            file[name][start : start + len(values)] = values

        found = check(problem, columns, sink)
        for name, summary in found.items():
            file[name].attrs.update({key: getattr(summary, key) for key in STATISTICS})
        file.attrs["remarks"] = "\n".join(remarks(columns, found))


def chunk(problem: ProblemFile, column: Column) -> tuple[int, ...] | None:
    """Return what is read at once: a field, or a frame of a trajectory; numbers are not divided."""
    if not column.shape:
        return None
    moving = problem.time is not None and column.name in problem.outputs
    return (1, 1, *column.shape[1:]) if moving else (1, *column.shape)


@dataclass(frozen=True)
class OwnSamples:
    """The samples of a prepared file.

    Attributes:
        path: The file.
        problem: The problem file.
        handles: The open file of each process, by its number: a forked process must not use its parent's.
    """

    path: Path
    problem: ProblemFile
    handles: dict[int, h5py.File] = field(default_factory=dict, repr=False, compare=False)

    @property
    def file(self) -> h5py.File:
        """The file, opened once by every process that reads it."""
        process = os.getpid()
        if process not in self.handles:
            self.handles[process] = h5py.File(self.path, "r", locking=False)
        return self.handles[process]

    def __reduce__(self) -> tuple[type[OwnSamples], tuple[Path, ProblemFile]]:
        return OwnSamples, (self.path, self.problem)  # open files cannot be copied

    @property
    def count(self) -> int:
        """The number of all samples."""
        return len(self.file[next(iter(self.problem.stored))])

    @property
    def counts(self) -> tuple[int, int, int]:
        """The numbers of training, validation and test samples."""
        return self.problem.data.counts(self.count)

    @property
    def sides(self) -> tuple[int, ...]:
        """Points per axis."""
        shape = self.file[next(iter(self.problem.outputs))].shape
        return tuple(shape[len(shape) - len(self.problem.axes) :])

    @property
    def sample_bytes(self) -> int:
        """The size of one sample, all tensors together."""
        return sum(4 * int(np.prod(self.file[name].shape[1:])) for name in self.problem.stored)

    def statistic(self, name: str, key: str) -> float:
        """Return the minimum, maximum, mean or deviation of all values of a tensor."""
        return float(self.file[name].attrs[key])

    def read(self, rows: NDArray[Any] | slice) -> dict[str, NDArray[np.float32]]:
        """Read samples by their numbers, in any order and as often as named, or a slice of them."""
        if isinstance(rows, slice):
            return {name: self.file[name][rows] for name in self.problem.stored}
        return {name: self.pick(name, rows) for name in self.problem.stored}

    def pick(self, name: str, rows: NDArray[Any]) -> NDArray[np.float32]:
        """Read a tensor of samples by their numbers, in any order and as often as named."""
        chosen, back = np.unique(rows, return_inverse=True)  # HDF5 reads in ascending order, each sample once
        return np.asarray(self.file[name][chosen][back])

    def split(self, name: str) -> slice:
        """Return where the samples of a split lie: `train`, `validation` or `test`."""
        train, validation, test = self.counts
        ends = {"train": (0, train), "validation": (train, train + validation)}
        start, stop = ends.get(name, (train + validation, train + validation + test))
        return slice(start, stop)
