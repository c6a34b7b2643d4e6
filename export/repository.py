"""Publication of checkpoints as model versions in a Triton repository, each as a whole or not at all.

.. code-block:: text

    model_repository/
      darcy/              config.pbtxt   1/{model.onnx, card.json, certificate.json, examples.safetensors}   2/...
      darcy_vjp/          config.pbtxt   1/{model.onnx, card.json, certificate.json}   2/...   see export.versions
      darcy_torchscript/  config.pbtxt   1/{model.pt, ...}   2/...
    .model_repository.staging/darcy/     lock, and unfinished versions

A version is built and compared with its network in the staging folder, and then renamed into the repository, so a
server that polls the repository sees all of it or nothing. The staging folder lies beside the repository, because
Triton takes every folder inside for a model.
"""

from __future__ import annotations

import os
import re
import shutil
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from itertools import repeat
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

import torch

from export import triton_config
from export.graphs.to_onnx import GraphError
from export.parity import ParityError
from export.signature import Signature
from export.triton_config import CARD, CERTIFICATE, CONFIG, made_of, newest, prune, staging, tensors_of, versions
from export.versions import (
    COMPANIONS,
    FORMATS,
    ONNX,
    CardError,
    Companion,
    belongs,
    build,
    companions,
    measured,
    signature_of,
)
from schema.card import QUALITY, Measured
from training import checkpoint as checkpoints
from training.files import read_json, write_text
from training.messages import UserError
from training.optimisation import FLOAT32

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from training.checkpoint import Checkpoint
    from training.optimisation import Precision

#: What is appended to a model's name.
SUFFIXES = (FORMATS["torchscript"][0], *(f"_{companion}" for companion in COMPANIONS))


class RepositoryError(ValueError):
    """A checkpoint cannot be published under this name or in this repository: the message says why."""


@dataclass(frozen=True)
class Publication:
    """One format of one model after `publish`."""

    model: str
    version: int
    new: bool  # whether it is new
    certificate: dict[str, Any]
    companions: dict[Companion, bool] = field(default_factory=dict)  # per graph beside the version whether it is new
    refused: dict[Companion, str] = field(default_factory=dict)  # why one is not published


def publish(folder: Path, repository: Path, name: str | None = None) -> list[Publication]:
    """Publish a checkpoint as the next version of `name` in the formats of its recipe; a present one is left alone.

    All formats are built and compared before the first is published. Formats that the recipe no longer lists are
    removed from the repository. A graph beside the model that cannot be made, or differs from its network, does not
    keep the model from being published.

    Args:
        folder: The checkpoint folder.
        repository: The model repository; made if it is missing.
        name: The model's name; made of the folder's by default.

    Raises:
        CheckpointError: The folder is no complete checkpoint.
        CardError: Its card lacks what was measured.
        GraphError: The network cannot be exported to a graph that runs anywhere.
        ParityError: A graph differs from the network by more than the tolerance, or padding changes its outputs.
        RepositoryError: The name is no model name, or belongs to a model with other tensors.
    """
    return release(checkpoints.load(folder), repository, name or folder.resolve().name)


def is_current(folder: Path, repository: Path, name: str | None = None) -> bool:
    """Return whether `publish` would leave this checkpoint alone."""
    checkpoint, name = checkpoints.load(folder), model_name(name or folder.resolve().name)
    signature, (paths, dropped) = Signature.of_checkpoint(checkpoint), paths_of(name, repository, checkpoint.formats)
    current = all(is_published(path, checkpoint, signature) for path in paths.values())
    return current and not missing(checkpoint, signature, paths[ONNX]) and not any(path.exists() for path in dropped)


def release(checkpoint: Checkpoint, repository: Path, name: str) -> list[Publication]:
    """Publish a checkpoint that is loaded already; see `publish`."""
    name, signature = model_name(name), Signature.of_checkpoint(checkpoint)
    paths, dropped = paths_of(name, repository, checkpoint.formats)
    with staging(repository, name) as aside:
        check_exported([*paths.values(), *dropped, *(companion_path(paths[ONNX], each) for each in COMPANIONS)])
        for path in paths.values():
            check_names(path, signature)
        stale = [format_ for format_, path in paths.items() if not is_published(path, checkpoint, signature)]
        for format_ in stale:
            number = max(versions(paths[format_]), default=0) + 1
            build(checkpoint, signature, aside / paths[format_].name / str(number), format_=format_)
        made, refused = build_companions(checkpoint, signature, paths[ONNX], aside)
        for companion in made:
            install(companion_path(paths[ONNX], companion), signature_of(companion, signature, checkpoint), ONNX, aside)
        for format_, path in paths.items():
            install(path, signature, format_, aside, checkpoint.recipe.precision)
        for path in dropped:
            retire(path, aside)
        for folder in (companion_path(paths[ONNX], each) for each in COMPANIONS):
            if (folder / CONFIG).is_file():  # of an earlier export, perhaps
                triton_config.renew(folder / CONFIG)
            for number in {*versions(folder)} - {*versions(paths[ONNX])}:  # beside a version that is no longer there
                (folder / str(number)).rename(aside / f"{folder.name}.{number}.old")
            if not versions(folder):
                retire(folder, aside)
    found = {each: each in made for each in companions(checkpoint, signature) if each not in refused}
    beside: dict[str, Any] = {"companions": found, "refused": refused}
    return [
        Publication(
            path.name,
            int(newest(path).name),
            format_ in stale,
            read_json(newest(path) / CERTIFICATE),
            **(beside if path.name == name else {}),
        )
        for format_, path in paths.items()
    ]


def companion_path(model: Path, companion: Companion) -> Path:
    """Return the folder of a model's companion."""
    return model.with_name(f"{model.name}_{companion}")


def missing(checkpoint: Checkpoint, signature: Signature, path: Path) -> list[Companion]:
    """Return what the newest version of a model lacks beside it."""
    version = newest(path)
    found = companions(checkpoint, signature)
    return [each for each in found if not belongs(companion_path(path, each) / version.name, version)]


def build_companions(
    checkpoint: Checkpoint, signature: Signature, path: Path, aside: Path
) -> tuple[list[Companion], dict[Companion, str]]:
    """Build the missing graphs beside the newest version, or beside the one in the staging folder.

    Return which are built, and why others are not.
    """
    staged = versions(aside / path.name)
    version = aside / path.name / str(staged[-1]) if staged else newest(path)
    made: list[Companion] = []
    refused: dict[Companion, str] = {}
    for companion in companions(checkpoint, signature) if staged else missing(checkpoint, signature, path):
        folder = companion_path(aside / path.name, companion) / version.name
        try:
            build(checkpoint, signature, folder, companion=companion, model=version)
        except Exception as error:  # noqa: BLE001 -- the libraries' errors about a graph share no class
            shutil.rmtree(folder, ignore_errors=True)
            refused[companion] = str(error)
        else:
            made.append(companion)
    return made, refused


def model_name(folder: str) -> str:
    """Turn a folder's name into a model's: `darcy-quick` -> `darcy_quick`."""
    name = lowered(folder)
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or name.endswith(SUFFIXES):
        raise RepositoryError(
            "expected a model name of letters, digits and '_', without the suffix of a format or of a graph beside a "
            f"model, but got {folder!r}"
        )
    return name


def lowered(folder: str) -> str:
    """Return a folder's name as that of a model, whether it is one or not."""
    return folder.lower().replace("-", "_")


def paths_of(name: str, repository: Path, formats: Iterable[str]) -> tuple[dict[str, Path], list[Path]]:
    """Return a model's folder per format of its recipe, and those of other formats, whether they exist or not."""
    folders = {format_: repository / f"{name}{suffix}" for format_, (suffix, _) in FORMATS.items()}
    return {each: folders.pop(each) for each in formats}, list(folders.values())


def retire(path: Path, aside: Path) -> None:
    """Take a model's folder out of the repository in one step, if it is there."""
    if path.exists():
        path.rename(aside / f"{path.name}.old")  # deleted with the staging folder


def check_exported(folders: Iterable[Path]) -> None:
    """Require that folders with the name of a model or of a graph beside it are no models of another making."""
    for config in (folder / CONFIG for folder in folders):
        if config.is_file() and not triton_config.is_generated(config.read_text(errors="replace")):
            raise RepositoryError(
                f"{config.parent} is a model that was not exported, and would be replaced: give this checkpoint "
                "another name with --name"
            )


def check_names(folder: Path, signature: Signature) -> None:
    """Require that a model's versions have the same inputs and outputs; inputs with a default may be added.

    Quality outputs may come and go.
    """
    path = folder / CONFIG
    if not path.is_file():
        return
    try:
        config = triton_config.parse(path.read_text())
    except ValueError as error:
        raise RepositoryError(f"{path} is no Triton config: {error}") from error
    outputs = [triton_config.unnumbered(tensor.name) for tensor in config.output]
    inputs = [tensor.name for tensor in config.input]
    kept = [each.name for each in signature.arguments if each.default is None or each.name in inputs]
    names = inputs, [name for name in outputs if name not in QUALITY]
    own = kept, [tensor.name for tensor in signature.outputs]
    if names != own:
        published, wanted = (f"{', '.join(first)} -> {', '.join(second)}" for first, second in (names, own))
        raise RepositoryError(
            f"{folder.name!r} is published as {published} but this checkpoint is {wanted}: "
            "give it a name of its own with --name"
        )
    if triton_config.vocabulary(signature) != config.parameters[triton_config.VOCABULARY].string_value:
        raise RepositoryError(
            f"{folder.name!r} is published with another vocabulary: give this checkpoint a name of its own with --name"
        )


def is_published(path: Path, checkpoint: Checkpoint, signature: Signature) -> bool:
    """Return whether the newest version is this checkpoint, with its examples and what was measured of it.

    A version that was tampered with, whose graph is not that of its certificate, is not: the next one replaces it.
    """
    version = newest(path)
    if made_of(version) != checkpoint.digest or tensors_of(version) != names_of(signature):
        return False
    said = {key: value for key, value in read_json(version / CARD).items() if key in Measured.model_fields}
    if said != measured(checkpoint):
        return False
    own, stored = (
        file.read_bytes() if file is not None and file.exists() else None
        for file in (checkpoint.examples, version / checkpoints.EXAMPLES)
    )
    return own == stored


def names_of(signature: Signature) -> tuple[list[str], list[str]]:
    """Return the names of arguments and results, as `tensors_of` reads them off a version's card."""
    return list(signature.argument_names), list(signature.result_names)


def install(path: Path, signature: Signature, format_: str, aside: Path, precision: Precision = FLOAT32) -> None:
    """Move what was built to the repository: a new model as one folder, new versions after their config."""
    staged = aside / path.name
    staged.mkdir(exist_ok=True)
    write_text(staged / CONFIG, triton_config.text(path.name, signature, format_, precision))
    if not path.exists():
        staged.rename(path)
        return
    if not (path / CONFIG).is_file() or (path / CONFIG).read_bytes() != (staged / CONFIG).read_bytes():
        (staged / CONFIG).replace(path / CONFIG)
    for number in versions(staged):
        if (path / str(number)).exists():  # a graph that does not belong to its model
            (path / str(number)).rename(staged / f"{number}.replaced")
        (staged / str(number)).rename(path / str(number))
    prune(path, names_of(signature), staged)


#: Errors that the user can correct, such as a full disk, or has to know before anything is published.
REFUSALS = (UserError, CardError, GraphError, ParityError, RepositoryError, OSError)

Outcome = list[Publication] | str


def outcomes(folders: Sequence[Path], repository: Path, name: str | None = None) -> Iterator[Outcome]:
    """Publish checkpoints, and yield in their order what is published of each, or why nothing is.

    Checkpoints of one name follow one another, for they are versions; and so do the rest, where the machine's memory
    is too small for several exporters and a process was ended.
    """

    def is_new(folder: Path) -> bool:
        try:
            return not is_current(folder, repository, name)
        except REFUSALS:
            return False  # `attempt` reports it

    processes, done = min(sum(map(is_new, folders)), os.cpu_count() or 1), 0
    if processes > 1 and len({lowered(folder.resolve().name) for folder in folders}) == len(folders):
        try:
            with ProcessPoolExecutor(processes, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
                for outcome in pool.map(attempt, folders, repeat(repository), repeat(name)):
                    yield outcome
                    done += 1
        except BrokenProcessPool:
            pass
    yield from (attempt(folder, repository, name) for folder in folders[done:])


def attempt(folder: Path, repository: Path, name: str | None) -> Outcome:
    """Publish one checkpoint, or return why it cannot be."""
    try:
        return publish(folder, repository, name)
    except REFUSALS as error:
        return str(error)
