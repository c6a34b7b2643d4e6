"""Read a file that others may replace by anything: only regular files, and only so many bytes."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def read(path: Path, max_bytes: int) -> bytes:
    """Return the content of a regular file.

    Args:
        path: The file.
        max_bytes: The largest size that is read.

    Raises:
        OSError: It cannot be opened or read.
        ValueError: It is a pipe, a device or a folder, or larger than the limit.
    """
    # Without O_NONBLOCK, opening a pipe would wait for its writer, for ever.
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK | os.O_CLOEXEC)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("expected a regular file")
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise ValueError(f"expected at most {max_bytes} bytes but found more")
    return content
