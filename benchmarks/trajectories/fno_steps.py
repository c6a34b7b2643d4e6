"""The program that trains FNO on single steps of a built-in problem's trajectories.

It runs in neuraloperator's environment. Its loop is that of the comparison on own data; an interrupted training goes
on. The request is JSON on the command line, the result JSON on the output.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.own_data.loop import Samples, Settings
from benchmarks.trajectories.resumable import train
from benchmarks.trajectories.step_network import Shape, StepNetwork

LOST = 1e3
"""The relative error of a rollout that overflows, as in `training.evaluation.norms`."""


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
    used = train(network, samples, settings, request["seconds"], request["seed"], Path(request["weights"]))
    errors = rollout_errors(network, *validation, request["frames"])
    parameters = sum(each.numel() * (2 if each.is_complex() else 1) for each in network.parameters())
    return {"error": errors.mean().item(), "parameters": parameters, "steps": used.steps, "seconds": used.seconds}


def prepared(request: dict[str, Any]) -> tuple[StepNetwork, Samples, tuple[Tensor, Tensor]]:
    """Return the network before training, single steps of the training trajectories, and validation trajectories."""
    with np.load(request["file"]) as file:
        states, numbers = (torch.from_numpy(file[request[name]]) for name in ("state", "parameter"))
    validation, test = request["held"]
    trained, held = slice(-validation - test), slice(-validation - test, -test)
    each = states.shape[1] - 1
    before, after = states[trained, :-1].flatten(0, 1), states[trained, 1:].flatten(0, 1)
    parameters = numbers[trained].repeat_interleave(each)
    network = StepNetwork(Shape(**request["shape"]), before, parameters, after)
    return network, Samples([before, parameters], after), (states[held], numbers[held])


@torch.no_grad()
def rollout_errors(network: nn.Module, truth: Tensor, numbers: Tensor, frames: int) -> Tensor:
    """Return the relative L2 error of every trajectory and frame."""
    found = rollout(network, truth[:, 0], numbers, frames).flatten(2)
    true = truth[:, 1 : 1 + frames].flatten(2)
    errors: Tensor = (found - true).norm(dim=2) / true.norm(dim=2)
    return errors.nan_to_num(nan=LOST, posinf=LOST).clamp(max=LOST)


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
