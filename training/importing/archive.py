"""The container that `torch.save` writes: takes a file, gives its zip archive if it is one and of a bounded size."""

from __future__ import annotations

import zipfile
from pathlib import Path

from training.importing.refusal import ReferenceImportError

LIMIT = 256 * 2**20  # bytes, packed or not; the largest published file has some 10 MB


def check(path: Path) -> None:
    """Let only files of a bounded size pass, counted as they would lie in memory.

    Raises:
        ReferenceImportError: there is no such file, or it is or unpacks to more than `LIMIT`.
    """
    if not path.is_file():
        raise ReferenceImportError(f"expected a file {path} but there is none")
    size = max(path.stat().st_size, unpacked(path))
    if size > LIMIT:
        raise ReferenceImportError(f"{path}: expected at most {LIMIT} bytes but found {size}")


def unpacked(path: Path) -> int:
    """Give the size of an archive's members together, 0 if the file is no archive."""
    try:
        with zipfile.ZipFile(path) as archive:
            return sum(member.file_size for member in archive.infolist())
    except zipfile.BadZipFile:
        return 0  # an old or a broken file: its reader tells which


class Archive:
    """A saved object: its pickle, unread, and the numbers of its tensors by storage key.

    Args:
        path: a file of torch's zip format (torch 1.6 and later).

    Raises:
        ReferenceImportError: it is none, too large, damaged, or of big-endian numbers.
    """

    def __init__(self, path: Path) -> None:
        check(path)
        self.path = path
        try:
            with zipfile.ZipFile(path) as archive:
                self.members = {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}
        except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError) as error:
            raise ReferenceImportError(
                f"{path}: expected an archive of torch.save but it is {reason(error)}"
            ) from error
        if self.members.get("byteorder", b"little") != b"little":
            raise ReferenceImportError(f"{path}: expected little-endian numbers")

    @property
    def pickle(self) -> bytes:
        """The pickled object."""
        return self.member("data.pkl")

    def storage(self, key: str) -> bytes:
        """Give the numbers of a storage."""
        return self.member(f"data/{key}")

    def member(self, name: str) -> bytes:
        """Give one member of the archive."""
        if name not in self.members:
            raise ReferenceImportError(f"{self.path}: expected a member {name!r} in the archive but there is none")
        return self.members[name]


def reason(error: Exception) -> str:
    """Say what is wrong with an archive."""
    return "no archive, or cut off" if isinstance(error, zipfile.BadZipFile) else f"damaged: {error}"
