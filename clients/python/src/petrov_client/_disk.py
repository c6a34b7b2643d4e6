"""Files that are written where the disk may be full: that is an `OSError`, and nothing worse.

HDF5 keeps what it could not write, tries again when it closes the file and when the process ends, and crashes there. A
write to a memory map that the disk has no room for ends the process at once.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import open_memmap


class WithoutFaults(io.RawIOBase):
    """A new file as HDF5 writes it, whose writes always succeed; `fault` is the first one that did not."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.file = path.open("w+b", buffering=0)
        self.fault: OSError | None = None

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a place in the file."""
        return self.file.seek(offset, whence)

    def tell(self) -> int:
        """Return the place in the file."""
        return self.file.tell()

    def readinto(self, buffer: Any) -> int:
        """Read what is there; what could not be written is zero."""
        view = memoryview(buffer).cast("B")
        found = self.file.read(len(view)) or b""
        view[:] = found.ljust(len(view), b"\0")
        return len(view)

    def write(self, data: Any) -> int:
        """Write all of the data, unless an earlier write has failed."""
        view = memoryview(data).cast("B")
        try:
            done = len(view) if self.fault else 0
            while done < len(view):
                done += self.file.write(view[done:]) or 0
        except OSError as error:
            self.fault = error
        return len(view)

    def truncate(self, size: int | None = None) -> int:
        """Give the file a size, unless an earlier write has failed."""
        try:
            if self.fault is None:
                self.file.truncate(size)
        except OSError as error:
            self.fault = error
        return self.file.tell() if size is None else size

    def close(self) -> None:
        """Close the file."""
        self.file.close()
        super().close()


@contextmanager
def new_hdf5(library: Any, path: Path, **options: Any) -> Iterator[Any]:
    """Make an HDF5 file with the library h5py, which is a new one or nothing that can be read.

    Raises:
        OSError: The disk is full, or the file would be larger than it may be.
    """
    with WithoutFaults(path) as target:
        with library.File(target, "w", **options) as file:
            yield file
        if target.fault is not None:
            raise target.fault


def new_array(path: Path, shape: tuple[int, ...]) -> np.memmap[Any, np.dtype[np.float32]]:
    """Make a `.npy` file of float32 and return it as a memory map, for all of which the disk has room.

    Raises:
        OSError: It has not.
    """
    array: np.memmap[Any, np.dtype[np.float32]] = open_memmap(path, "w+", np.dtype("<f4"), shape)
    if hasattr(os, "posix_fallocate"):
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    return array
