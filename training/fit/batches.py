"""The order of training: takes samples on one or more grids, gives batches that depend on (seed, epoch) alone.

A run that is killed and resumed at an epoch's boundary therefore sees the data of an uninterrupted one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import IterableDataset

from training.data import Samples
from training.data.noise import add_noise
from training.data.store import answer
from training.problems.symmetries import transform


class Batch(NamedTuple):
    """Fields of some samples `[batch, *grid]` in physical units; the outputs' gradients if the loss asks for them."""

    inputs: Tensor
    outputs: Tensor
    gradients: Tensor | None = None


@dataclass(frozen=True)
class Plan:
    """How batches are drawn.

    Attributes:
        batch: samples in one.
        seed: of all that is drawn.
        symmetries: whether samples are moved by a random symmetry.
        noise: levels to draw each sample's noise from, in units of the inputs' deviation; none where empty.
    """

    batch: int
    seed: int
    symmetries: bool
    noise: tuple[float, ...] = ()


class Epoch(IterableDataset[Batch]):
    """One pass over the samples in a drawn order, every batch on one drawn grid; an incomplete last one is left out.

    Args:
        samples: the same samples on each grid, by points per axis.
        plan: how batches are drawn.
        epoch: number of the pass.
    """

    def __init__(self, samples: Mapping[int, Samples], plan: Plan, epoch: int) -> None:
        self.samples, self.plan, self.epoch = samples, plan, epoch

    def __len__(self) -> int:
        return steps(self.samples, self.plan)

    def __iter__(self) -> Iterator[Batch]:
        rng = np.random.default_rng([self.plan.seed, self.epoch])
        order = rng.permutation(count(self.samples))
        for start in range(0, len(self) * self.plan.batch, self.plan.batch):
            yield self.draw(np.sort(order[start : start + self.plan.batch]), rng)

    def draw(self, rows: NDArray[np.int64], rng: Generator) -> Batch:
        """Give the samples `rows` on a drawn grid, each moved by a symmetry of its own, then measured."""
        samples = self.samples[int(rng.choice(list(self.samples)))]
        inputs, outputs = torch.from_numpy(samples.inputs[rows]), torch.from_numpy(samples.outputs[rows])
        gradients = None if samples.gradients is None else torch.from_numpy(samples.gradients[rows])
        if self.plan.symmetries:
            inputs, outputs, gradients = *transform(samples.problem, inputs, outputs, rng), None
        if self.plan.noise:
            inputs = measured(inputs, samples.deviation, self.plan.noise, rng)
        return Batch(inputs, torch.from_numpy(answer(samples.problem, outputs.numpy())), gradients)


def measured(inputs: Tensor, deviation: NDArray[np.float32], levels: tuple[float, ...], rng: Generator) -> Tensor:
    """Give inputs `[batch, *grid]` with fresh noise, each of a level of its own."""
    drawn = rng.choice(np.asarray(levels, dtype=np.float32), len(inputs))
    normals = rng.standard_normal(inputs.shape, dtype=np.float32)
    return torch.from_numpy(add_noise(inputs.numpy(), drawn, deviation, normals))


def steps(samples: Mapping[int, Samples], plan: Plan) -> int:
    """Give the number of batches in an epoch."""
    return count(samples) // plan.batch


def count(samples: Mapping[int, Samples]) -> int:
    """Give the number of samples, the same on every grid."""
    return len(next(iter(samples.values())).inputs)
