"""The program that trains neuraloperator's FNO on single steps and rolls it out, in neuraloperator's environment.

Its loop is that of the comparison on own data: AdamW under one cycle of the rate, which depends on the processor time.
The request is JSON on the command line, the result JSON on the output.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import torch
from neuralop.models import FNO
from torch import Tensor, nn

from benchmarks.own_data.loop import Samples, Settings, train
from benchmarks.own_data.networks.channels import ChannelNetwork

MODES, CHANNELS, LAYERS, WIDE = 24, 32, 4, 64


def main(request: dict[str, Any]) -> dict[str, Any]:
    """Train and measure.

    Args:
        request: `file` with `u` [trajectory, frame, point], `held` (trajectories that are kept apart for validation
            and, after them, for the test), `seconds` of processor time, `seed`, and `split`, on which it is measured.

    Returns:
        The mean relative L2 error of every frame, parameters, steps and seconds.
    """
    torch.set_num_threads(1)
    torch.manual_seed(request["seed"])
    u = torch.from_numpy(np.load(request["file"])["u"])
    held = request["held"]
    training, validation, test = u[: -2 * held], u[-2 * held : -held], u[-held:]
    steps = Samples([training[:, :-1].flatten(0, 1)], training[:, 1:].flatten(0, 1))
    network = ChannelNetwork(
        FNO(
            n_modes=(MODES,),
            hidden_channels=CHANNELS,
            in_channels=2,
            out_channels=1,
            n_layers=LAYERS,
            lifting_channels=WIDE,
            projection_channels=WIDE,
        ),
        steps,
    )
    used = train(network, steps, Settings(), request["seconds"], request["seed"])
    errors = rollout_errors(network, {"validation": validation, "test": test}[request["split"]])
    parameters = sum(each.numel() for each in network.parameters())
    return {"errors": errors, "parameters": parameters, "steps": used.steps, "seconds": used.seconds}


@torch.no_grad()
def rollout_errors(network: nn.Module, truth: Tensor) -> list[float]:
    """Return the mean relative L2 error of every frame after the first of `[trajectory, frame, point]`."""
    network.eval()
    state, found = truth[:, 0], []
    for frame in truth[:, 1:].unbind(1):
        state = network(state)
        found.append(float(((state - frame).norm(dim=1) / frame.norm(dim=1)).mean()))
    return found


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
