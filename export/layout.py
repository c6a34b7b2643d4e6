"""The layout of a Triton repository on disk, and the folder beside it in which versions are prepared.

.. code-block:: text

    model_repository/
      darcy/              config.pbtxt   1/{model.onnx, card.json, certificate.json, examples.safetensors}   2/...
    .model_repository.staging/darcy/     lock, and unfinished versions
"""

from __future__ import annotations

import hashlib
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

from filelock import FileLock

from schema.card import FRAME, GRID, Card, read
from training.files import read_json

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CONFIG, CARD, CERTIFICATE = "config.pbtxt", "card.json", "certificate.json"
VERSIONS = 2  # that are kept and served


@contextmanager
def staging(repository: Path, name: str) -> Iterator[Path]:
    """Yield an empty folder on the repository's file system, to one process at a time per model; others wait.

    The next process deletes what a killed process left. It holds the lock, so no other process uses the folder.
    """
    repository.mkdir(parents=True, exist_ok=True)
    resolved = repository.resolve()
    base = resolved.with_name(f".{resolved.name}.staging") / name
    base.mkdir(parents=True, exist_ok=True)
    with FileLock(base / "lock"):
        aside = base / "work"
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir()
        try:
            yield aside
        finally:
            shutil.rmtree(aside, ignore_errors=True)


def versions(folder: Path) -> list[int]:
    """List a model's versions, the newest last."""
    found = (path for path in folder.glob("*") if path.name.isascii() and path.name.isdecimal() and path.is_dir())
    return sorted(int(path.name) for path in found if path.name == str(int(path.name)))


def newest(folder: Path) -> Path:
    """Return the folder of a model's newest version; of version 0, which does not exist, where there is none."""
    return folder / str(max(versions(folder), default=0))


def made_of(version: Path) -> str | None:
    """Return the SHA-256 of the checkpoint that a version was exported from; None if it was tampered with."""
    try:
        certified = read_json(version / CERTIFICATE)
        checkpoint = read_json(version / CARD)["checkpoint"]["sha256"]
        same = sha256(version / certified["artefact"]["file"]) == certified["artefact"]["sha256"]
        return str(checkpoint) if same else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def damaged(version: Path) -> bool:
    """Return whether a version has a certificate of something else than its graph, such as one that was cut off."""
    return (version / CERTIFICATE).exists() and made_of(version) is None


def tensors_of(version: Path) -> tuple[list[str], list[str]] | None:
    """Return the names of a version's inputs and outputs, in its graph's order; None if its card cannot be read."""
    try:
        card = read(Card, read_json(version / CARD), version / CARD)
    except (OSError, ValueError):
        return None
    last = [FRAME] if card.frames else [] if card.inputs else [GRID]
    return [*card.names, *last], [*(each.name for each in card.outputs), *card.quality]


def prune(folder: Path, names: tuple[list[str], list[str]] | None, aside: Path) -> None:
    """Move all versions of a model to `aside` but the newest whole ones with these tensors, or without a card."""

    def loadable(version: Path) -> bool:
        return not damaged(version) and (not (version / CARD).exists() or tensors_of(version) == names)

    kept = [number for number in versions(folder) if loadable(folder / str(number))]
    for number in sorted({*versions(folder)} - {*kept[-VERSIONS:]}):
        (folder / str(number)).rename(aside / f"{folder.name}.{number}.old")


def sha256(path: Path) -> str:
    """Compute the hex digest of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
