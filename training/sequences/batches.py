"""The order of training: takes samples, gives batches that depend on (seed, number of the batch) alone.

Passes over the samples follow one another without a break, each in an order of its own; an epoch is a number of
batches, not a pass. A run that is killed and resumed at an epoch's boundary sees the data of an uninterrupted one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import IterableDataset

from training.sequences.samples import SequenceBatch, Sequences


@dataclass(frozen=True)
class Plan:
    """How batches are drawn: samples in one, batches of an epoch, and the seed of all orders."""

    batch: int
    steps: int
    seed: int


class Epoch(IterableDataset[SequenceBatch]):
    """The batches of one epoch."""

    def __init__(self, samples: Sequences, plan: Plan, epoch: int) -> None:
        self.samples, self.plan, self.epoch = samples, plan, epoch

    def __len__(self) -> int:
        return self.plan.steps

    def __iter__(self) -> Iterator[SequenceBatch]:
        size, steps = self.plan.batch, self.plan.steps
        order = rows(len(self.samples), size * steps * self.epoch, size * steps, self.plan.seed)
        for start in range(0, len(order), size):
            yield self.samples.batch(order[start : start + size])


def rows(samples: int, start: int, count: int, seed: int) -> NDArray[np.int64]:
    """Give `count` rows from place `start` on of all passes in a line."""
    first, last = start // samples, (start + count - 1) // samples
    passes = [np.random.default_rng([seed, number]).permutation(samples) for number in range(first, last + 1)]
    return np.concatenate(passes)[start - first * samples :][:count]


def by_length(samples: Sequences, size: int) -> Iterator[SequenceBatch]:
    """Give all samples in batches of alike length, where padding is least."""
    order = np.argsort(samples.lengths, kind="stable")
    for start in range(0, len(order), size):
        yield samples.batch(order[start : start + size])
