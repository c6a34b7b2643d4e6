"""The HDF5 file of a long batch while its pieces arrive, in any order. Its bytes do not depend on the order.

Until it is complete the file is called `OUT.partial` and ends in a tally: one byte per piece, and a mark. HDF5 writes
only once, at the beginning: a header, attributes that describe the job, and one contiguous block per output. Each piece
is then written to its offset in every block, and tallied once it has reached the disk. A kill or a power cut at
any moment leaves a file that can be resumed; a file without the mark is started again. At the end the tally is cut off
and the file is renamed.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from petrov_client._files.local import attributes, hdf5
from petrov_client._files.lock import LockedFile
from petrov_client._values.exceptions import InvalidResponse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from petrov_client._values.arrays import Fields
    from petrov_client._values.models import TensorInfo

Job = dict[str, str | int]
VALUE_BYTES = 4
TALLIED = 1
MARK = b"petrov: unfinished"


@dataclass(frozen=True)
class Block:
    """The location of an output in the file.

    Attributes:
        shape: The dataset's shape.
        start: Its offset in the file, in bytes.
    """

    shape: tuple[int, ...]
    start: int

    def offset(self, piece: slice) -> int:
        """Return the offset of a piece in the file, in bytes."""
        return int(self.start + VALUE_BYTES * piece.start * math.prod(self.shape[1:]))


@dataclass(frozen=True)
class Contents:
    """What HDF5 wrote: the description of the job, and the location of the outputs.

    Attributes:
        job: The file's attributes.
        blocks: The datasets by output name.
    """

    job: Mapping[str, Any]
    blocks: Mapping[str, Block]

    def shapes_of(self, tensors: Sequence[TensorInfo]) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the datasets by name, in the order of the tensors: HDF5 orders them by name."""
        return {tensor.name: self.blocks[tensor.name].shape for tensor in tensors if tensor.name in self.blocks}


class Partial:
    """The file of a job until it is complete; one process at a time may open it.

    Args:
        target: The file's name when it is complete.
        job: The description of the job: the file's attributes.
        tensors: The model's outputs: name, units and meaning of the datasets.
        pieces: The slices of the batch, one per request.

    Raises:
        ValueError: The file belongs to another job, or another process has opened it.
        OSError: It cannot be written.
    """

    def __init__(self, target: Path, job: Job, tensors: Sequence[TensorInfo], pieces: list[slice]) -> None:
        self._target, self._job, self._tensors, self._pieces = target, job, tensors, pieces
        self.path = target.with_name(f"{target.name}.partial")
        self.done = [False] * len(pieces)
        self._contents: Contents | None = None
        self._end = 0  # of what HDF5 wrote: the offset of the tally
        self._locked = LockedFile(self.path)
        self._file = self._locked.content
        try:
            self._resume()
        except BaseException:
            self._locked.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        if self._contents is None:
            self.path.unlink()  # there is no output
        self._locked.close()

    def write(self, number: int, outputs: Mapping[str, Fields]) -> None:
        """Write the outputs of a piece to their offsets; the first ones determine the shapes of the datasets.

        Raises:
            InvalidResponse: A shape does not match the piece, or the grid of the earlier ones.
            OSError: The disk is full or gone.
        """
        piece = self._pieces[number]
        contents = self._contents or self._begin(outputs)
        for name, block in contents.blocks.items():
            expected = (piece.stop - piece.start, *block.shape[1:])
            if name not in outputs:
                raise InvalidResponse(f"expected {name} in a response but got {', '.join(outputs)}")
            if outputs[name].shape != expected:
                raise InvalidResponse(f"expected a response of shape {expected} but got {outputs[name].shape}")
        for name, block in contents.blocks.items():
            self._put(block.offset(piece), outputs[name].astype("<f4").tobytes())

    def sync(self) -> None:
        """Wait until everything written so far is on the disk; other threads may write meanwhile.

        Raises:
            OSError: The disk is full or gone.
        """
        os.fsync(self._file.fileno())

    def tally(self, numbers: list[int]) -> None:
        """Record that the outputs of these pieces are on the disk.

        Raises:
            OSError: The disk is full or gone.
        """
        for number in numbers:
            self._put(self._end + number, bytes([TALLIED]))
            self.done[number] = True

    def finish(self) -> dict[str, tuple[int, ...]]:
        """Cut off the tally, close and rename the file, and return the shapes of the datasets by output name.

        Raises:
            OSError: It cannot be renamed.
        """
        shapes = self._written.shapes_of(self._tensors)
        self._file.truncate(self._end)
        self.sync()
        self._file.close()  # Windows renames no open file
        self.path.replace(self._target)
        return shapes

    @property
    def _written(self) -> Contents:
        if self._contents is None:
            raise ValueError(f"expected outputs in {self.path} but there are none yet")
        return self._contents

    def _resume(self) -> None:
        """Resume from the file that an earlier run left, if it has a tally."""
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

    def _begin(self, outputs: Mapping[str, Fields]) -> Contents:
        """Let HDF5 write its part, and append an empty tally.

        An older version of the model may report fewer numbers than the newest, which is the one that is described.
        """
        count = self._pieces[-1].stop
        tensors = [tensor for tensor in self._tensors if tensor.name in outputs]
        shapes = [(count, *outputs[tensor.name].shape[1:]) for tensor in tensors]
        self._contents = _create(self.path, list(zip(tensors, shapes, strict=True)), self._job)
        self._end = self._file.seek(0, os.SEEK_END)
        self._put(self._end, bytes(len(self.done)) + MARK)
        return self._contents

    def _put(self, offset: int, content: bytes) -> None:
        self._file.seek(offset)
        self._file.write(content)
        self._file.flush()


def read(path: Path) -> Contents | None:
    """Return what HDF5 wrote to a file; None if it did not finish, or wrote something else."""
    try:
        with hdf5().File(path, "r", locking=False) as file:
            blocks = {name: Block(dataset.shape, _offset(dataset)) for name, dataset in file.items()}
            return Contents(dict(file.attrs), blocks) if blocks else None
    except (OSError, TypeError, ValueError, AttributeError):
        return None


def check_same(path: Path, found: Mapping[str, Any], job: Job) -> None:
    """Check that a file belongs to a job.

    Args:
        path: The file.
        found: Its attributes.
        job: The description of the job.

    Raises:
        ValueError: It belongs to another; the message names each difference.
    """
    compared = {name: value for name, value in job.items() if value != "" and found.get(name) != ""}
    others = [
        f"{name}: expected {now} but found {found.get(name)}"
        for name, now in compared.items()
        if found.get(name) != now
    ]
    if others:
        raise ValueError(f"{path} belongs to another job: {'; '.join(others)}. Repeat that job, or remove the file")


def _offset(dataset: Any) -> int:
    """Return where a contiguous dataset begins in its file.

    Raises:
        ValueError: The dataset is not contiguous.
    """
    offset = dataset.id.get_offset()
    if offset is None:
        raise ValueError(f"{dataset.name} is not contiguous")
    return int(offset)


def _create(path: Path, datasets: Sequence[tuple[TensorInfo, tuple[int, ...]]], job: Job) -> Contents:
    """Create the file: nothing in it depends on the time, and there is space for all outputs."""
    h5py = hdf5()
    with h5py.File(path, "w", libver="earliest", locking=False, track_order=False) as file:
        file.attrs.update(job)
        for tensor, shape in datasets:
            layout = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            layout.set_layout(h5py.h5d.CONTIGUOUS)
            layout.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
            layout.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
            layout.set_obj_track_times(False)
            file.create_dataset(tensor.name, shape, "<f4", dcpl=layout).attrs.update(attributes(tensor))
    created = read(path)
    if created is None:
        raise OSError(f"{path} cannot be read back")
    return created
