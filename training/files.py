"""Files that are replaced in one step: a reader sees the old or the new file, never half of one."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import time
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from glob import escape
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from filelock import FileLock

from training.messages import UserError

WEIGHTS, CONFIG, CALIBRATION = "weights.safetensors", "config.json", "calibration.safetensors"
"""The files of a checkpoint that decide what it computes."""
LONGEST_TOML = 1 << 20  # the most bytes of a TOML file that is read
UMASK = os.umask(0o077)  # which can only be read by setting it
os.umask(UMASK)
NOT_ALLOCATED = {errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS}  # of systems that give files no space in advance
ABANDONED_SECONDS = 3600.0  # without a write, after which a part is one of a killed process


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a path to write to. The file written there replaces `path` if all goes well, and is removed otherwise.

    The file's bytes reach the disk before it is renamed, so a loss of power leaves the old or the new file, too. Every
    process has a path of its own: where two replace a file at one time, each does so with the whole of its own.
    """
    remove_parts(path, ABANDONED_SECONDS)
    aside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield aside
        aside.chmod(0o666 & ~UMASK)  # safetensors makes files that other users may not read
        _to_disk(aside)
        aside.replace(path)
    except OSError as error:
        if error.errno is not None and error.filename is None:  # of a write, which does not know its file
            error.filename = str(path)
        raise
    except Exception as error:  # of safetensors, whose own exception names the error of the system in its text alone
        if (found := re.search(r"\(os error (\d+)\)", str(error))) is None:
            raise
        number = int(found[1])
        raise OSError(number, os.strerror(number), str(path)) from error
    finally:
        aside.unlink(missing_ok=True)


def remove_parts(path: Path, seconds: float = 0.0) -> None:
    """Remove what killed processes have left of a file: what was not written to for so long."""
    for left in path.parent.glob(f".{escape(path.name)}.*.part"):
        with suppress(FileNotFoundError):  # another process removes it, too
            if time.time() - left.lstat().st_mtime >= seconds:
                left.unlink()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Let one process at a time prepare a file, in a folder that is made if it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{path}.lock"):  # the system frees the lock of a process that is killed
        yield


def expect_room(folder: Path, needed: int) -> None:
    """Make a folder, and check that it is writable and its disk has room for so many bytes.

    Raises:
        UserError: It cannot be made, or is read-only, or the disk has not.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder}: expected a folder that can be made but found: {error.strerror}") from error
    if not os.access(folder, os.W_OK):
        raise UserError(f"{folder}: expected a writable folder but found a read-only one")
    if (free := shutil.disk_usage(folder).free) < needed:
        raise UserError(f"{folder}: expected {needed / 1e6:.0f} MB of free disk space but found {free / 1e6:.0f} MB")


def expect_files(folder: Path, count: int, size: int) -> None:
    """Check that so many files of a size can be written into a folder at one time, and leave none.

    Their space is allocated, and not written: a quota and a limit of the size of files do not show in the free space of
    the disk.

    Raises:
        UserError: They cannot.
    """
    with ExitStack() as stack:
        try:
            for _ in range(count):
                file = stack.enter_context(TemporaryFile(dir=folder))
                os.posix_fallocate(file.fileno(), 0, size)
        except OSError as error:
            if error.errno in NOT_ALLOCATED:
                return
            raise UserError(
                f"{folder}: expected room for {count} files of {size / 1e6:.1f} MB each but found: {error.strerror}"
            ) from error


def write_text(path: Path, text: str) -> None:
    """Replace a text file."""
    with replacing(path) as aside:
        aside.write_text(text)


def write_json(path: Path, document: dict[str, Any], *, finite: bool = False) -> None:
    """Replace a JSON file; with `finite`, NaN and infinities are refused, which other programs' readers do not know.

    Raises:
        ValueError: The document holds a number that is not finite, and `finite` is set.
    """
    write_text(path, json.dumps(document, indent=2, allow_nan=not finite) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        OSError, ValueError: It cannot be read, is something else, or is nested too deeply.
    """
    try:
        found = json.loads(path.read_bytes())
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(found, dict):
        raise ValueError(f"expected a JSON object but found {type(found).__name__}")  # noqa: TRY004 -- as the others
    return found


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file.

    Raises:
        UserError: It cannot be read, is no TOML, or is nested too deeply.
    """
    if not path.is_file():
        raise UserError(f"{path}: expected a TOML file but found none")
    try:
        with path.open("rb") as file:
            content = file.read(LONGEST_TOML + 1)
        found = tomllib.loads(content.decode()) if len(content) <= LONGEST_TOML else None
    except OSError as error:
        raise UserError(f"{path}: expected a TOML file but it cannot be read ({error.strerror})") from error
    except RecursionError as error:
        raise UserError(f"{path}: expected TOML but found tables or arrays nested too deeply") from error
    except ValueError as error:  # of the syntax, of the encoding, or of a number with thousands of digits
        raise UserError(f"{path}: expected TOML but found an error: {error}") from error
    if found is None:
        raise UserError(f"{path}: expected at most {LONGEST_TOML} bytes of TOML")
    return found


def digest(folder: Path) -> str:
    """Compute the SHA-256 of a checkpoint's weights, config and calibration."""
    paths = [folder / name for name in (WEIGHTS, CONFIG, CALIBRATION)]
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths if path.exists())).hexdigest()


def _to_disk(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


# Changes of documents


def parse(override: str) -> tuple[str, Any]:
    """Split `a.b=c`. A value that is no TOML is taken as text, so names need no quotes."""
    key, found, value = override.partition("=")
    if not found:
        raise UserError(f"expected an override a.b=c but got {override!r}")
    try:
        return key, tomllib.loads(f"value = {value}")["value"]
    except (ValueError, RecursionError):
        return key, value


def put(document: dict[str, Any], key: str, value: Any) -> None:
    """Set a nested key `section.name` of a document. Its schema checks the name."""
    *sections, name = key.split(".")
    for section in sections:
        if not isinstance(document.get(section), dict):
            raise UserError(f"no section {section!r} for the override {key}={value!r}")
        document = document[section]
    document[name] = value
