"""The loop of the comparison on own data for trainings that may be interrupted: its state is on disk.

The module needs torch and NumPy alone, because it runs in the environment of each network.
"""

from __future__ import annotations

import time
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.own_data.loop import Samples, Settings, Used, cycle, keep_freed_memory, order, step

if TYPE_CHECKING:
    from pathlib import Path

KEPT_SECONDS = 120.0
"""Processor time between two states on disk."""


def train(network: nn.Module, samples: Samples, settings: Settings, seconds: float, seed: int, weights: Path) -> Used:
    """Train a network for some processor seconds, and write its weights.

    Args:
        network: The network, in physical units.
        samples: Single steps.
        settings: Rate, batch and decay.
        seconds: The processor time.
        seed: The seed of the order of the samples.
        weights: The file of the weights; beside it lies the state of an interrupted training.
    """
    keep_freed_memory()
    optimiser = torch.optim.AdamW(network.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay)
    aside = weights.with_suffix(".part.npz")
    before, steps = restore(network, optimiser, aside) if aside.exists() else (0.0, 0)
    batches = islice(order(len(samples), settings.batch, seed), steps, None)
    started, kept = time.process_time(), 0.0
    while (used := time.process_time() - started) < seconds - before:
        for group in optimiser.param_groups:
            group["lr"] = settings.learning_rate * cycle((before + used) / seconds)
        step(network, optimiser, samples[next(batches)])
        steps += 1
        if used > kept + KEPT_SECONDS:
            kept = used
            keep(network, optimiser, aside, before + used, steps)
    write(weights, {name: each.detach() for name, each in network.named_parameters()})
    aside.unlink(missing_ok=True)
    return Used(before + used, steps)


def keep(network: nn.Module, optimiser: torch.optim.Optimizer, path: Path, seconds: float, steps: int) -> None:
    """Write the state of a training: weights, and the moments of the optimiser."""
    arrays = {"used": torch.tensor([seconds, steps], dtype=torch.float64)}
    for name, weight in network.named_parameters():
        arrays |= {f"weight {name}": weight.detach()}
        arrays |= {f"{key} {name}": each for key, each in optimiser.state[weight].items()}
    write(path, arrays)


def restore(network: nn.Module, optimiser: torch.optim.Optimizer, path: Path) -> tuple[float, int]:
    """Read what `keep` has written, and return the seconds and steps."""
    with np.load(path) as file, torch.no_grad():
        for name, weight in network.named_parameters():
            weight.copy_(torch.from_numpy(file[f"weight {name}"]))
            keys = ("step", "exp_avg", "exp_avg_sq")
            optimiser.state[weight] = {key: torch.from_numpy(file[f"{key} {name}"]) for key in keys}
        seconds, steps = file["used"]
    return float(seconds), int(steps)


def write(path: Path, arrays: dict[str, Tensor]) -> None:
    """Write arrays to a file that is never half written."""
    aside = path.with_suffix(".tmp")
    with aside.open("wb") as file:
        values = {name: each.numpy() for name, each in arrays.items()}
        np.savez(file, **values)  # type: ignore[arg-type] # its stub takes allow_pickle for an array
    aside.replace(path)
