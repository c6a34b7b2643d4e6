"""Triton backend `pytorch`: run a traced `model.pt`.

Where NVIDIA's C++ backend of that name is missing, Triton finds this file in its backend directory and runs with it
every model whose config says `backend: "pytorch"`. The config has the meaning that it has for the C++ backend:
`default_model_filename` and the parameters `INTRA_OP_THREAD_COUNT`, `INTER_OP_THREAD_COUNT`,
`DISABLE_OPTIMIZED_EXECUTION`, `INFERENCE_MODE`.

Names of tensors follow the C++ backend's rules (pytorch_backend, `GetNamingConvention`). Inputs: the arguments of
`forward`, else `NAME__INDEX`, else the order of the config. Outputs: `NAME__INDEX`, else the order of the config. The
names of the ONNX model, `coefficient` and `solution`, work here if the argument of `forward` is `coefficient`.

It runs in Triton's own interpreter and imports nothing of ours but `batching.py`, which is copied beside it.
"""  # noqa: INP001 - a folder for Triton, not a package

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from batching import in_pieces, respond  # type: ignore[import-not-found]  # found by Triton's interpreter
from torch.jit import optimized_execution  # type: ignore[attr-defined]  # documented, but left out of __all__

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

# Triton's arrays are read-only views of its shared memory; torch has no read-only tensors, and the module only reads.
warnings.filterwarnings("ignore", message="The given NumPy array is not writable")


class TritonPythonModel:
    """One instance of one version of one model."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the version's module.

        Args:
            args: Triton's arguments; `model_repository` is the model's own folder, `model_config` JSON.
        """
        config = json.loads(args["model_config"])
        parameters = {name: value["string_value"] for name, value in config["parameters"].items()}
        set_threads(parameters)
        file = Path(args["model_repository"], args["model_version"], config["default_model_filename"] or "model.pt")
        self.device = torch.device(
            f"cuda:{args['model_instance_device_id']}" if args["model_instance_kind"] == "GPU" else "cpu"
        )
        self.module = torch.jit.load(file, map_location=self.device).eval()
        self.optimised = not enabled(parameters, "DISABLE_OPTIMIZED_EXECUTION", "false")
        self.inference_mode = enabled(parameters, "INFERENCE_MODE", "true")
        self.inputs = in_order(names(config["input"]), self.module.forward.schema.arguments[1:])
        self.outputs = in_order(names(config["output"]), [])
        self.batched = config["max_batch_size"] > 0
        self.piecewise = self.batched and args["model_instance_kind"] != "GPU"

    def execute(self, requests: list[Any]) -> list[Any]:
        """Return the responses to the requests of one batch, in their order."""
        run = in_pieces(self.run) if self.piecewise else self.run
        responses: list[Any] = respond(requests, run, self.inputs, self.outputs, batched=self.batched)
        return responses

    def run(self, arrays: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        """Run the module: inputs and outputs in its own order."""
        tensors = [torch.from_numpy(array).to(self.device) for array in arrays]
        with torch.inference_mode(self.inference_mode), optimized_execution(self.optimised):
            results = self.module(*tensors)
        results = (results,) if isinstance(results, torch.Tensor) else results
        return [result.cpu().numpy() for result in results]


def set_threads(parameters: dict[str, str]) -> None:
    """Set the threads of this instance, which is a process of its own."""
    if "INTRA_OP_THREAD_COUNT" in parameters:
        torch.set_num_threads(int(parameters["INTRA_OP_THREAD_COUNT"]))
    if "INTER_OP_THREAD_COUNT" in parameters:
        torch.set_num_interop_threads(int(parameters["INTER_OP_THREAD_COUNT"]))


def enabled(parameters: dict[str, str], name: str, default: str) -> bool:
    """Return whether a flag is set, as the C++ backend reads it.

    Args:
        parameters: The config's parameters.
        name: Name of the flag.
        default: Its value where the config has none.
    """
    return parameters.get(name, default).lower() in {"true", "1"}


def names(tensors: list[dict[str, Any]]) -> list[str]:
    """Return the names of the config's tensors, in its order."""
    return [tensor["name"] for tensor in tensors]


def in_order(wanted: list[str], arguments: list[Any]) -> list[str]:
    """Return names in the order of the module: that of its arguments if they match, else by index, else unchanged."""
    known = [argument.name for argument in arguments]
    if set(wanted) == set(known):
        return known
    indices = {name: int(found[1]) for name in wanted if (found := re.search(r"__(\d+)$", name))}
    return sorted(wanted, key=indices.__getitem__) if len(indices) == len(wanted) else wanted
