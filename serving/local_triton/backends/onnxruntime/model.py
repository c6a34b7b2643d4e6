"""Triton backend `onnxruntime`: run a plain `model.onnx`.

Where NVIDIA's C++ backend of that name is missing, Triton finds this file in its backend directory and runs with it
every model whose config says `backend: "onnxruntime"`. The config has the meaning that it has for the C++ backend:
`default_model_filename` and the parameters `intra_op_thread_count`, `inter_op_thread_count`, `execution_mode`
(1: parallel), `enable_mem_arena`, `enable_mem_pattern`. Names of tensors are those of the graph.

It runs in Triton's own interpreter and imports nothing of ours but `batching.py`, which is copied beside it.
"""  # noqa: INP001 - a folder for Triton, not a package

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # else it reports to Microsoft; read when it is imported

import onnxruntime
from batching import in_pieces, respond  # type: ignore[import-not-found]  # found by Triton's interpreter

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np


class TritonPythonModel:
    """One instance of one version of one model."""

    def initialize(self, args: dict[str, str]) -> None:
        """Open the session on the version's graph.

        Args:
            args: Triton's arguments; `model_repository` is the model's own folder, `model_config` JSON.

        Raises:
            ValueError: The config names a tensor that the graph does not have.
        """
        config = json.loads(args["model_config"])
        file = Path(args["model_repository"], args["model_version"], config["default_model_filename"] or "model.onnx")
        parameters = {name: value["string_value"] for name, value in config["parameters"].items()}
        self.session = onnxruntime.InferenceSession(file, options(parameters), providers=providers(args))
        self.inputs = names(config["input"], self.session.get_inputs(), file)
        self.outputs = names(config["output"], self.session.get_outputs(), file)
        self.batched = config["max_batch_size"] > 0
        self.piecewise = self.batched and args["model_instance_kind"] != "GPU"

    def execute(self, requests: list[Any]) -> list[Any]:
        """Return the responses to the requests of one batch, in their order."""
        run = in_pieces(self.run) if self.piecewise else self.run
        responses: list[Any] = respond(requests, run, self.inputs, self.outputs, batched=self.batched)
        return responses

    def run(self, arrays: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        """Run the graph: inputs and outputs in the order of the config."""
        return self.session.run(self.outputs, dict(zip(self.inputs, arrays, strict=True)))  # type: ignore[no-any-return]


def options(parameters: dict[str, str]) -> onnxruntime.SessionOptions:
    """Return the session options that the parameters request; ONNX Runtime's defaults for the others.

    The arena is on by default, and good for mixed grids, too: over 24 batches of 37 x 37 to 421 x 421 values through
    six convolutions the process stayed at 132 MiB with it and reached 458 MiB without, at the same speed.

    Threads do not spin while they wait: a model's instances share the cores with each other and with the gateway. Where
    two virtual cores shared one core, spinning made a prediction of `darcy` take 40 ms on two threads instead of 26.
    """
    session = onnxruntime.SessionOptions()
    session.log_severity_level = 3  # errors only: its warnings would fill the server's log at every load
    session.intra_op_num_threads = int(parameters.get("intra_op_thread_count", "0"))
    session.inter_op_num_threads = int(parameters.get("inter_op_thread_count", "0"))
    session.execution_mode = onnxruntime.ExecutionMode(int(parameters.get("execution_mode", "0")))
    session.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session.enable_cpu_mem_arena = parameters.get("enable_mem_arena", "1") == "1"
    session.enable_mem_reuse = parameters.get("enable_mem_reuse", "1") == "1"
    session.enable_mem_pattern = parameters.get("enable_mem_pattern", "1") == "1"
    return session


def providers(args: dict[str, str]) -> list[Any]:
    """Return the GPU that Triton assigned to this instance, or the processor."""
    gpu = ("CUDAExecutionProvider", {"device_id": args["model_instance_device_id"]})
    return [gpu, "CPUExecutionProvider"] if args["model_instance_kind"] == "GPU" else ["CPUExecutionProvider"]


def names(tensors: list[dict[str, Any]], nodes: list[Any], file: Path) -> list[str]:
    """Return the names of the config's tensors.

    Args:
        tensors: Inputs or outputs of the config.
        nodes: Inputs or outputs of the graph.
        file: The graph, for the message.

    Raises:
        ValueError: The graph has no tensor of such a name.
    """
    wanted, known = [tensor["name"] for tensor in tensors], sorted(node.name for node in nodes)
    if missing := set(wanted).difference(known):
        raise ValueError(f"the config names {sorted(missing)} but {file} has {known}")
    return wanted
