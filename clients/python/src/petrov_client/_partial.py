"""Answers to pieces of a long batch in, in any order; one HDF5 file out, always of the same bytes.

Until it is whole the file is called `OUT.partial` and ends in a tally, one byte for each piece and a mark. HDF5 itself
writes only once, at the beginning: a header, attributes that say what was asked, and room for all answers in one block.
From then on answers are written to their places in that block, and their pieces are tallied once the answers have
reached the disk. A kill or a power cut at any moment leaves a file to go on from; one without the mark is begun anew.
At the end the tally is cut off and the file gets its name.
"""

from __future__ import annotations

import math
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from petrov_client._exceptions import UnreadableAnswer
from petrov_client._files import hdf5

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from petrov_client._arrays import Fields
    from petrov_client._models import TensorInfo

Job = dict[str, str | int]
VALUE_BYTES = 4
TALLIED = 1
MARK = b"petrov: unfinished"


@dataclass(frozen=True)
class Contents:
    """What HDF5 wrote: what was asked, and where the answers lie.

    Attributes:
        job: The file's attributes.
        shape: The dataset's.
        start: Its first byte in the file.
    """

    job: Mapping[str, Any]
    shape: tuple[int, ...]
    start: int


class Partial:
    """The file of a job until it is whole; one process at a time may have it.

    Args:
        target: The file's name when it is whole.
        job: What is asked: the file's attributes.
        tensor: The model's output: the dataset's name, units and meaning.
        pieces: The runs of fields that are asked about one at a time.

    Raises:
        ValueError: The file was begun for another job, or another process is at work on it.
        OSError: It cannot be written.
    """

    def __init__(self, target: Path, job: Job, tensor: TensorInfo, pieces: list[slice]) -> None:
        self._target, self._job, self._tensor, self._pieces = target, job, tensor, pieces
        self.path = target.with_name(f"{target.name}.partial")
        self.done = [False] * len(pieces)
        self._contents: Contents | None = None
        self._end = 0  # of all that is HDF5's, where the tally begins
        self._file = os.fdopen(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666), "r+b")
        try:
            self._claim()
            self._resume()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._contents is None:
            self.path.unlink()  # nothing was answered
        self._file.close()

    def write(self, number: int, fields: Fields) -> None:
        """Write the answer to a piece to its place; the first one tells how large answers are.

        Raises:
            UnreadableAnswer: It has another shape than it should.
            OSError: The disk is full or gone.
        """
        piece = self._pieces[number]
        contents = self._contents or self._begin((self._pieces[-1].stop, *fields.shape[1:]))
        expected = (piece.stop - piece.start, *contents.shape[1:])
        if fields.shape != expected:
            raise UnreadableAnswer(f"expected an answer of shape {expected} but got {fields.shape}")
        self._put(contents.start + VALUE_BYTES * piece.start * math.prod(expected[1:]), fields.astype("<f4").tobytes())

    def sync(self) -> None:
        """Wait until all that was written is on the disk; other threads may write meanwhile.

        Raises:
            OSError: The disk is full or gone.
        """
        os.fsync(self._file.fileno())

    def tally(self, numbers: list[int]) -> None:
        """Note that the answers to pieces are on the disk.

        Raises:
            OSError: The disk is full or gone.
        """
        for number in numbers:
            self._put(self._end + number, bytes([TALLIED]))
            self.done[number] = True

    def finish(self) -> tuple[int, ...]:
        """Cut off the tally, give the file its name and return the shape of the answer.

        Raises:
            OSError: It cannot be put there.
        """
        shape = self._known.shape
        self._file.truncate(self._end)
        self.sync()
        self.path.replace(self._target)
        return shape

    @property
    def _known(self) -> Contents:
        if self._contents is None:
            raise ValueError(f"expected answers in {self.path} but there are none yet")
        return self._contents

    def _claim(self) -> None:
        """Take the file for this process; the end of it, however it comes, sets the file free."""
        if sys.platform != "win32":
            import fcntl  # noqa: PLC0415  there is none on Windows, where nobody renames an open file either

            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ValueError(f"another process is at work on {self.path}") from None
        if not (self.path.exists() and os.path.samestat(self.path.stat(), os.fstat(self._file.fileno()))):
            raise ValueError(f"another process has just finished {self._target}")

    def _resume(self) -> None:
        """Go on from what was left behind, if it is ours and has a tally."""
        found = read(self.path)
        if found is None:
            return
        check_same(self.path, found.job, self._job)
        end = self._file.seek(0, os.SEEK_END) - len(MARK) - len(self.done)
        self._file.seek(max(end, 0))
        tally = self._file.read()
        if tally.endswith(MARK) and len(tally) == len(MARK) + len(self.done):
            self._contents, self._end = found, end
            self.done = [mark == TALLIED for mark in tally.removesuffix(MARK)]

    def _begin(self, shape: tuple[int, ...]) -> Contents:
        """Let HDF5 write all that it has to, and put an empty tally behind it."""
        self._contents = _create(self.path, shape, self._tensor, self._job)
        self._end = self._file.seek(0, os.SEEK_END)
        self._put(self._end, bytes(len(self.done)) + MARK)
        return self._contents

    def _put(self, place: int, content: bytes) -> None:
        self._file.seek(place)
        self._file.write(content)
        self._file.flush()


def read(path: Path) -> Contents | None:
    """What HDF5 wrote to a file of answers; None if it was stopped before it was done, or wrote something else."""
    try:
        with hdf5().File(path, "r", locking=False) as file:
            [dataset] = file.values()
            return Contents(dict(file.attrs), dataset.shape, dataset.id.get_offset())
    except (OSError, TypeError, ValueError, AttributeError):
        return None


def check_same(path: Path, found: Mapping[str, Any], job: Job) -> None:
    """Find out that a file is of another job.

    Raises:
        ValueError: It is; the message names each difference.
    """
    known = {name: value for name, value in job.items() if value != "" and found.get(name) != ""}
    others = [f"{name} {found.get(name)} there, {now} now" for name, now in known.items() if found.get(name) != now]
    if others:
        raise ValueError(f"{path} holds answers to another question: {'; '.join(others)}. Ask the same, or remove it")


def _create(path: Path, shape: tuple[int, ...], tensor: TensorInfo, job: Job) -> Contents:
    """A file with nothing in it that changes from one day to the next, and room for the answers."""
    h5py = hdf5()
    with h5py.File(path, "w", libver="earliest", locking=False, track_order=False) as file:
        file.attrs.update(job)
        layout = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        layout.set_layout(h5py.h5d.CONTIGUOUS)
        layout.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        layout.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        layout.set_obj_track_times(False)
        dataset = file.create_dataset(tensor.name, shape, "<f4", dcpl=layout)
        dataset.attrs.update({"units": tensor.units or "", "meaning": tensor.meaning or ""})
    created = read(path)
    if created is None:
        raise OSError(f"{path} cannot be read back")
    return created
