"""The layout of a Triton repository on disk, and the folder beside it in which versions are prepared.

.. code-block:: text

    model_repository/
      darcy/              config.pbtxt   1/{model.onnx, card.json, certificate.json, examples.safetensors}   2/...
    .model_repository.staging/darcy/     lock, and unfinished versions
"""

from __future__ import annotations

import hashlib
import json
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from filelock import FileLock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

CONFIG, CARD, CERTIFICATE = "config.pbtxt", "card.json", "certificate.json"
VERSIONS = 2  # that are kept and served
FRAME = "frame"  # the axis of the frames of a trajectory, and the input whose shape counts them


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
    return sorted(int(path.name) for path in folder.glob("*") if path.name.isdigit() and path.is_dir())


def newest(folder: Path) -> Path:
    """Return the folder of a model's newest version; of version 0, which does not exist, where there is none."""
    return folder / str(max(versions(folder), default=0))


def made_of(version: Path) -> str | None:
    """Return the SHA-256 of the checkpoint that a version was exported from; None if it was tampered with."""
    try:
        certified = json.loads((version / CERTIFICATE).read_text())
        checkpoint = json.loads((version / CARD).read_text())["checkpoint"]["sha256"]
        same = sha256(version / certified["artefact"]["file"]) == certified["artefact"]["sha256"]
        return str(checkpoint) if same else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def tensors(card: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Return the names of a version's inputs and of its outputs, in the order of its graph."""
    inputs = [tensor["name"] for tensor in (*card["inputs"], *card.get("parameters", ()))]
    inputs += [FRAME] if "frames" in card else []
    return inputs, [*(tensor["name"] for tensor in card["outputs"]), *card.get("quality", ())]


def tensors_of(version: Path) -> tuple[list[str], list[str]] | None:
    """Return the names of a version's tensors; None if its card cannot be read."""
    try:
        return tensors(json.loads((version / CARD).read_text()))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def prune(folder: Path, loadable: Callable[[Path], bool], aside: Path) -> None:
    """Keep the newest versions that one config describes, and move the others to the staging folder.

    Args:
        folder: The model's folder in the repository.
        loadable: Whether Triton can load a version with the model's config.
        aside: A folder that is deleted afterwards.
    """
    kept = [number for number in versions(folder) if loadable(folder / str(number))]
    for number in sorted({*versions(folder)} - {*kept[-VERSIONS:]}):
        (folder / str(number)).rename(aside / f"{folder.name}.{number}.old")


def sha256(path: Path) -> str:
    """Compute the hex digest of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
