"""A model that smooths fields, in both formats, which the tests of the service call `blur`."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

KERNEL = np.outer([1, 2, 1], [1, 2, 1]).astype(np.float32) / 16
CONFIG = """\
name: "{name}"
backend: "{backend}"
max_batch_size: 8
input {{ name: "coefficient" data_type: TYPE_FP32 dims: [ -1, -1 ] }}
output {{ name: "solution" data_type: TYPE_FP32 dims: [ -1, -1 ] }}
version_policy {{ latest {{ num_versions: 2 }} }}
instance_group {{ count: 1 kind: KIND_CPU }}
dynamic_batching {{ }}
parameters {{ key: "{threads}" value {{ string_value: "1" }} }}
"""


def add(repository: Path) -> None:
    """Add `blur` and `blur_torchscript` to a repository, as export writes them."""
    _add(repository, "blur", "onnx", _onnx_blur())
    _add(repository, "blur_torchscript", "torchscript", _traced_blur())


def _onnx_blur() -> bytes:
    import onnx.helper as make  # noqa: PLC0415 - few tests need it
    from onnx import TensorProto, numpy_helper  # noqa: PLC0415 - as above

    axes = ["batch", "row", "column"]
    graph = make.make_graph(
        [
            make.make_node("Unsqueeze", ["coefficient", "channel"], ["image"]),
            make.make_node("Conv", ["image", "kernel"], ["smooth"], pads=[1, 1, 1, 1]),
            make.make_node("Squeeze", ["smooth", "channel"], ["solution"]),
        ],
        "blur",
        [make.make_tensor_value_info("coefficient", TensorProto.FLOAT, axes)],
        [make.make_tensor_value_info("solution", TensorProto.FLOAT, axes)],
        [numpy_helper.from_array(np.array([1]), "channel"), numpy_helper.from_array(KERNEL[None, None], "kernel")],
    )
    serialised: bytes = make.make_model(
        graph, opset_imports=[make.make_opsetid("", 18)], ir_version=9
    ).SerializeToString()
    return serialised


def _traced_blur() -> bytes:
    import io  # noqa: PLC0415 - as torch
    import warnings  # noqa: PLC0415 - as torch

    import torch  # noqa: PLC0415 - seconds, and few tests need it

    class Blur(torch.nn.Module):
        kernel: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("kernel", torch.from_numpy(KERNEL)[None, None])

        def forward(self, coefficient: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.conv2d(coefficient[:, None], self.kernel, padding=1)[:, 0]

    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # TorchScript is deprecated, and still served
        torch.jit.save(torch.jit.trace(Blur(), torch.ones(2, 5, 4)), buffer)
    return buffer.getvalue()


def _add(repository: Path, name: str, form: str, artefact: bytes) -> None:
    """Write config, artefact, card and certificate of version 1."""
    backend, file, threads = {
        "onnx": ("onnxruntime", "model.onnx", "intra_op_thread_count"),
        "torchscript": ("pytorch", "model.pt", "INTRA_OP_THREAD_COUNT"),
    }[form]
    version = repository / name / "1"
    version.mkdir(parents=True)
    (repository / name / "config.pbtxt").write_text(CONFIG.format(name=name, backend=backend, threads=threads))
    (version / file).write_bytes(artefact)
    (version / "card.json").write_text(json.dumps(_card(name, form)))
    (version / "certificate.json").write_text(json.dumps(_certificate(name, form, file, artefact)))


def _card(name: str, form: str) -> dict[str, Any]:
    axes = ["batch", "row", "column"]
    tensor = {"dtype": "FP32", "axes": axes, "shape": [None] * len(axes), "units": "1"}
    return {
        "model": name,
        "version": 1,
        "format": form,
        "title": "A blur",
        "problem": "darcy",
        "equation": "u = k * a",
        "boundary": "zero outside",
        "inputs": [{"name": "coefficient", "meaning": "permeability", "positive": True, **tensor}],
        "outputs": [{"name": "solution", "meaning": "smoothed permeability", "positive": False, **tensor}],
        "grid": {
            "axes": axes[1:],
            "minimum": 4,
            "maximum": 64,
            "declared": [16, 24],
            "points": "x_i = (1/2 + 420 i/(n-1))/421",
        },
        "limits": {"batch": 8},
        "training": {
            "distribution": "none",
            "fields": 0,
            "grids": [],
            "epochs": 0,
            "seconds": 0.0,
            "preset": "tiny",
            "seed": 0,
        },
        "errors": [{"grid": [16, 16], "fields": 1, "relative_l2": 0.0}],
        "classical": [
            {"grid": [16, 16], "fields": 1, "relative_l2": 0.0, "milliseconds": 1.0, "method": "convolution"}
        ],
        "checkpoint": {"sha256": "0" * 64, "parameters": 9},
    }


def _certificate(name: str, form: str, file: str, artefact: bytes) -> dict[str, Any]:
    exact = {"max_abs": 0.0, "relative_l2": 0.0}
    return {
        "model": name,
        "version": 1,
        "format": form,
        "artefact": {"file": file, "sha256": hashlib.sha256(artefact).hexdigest(), "bytes": len(artefact)},
        "checkpoint": {"sha256": "0" * 64},
        "tolerance": 1e-5,
        "opset": 18,
        "operators": {"Conv": 1, "Squeeze": 1, "Unsqueeze": 1},
        "software": {"onnxruntime": "1"},
        "comparisons": [{"shape": [2, 5, 7], "float32": exact, "float64": exact}],
        "worst": {"float32": 0.0, "float64": 0.0},
    }
