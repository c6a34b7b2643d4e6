"""Checkpoints are data: takes a folder, gives a ready operator; and the way back. No pickle.

.. code-block:: text

    weights.safetensors   parameters and normalisers, float32
    config.json           the recipe, the problem, and the revision that trained it
    card.json             what was measured: training, errors by grid, the classical solver beside them
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict
from safetensors.torch import load_file, save_file
from torch import nn

from training.operators import Operator, build
from training.problems.problem import Problem
from training.recipes.recipe import AnyRecipe, Recipe
from training.sequences.networks import build as networks
from training.sequences.problem import SequenceProblem
from training.sequences.recipe import SequenceRecipe

WEIGHTS, CONFIG, CARD = "weights.safetensors", "config.json", "card.json"


class CheckpointError(ValueError):
    """A folder is no checkpoint: the message names the file, what was expected and what was found."""


class Config(BaseModel):
    """What `config.json` holds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    recipe: AnyRecipe
    problem: Problem | SequenceProblem


@dataclass(frozen=True)
class Checkpoint:
    """A trained network, in evaluation mode, and all that is known about it.

    `operator` maps a float32 field `[batch, *grid]` in physical units to another, or tokens `[batch, length]` to
    logits where `problem` is one of sequences; `digest` is the SHA-256 of weights and config.
    """

    operator: Operator | networks.Network
    recipe: AnyRecipe
    problem: Problem | SequenceProblem
    card: dict[str, Any]
    digest: str


@dataclass(frozen=True)
class OperatorCheckpoint(Checkpoint):
    """One of a network between fields."""

    operator: Operator
    recipe: Recipe
    problem: Problem


@dataclass(frozen=True)
class SequenceCheckpoint(Checkpoint):
    """One of a network that labels sequences."""

    operator: networks.Network
    recipe: SequenceRecipe
    problem: SequenceProblem


def save(
    folder: Path, operator: nn.Module, recipe: AnyRecipe, problem: Problem | SequenceProblem, card: dict[str, Any]
) -> None:
    """Write a checkpoint; a reader of the folder sees the old or the new state of every file, never half of one."""
    folder.mkdir(parents=True, exist_ok=True)
    state = {name: tensor.detach().cpu().contiguous() for name, tensor in operator.state_dict().items()}
    aside = folder / f".{WEIGHTS}"
    save_file(state, aside)
    aside.replace(folder / WEIGHTS)
    write_json(folder / CONFIG, Config(recipe=recipe, problem=problem).model_dump(mode="json"))
    write_json(folder / CARD, card)


def load(folder: Path) -> OperatorCheckpoint | SequenceCheckpoint:
    """Rebuild the network of a checkpoint folder.

    Raises:
        CheckpointError: a file is missing or unreadable, or the weights do not fit the config.
    """
    config = read_config(folder)
    recipe, problem = config.recipe, config.problem
    if isinstance(recipe, SequenceRecipe) and isinstance(problem, SequenceProblem):
        network = networks.build(recipe.operator, problem)
        restore(network, folder / WEIGHTS)
        return SequenceCheckpoint(network.eval(), recipe, problem, read_json(folder / CARD), digest(folder))
    if isinstance(recipe, Recipe) and isinstance(problem, Problem):
        operator = build(recipe.operator)
        restore(operator, folder / WEIGHTS)
        return OperatorCheckpoint(operator.eval(), recipe, problem, read_json(folder / CARD), digest(folder))
    raise CheckpointError(f"{folder / CONFIG}: expected a recipe for {problem.name} but found one for {recipe.problem}")


def load_operator(folder: Path) -> OperatorCheckpoint:
    """Rebuild an operator between fields.

    Raises:
        CheckpointError: as `load`, or the checkpoint is one of sequences.
    """
    found = load(folder)
    if isinstance(found, SequenceCheckpoint):
        raise CheckpointError(f"{folder}: expected a checkpoint of fields but found one of {found.problem.name}")
    return found


def restore(operator: nn.Module, path: Path) -> None:
    """Load weights into an operator of the same shape.

    Raises:
        CheckpointError: names differ or a tensor has another shape.
    """
    if not path.is_file():
        raise CheckpointError(f"expected a file {path} but there is none")
    state, expected = load_file(path), operator.state_dict()
    if missing := sorted(expected.keys() ^ state.keys()):
        raise CheckpointError(f"{path}: tensors that only the file or only the config has: {', '.join(missing)}")
    for name, tensor in state.items():
        if tensor.shape != expected[name].shape:
            raise CheckpointError(
                f"{path}: expected {tuple(expected[name].shape)} for {name!r} but found {tuple(tensor.shape)}"
            )
    operator.load_state_dict(state)


def read_config(folder: Path) -> Config:
    """Read `config.json`, or say what is wrong with it."""
    try:
        return Config.model_validate(read_json(folder / CONFIG))
    except ValueError as error:
        raise CheckpointError(f"{folder / CONFIG}: {error}") from error


def digest(folder: Path) -> str:
    """Give the SHA-256 that identifies what a checkpoint computes."""
    return hashlib.sha256((folder / WEIGHTS).read_bytes() + (folder / CONFIG).read_bytes()).hexdigest()


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        CheckpointError: there is no such file, or it holds something else.
    """
    if not path.is_file():
        raise CheckpointError(f"expected a file {path} but there is none")
    try:
        document = json.loads(path.read_text())
    except json.JSONDecodeError as error:
        raise CheckpointError(f"{path}: {error}") from error
    if not isinstance(document, dict):
        raise CheckpointError(f"{path}: expected a JSON object but found {type(document).__name__}")
    return document


def write_json(path: Path, document: dict[str, Any]) -> None:
    """Write a JSON object aside and rename it."""
    aside = path.with_name(f".{path.name}")
    aside.write_text(json.dumps(document, indent=2) + "\n")
    aside.replace(path)
