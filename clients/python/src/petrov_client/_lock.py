"""The lock of an unfinished file: one process at a time may write it."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from pathlib import Path


def claim(file: BinaryIO, path: Path) -> int | None:
    """Lock a file for this process, also while it is renamed; the lock ends with the process.

    Args:
        file: The file.
        path: Its path.

    Returns:
        A descriptor whose end is that of the lock; None on Windows, which locks no file here.

    Raises:
        ValueError: Another process has opened the file, or has just finished it.
    """
    lock: int | None = None
    if sys.platform != "win32":
        import fcntl  # noqa: PLC0415  Windows has none

        lock = os.dup(file.fileno())  # the lock lasts until the last of its descriptors is closed
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise ValueError(f"another process has opened {path}") from None
    if not (path.exists() and os.path.samestat(path.stat(), os.fstat(file.fileno()))):
        if lock is not None:
            os.close(lock)
        raise ValueError(f"another process has just finished {path.with_suffix('')}")
    return lock
