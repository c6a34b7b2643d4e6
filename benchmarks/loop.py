r"""The training loop that all networks of the comparisons share, and how their errors are measured.

AdamW or Muon under one cycle of the learning rate on the mean relative L2 error. The rate is a function of the
processor time that has been used, so that every network gets the same time to the second:

.. math::
    r(s) = r_{\max}\min\bigl(s/w,\ \tfrac12(1 + \cos\pi\tfrac{s - w}{1 - w})\bigr),

s the used share of the time and w = 0.15. The module needs torch and NumPy alone, because it runs in the environment of
each network.
"""

from __future__ import annotations

import copy
import ctypes
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from training.optimisation import Muon

WARMUP, LEAST = 0.15, 1e-3  # shares of the time and of the highest rate
CLIP, MEASURED_BATCH = 1.0, 50
CHECKS = 20  # of the error on samples that are held apart, in a training that keeps the best weights
LOST = 1e3  # the relative error of a rollout that overflows, as in the evaluation of trained models
PETROV, WITH_ADAMW = "Petrov", "Petrov with AdamW"
#: The networks that `fit` trains instead of this loop, and what differs from the preset in them.
OURS: dict[str, dict[str, Any]] = {PETROV: {}, WITH_ADAMW: {"optimiser": "adamw", "cycle_momentum": True}}


@dataclass(frozen=True)
class Settings:
    """What is chosen per network: the highest rate, the batch, weight decay, the optimiser, and what is averaged."""

    learning_rate: float = 2e-3
    batch: int = 16
    weight_decay: float = 1e-4
    optimiser: Literal["adamw", "muon"] = "adamw"
    half_life: float = 0.0  # of the exponential mean of the weights that is measured, in trainings; 0 for no mean

    def build_optimiser(self, network: nn.Module) -> torch.optim.Optimizer:
        """Return the optimiser of a network."""
        if self.optimiser == "muon":
            return Muon(network, self.learning_rate, self.weight_decay)
        return torch.optim.AdamW(network.parameters(), self.learning_rate, weight_decay=self.weight_decay)


def settings_of_rates(batch: int, adamw: Iterable[float], muon: Iterable[float]) -> list[dict[str, Any]]:
    """Return the settings that a network is tuned over, as rows of results have them: a rate with either optimiser."""
    rates: list[dict[str, Any]] = [{"learning_rate": rate, "batch": batch} for rate in adamw]
    return rates + [{"learning_rate": rate, "batch": batch, "optimiser": "muon"} for rate in muon]


@dataclass(frozen=True)
class Samples:
    """Input fields and parameters in the order of a network's arguments, and one output field.

    On grids an output, and each input of as many axes, may have several components, on its last axis.
    """

    inputs: Sequence[Tensor]
    output: Tensor
    components: int = 0  # of the output; 0 where it has no axis for them

    def __getitem__(self, rows: Tensor | slice) -> Samples:
        return Samples([each[rows] for each in self.inputs], self.output[rows], self.components)

    @property
    def grid(self) -> tuple[int, ...]:
        """The sides of the grid."""
        return tuple(self.output.shape[1:-1] if self.components else self.output.shape[1:])

    @property
    def parts(self) -> list[Tensor]:
        """Every component of every input, `[sample, *grid]`, and the parameters `[sample]`."""
        return parted(self.inputs, len(self.grid))

    def __len__(self) -> int:
        return len(self.output)


def parted(inputs: Sequence[Tensor], axes: int) -> list[Tensor]:
    """Return every component of fields on a grid of so many axes, and the parameters, one by one."""
    return [part for each in inputs for part in (each.unbind(dim=-1) if each.ndim > axes + 1 else (each,))]


def errors(network: nn.Module, samples: Samples) -> Tensor:
    """Return the relative L2 error of every sample, of several components the mean."""
    return relative(network(*samples.inputs), samples.output, 1, samples.components)


def relative(found: Tensor, truth: Tensor, leading: int, components: int = 0) -> Tensor:
    """Return the relative L2 error for every index of the leading axes, the mean over components of the last axis."""
    fields = [(each if components else each[..., None]).flatten(leading, -2) for each in (found - truth, truth)]
    apart, size = (each.norm(dim=leading) for each in fields)
    means: Tensor = (apart / size).mean(dim=-1)
    return means


@torch.no_grad()
def measure(network: nn.Module, samples: Samples) -> Tensor:
    """Return the relative L2 error of every sample, in evaluation."""
    network.eval()
    return torch.cat([errors(network, samples[rows]) for rows in torch.arange(len(samples)).split(MEASURED_BATCH)])


def figures(found: Tensor, facts: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a training: its errors `[sample]`, their mean and standard error, and its facts."""
    summary = {"error": float(found.mean()), "standard_error": float(found.std() / len(found) ** 0.5)}
    return summary | {"samples": len(found)} | facts | {"errors": [float(f"{each:.4g}") for each in found.tolist()]}


def train(
    network: nn.Module,
    samples: Samples,
    settings: Settings,
    seconds: float,
    seed: int,
    move: Callable[[Samples], Samples] | None = None,
    held: Samples | None = None,
) -> tuple[float, int]:
    """Train a network on batches that `move` has augmented, as `descend` does."""
    batches = order(len(samples), settings.batch, seed)

    def objective() -> Tensor:
        batch = samples[next(batches)]
        return errors(network, batch if move is None else move(batch)).mean()

    return descend(network, settings, seconds, objective, held)


def descend(
    network: nn.Module,
    settings: Settings,
    seconds: float,
    objective: Callable[[], Tensor],
    held: Samples | None = None,
) -> tuple[float, int]:
    """Train a network by the losses of the batches that `objective` draws: the loop of all networks.

    Where samples are held apart, the network keeps the weights that have the least error on them, of `CHECKS` times of
    the training; measuring it counts as none of its time.

    Returns:
        The processor seconds and the steps that it took.
    """
    tune = ctypes.CDLL(None).mallopt
    for threshold in (-1, -3):  # the C library keeps freed memory, for every network alike (glibc's malloc.h)
        tune(threshold, 2**31 - 1)
    optimiser = settings.build_optimiser(network)
    steps, started = 0, time.process_time()
    means, last = [each.detach().clone() for each in network.parameters()], 0.0
    least, kept, checked = math.inf, copy.deepcopy(network.state_dict()), 0
    while (used := time.process_time() - started) < seconds:
        for group in optimiser.param_groups:
            group["lr"] = settings.learning_rate * cycle(used / seconds)
        step(network, optimiser, objective())
        steps += 1
        trained = time.process_time() - started
        if held is not None and trained >= seconds * (checked + 1) / CHECKS:
            checked, found = int(CHECKS * trained / seconds), float(measure(network, held).mean())
            if found < least:
                least, kept = found, copy.deepcopy(network.state_dict())
            network.train()
            started = time.process_time() - trained
        if settings.half_life:  # by the time that has passed, so that a slow network forgets as fast
            weight = 1 - 0.5 ** ((used - last) / (settings.half_life * seconds))
            last = used
            torch._foreach_lerp_(means, [each.detach() for each in network.parameters()], weight)
    if settings.half_life:
        with torch.no_grad():
            for parameter, mean in zip(network.parameters(), means, strict=True):
                parameter.copy_(mean)
    if held is not None:
        network.load_state_dict(kept)
    return used, steps


def cycle(share: float) -> float:
    """Return the share of the highest rate; see the formula of the module."""
    rising, falling = share / WARMUP, (1 + math.cos(math.pi * (share - WARMUP) / (1 - WARMUP))) / 2
    return max(LEAST, rising if share < WARMUP else falling)


def order(samples: int, batch: int, seed: int) -> Iterator[Tensor]:
    """Yield batches of the numbers of samples without end, each epoch in an order of its own."""
    rng = np.random.default_rng(seed)
    while True:
        yield from torch.from_numpy(rng.permutation(samples)).split(batch)


def step(network: nn.Module, optimiser: torch.optim.Optimizer, loss: Tensor) -> None:
    """Make one step."""
    optimiser.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(network.parameters(), CLIP)
    optimiser.step()
