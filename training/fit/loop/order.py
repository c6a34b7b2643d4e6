"""The order of the samples, and the random streams of a training run, as functions of the seed and the step.

A run that is killed and resumed at the end of an epoch therefore sees the data of an uninterrupted one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeVar

import numpy as np
from numpy.random import Generator, SeedSequence
from numpy.typing import NDArray
from torch.utils.data import Dataset

Rows = NDArray[np.int64]
Batch = TypeVar("Batch")


class Stream(IntEnum):
    """What random numbers are drawn for; each purpose has numbers of its own."""

    AUGMENTATION = 0
    DROPOUT = 1


def stream(seed: int, purpose: Stream, step: int, rank: int = 0) -> SeedSequence:
    """Return the seeds of one step; steps of different seeds share none, as sums of seed and step would.

    Args:
        seed: Of the run.
        purpose: What is drawn.
        step: Number of the batch.
        rank: Of the process, where each draws numbers of its own.
    """
    return SeedSequence(seed, spawn_key=(purpose, step, rank) if rank else (purpose, step))


def torch_seed(seed: int, step: int, rank: int = 0) -> int:
    """Return the seed of torch's generator, from which dropout is drawn, at a step of a process."""
    return int(stream(seed, Stream.DROPOUT, step, rank).generate_state(1, np.uint64)[0] >> np.uint64(1))


@dataclass(frozen=True)
class Order:
    """Which samples each batch holds.

    Passes over the samples follow one another without a break, each in an order of its own. An epoch is a number of
    batches.

    Attributes:
        samples: Number of training samples.
        batch: Samples of a batch.
        steps: Batches of an epoch.
        seed: Seed of all orders.
    """

    samples: int
    batch: int
    steps: int
    seed: int

    def epoch(self, number: int) -> Iterator[tuple[int, Rows]]:
        """Return the step and the sample numbers `[batch]` of every batch of an epoch."""
        first = number * self.steps
        order = rows(self.samples, first * self.batch, self.steps * self.batch, self.seed)
        return zip(range(first, first + self.steps), order.reshape(self.steps, self.batch), strict=True)


def rows(samples: int, start: int, count: int, seed: int) -> Rows:
    """Return `count` sample numbers from position `start` of all passes, one after another.

    Args:
        samples: Number of samples of a pass.
        start: Position of the first.
        count: How many.
        seed: Seed of the passes' orders.
    """
    first, last = start // samples, (start + count - 1) // samples
    passes = [np.random.default_rng([seed, number]).permutation(samples) for number in range(first, last + 1)]
    return np.concatenate(passes)[start - first * samples :][:count]


class Epoch(Dataset[Batch]):
    """The batches of one epoch by their position in it, so that several processes can make them.

    Args:
        order: Which samples each batch holds.
        number: Number of the epoch.
        draw: Makes a batch of sample numbers and a random generator.
    """

    def __init__(self, order: Order, number: int, draw: Callable[[Rows, Generator], Batch]) -> None:
        self.seed, self.batches, self.draw = order.seed, [*order.epoch(number)], draw

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, position: int) -> Batch:
        step, chosen = self.batches[position]
        return self.draw(chosen, np.random.default_rng(stream(self.seed, Stream.AUGMENTATION, step)))
