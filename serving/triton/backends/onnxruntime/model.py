"""Triton backend `onnxruntime`: a plain `model.onnx` in, its answers out.

Where NVIDIA's C++ backend of that name is missing, Triton finds this file in its backend directory and serves with it
every model whose config says `backend: "onnxruntime"`. The config means what it means to the C++ backend:
`default_model_filename` and the parameters `intra_op_thread_count`, `inter_op_thread_count`, `execution_mode`
(1: parallel), `enable_mem_arena`, `enable_mem_pattern`. Names of tensors are the graph's.

It runs in Triton's own interpreter and imports nothing of ours but `batching.py`, which is copied beside it.
"""  # noqa: INP001 - a folder of Triton's, no package

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnxruntime
from batching import answer, in_pieces  # type: ignore[import-not-found]  # found by Triton's interpreter

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np


class TritonPythonModel:
    """One instance of one version of one model."""

    def initialize(self, args: dict[str, str]) -> None:
        """Opens the session on the version's graph.

        Args:
            args: From Triton; `model_repository` is the model's own folder, `model_config` JSON.

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
        """Answers the requests of one batch, in their order."""
        run = in_pieces(self.run) if self.piecewise else self.run
        responses: list[Any] = answer(requests, run, self.inputs, self.outputs, batched=self.batched)
        return responses

    def run(self, arrays: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        """The graph itself: inputs and outputs in the order of the config."""
        return self.session.run(self.outputs, dict(zip(self.inputs, arrays, strict=True)))  # type: ignore[no-any-return]


def options(parameters: dict[str, str]) -> onnxruntime.SessionOptions:
    """Threads and memory as the parameters ask; where they are silent, ONNX Runtime's defaults.

    The arena is one of them, and good for mixed grids too: over 24 batches of 37 x 37 to 421 x 421 fields through six
    convolutions the process stayed at 132 MiB with it and reached 458 MiB without, at the same speed.

    Threads do not spin while they wait: a model's instances share the cores among them and with the gateway, and where
    two virtual cores were worth one, spinning made an answer of `darcy` take 40 ms on two threads in place of 26.
    """
    asked = onnxruntime.SessionOptions()
    asked.log_severity_level = 3  # errors alone: its warnings would fill the server's log at every load
    asked.intra_op_num_threads = int(parameters.get("intra_op_thread_count", "0"))
    asked.inter_op_num_threads = int(parameters.get("inter_op_thread_count", "0"))
    asked.execution_mode = onnxruntime.ExecutionMode(int(parameters.get("execution_mode", "0")))
    asked.add_session_config_entry("session.intra_op.allow_spinning", "0")
    asked.enable_cpu_mem_arena = parameters.get("enable_mem_arena", "1") == "1"
    asked.enable_mem_pattern = parameters.get("enable_mem_pattern", "1") == "1"
    return asked


def providers(args: dict[str, str]) -> list[Any]:
    """The GPU that Triton gave to this instance, or the processor."""
    gpu = ("CUDAExecutionProvider", {"device_id": args["model_instance_device_id"]})
    return [gpu, "CPUExecutionProvider"] if args["model_instance_kind"] == "GPU" else ["CPUExecutionProvider"]


def names(tensors: list[dict[str, Any]], nodes: list[Any], file: Path) -> list[str]:
    """Names of the config's tensors, each known to be the graph's."""
    wanted, known = [tensor["name"] for tensor in tensors], sorted(node.name for node in nodes)
    if missing := set(wanted).difference(known):
        raise ValueError(f"the config names {sorted(missing)} but {file} has {known}")
    return wanted
