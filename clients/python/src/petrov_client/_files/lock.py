"""The lock of an unfinished file: one process at a time may write it."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from pathlib import Path


class LockedFile:
    """A file that one process at a time may read and write, made where it is missing.

    Args:
        path: The file.

    Attributes:
        content: The open file; it may be closed earlier than the lock ends.

    Raises:
        ValueError: Another process has opened the file, or has just finished it.
        OSError: It cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self.content: BinaryIO = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "r+b")
        self._lock: int | None = None
        try:
            self._lock = claim(self.content, path)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file, and end the lock; safe to call again."""
        self.content.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


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
