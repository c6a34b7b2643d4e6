r"""The training loop that all networks of the comparison share.

AdamW under one cycle of the learning rate on the mean relative L2 error. The rate is a function of the processor time
that has been used, so that every network gets the same time to the second:

.. math::
    r(s) = r_{\max}\min\bigl(s/w,\ \tfrac12(1 + \cos\pi\tfrac{s - w}{1 - w})\bigr),

s the used share of the time and w = 0.15. The module needs torch and NumPy alone, because it runs in the environment of
each network.
"""

from __future__ import annotations

import ctypes
import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

WARMUP, LEAST = 0.15, 1e-3  # shares of the time and of the highest rate
CLIP = 1.0
MEASURED_BATCH = 50


@dataclass(frozen=True)
class Settings:
    """What is chosen per network: the highest rate, the batch and the weight decay."""

    learning_rate: float = 2e-3
    batch: int = 16
    weight_decay: float = 1e-4


@dataclass(frozen=True)
class Samples:
    """Input fields and parameters in the order of a network's arguments, and one output field."""

    inputs: Sequence[Tensor]
    output: Tensor

    def __getitem__(self, rows: Tensor | slice) -> Samples:
        return Samples([each[rows] for each in self.inputs], self.output[rows])

    def __len__(self) -> int:
        return len(self.output)


@dataclass(frozen=True)
class Used:
    """What a training has used: processor seconds and steps."""

    seconds: float
    steps: int


def errors(network: nn.Module, samples: Samples) -> Tensor:
    """Return the relative L2 error of every sample."""
    found: Tensor = network(*samples.inputs)
    relative: Tensor = (found - samples.output).flatten(1).norm(dim=1) / samples.output.flatten(1).norm(dim=1)
    return relative


def train(network: nn.Module, samples: Samples, settings: Settings, seconds: float, seed: int) -> Used:
    """Train a network for some processor seconds.

    Args:
        network: The network, in physical units.
        samples: The training samples.
        settings: Rate, batch and decay.
        seconds: The processor time.
        seed: The seed of the order of the samples.
    """
    keep_freed_memory()
    optimiser = torch.optim.AdamW(network.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay)
    batches = order(len(samples), settings.batch, seed)
    started, steps = time.process_time(), 0
    while (share := (time.process_time() - started) / seconds) < 1:
        for group in optimiser.param_groups:
            group["lr"] = settings.learning_rate * cycle(share)
        step(network, optimiser, samples[next(batches)])
        steps += 1
    return Used(time.process_time() - started, steps)


def cycle(share: float) -> float:
    """Return the share of the highest rate; see the formula of the module."""
    rising, falling = share / WARMUP, (1 + math.cos(math.pi * (share - WARMUP) / (1 - WARMUP))) / 2
    return max(LEAST, rising if share < WARMUP else falling)


def order(samples: int, batch: int, seed: int) -> Iterator[Tensor]:
    """Return batches of the numbers of samples without end, each epoch in an order of its own."""
    rng = np.random.default_rng(seed)
    while True:
        yield from torch.from_numpy(rng.permutation(samples)).split(batch)


def step(network: nn.Module, optimiser: torch.optim.Optimizer, batch: Samples) -> None:
    """Make one step."""
    optimiser.zero_grad()
    errors(network, batch).mean().backward()
    nn.utils.clip_grad_norm_(network.parameters(), CLIP)
    optimiser.step()


@torch.no_grad()
def measure(network: nn.Module, samples: Samples) -> Tensor:
    """Return the relative L2 error of every sample, in evaluation."""
    network.eval()
    return torch.cat([errors(network, samples[rows]) for rows in torch.arange(len(samples)).split(MEASURED_BATCH)])


def keep_freed_memory() -> None:
    """Let the C library keep freed memory, as `training.fit.loop.allocator` does, for every network alike."""
    tune = ctypes.CDLL(None).mallopt
    for threshold in (-1, -3):  # of trimming and of mapping, in glibc's malloc.h
        tune(threshold, 2**31 - 1)
