"""Batches of fields: some samples on one grid, moved by symmetries and measured with noise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.random import Generator
from torch import Tensor

from training.data import Samples
from training.data.noise import measured
from training.data.store import targets
from training.fit.order import Rows


class Batch(NamedTuple):
    """Fields of some samples `[batch, *grid]` in physical units.

    Attributes:
        inputs: The inputs.
        outputs: The outputs, on the problem's output grid.
        gradients: The outputs' gradients if the loss needs them.
        stored: The outputs as they were read, for losses of operators; see `Samples`.
        parameters: `[batch]` per parameter of the problem.
    """

    inputs: Tensor
    outputs: Tensor
    gradients: Tensor | None = None
    stored: Tensor | None = None
    parameters: tuple[Tensor, ...] = ()


@dataclass(frozen=True)
class Augmentation:
    """What is drawn at random for every sample of a batch.

    Attributes:
        symmetries: Whether samples are moved by a random symmetry.
        noise: Levels to draw each sample's noise from, in units of the inputs' deviation; none where empty.
    """

    symmetries: bool
    noise: tuple[float, ...] = ()


def draw(samples: Mapping[int, Samples], augmentation: Augmentation, chosen: Rows, rng: Generator) -> Batch:
    """Return samples on a drawn grid, each moved by a symmetry of its own, then measured.

    Args:
        samples: The same samples on each grid, by points per axis.
        augmentation: What is drawn for every sample.
        chosen: Numbers of the samples, `[batch]`.
        rng: Generator of all that is drawn.
    """
    source, chosen = samples[int(rng.choice(list(samples)))], np.sort(chosen)
    inputs, outputs = torch.from_numpy(source.inputs[chosen]), torch.from_numpy(source.outputs[chosen])
    gradients = None if source.gradients is None else torch.from_numpy(source.gradients[chosen])
    if augmentation.symmetries:
        inputs, outputs = source.problem.move((inputs, outputs), rng)
        gradients = None  # of the outputs before they were moved
    if augmentation.noise:
        inputs = torch.from_numpy(measured(inputs.numpy(), source.deviation, augmentation.noise, rng))
    means = torch.from_numpy(targets(source.problem.description, outputs.numpy()))
    return Batch(inputs, means, gradients, outputs, tuple(torch.from_numpy(each[chosen]) for each in source.parameters))
