"""Stored examples of a model version: test samples with their truth, in `examples.safetensors` of its folder.

The names of the tensors are the wire names of inputs and outputs (`labels` for a model of sequences); the first axis
counts the samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors

from serving import regular_file
from serving.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from serving.catalogue.card import Card

FILE = "examples.safetensors"
MAX_BYTES = 256 * 2**20  # ours have a third of a megabyte


@dataclass(frozen=True)
class Example:
    """One sample.

    Attributes:
        inputs: Arrays by input name.
        outputs: The true outputs by name, where they are known.
        count: How many samples are stored; None for a sample that is not.
    """

    inputs: Mapping[str, NDArray[Any]]
    outputs: Mapping[str, NDArray[Any]] | None = None
    count: int | None = None


def load(repository: Path, card: Card, index: int) -> Example:
    """Return one stored example of a version.

    Args:
        repository: The model repository.
        card: The version's card.
        index: Which of its samples.

    Raises:
        Problem: no-example: The version has no stored examples, or none that fits its card.
        Problem: invalid-parameter: It has fewer samples.
    """
    try:
        samples = load_tensors(regular_file.read(_path(repository, card), MAX_BYTES))
        inputs = {name: samples.pop(name) for name in card.names if name in samples or name not in card.optional}
    except (OSError, ValueError, SafetensorError, KeyError) as error:
        raise Problem("no-example", f'"{card.model}" version {card.version} has no stored examples') from error
    count = min(len(array) for array in (*inputs.values(), *samples.values()))
    if index >= count:
        raise Problem("invalid-parameter", f"index is {index}; the model has {count} stored examples, counted from 0")
    return Example(
        {name: array[index] for name, array in inputs.items()},
        {name: array[index] for name, array in samples.items()},
        count,
    )


def _path(repository: Path, card: Card) -> Path:
    return repository / card.model / str(card.version) / FILE
