"""Samples as training reads them: HDF5 files of one layout, of a user's data and of built-in problems.

A group has a float32 dataset `[sample, (time), (component), *grid]` per tensor under its name on the wire, `[sample]`
per parameter, with a chunk per field or frame. A steady field is a trajectory of one frame without a time axis. Fields
of samples that have points of their own are `[sample, point, (component)]`; padding is like a sample's first point, and
0 in outputs.

A user's data are checked and written in one pass, here: the group is the whole file, and each dataset has a summary of
its values. Samples of built-in problems are made one by one, by `training.data.generate`, in two groups, `train` and
`test`, each with a dataset `done`.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from schema.problem import Description
from training.data.readers import DataFile, named_in, open_file
from training.files import locked, replacing, write_json
from training.problems.checks import check, remarks
from training.problems.columns import columns_of
from training.problems.files import data_files, tensor_files
from training.problems.integrals import unlike_integrals, with_integrals
from training.problems.problem import Array
from training.problems.problem_file import ProblemFile
from training.problems.times import unlike_times

Rows = NDArray[np.int64]

READ_AS = 3
"""The version of what readers make of files: raise it where values of the same files become others."""
UNVERSIONED = "unversioned"  # the attribute that has the name without the version of the readers
DONE = "done"  # the dataset of a group that is being filled: 1 where the sample is there
STATISTICS = ("minimum", "maximum", "mean", "deviation")
IN_MEMORY = 2**28  # bytes of a tensor of all samples up to which it is held in memory


def prepare(problem: ProblemFile, folder: Path, data: Path) -> Path:
    """Check a user's files and copy what training reads into one file, unless that was done before.

    The file's name tells what the data files hold, which tensors they are of, what the problem file says of these and
    the version of the readers, so a change of any makes a new one, and the same data copied or made again do not.

    Raises:
        ProblemFileError: A data file is missing.
        ReadError: A data file cannot be read.
        DataError: The data do not fit the problem file.
    """
    paths, own, coarse = data_files(problem, folder), tensor_files(problem, folder), problem.data.all_for_training
    every = [*paths, *(path for each in own.values() for path in each)]
    known = data / f"own-{problem.name}{'-coarse' if coarse else ''}.json"
    with locked(known), ExitStack() as stack:
        held = checksum(every, known)
        counts = {"data": len(paths), **{name: len(each) for name, each in own.items()}}
        path = data / named(problem, f"{held} {counts} {READ_AS}")
        if not path.exists():
            # Files of one tensor may have another format than those of the others.
            others = {name: [stack.enter_context(open_file(one)) for one in each] for name, each in own.items()}
            files = [stack.enter_context(open_file(each, problem.data.format)) for each in paths]
            write(problem, files, path, others, named(problem, held))
    return path


def formerly(name: str, data: Path) -> Path | None:
    """Return the samples that had a name before names had the version of the readers; None where there are none."""
    for path in sorted(data.glob(f"{name.rpartition('-')[0]}-*.h5")):
        with h5py.File(path, locking=False) as file:
            if file.attrs.get(UNVERSIONED) == name:
                return path
    return None


def named(problem: ProblemFile, contents: str) -> str:
    """Return the name of the file that holds samples of certain contents."""
    digest = hashlib.sha256(problem.identity() + contents.encode()).hexdigest()[:12]
    return f"own-{problem.name}-{digest}.h5"


def write(
    problem: ProblemFile,
    files: Sequence[DataFile],
    path: Path,
    others: Mapping[str, Sequence[DataFile]] = MappingProxyType({}),
    unversioned: str = "",
) -> None:
    """Check all values of open data files and write them, with a summary per tensor.

    `others` are the open files of tensors that have files of their own. `unversioned` is the file's name without the
    version of the readers, if it is another one.
    """
    times = unlike_times(problem, files)
    columns = with_integrals(problem, columns_of(problem, files, others))
    with replacing(path) as aside, h5py.File(aside, "w") as file:
        for name, column in columns.items():
            shape = (column.samples, *column.shape)
            # A chunk is what is read at once: a field, or a frame of a trajectory; numbers are not divided.
            chunk = (1, 1, *column.shape[1:]) if name in problem.timed else (1, *column.shape)
            file.create_dataset(name, shape, np.float32, chunks=chunk if column.on_grid else None)

        box: list[Array] = []

        def sink(name: str, start: int, values: Array) -> None:
            file[name][start : start + len(values)] = values
            if problem.scattered and name == "coordinates":
                train = values[: max(0, problem.data.counts(columns[name].samples)[0] - start)]
                box.extend(corner for sample in train for corner in (sample.min(axis=0), sample.max(axis=0)))

        found = check(problem, columns, sink)
        for name, summary in found.items():
            file[name].attrs.update({key: getattr(summary, key) for key in STATISTICS})
        if box:
            file["coordinates"].attrs["box"] = np.stack([np.min(box, axis=0), np.max(box, axis=0)], axis=1)
        if unversioned:
            file.attrs[UNVERSIONED] = unversioned
        file.attrs["remarks"] = "\n".join([*remarks(columns, found), *unlike_integrals(problem, columns), *times])


class SampleGroup:
    """Samples in a group of an HDF5 file: a dataset `[sample, ...]` per tensor, under its name on the wire."""

    def __init__(self, path: Path, group: str = "/") -> None:
        self.path, self.group = path, group
        # The open file of each process, by its number: a forked process must not use its parent's.
        self.handles: dict[int, h5py.File] = {}
        # Small tensors in memory, because every batch reads from many places.
        self.held: dict[str, Array] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path, self.group)  # open files cannot be copied

    @property
    def file(self) -> h5py.Group:
        """The group of the file, opened once by every process that reads it; a file that is being filled, too."""
        process = os.getpid()
        if process not in self.handles:
            self.handles[process] = h5py.File(self.path, locking=False)
        return self.handles[process][self.group]

    def close(self) -> None:
        """Close the file of this process."""
        if (opened := self.handles.pop(os.getpid(), None)) is not None:
            opened.close()

    @property
    def attributes(self) -> h5py.AttributeManager:
        """What the file says about its numbers."""
        return self.file.file.attrs

    def finished(self) -> int:
        """Count the samples from the first up to the first one that is missing, while a file is being filled."""
        done = self.file[DONE][:]
        return int(len(done) if done.all() else done.argmin())

    def fields(self, name: str, rows: range, chosen: tuple[slice, ...] = ()) -> Iterator[Array]:
        """Read a tensor of samples one by one, at some points of its grid; all by default."""
        stored = self.file[name]
        return (stored[row][chosen] for row in rows)

    def statistic(self, name: str, key: str) -> float:
        """Return the minimum, maximum, mean or deviation of all values of a tensor."""
        return float(self.file[name].attrs[key])

    def tensor(self, name: str) -> Any:
        """Return a tensor of all samples, from memory where it is small: every batch reads from many places."""
        if name not in self.held:
            stored = self.file[name]
            if 4 * stored.size > IN_MEMORY:
                return stored
            self.held[name] = stored[:]
        return self.held[name]

    def pick(self, name: str, rows: Rows | range) -> Array:
        """Read a tensor of samples by their numbers, in any order and as often as named."""
        stored = self.tensor(name)
        held = isinstance(stored, np.ndarray)
        if isinstance(rows, range):  # a copy of what is held, which HDF5 makes anyway
            return np.array(stored[rows.start : rows.stop], copy=held or None)
        if held:
            return np.asarray(stored[rows])
        chosen, back = np.unique(rows, return_inverse=True)  # HDF5 reads in ascending order, each sample once
        return np.asarray(stored[chosen][back])


class SampleFile(SampleGroup):
    """The samples of a problem file, which are divided by their numbers."""

    def __init__(self, path: Path, problem: ProblemFile) -> None:
        super().__init__(path)
        self.problem = problem

    def __reduce__(self) -> tuple[Any, ...]:
        return SampleFile, (self.path, self.problem)

    @property
    def counts(self) -> tuple[int, int, int]:
        """The numbers of training, validation and test samples."""
        return self.problem.data.counts(len(self.file[next(iter(self.problem.stored))]))

    @property
    def sides(self) -> tuple[int, ...]:
        """Points per axis; where samples have points of their own, those of the one that has most."""
        if self.problem.scattered:
            return (int(self.file["coordinates"].shape[1]),)
        lead = (*self.problem.output_fields, *self.problem.inputs)[0]
        shape = self.file[lead.name].shape
        return tuple(shape[len(shape) - len(self.problem.axes) :])

    @property
    def box(self) -> tuple[tuple[float, float], ...]:
        """Lowest and highest coordinate of the training samples' points along every dimension, if they have any."""
        if not self.problem.scattered:
            return ()
        return tuple((float(low), float(high)) for low, high in self.file["coordinates"].attrs["box"])

    @property
    def described(self) -> Description:
        return self.problem.describe(self.sides, self.counts[0], self.frames, self.box)

    @property
    def frames(self) -> int | None:
        """Frames of a trajectory; None where the samples are none."""
        output = self.file[self.problem.outputs[0].name]
        return None if self.problem.time is None else int(output.shape[1])

    @property
    def sample_bytes(self) -> int:
        """The size of one sample, all tensors together."""
        return sum(4 * int(np.prod(self.file[name].shape[1:])) for name in self.problem.stored)

    def role(self, name: str) -> str:
        """Say what a tensor is."""
        problem = self.problem
        if name in problem.output_names:
            return "trajectory" if problem.time is not None else "output"
        parameters = {one.name for one in problem.parameters}
        found = "parameter" if name in parameters else "input" if name in problem.argument_names else "weights"
        return f"{found} per frame" if name in problem.timed else found

    def split(self, name: str) -> range:
        """Return the numbers of the samples of a split: `train`, `validation` or `test`."""
        train, validation, test = self.counts
        ends = {"train": (0, train), "validation": (train, train + validation)}
        return range(*ends.get(name, (train + validation, train + validation + test)))

    def read(self, rows: Rows | range) -> dict[str, Array]:
        """Read whole samples by their numbers, in any order and as often as named."""
        return {name: self.pick(name, rows) for name in self.problem.stored}

    def windows(self, rows: Rows, starts: Sequence[int] | Rows, length: int) -> dict[str, Array]:
        """Read `length` frames of what changes in time `[window, frame, (component), *grid]`, and the rest whole."""
        pairs = [*zip(rows.tolist(), map(int, starts), strict=True)]
        trajectories = {name: self.tensor(name) for name in self.problem.stored if name in self.problem.timed}
        found = {
            name: np.stack([frames[row, start : start + length] for row, start in pairs])
            for name, frames in trajectories.items()
        }
        return found | {name: self.pick(name, rows) for name in self.problem.stored if name not in trajectories}


def checksum(paths: Sequence[Path], known: Path) -> str:
    """Return the SHA-256 of what files and folders, such as those of zarr, hold, whatever their names and times are.

    Files that a list of meshes or an XDMF file names are part of what it holds.

    It is kept in the JSON file `known` with paths, sizes and times, and computed anew where these have changed.
    """
    described = [
        (str(each.resolve()), each.stat().st_size, each.stat().st_mtime_ns) for path in paths for each in contents(path)
    ]
    states = hashlib.sha256(str(described).encode()).hexdigest()
    try:
        remembered = json.loads(known.read_text())
        if remembered["states"] == states:
            return str(remembered["sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        pass  # there is none, or nothing to be used
    digest = hashlib.sha256()
    for path in paths:
        for each in contents(path):
            # "." for a file, which may be renamed; those that it names are beside it or below its folder.
            name = each.relative_to(path.parent if each != path and path.is_file() else path).as_posix()
            with each.open("rb") as file:
                digest.update(f"{name}\n{hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    write_json(known, {"states": states, "sha256": digest.hexdigest()})
    return digest.hexdigest()


def contents(path: Path) -> Iterator[Path]:
    """Return a file and those that are read with it, or the files of a folder in order."""
    if path.is_dir():
        yield from sorted(each for each in path.rglob("*") if each.is_file())
        return
    yield from (path, *named_in(path))
