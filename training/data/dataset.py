"""Samples as training reads them: HDF5 files of one layout, of a user's data and of built-in problems.

A group has a float32 dataset `[sample, (time), (component), *grid]` per tensor under its name on the wire, `[sample]`
per parameter, with a chunk per field or frame. A steady field is a trajectory of one frame without a time axis. Fields
of samples that have points of their own are `[sample, point, (component)]`; padding is like a sample's first point, and
0 in outputs.

A user's data are checked and written in one pass by `training.data.prepare`: the group is the whole file, and each
dataset has a summary of its values. Samples of built-in problems are made by `training.data.generate`: trajectories
take the place of a user's data, and fields are in two groups, `train` and `test`, each with a dataset `done`.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from schema.problem import Description
from training.problems.problem import Array
from training.problems.problem_file import ProblemFile

Rows = NDArray[np.int64]

DONE = "done"  # the dataset of a group that is being filled: 1 where the sample is there
IN_MEMORY = 2**28  # bytes of a tensor of all samples up to which it is held in memory


def spread(rows: Rows | range, most: int) -> Rows | range:
    """Return samples as they are, or of more than `most` so many, evenly from the first to the last.

    The first ones would stand for one value of a parameter, where files are in its order.

    Example:
        >>> spread(range(3), 3), spread(range(9), 3)
        (range(0, 3), array([0, 4, 8]))
    """
    if len(rows) <= most:
        return rows
    return np.asarray(rows)[np.linspace(0, len(rows) - 1, most, dtype=np.int64)]


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

    def pick(self, name: str, rows: Rows | range, points: Rows | None = None) -> Array:
        """Read a tensor of samples by their numbers, in any order and as often as named.

        `points` are some of each, `[row, point]`, of a field on points of its own: one sample at a time is read whole.
        """
        stored = self.tensor(name)
        if points is not None:
            return np.stack([stored[row][index] for row, index in zip(rows, points, strict=True)])
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
    def ends(self) -> tuple[tuple[float, ...], ...]:
        """First and last position along every axis of the grid; empty where the data files do not say it."""
        return tuple(map(tuple, json.loads(self.file.attrs.get("ends", "[]"))))

    @property
    def described(self) -> Description:
        return self.problem.describe(self.sides, self.counts[0], self.frames, self.box, self.ends)

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

    def read(self, rows: Rows | range, points: Rows | None = None) -> dict[str, Array]:
        """Read whole samples by their numbers, in any order and as often as named.

        `points` `[row, point]` are some of each, where samples have points of their own.
        """
        axes = self.problem.point_axes
        return {name: self.pick(name, rows, points if name in axes else None) for name in self.problem.stored}

    def digests(self, rows: range) -> Iterator[bytes]:
        """Return what tells samples apart: inputs and parameters, of trajectories all frames, without padding."""
        problem, axes = self.problem, self.problem.point_axes
        names = [name for name in problem.stored if problem.time is not None or name not in problem.output_names]
        for row in rows:
            found = {name: self.pick(name, range(row, row + 1))[0] for name in names}
            valid = slice(int(found["counts"]) if problem.scattered else None)
            digest = hashlib.blake2b(digest_size=16)
            for name, values in found.items():
                cut = (slice(None),) * (axes[name] - 1) + (valid,) if name in axes else ()
                digest.update(np.ascontiguousarray(values[cut]).tobytes())
            yield digest.digest()

    def windows(
        self, rows: Rows, starts: Sequence[int] | Rows, length: int, points: Rows | None = None
    ) -> dict[str, Array]:
        """Read `length` frames of what changes in time `[window, frame, (component), *grid]`, and the rest as `read`.

        Of a field on points of its own, `[window, frame, point, (component)]`, `points` are some of each window.
        """
        problem, axes = self.problem, self.problem.point_axes
        chosen: Any = [slice(None)] * len(rows) if points is None else points
        windows = [*zip(rows.tolist(), map(int, starts), chosen, strict=True)]
        found = {}
        for name in (one for one in problem.stored if one in problem.timed):
            frames = self.tensor(name)
            parts = ((frames[row, start : start + length], index) for row, start, index in windows)
            found[name] = np.stack([part[:, index] if name in axes else part for part, index in parts])
        steady = (name for name in problem.stored if name not in problem.timed)
        return found | {name: self.pick(name, rows, points if name in axes else None) for name in steady}

    def drawn_points(self, rows: Rows, most: int, rng: np.random.Generator) -> tuple[Rows, Rows]:
        """Draw points of samples that have points of their own, ascending `[row, point]`: `most` of each.

        The result is these, and how many valid ones a sample has. One with fewer has all of them, and padding behind.
        """
        counts = self.pick("counts", rows).astype(np.int64)
        drawn = (rng.choice(n, most, replace=False, shuffle=False) if n > most else range(most) for n in counts)
        return np.asarray([np.sort(each) for each in drawn]), counts
