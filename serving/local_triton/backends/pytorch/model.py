"""Triton backend `pytorch`: run a traced `model.pt`.

Where NVIDIA's C++ backend of that name is missing, Triton finds this file in its backend directory and runs with it
every model whose config says `backend: "pytorch"`. The config has the meaning that it has for the C++ backend:
`default_model_filename` and the parameters `INTRA_OP_THREAD_COUNT`, `INTER_OP_THREAD_COUNT`,
`DISABLE_OPTIMIZED_EXECUTION`, `INFERENCE_MODE`, `DISABLE_CUDNN`.

Names of tensors follow the C++ backend's rules (pytorch_backend, `GetNamingConvention`). Inputs: the arguments of
`forward`, else `NAME__INDEX`, else the order of the config. Outputs: `NAME__INDEX`, else the order of the config. The
names of the ONNX model, `coefficient` and `solution`, work here if the argument of `forward` is `coefficient`.

It runs in Triton's own interpreter and imports nothing of ours but what is copied beside it.
"""  # noqa: INP001 - a folder for Triton, not a package

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from batching import Model  # type: ignore[import-not-found]  # found by Triton's interpreter
from device import DeviceError  # type: ignore[import-not-found]  # as above
from torch.jit import optimized_execution  # type: ignore[attr-defined]  # documented, but left out of __all__

# Triton's arrays are read-only views of its shared memory; torch has no read-only tensors, and the module only reads.
warnings.filterwarnings("ignore", message="The given NumPy array is not writable")


class TritonPythonModel(Model):  # type: ignore[misc]  # see above
    """A traced module, in a process of its own."""

    file_name = "model.pt"
    inputs: list[str]
    outputs: list[str]

    def open(self, file: Path, parameters: dict[str, str], gpu: int | None) -> None:
        """Load the module, and read the parameters as the C++ backend does.

        Raises:
            DeviceError: PyTorch has no GPU, and the config names one.
        """
        if "INTRA_OP_THREAD_COUNT" in parameters:
            torch.set_num_threads(int(parameters["INTRA_OP_THREAD_COUNT"]))
        if "INTER_OP_THREAD_COUNT" in parameters:
            torch.set_num_interop_threads(int(parameters["INTER_OP_THREAD_COUNT"]))
        flags = {name: value.lower() in {"true", "1"} for name, value in parameters.items()}
        self.optimised = not flags.get("DISABLE_OPTIMIZED_EXECUTION", False)
        self.inference_mode = flags.get("INFERENCE_MODE", True)
        # Float32 on a GPU means float32; PyTorch's default is TF32 in the convolutions of cuDNN.
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        torch.backends.cudnn.enabled = not flags.get("DISABLE_CUDNN", False)
        if gpu is not None and not torch.cuda.is_available():
            remedy = "install a PyTorch that is built for CUDA, or set PETROV_DEVICE=cpu"
            raise DeviceError(f"the model belongs on GPU {gpu}, but PyTorch {torch.__version__} finds none: {remedy}")
        self.device = torch.device("cpu" if gpu is None else f"cuda:{gpu}")
        self.module = torch.jit.load(file, map_location=self.device).eval()
        self.inputs = in_order(self.inputs, [each.name for each in self.module.forward.schema.arguments[1:]])
        self.outputs = in_order(self.outputs, [])

    def run(self, arrays: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        tensors = [torch.from_numpy(array).to(self.device) for array in arrays]
        with torch.inference_mode(self.inference_mode), optimized_execution(self.optimised):
            results = self.module(*tensors)
        results = (results,) if isinstance(results, torch.Tensor) else results
        return [result.cpu().numpy() for result in results]


def in_order(names: list[str], known: list[str]) -> list[str]:
    """Return names in the order of the module: that of its arguments if they match, else by index, else unchanged."""
    if set(names) == set(known):
        return known
    indices = {name: int(found[1]) for name in names if (found := re.search(r"__(\d+)$", name))}
    return sorted(names, key=indices.__getitem__) if len(indices) == len(names) else names
