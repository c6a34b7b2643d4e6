"""A new HDF5 file where the disk may become full, or a quota or a limit of the size of files be reached.

HDF5 keeps what it could not write, tries again when it closes the file and when the process ends, and crashes there. So
it writes to a file whose writes always succeed, and which remembers that one did not.
"""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any


class WithoutFaults(io.RawIOBase):
    """A new file as HDF5 writes it; after the first `fault` nothing is written any more, and what is missing is 0."""

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
