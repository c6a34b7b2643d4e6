"""The program that trains one network: a request as JSON on its command line, the result as JSON on its output.

It runs in the environment of the network, so it imports the network's module only.
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any

import torch

from benchmarks.own_data.loop import Settings, measure, train
from benchmarks.own_data.samples import Prepared


def main(request: dict[str, Any]) -> dict[str, Any]:
    """Train a network and measure it.

    Args:
        request: `prepared` (see `Prepared`), `network` (a module of `networks`), `sizes` (of the network), `settings`
            (of the loop), `seconds`, `seed`, and `split` (`validation` or `test`), on which the network is measured.

    Returns:
        Mean and standard error of the relative L2 errors, samples measured, parameters, steps and processor seconds.
    """
    torch.set_num_threads(1)
    torch.manual_seed(request["seed"])
    prepared = Prepared.parse(request["prepared"])
    training, validation, test = prepared.read()
    module = importlib.import_module(f"benchmarks.own_data.networks.{request['network']}")
    network = module.build(prepared, training, **request["sizes"])
    used = train(network, training, Settings(**request["settings"]), request["seconds"], request["seed"])
    found = measure(network, {"validation": validation, "test": test}[request["split"]])
    return {
        "error": float(found.mean()),
        "standard_error": float(found.std() / len(found) ** 0.5),
        "samples": len(found),
        "parameters": sum(each.numel() for each in network.parameters()),
        "steps": used.steps,
        "epochs": used.steps * request["settings"]["batch"] / len(training),
        "seconds": used.seconds,
    }


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
