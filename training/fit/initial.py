"""Weights that a training starts from: those of a checkpoint whose network computes the same with them.

Names and shapes of tensors say most of what a network computes, and not all: whether a field enters by its logarithm,
an activation, the heads of an attention, the time of a step. Weights go on where these are the same alone, since means
and deviations of the normalisers are taken with them and never trained.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from torch import nn

from training import checkpoint
from training.checkpoint import CheckpointError, some
from training.files import digest
from training.recipe import BaseRecipe

GRIDS = {"working", "grid", "output", "middle", "down_middle", "up_middle", "tokens", "band", "latent", "box", "mesh"}
SEEN = {"layers", "residual_blocks", "spectral", "unet", "blocks", "local"}  # in names of tensors, where they matter
#: Keys of a config that may differ: grids; numbers of layers; initial values; what evaluation alone does; a solver's
#: iterations, and for which coefficients its corrections are; integrals, which nothing is learned for. Rates of dropout
#: may, too.
FREE = GRIDS | SEEN | {"gain", "diagonal", "symmetric", "identical", "odd", "bounded", "damped", "length", "integrals"}
FREE |= {"steps", "refined", "coarsest", "contrast", "reach"}


def load(network: nn.Module, folder: Path, recipe: BaseRecipe) -> None:
    """Load the weights of a checkpoint folder into the network of a recipe.

    Layers that the checkpoint does not have keep their initial values, and a warning says which.

    Raises:
        CheckpointError: The folder is no checkpoint, or one of a network that computes something else.
    """
    theirs, ours = (
        dict(leaves(each.model_dump(mode="json")["operator"], ""))
        for each in (checkpoint.read_config(folder).recipe, recipe)
    )
    try:
        checkpoint.restore(network, folder / checkpoint.WEIGHTS, partly=True)
    except CheckpointError as error:
        raise CheckpointError(f"{error}; {unlike(theirs, ours)}") from error
    if keys := [key for key in theirs | ours if not is_free(key) and differs(theirs.get(key), ours.get(key))]:
        raise CheckpointError(
            f"{folder}: its weights have the names and shapes of those of the network and another meaning; "
            f"{unlike(theirs, ours, keys)}"
        )


def expect_unchanged(folder: Path, expected: str) -> None:
    """Require that a checkpoint folder holds the model of a digest, which a recipe starts from.

    Raises:
        CheckpointError: It holds another one, such as one that was trained or calibrated since.
    """
    if (found := digest(folder)) != expected:
        raise CheckpointError(
            f"{folder}: expected the earlier model that the training was begun with, of SHA-256 {expected}, but found "
            f"{found}: begin again without --resume"
        )


def is_free(key: str) -> bool:
    """Return whether networks that go on with the same weights may differ in a key."""
    name = key.rpartition(".")[2]
    return name in FREE or name.endswith("dropout")


def differs(first: Any, other: Any) -> bool:
    """Return whether two values differ; none, 0, false and a list of these say the same."""
    return (first if says(first) else None) != (other if says(other) else None)


def says(value: Any) -> bool:
    """Return whether a value is something else than none, 0, false or a list of these."""
    return any(map(says, value)) if isinstance(value, list) else bool(value)


def unlike(theirs: Mapping[str, Any], ours: Mapping[str, Any], keys: Iterable[str] = ()) -> str:
    """Return how a network differs from another one, in its sizes or in `keys`, and how to train one like it."""
    keys = [*keys] or [key for key, value in theirs.items() if is_size(key, value) and value != ours.get(key)]
    if not keys:
        return "its network is that of other inputs, parameters or outputs"
    said = some([f"{key} {theirs.get(key, 'none')} instead of {ours.get(key, 'none')}" for key in keys])
    settings = " ".join(f"--set {setting(f'operator.{key}', theirs.get(key))}" for key in keys)
    settings = f"--operator {theirs['kind']}" if "kind" in keys else settings
    return f"its network has {said}: train one like it, by its preset or {settings}"


def setting(key: str, value: Any) -> str:
    """Return a change `a.b=c` of a recipe, quoted for a shell where it has to be.

    Example:
        >>> print(setting("operator.working", [12, 16]), setting("operator.input_scales", ["log"]))
        operator.working=[12,16] 'operator.input_scales=["log"]'
    """
    said = f"{key}={value}" if isinstance(value, str) else f"{key}={json.dumps(value, separators=(',', ':'))}"
    return f"'{said}'" if '"' in said else said


def is_size(key: str, value: Any) -> bool:
    """Return whether a value is a size or a kind of a network, and does not follow from samples."""
    grid = key.rpartition(".")[2] == "working"
    return grid or (isinstance(value, int | str) and not isinstance(value, bool))


def leaves(document: Mapping[str, Any], lead: str) -> Iterable[tuple[str, Any]]:
    """Return the keys of a document behind a lead, `a.b` of one in a section `a`, and their values."""
    for key, value in document.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{lead}{key}.")
        else:
            yield f"{lead}{key}", value
