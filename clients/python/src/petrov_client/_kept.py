"""What has been computed of a file that is not complete: kept on the disk, and resumed after an interruption."""

from __future__ import annotations

import json
import os
import shutil
import threading
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from petrov_client._arrays import Fields
from petrov_client._codecs import encode_safetensors
from petrov_client._files import remove_path, replacing
from petrov_client._libraries import library
from petrov_client._models import ModelInfo

Description = dict[str, str | int]


def kept_path(target: Path) -> Path:
    """Return the folder of what has been computed of a file."""
    return target.with_name(f"{target.name}.partial")


class Records:
    """Records in a folder: a safetensors file each.

    A record is a frame of a trajectory or a piece of a batch. Each gets its name once it is written and has a checksum,
    so that a kill or a power cut leaves whole records.

    Attributes:
        path: The folder.
        done: The numbers of the whole records, from 0, as far as they are known here.
    """

    _RECORD, _CHECKSUM = ".safetensors", ".checksum"

    def __init__(self, path: Path) -> None:
        self.path, self.done = path, set[int]()

    def find(self, numbers: Iterable[int]) -> None:
        """Look for whole records of these numbers."""
        for number in numbers:
            with suppress(OSError):
                self.read(number)
                self.done.add(number)

    def add(self, number: int, arrays: Mapping[str, Fields]) -> None:
        """Keep a record; several threads or processes may do so at a time."""
        record, checksum = self._record(number), np.array([_checksum(number, arrays)], np.uint32)
        with replacing(record, record.with_suffix(f".{uuid.uuid4().hex}")) as temporary:
            temporary.write_bytes(encode_safetensors({**arrays, self._CHECKSUM: checksum}))
        self.done.add(number)

    def read(self, number: int) -> dict[str, Fields]:
        """Return a record."""
        fault = f"record {number} of {self.path} has changed on the disk"
        try:
            arrays = safetensors.numpy.load(self._record(number).read_bytes())
            checksum = arrays.pop(self._CHECKSUM)
        except (SafetensorError, KeyError, FileNotFoundError) as error:
            raise OSError(f"{fault}: {error!r}") from error
        if checksum.tolist() != [_checksum(number, arrays)]:
            raise OSError(fault)
        return arrays

    def _record(self, number: int) -> Path:
        return self.path / f"{number}{self._RECORD}"


class Kept(Records):
    """What has been computed of a file that is not complete: the records in the folder `OUT.partial`.

    Records of another job are refused; without `resume` the first new record replaces all earlier ones. One process at
    a time may open the folder.

    Attributes:
        target: The file.
        damaged: The numbers of records that are not whole.

    Raises:
        ValueError: The folder belongs to another job, holds something else, or another process has opened it.
        OSError: It cannot be read or written.
    """

    _JOB, _LOCK, _WHOLE = "job.json", "lock", "whole"

    def __init__(self, target: Path, job: Description, *, resume: bool = True) -> None:
        self.target, self.job, self._begun = target, job, False
        self._beginning = threading.Lock()
        super().__init__(kept_path(target))
        self.damaged = set[int]()
        if self.path.is_symlink() or (self.path.exists() and not self.path.is_dir()):
            raise ValueError(f"expected a folder of unfinished results but {self.path} is none: remove it")
        self.path.mkdir(exist_ok=True)
        lock = library("filelock", "unfinished files need filelock: pip install filelock")
        if (self.path / self._LOCK).is_symlink():
            raise self._fault(self._LOCK, "is a symbolic link")
        self._lock = lock.FileLock(self.path / self._LOCK, timeout=0)
        try:
            self._lock.acquire()
        except lock.Timeout:
            raise ValueError(f"another process has opened {self.path}") from None
        try:
            self._open(resume=resume)
        except BaseException:
            self._lock.release()
            raise

    def _open(self, *, resume: bool) -> None:
        """Look for the records of an earlier run."""
        entries = self._entries()
        if not entries:
            return  # new, or left by a process that was killed before its first record
        for entry in entries:
            if entry.is_symlink() or not (entry.is_file() or entry.name == self._WHOLE):
                raise self._fault(entry.name, "is a symbolic link" if entry.is_symlink() else "is no regular file")
        try:
            found = dict(json.loads((self.path / self._JOB).read_bytes()))
        except FileNotFoundError:
            raise ValueError(f"expected unfinished results in {self.path} but it holds something else") from None
        except (ValueError, TypeError, RecursionError) as error:
            raise self._fault(self._JOB, f"is not readable: {error!r}") from error
        if not resume:
            return
        check_same(self.path, found, self.job)
        self._begun = True
        for name in (entry.stem for entry in entries if entry.suffix == self._RECORD):
            if not (name.isascii() and name.isdecimal()):
                raise self._fault(name + self._RECORD, "is no record")
            self.find([int(name)])
            if int(name) not in self.done:
                self.damaged.add(int(name))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.path.exists() and not self._entries():
            self.remove()
        self._lock.release()

    def add(self, number: int, arrays: Mapping[str, Fields]) -> None:
        with self._beginning:
            if not self._begun:
                self._begin()
        super().add(number, arrays)
        self.damaged.discard(number)

    def begin(self) -> None:
        """Write down whose records follow, for processes that add some by themselves."""
        with self._beginning:
            if not self._begun:
                self._begin()

    def _begin(self) -> None:
        for entry in self._entries():
            remove_path(entry)
        (self.path / self._JOB).write_text(json.dumps(self.job), encoding="utf-8")
        self._begun = True

    @contextmanager
    def finishing(self) -> Iterator[Path]:
        """Yield the path of a file, or folder, that becomes the target at the end of the block."""
        folder = self.path / self._WHOLE
        remove_path(folder)  # of a process that was killed
        folder.mkdir()
        try:
            with replacing(self.target, folder / self.target.name) as whole:
                yield whole
                if whole.is_file():
                    with whole.open("rb") as file:
                        os.fsync(file.fileno())
        finally:
            remove_path(folder)

    def remove(self) -> None:
        """Remove the folder, whose records are no longer needed."""
        if os.name == "nt":
            self._lock.release()  # Windows removes no open file
        shutil.rmtree(self.path)
        self.done.clear()

    def _entries(self) -> list[Path]:
        return sorted(entry for entry in self.path.iterdir() if entry.name != self._LOCK)

    def _fault(self, name: str, fault: str) -> ValueError:
        return ValueError(f"{self.path} is damaged ({name} {fault}): remove it to start again")


def outputs_of(record: Mapping[str, Fields], info: ModelInfo) -> dict[str, Fields]:
    """Return the outputs in a record, without the numbers that are known about them."""
    return {tensor.name: record[tensor.name] for tensor in info.outputs}


def _checksum(number: int, arrays: Mapping[str, Fields]) -> int:
    """Return the checksum of a record, its number and names included."""
    checksum = zlib.crc32(str(number).encode())
    for name in sorted(arrays):
        checksum = zlib.crc32(arrays[name].tobytes(), zlib.crc32(name.encode(), checksum))
    return checksum


def check_same(path: Path, found: Mapping[str, Any], job: Description) -> None:
    """Check that a file, which has these attributes, belongs to a job."""
    compared = {name: value for name, value in job.items() if value != "" and found.get(name) != ""}
    others = [
        f"{name}: expected {now} but found {found.get(name)}"
        for name, now in compared.items()
        if found.get(name) != now
    ]
    if others:
        raise ValueError(f"{path} belongs to another job: {'; '.join(others)}. Repeat that job, or remove the file")
