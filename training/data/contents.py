"""The checksum of data files, which is computed once for as long as they are not written again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from training.files import write_json


def checksum(paths: Sequence[Path], known: Path) -> str:
    """Return the SHA-256 of what files and folders hold, whatever their paths, names and times are.

    Args:
        paths: The files, or folders such as those of zarr, in order.
        known: A JSON file with the last checksum and with the paths, sizes and times of the files that it is of.
    """
    states = _states(paths)
    try:
        remembered = json.loads(known.read_text())
        if remembered["states"] == states:
            return str(remembered["sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        pass  # there is none, or nothing to be used
    digest = hashlib.sha256()
    for path in paths:
        for each in _files(path):
            name = each.relative_to(path).as_posix()  # "." for a file, which may be renamed
            digest.update(f"{name}\n{_sha256(each)}\n".encode())
    write_json(known, {"states": states, "sha256": digest.hexdigest()})
    return digest.hexdigest()


def _states(paths: Sequence[Path]) -> str:
    found = [(str(each.resolve()), each.stat().st_size, each.stat().st_mtime_ns) for p in paths for each in _files(p)]
    return hashlib.sha256(str(found).encode()).hexdigest()


def _files(path: Path) -> Iterator[Path]:
    yield from sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
