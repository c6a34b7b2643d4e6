"""The key file on disk: followed while it changes, and extended by new keys."""

from __future__ import annotations

import asyncio
import logging
import shutil
import time
from typing import TYPE_CHECKING

from filelock import FileLock

from serving import system
from serving.auth import keys
from serving.auth.keys import KeysError

if TYPE_CHECKING:
    from pathlib import Path

    from serving.auth.keys import Key

logger = logging.getLogger(__name__)
CHECK_SECONDS = 1.0  # between two reads of the file
_SETTLE_SECONDS = 0.2  # an editor that writes in place leaves the file empty for a moment
_MAX_BYTES = 2**20
_OPENING = "# Keys of the gateway, hashed. A new one: python -m serving key NAME --scope infer\n"


class KeyFile:
    """Keys that follow their file: rotation needs no restart, and a malformed edit changes nothing.

    Args:
        path: The file.

    Attributes:
        keys: Its entries when it could last be read.

    Raises:
        KeysError: The file cannot be read, or is not a key file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = _text(path)
        self._fault = ""
        self.keys = _parsed(path, self._seen)

    async def look(self) -> float:
        """Read the file again; return the seconds until the next look."""
        await asyncio.to_thread(self.refresh)
        return CHECK_SECONDS

    def refresh(self) -> None:
        """Read the file and compare its text, since neither times nor links on disk can be trusted."""
        try:
            text = _text(self._path)
            if text != self._seen:
                time.sleep(_SETTLE_SECONDS)
                if _text(self._path) != text:
                    return  # it is being written: the next look finds it complete
            self._follow(text)
        except KeysError as error:
            if str(error) != self._fault:  # once, and not every second
                logger.error("%s; the keys stay as they were", error)  # noqa: TRY400  the message suffices
            self._fault = str(error)

    def _follow(self, text: str) -> None:
        self._fault = ""
        if text != self._seen:
            self._seen = text
            self.keys = _parsed(self._path, text)
            logger.info("%s: %d keys", self._path, len(self.keys.key))


def append(path: Path, key: Key) -> None:
    """Add an entry to a key file, which is created if there is none; a reader finds the old file or the new one.

    Raises:
        KeysError: The file is not a key file, or has such an entry.
        OSError: It cannot be written.
    """
    path = path.resolve()  # a link stays one
    with FileLock(path.with_name(f".{path.name}.lock")):
        text = f"{_text(path) if path.exists() else _OPENING}\n{key.text()}"
        _parsed(path, text)
        beside = path.with_name(f".{path.name}.new")
        beside.write_text(text, "utf-8")
        if path.exists():
            shutil.copymode(path, beside)
        beside.replace(path)


def _text(path: Path) -> str:
    try:
        return system.read_file(path, _MAX_BYTES).decode()
    except OSError as error:
        raise KeysError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise KeysError(f"{path}: not UTF-8 at byte {error.start}") from error
    except ValueError as error:
        raise KeysError(f"{path}: {error}") from error


def _parsed(path: Path, text: str) -> keys.Keys:
    try:
        return keys.parse(text)
    except KeysError as error:
        raise KeysError(f"{path}: {error}") from error
