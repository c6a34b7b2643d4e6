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
from training.data.noise import add_noise
from training.data.store import targets
from training.fit.loop.order import Rows


class Batch(NamedTuple):
    """Fields of some samples `[batch, *grid]` in physical units.

    Attributes:
        inputs: The inputs.
        outputs: The outputs, on the problem's output grid.
        gradients: The outputs' gradients if the loss needs them.
        stored: The outputs as they were read, for losses of operators; see `Samples`.
        parameters: `[batch]` per parameter of the problem.
        noise: The inputs' noise where they have any: the root mean square over the points of its deviation, `[batch]`.
    """

    inputs: Tensor
    outputs: Tensor
    gradients: Tensor | None = None
    stored: Tensor | None = None
    parameters: tuple[Tensor, ...] = ()
    noise: Tensor | None = None


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
    noise = None
    if augmentation.noise:
        levels = rng.choice(np.asarray(augmentation.noise, np.float32), len(inputs))
        normals = rng.standard_normal(inputs.shape, dtype=np.float32)
        inputs = torch.from_numpy(add_noise(inputs.numpy(), levels, source.deviation, normals))
        noise = torch.from_numpy(levels * np.sqrt(np.square(source.deviation).mean()))
    means = torch.from_numpy(targets(source.problem.description, outputs.numpy()))
    parameters = tuple(torch.from_numpy(each[chosen]) for each in source.parameters)
    return Batch(inputs, means, gradients, outputs, parameters, noise)
