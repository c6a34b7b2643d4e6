"""The program that trains FNO on single steps of a built-in problem's trajectories.

It runs in neuraloperator's environment. Its loop is that of the comparison on own data; an interrupted training goes on
from its state on disk, which is written every two minutes. The request is JSON on the command line, the result JSON on the output.
"""

from __future__ import annotations

import json
import sys
import time
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.own_data.loop import Samples, Settings, cycle, keep_freed_memory, order, step
from benchmarks.trajectories.step_network import Shape, StepNetwork

KEPT_SECONDS = 120.0
"""Processor time between two states on disk."""
LOST = 1e3
"""The relative error of a rollout that overflows, as in `training.evaluation.rollouts`."""


def main(request: dict[str, Any]) -> dict[str, Any]:
    """Train, and measure rollouts of validation trajectories.

    Args:
        request: `file` with the arrays `state` [trajectory, frame, *grid] and `parameter` [trajectory] by these names,
            `held` (the numbers of validation and test trajectories, at the file's end in this order), `shape`, `batch`,
            `seconds` of processor time, `seed`, `frames` of the rollouts, and `weights`, the trained network's file.

    Returns:
        The mean relative L2 error over the frames, parameters, steps and seconds.
    """
    torch.set_num_threads(1)
    torch.manual_seed(request["seed"])
    network, samples, validation = prepared(request)
    settings = Settings(batch=request["batch"])
    used, steps = train(network, samples, settings, request["seconds"], request["seed"], Path(request["weights"]))
    errors = rollout_errors(network, *validation, request["frames"])
    parameters = sum(each.numel() * (2 if each.is_complex() else 1) for each in network.parameters())
    return {"error": errors.mean().item(), "parameters": parameters, "steps": steps, "seconds": used}


def prepared(request: dict[str, Any]) -> tuple[StepNetwork, Samples, tuple[Tensor, Tensor]]:
    """Return the network before training, single steps of the training trajectories, and validation trajectories."""
    with np.load(request["file"]) as file:
        states, numbers = (torch.from_numpy(file[request[name]]) for name in ("state", "parameter"))
    validation, test = request["held"]
    trained, held = slice(-validation - test), slice(-validation - test, -test)
    each = states.shape[1] - 1
    before, after = states[trained, :-1].flatten(0, 1), states[trained, 1:].flatten(0, 1)
    samples = Samples([before, numbers[trained].repeat_interleave(each)], after)
    network = StepNetwork(Shape(**request["shape"]), *samples.inputs, samples.output)
    return network, samples, (states[held], numbers[held])


def train(
    network: nn.Module, samples: Samples, settings: Settings, seconds: float, seed: int, weights: Path
) -> tuple[float, int]:
    """Train a network for some processor seconds, and write its weights.

    Args:
        network: The network, in physical units.
        samples: Single steps.
        settings: Rate, batch and decay.
        seconds: The processor time.
        seed: The seed of the order of the samples.
        weights: The file of the weights; beside it lies the state of an interrupted training.

    Returns:
        The seconds and steps.
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
    return before + used, steps


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
        np.savez(file, **{name: each.numpy() for name, each in arrays.items()})
    aside.replace(path)


@torch.no_grad()
def rollout_errors(network: nn.Module, truth: Tensor, numbers: Tensor, frames: int) -> Tensor:
    """Return the relative L2 error of every trajectory and frame."""
    found = rollout(network, truth[:, 0], numbers, frames).flatten(2)
    true = truth[:, 1 : 1 + frames].flatten(2)
    return ((found - true).norm(dim=2) / true.norm(dim=2)).nan_to_num(nan=LOST, posinf=LOST).clamp(max=LOST)


@torch.inference_mode()
def rollout(network: nn.Module, state: Tensor, numbers: Tensor, frames: int) -> Tensor:
    """Return the frames that follow, `[trajectory, frame, *grid]`."""
    network.eval()
    found = []
    for _ in range(frames):
        state = network(state, numbers)
        found.append(state)
    return torch.stack(found, dim=1)


class Rollout:
    """The rollouts of a trained network as the subject of a worker.

    Args:
        request: Of the training.
        start: A file with `state` [trajectory, *grid] and `parameter` [trajectory].
        frames: How many.
    """

    def __init__(self, request: dict[str, Any], start: str, frames: int) -> None:
        torch.set_num_threads(1)
        self.network, _, _ = prepared(request)
        self.frames = frames
        with np.load(request["weights"]) as file, torch.no_grad():
            for name, weight in self.network.named_parameters():
                weight.copy_(torch.from_numpy(file[name]))
        with np.load(start) as file:
            self.state, self.numbers = torch.from_numpy(file["state"]), torch.from_numpy(file["parameter"])
        self.facts: dict[str, Any] = {}

    def step(self) -> Tensor:
        """Roll out."""
        return rollout(self.network, self.state, self.numbers, self.frames)

    def write_output(self, file: str) -> None:
        """Write the frames."""
        np.save(file, self.step().numpy())


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
