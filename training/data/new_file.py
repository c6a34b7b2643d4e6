"""New HDF5 files where the disk may become full, or a quota or a limit of the size of files be reached.

HDF5 keeps what it could not write, tries again when it closes the file and when the process ends, and crashes there. So
it writes to a file whose writes always succeed, and which remembers that one did not.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py

from training.files import remove_parts, replacing
from training.messages import UserError


@contextmanager
def new_hdf5(path: Path) -> Iterator[h5py.File]:
    """Make an HDF5 file, which appears once it is whole, in a process that holds the lock of its `path`.

    Raises:
        UserError: It cannot be written to its end.
    """
    remove_parts(path)  # of processes that were killed: those of samples are large, and no other writes them now
    with replacing(path) as aside, _Target(aside) as target:
        with h5py.File(target, "w") as file:
            yield file
        if target.fault is not None:
            raise UserError(f"{path}: expected to write all samples but: {target.fault.strerror}") from target.fault


class _Target(io.RawIOBase):
    """A new file as HDF5 writes it; after the first `fault` nothing is written any more, and what is missing is 0."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.file = path.open("w+b", buffering=0)
        self.fault: OSError | None = None

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self.file.seek(offset, whence)

    def tell(self) -> int:
        return self.file.tell()

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        found = self.file.read(len(view)) or b""
        view[:] = found.ljust(len(view), b"\0")
        return len(view)

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        try:
            done = len(view) if self.fault else 0
            while done < len(view):
                done += self.file.write(view[done:]) or 0
        except OSError as error:
            self.fault = error
        return len(view)

    def truncate(self, size: int | None = None) -> int:
        try:
            if self.fault is None:
                self.file.truncate(size)
        except OSError as error:
            self.fault = error
        return self.file.tell() if size is None else size

    def close(self) -> None:
        self.file.close()
        super().close()
