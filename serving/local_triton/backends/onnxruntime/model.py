"""Triton backend `onnxruntime`: run a plain `model.onnx`.

Where NVIDIA's C++ backend of that name is missing, Triton finds this file in its backend directory and runs with it
every model whose config says `backend: "onnxruntime"`. The config has the meaning that it has for the C++ backend:
`default_model_filename` and the parameters `intra_op_thread_count`, `inter_op_thread_count`, `execution_mode`
(1: parallel), `enable_mem_arena`, `enable_mem_pattern`, and on a GPU those that `device.py` lists. Names of tensors are
those of the graph. Beyond it, an input that a request leaves out has the value of the parameter `default.NAME`.

It runs in Triton's own interpreter and imports nothing of ours but what is copied beside it.
"""  # noqa: INP001 - a folder for Triton, not a package

from __future__ import annotations

import os
from typing import Any

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # else it reports to Microsoft; read when it is imported

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime
from batching import Model  # type: ignore[import-not-found]  # found by Triton's interpreter
from device import LARGE_BYTES, open_session, shrinking  # type: ignore[import-not-found]  # as above


class TritonPythonModel(Model):  # type: ignore[misc]  # see above
    """A session on the graph."""

    file_name = "model.onnx"

    def open(self, file: Path, parameters: dict[str, str], gpu: int | None) -> None:
        """Open a session with the options that the parameters request; ONNX Runtime's defaults for the others.

        The arena is on by default, and good for mixed grids, too: over 24 batches of 37 x 37 to 421 x 421 values
        through six convolutions the process stayed at 132 MiB with it and reached 458 MiB without, at the same speed.

        Threads do not spin while they wait: a model's instances share the cores with each other and with the gateway.
        Where two virtual cores shared one core, spinning made a prediction of `darcy` take 40 ms on two threads instead
        of 26.

        Raises:
            DeviceError: The session is on another device than the config names.
            ValueError: The config names a tensor that the graph does not have, or what a GPU does not know.
        """
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3  # errors only: its warnings would fill the server's log at every load
        options.intra_op_num_threads = int(parameters.get("intra_op_thread_count", "0"))
        options.inter_op_num_threads = int(parameters.get("inter_op_thread_count", "0"))
        options.execution_mode = onnxruntime.ExecutionMode(int(parameters.get("execution_mode", "0")))
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.enable_cpu_mem_arena = parameters.get("enable_mem_arena", "1") == "1"
        options.enable_mem_reuse = parameters.get("enable_mem_reuse", "1") == "1"
        options.enable_mem_pattern = parameters.get("enable_mem_pattern", "1") == "1"
        self.session = open_session(onnxruntime, file, options, self.config, gpu)
        self.shrinking = None if gpu is None else shrinking(onnxruntime, gpu)
        for names, nodes in ((self.inputs, self.session.get_inputs()), (self.outputs, self.session.get_outputs())):
            known = sorted(node.name for node in nodes)
            if missing := set(names).difference(known):
                raise ValueError(f"the config names {sorted(missing)} but {file} has {known}")

    def run(self, arrays: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        options = self.shrinking if sum(array.nbytes for array in arrays) > LARGE_BYTES else None
        return self.session.run(self.outputs, dict(zip(self.inputs, arrays, strict=True)), options)  # type: ignore[no-any-return]
