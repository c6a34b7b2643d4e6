"""Takes a checkpoint folder, gives the next version of a model in a Triton repository, or changes nothing.

.. code-block:: text

    model_repository/
      darcy/              config.pbtxt   1/{model.onnx, card.json, certificate.json}   2/...
      darcy_torchscript/  config.pbtxt   1/{model.pt, card.json, certificate.json}     2/...
    .model_repository.staging/darcy/     lock, and what is not finished yet

A version is built and proven in the staging folder and then renamed into its place, so a server that polls the
repository sees all of it or nothing. The staging folder lies beside the repository, because Triton takes every folder
inside for a model.
"""

from __future__ import annotations

import fcntl
import json
import re
import shutil
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from export import parity, to_onnx, to_torchscript, triton_config
from export.card import card
from export.certificate import certificate, sha256
from export.deployable import Deployable
from export.signature import Signature
from training import checkpoint as checkpoints

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import ModuleType

    from training.checkpoint import Checkpoint

CONFIG, CARD, CERTIFICATE = "config.pbtxt", "card.json", "certificate.json"

#: Each format's suffix to the model's name, and the module that writes and reads it.
FORMATS: dict[str, tuple[str, ModuleType]] = {"onnx": ("", to_onnx), "torchscript": ("_torchscript", to_torchscript)}


class RepositoryError(ValueError):
    """A checkpoint cannot be published under this name or here: the message says why."""


@dataclass(frozen=True)
class Publication:
    """One format of one model after `publish`: the newest version, whether it is new, and its certificate."""

    model: str
    version: int
    new: bool
    certificate: dict[str, Any]


def publish(folder: Path, repository: Path, name: str | None = None) -> list[Publication]:
    """Publish a checkpoint as the next version of `name`, in every format; one that is there already is left alone.

    All formats are built and proven before the first is published.

    Args:
        folder: the checkpoint folder.
        repository: the model repository; made if it is missing.
        name: the model's name; made of the folder's by default.

    Raises:
        CheckpointError: the folder is no complete checkpoint.
        CardError: its card lacks what was measured.
        SignatureError: its problem takes more than one tensor.
        GraphError: the network cannot be exported to a graph that runs anywhere.
        ParityError: a graph differs from the network by more than the tolerance, or padding moves its answers.
        RepositoryError: the name is no model name, or belongs to a model with other tensors.
    """
    return release(checkpoints.load(folder), repository, name or folder.resolve().name)


def is_current(folder: Path, repository: Path, name: str | None = None) -> bool:
    """Tell whether `publish` would leave this checkpoint alone.

    Raises:
        CheckpointError: the folder is no complete checkpoint.
        RepositoryError: the name is no model name.
    """
    checkpoint, name = checkpoints.load(folder), model_name(name or folder.resolve().name)
    return all(is_published(place, checkpoint) for place in places_of(name, repository).values())


def release(checkpoint: Checkpoint, repository: Path, name: str) -> list[Publication]:
    """Publish a checkpoint that is loaded already; see `publish`."""
    name, signature = model_name(name), Signature.of(checkpoint.description)
    places = places_of(name, repository)
    with staging(repository, name) as aside:
        for place in places.values():
            check_names(place, signature)
        stale = [format_ for format_, place in places.items() if not is_published(place, checkpoint)]
        for format_ in stale:
            build(checkpoint, signature, format_, places[format_], aside)
        for format_, place in places.items():
            install(place, signature, format_, aside)
    return [publication(place, new=format_ in stale) for format_, place in places.items()]


def model_name(word: str) -> str:
    """Turn a folder's name into a model's: `darcy-quick` -> `darcy_quick`.

    Raises:
        RepositoryError: it holds what a model name must not.
    """
    name = word.lower().replace("-", "_")
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or name.endswith(FORMATS["torchscript"][0]):
        raise RepositoryError(
            f"expected a model name of letters, digits and '_', without a format's suffix, but got {word!r}"
        )
    return name


def places_of(name: str, repository: Path) -> dict[str, Path]:
    """Give each format's folder of a model."""
    return {format_: repository / f"{name}{suffix}" for format_, (suffix, _) in FORMATS.items()}


@contextmanager
def staging(repository: Path, name: str) -> Iterator[Path]:
    """Give an empty folder on the repository's file system, to one process at a time for each model; others wait.

    What a killed process left is swept away by the next one, which holds the lock and so knows that it is nobody's.
    """
    repository.mkdir(parents=True, exist_ok=True)
    place = repository.resolve()
    base = place.with_name(f".{place.name}.staging") / name
    base.mkdir(parents=True, exist_ok=True)
    with (base / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        aside = base / "work"
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir()
        try:
            yield aside
        finally:
            shutil.rmtree(aside, ignore_errors=True)


def check_names(place: Path, signature: Signature) -> None:
    """Let a model's versions differ in weights only.

    Raises:
        RepositoryError: the published model has other tensors or words, or its config cannot be read.
    """
    path = place / CONFIG
    if not path.is_file():
        return
    try:
        config = triton_config.parse(path.read_text())
    except ValueError as error:
        raise RepositoryError(f"{path} is no Triton config: {error}") from error
    published = tuple(tensor.name for tensor in (*config.input, *config.output))
    if published != signature.names:
        raise RepositoryError(
            f"{place.name!r} is published as {' -> '.join(published)} "
            f"but this checkpoint is {' -> '.join(signature.names)}: give it a name of its own with --name"
        )
    if triton_config.vocabulary(signature) != config.parameters[triton_config.VOCABULARY].string_value:
        raise RepositoryError(
            f"{place.name!r} is published with another vocabulary: give this checkpoint a name of its own with --name"
        )


def versions(place: Path) -> list[int]:
    """List a model's versions, the newest last."""
    return sorted(int(path.name) for path in place.glob("*") if path.name.isdigit() and path.is_dir())


def is_published(place: Path, checkpoint: Checkpoint) -> bool:
    """Tell whether the newest version is this checkpoint, with the very graph that its certificate proves."""
    if not (numbers := versions(place)):
        return False
    folder = place / str(numbers[-1])
    try:
        proven = json.loads((folder / CERTIFICATE).read_text())
        made_of = json.loads((folder / CARD).read_text())["checkpoint"]["sha256"]
        artefact = folder / proven["artefact"]["file"]
        return bool(made_of == checkpoint.digest and sha256(artefact) == proven["artefact"]["sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        return False  # a version that was tampered with: the next one replaces it


def build(checkpoint: Checkpoint, signature: Signature, format_: str, place: Path, aside: Path) -> None:
    """Write and prove the next version in the staging folder.

    Raises:
        ParityError: the graph differs from the network by more than the tolerance, or padding moves its answers.
    """
    number = max(versions(place), default=0) + 1
    folder, writer = aside / place.name / str(number), FORMATS[format_][1]
    folder.mkdir(parents=True)
    artefact = folder / writer.FILE
    writer.write(Deployable(checkpoint.operator, signature.input.name), signature, artefact)
    run, operators = writer.read(artefact)
    comparisons = parity.compare(run, checkpoint.operator, signature)
    parity.gate(comparisons)
    padding = parity.padding(run, signature) if signature.vocabulary else None
    parity.gate_padding(padding or [])
    described = card(checkpoint, place.name, number, format_)
    dump(folder / CARD, described)
    dump(folder / CERTIFICATE, certificate(artefact, operators, comparisons, described, padding))


def install(place: Path, signature: Signature, format_: str, aside: Path) -> None:
    """Move what was built into place: a new model as one folder, a new version of an old one behind its config."""
    staged = aside / place.name
    staged.mkdir(exist_ok=True)
    (staged / CONFIG).write_text(triton_config.text(place.name, signature, format_))
    if not place.exists():
        staged.rename(place)
        return
    if not (place / CONFIG).is_file() or (place / CONFIG).read_bytes() != (staged / CONFIG).read_bytes():
        (staged / CONFIG).replace(place / CONFIG)
    for number in versions(staged):
        (staged / str(number)).rename(place / str(number))
    for number in versions(place)[: -triton_config.VERSIONS]:
        (place / str(number)).rename(staged / f"{number}.old")  # gone at once; deleted with the staging folder


def publication(place: Path, *, new: bool) -> Publication:
    """Read back what is published."""
    number = versions(place)[-1]
    return Publication(place.name, number, new, json.loads((place / str(number) / CERTIFICATE).read_text()))


def dump(path: Path, document: dict[str, Any]) -> None:
    """Write JSON that no NaN slips into."""
    path.write_text(json.dumps(document, indent=2, allow_nan=False) + "\n")
