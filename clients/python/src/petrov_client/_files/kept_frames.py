"""The frames of a rollout on the disk while they arrive: the file `OUT.partial`, to whose end each is appended.

A line of JSON describes the rollout and the arrays of a frame. A record follows for every frame: its arrays as float32,
a byte that says whether a state has been outside of the training data, and a checksum. A kill or a power cut leaves
whole records and at most a torn end, which is cut off when the rollout is resumed.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import zlib
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from petrov_client._files.frame_files import CONTINUED
from petrov_client._files.lock import LockedFile
from petrov_client._files.partial_file import check_same
from petrov_client._files.quality_columns import FOLLOWS_OUTSIDE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from petrov_client._files.frame_files import Finished
    from petrov_client._files.partial_file import Job
    from petrov_client._values.arrays import FieldInput, Fields, PredictionInput

    Shape = tuple[int, ...]

#: How the first line begins.
BEGINNING = b'{"petrov": "rollout 1", '
#: Bytes of the first line at most.
LINE_BYTES = 2**20
VALUE_BYTES, FLAG_BYTES, SUM_BYTES = 4, 1, 4
#: Digits of a checksum of inputs.
DIGITS = 16


def job(batch: PredictionInput, version: int, artefact: str) -> Job:
    """Return the description of a rollout: what its frames depend on.

    Args:
        batch: What it starts from.
        version: Of the model.
        artefact: The checksum of the served graph; empty where it is not known.
    """
    described: Job = {"model": batch.info.name, "version": version, "artefact_sha256": artefact}
    described |= {each.name: str(np.float32(each.default)) for each in batch.info.arguments if each.default is not None}
    described |= {name: _numbers(array) for name, array in batch.numbers.items()}
    return described | {each.tensor.name: _field(each, batch.slices()) for each in batch.inputs}


def _numbers(array: Fields) -> str:
    """Return a parameter in words: the number that all samples share, or else all of them."""
    shared = bool((array == array[0]).all())
    return str(array[0]) if shared else _digest(array.shape, [array])


def _field(field: FieldInput, pieces: Iterable[slice]) -> str:
    return _digest(field.array.shape, (field.fields(piece) for piece in pieces))


def _digest(shape: Shape, parts: Iterable[Fields]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.data)
    return f"{' x '.join(map(str, shape))} numbers with checksum {digest.hexdigest()[:DIGITS]}"


def path_of(target: Path) -> Path:
    """Return the path of the frames that become a file."""
    return target.with_name(f"{target.name}.partial")


def check_left(target: Path) -> None:
    """Check that no finished file is taken for a rollout that can be continued, before anything is sent.

    Raises:
        ValueError: The file is there, and neither are the frames that it was made of nor does it describe them.
    """
    path = path_of(target)
    if target.suffix not in CONTINUED and target.exists() and not path.exists():
        raise ValueError(
            f"{target} is there and {path.name} is not: a finished {target.suffix} does not say what it was computed "
            f"from, so only {' and '.join(sorted(CONTINUED))} are continued; without --resume it is computed again"
        )


class KeptFrames:
    """The frames of a rollout that have arrived; one process at a time may open it.

    Args:
        target: The file that is made of them.
        described: The rollout.
        resume: Whether frames that an earlier run has left are kept; else the first new one replaces them.

    Attributes:
        done: Frames in the file.
        outside: Whether any state has been outside of the training data.

    Raises:
        ValueError: The file belongs to another rollout or is none, or another process has opened it.
        OSError: It cannot be read or written.
    """

    def __init__(self, target: Path, described: Job, *, resume: bool) -> None:
        self._job = described
        self.path = path_of(target)
        self.done, self.outside = 0, False
        self._shapes: dict[str, Shape] = {}
        self._start = 0  # of the first record
        self._locked = LockedFile(self.path)
        self._file = self._locked.content
        try:
            self._open(resume=resume)
        except BaseException:
            self._locked.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.path.exists() and self.path.stat().st_size == 0:
            self.remove()
        self._locked.close()

    def add(self, outputs: Mapping[str, Fields], *, outside: bool = False) -> None:
        """Append a frame `[(batch), (component), *grid]` of every output, and numbers `[(batch)]` of columns.

        Raises:
            OSError: The disk is full or gone.
        """
        if not self.done:
            self._begin(outputs)
        checksum = self.done
        for content in (*(self._bytes(name, outputs[name]) for name in self._shapes), bytes([outside])):
            self._file.write(content)
            checksum = zlib.crc32(content, checksum)
        self._file.write(checksum.to_bytes(SUM_BYTES, "little"))
        self._file.flush()
        self.done += 1
        self.outside |= outside

    def frames(self, count: int) -> Iterator[dict[str, Fields]]:
        """Yield the frames in the file by name, at most so many of the first ones.

        Raises:
            OSError: The file cannot be read.
        """
        with self.path.open("rb") as file:  # of its own, so that frames may be appended meanwhile
            file.seek(self._start)
            for number in range(min(self.done, count)):
                found = self._record(file, number)
                if found is None:
                    raise OSError(f"frame {number + 1} of {self.path} has changed on the disk")
                yield found[0]

    def take(self, finished: Finished, total: int) -> bool:
        """Copy the frames of a finished file, and return whether it has fewer than so many.

        Raises:
            ValueError: They are of another rollout.
            OSError: A disk is full or gone.
        """
        check_same(self.path.with_suffix(""), finished.described, self._job)
        if finished.count >= total:
            return False
        for outputs in finished.frames():
            self.add(outputs, outside=bool(np.any(outputs.get(FOLLOWS_OUTSIDE.name, 0) == 1)))
        return True

    def remove(self) -> None:
        """Remove the file, whose frames are no longer needed.

        Raises:
            OSError: It cannot be removed.
        """
        self._file.close()  # Windows removes no open file
        self.path.unlink()

    def _open(self, *, resume: bool) -> None:
        """Find what an earlier run has left.

        Raises:
            ValueError: The file belongs to another rollout, or is none.
        """
        line = self._file.readline(LINE_BYTES)
        if not (line.startswith(BEGINNING) or BEGINNING.startswith(line)):
            raise ValueError(f"expected the frames of a rollout in {self.path} but found another file: remove it")
        if not (resume and line.endswith(b"\n")):
            return  # nothing to keep, or a process was killed before its first frame
        try:
            document = json.loads(line)
            found = dict(document["job"])
            self._shapes = {str(name): _shape(sizes) for name, sizes in document["shapes"].items()}
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise ValueError(f"{self.path} is damaged ({error!r}): remove it to start again") from error
        check_same(self.path, found, self._job)
        self._start = len(line)
        self._cut()

    def _cut(self) -> None:
        """Count the whole frames, and cut off what follows them."""
        if self._size > os.fstat(self._file.fileno()).st_size:
            return  # there is none
        while (found := self._record(self._file, self.done)) is not None:
            self.done += 1
            self.outside |= found[1]
        self._file.truncate(self._start + self.done * self._size)
        self._file.seek(0, os.SEEK_END)

    @property
    def _size(self) -> int:
        """Bytes of a record."""
        return VALUE_BYTES * sum(map(math.prod, self._shapes.values())) + FLAG_BYTES + SUM_BYTES

    def _begin(self, outputs: Mapping[str, Fields]) -> None:
        self._shapes = {name: array.shape for name, array in outputs.items()}
        document = json.dumps({"job": self._job, "shapes": self._shapes}).encode()
        self._file.seek(0)
        self._file.truncate()
        self._start = self._file.write(BEGINNING + document[1:] + b"\n")

    def _bytes(self, name: str, array: Fields) -> bytes:
        """Return the bytes of an array.

        Raises:
            ValueError: It has another shape than in the frames before.
        """
        if array.shape != self._shapes[name]:
            raise ValueError(f"expected a frame of shape {self._shapes[name]} but got {array.shape}")
        return array.astype("<f4", copy=False).tobytes()

    def _record(self, file: Any, number: int) -> tuple[dict[str, Fields], bool] | None:
        """Return the next frame of a file, and whether a state was outside; None if it is not whole."""
        content = file.read(self._size)
        if len(content) < self._size:
            return None
        checksum, end = number, len(content) - SUM_BYTES
        if zlib.crc32(memoryview(content)[:end], checksum) != int.from_bytes(content[end:], "little"):
            return None
        values = np.frombuffer(content, "<f4", (end - FLAG_BYTES) // VALUE_BYTES)
        arrays, start = {}, 0
        for name, shape in self._shapes.items():
            size = math.prod(shape)
            arrays[name] = values[start : start + size].reshape(shape)
            start += size
        return arrays, content[end - 1] == 1


def _shape(sizes: Any) -> Shape:
    """Return a shape.

    Raises:
        ValueError, TypeError: It is none.
    """
    shape = tuple(map(int, sizes))
    if min(shape, default=1) < 1:
        raise ValueError(f"no frame has the shape {shape}")
    return shape
