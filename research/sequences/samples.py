"""Sequences of tokens of any lengths with their labels, and padded batches of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

UNLABELLED = -100  # where a padded token has no label; torch's cross-entropy leaves it out

Tokens = NDArray[np.integer[Any]]


class SequenceBatch(NamedTuple):
    """Tokens `[batch, length]` INT32 by input, 0 as padding, and labels `[batch]` or `[batch, length]`."""

    inputs: tuple[Tensor, ...]
    labels: Tensor


@dataclass(frozen=True)
class Sequences:
    """Samples of a problem.

    Attributes:
        inputs: The tokens `[length]` of every sample, for each of the problem's inputs.
        labels: The class of every sample, `[]`, or of every token of it, `[length]`.
    """

    inputs: tuple[tuple[Tokens, ...], ...]
    labels: tuple[NDArray[np.int64], ...]

    def __post_init__(self) -> None:
        if {len(tokens) for tokens in self.inputs} != {len(self.labels)}:
            raise ValueError(f"expected one label per sample but got {[*map(len, self.inputs)]} and {len(self.labels)}")

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each sample, of all its inputs together: `[sample]`."""
        return np.array([[len(tokens) for tokens in one] for one in self.inputs], dtype=np.int64).sum(axis=0)

    def batch(self, rows: Sequence[int] | NDArray[np.int64]) -> SequenceBatch:
        """Return some samples, each input padded to the longest among them."""
        inputs = tuple(pad([one[row] for row in rows], 0).to(torch.int32) for one in self.inputs)
        return SequenceBatch(inputs, pad([self.labels[row] for row in rows], UNLABELLED))

    def batches(self, size: int) -> Iterator[SequenceBatch]:
        """Return all samples in batches, in their order."""
        return map(self.batch, split(np.arange(len(self)), size))

    def by_length(self, size: int) -> Iterator[SequenceBatch]:
        """Return all samples in batches of alike length, where padding is least."""
        return map(self.batch, split(np.argsort(self.lengths, kind="stable"), size))


def split(order: NDArray[np.int64], size: int) -> list[NDArray[np.int64]]:
    """Cut an order into parts of a size, and a rest."""
    return [order[start : start + size] for start in range(0, len(order), size)]


def pad(arrays: Sequence[NDArray[np.integer[Any]]], value: int) -> Tensor:
    """Stack arrays `[length]`, filled up with a value at the end, as `[array, longest]`; or numbers as `[array]`."""
    if arrays[0].ndim == 0:
        return torch.tensor([int(number) for number in arrays])
    padded = np.full((len(arrays), max(map(len, arrays))), value, dtype=np.int64)
    for row, array in zip(padded, arrays, strict=True):
        row[: len(array)] = array
    return torch.from_numpy(padded)
