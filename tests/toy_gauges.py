"""Toy models that report on themselves.

`gauge` and `gauge_torchscript` have a problem with a classical solver, and `unsolved` has one without. `gauge` and
`unsolved` have a refinement, which returns a fifth of each field and bounds of a tenth of theirs. `limited` and
`limited_unsolved` are the same with limits of their solve bounds.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

PROBLEMS = {
    "gauge": "darcy",
    "gauge_torchscript": "darcy",
    "unsolved": "gauge",
    "limited": "darcy",
    "limited_unsolved": "gauge",
}
REFINED = ("gauge", "unsolved", "limited", "limited_unsolved")
LIMIT, REFINED_LIMIT = 0.04, 0.006  # of the solve bound, where there is one
QUALITY = ("error_bound", "solve_bound", "misfit", "error_estimate", "novelty")
CONFIG = """\
name: "{name}"
backend: "{backend}"
max_batch_size: 8
input {{ name: "coefficient" data_type: TYPE_FP32 dims: [ -1, -1 ] }}
output {{ name: "solution{0}" data_type: TYPE_FP32 dims: [ -1, -1 ] }}
output {{ name: "error_bound{1}" data_type: TYPE_FP32 dims: [ 1 ] }}
output {{ name: "solve_bound{2}" data_type: TYPE_FP32 dims: [ 1 ] }}
output {{ name: "misfit{3}" data_type: TYPE_FP32 dims: [ 1 ] }}
output {{ name: "error_estimate{4}" data_type: TYPE_FP32 dims: [ 1 ] }}
output {{ name: "novelty{5}" data_type: TYPE_FP32 dims: [ 1 ] }}
instance_group {{ count: 1 kind: KIND_CPU }}
dynamic_batching {{ }}
parameters {{ key: "intra_op_thread_count" value {{ string_value: "1" }} }}
"""


def add(repository: Path) -> None:
    """Write the models into a repository, as export does: the results of TorchScript are numbered."""
    for name, problem in PROBLEMS.items():
        version, traced = repository / name / "1", name.endswith("_torchscript")
        version.mkdir(parents=True)
        numbers = [f"__{index}" if traced else "" for index in range(1 + len(QUALITY))]
        config = CONFIG.format(*numbers, name=name, backend="pytorch" if traced else "onnxruntime")
        (repository / name / "config.pbtxt").write_text(config)
        (version / ("model.pt" if traced else "model.onnx")).write_bytes(_traced() if traced else _graph())
        (version / "card.json").write_text(json.dumps(card(name, problem)))
    for name in REFINED:
        version = repository / f"{name}_refined" / "1"
        version.mkdir(parents=True)
        config = CONFIG.format(*[""] * (1 + len(QUALITY)), name=f"{name}_refined", backend="onnxruntime")
        (version.parent / "config.pbtxt").write_text(config)
        (version / "model.onnx").write_bytes(_graph(factor=0.2, bound=1e-4))
        product = {"product": {"of": name, "kind": "refined"}, "quality": QUALITY[:2]}  # the rest is about a network
        (version / "card.json").write_text(json.dumps(card(f"{name}_refined", PROBLEMS[name], REFINED_LIMIT) | product))


def compute(fields: NDArray[Any]) -> NDArray[Any]:
    """Return what the models compute, in NumPy: a tenth of each field `[B, H, W]`."""
    return fields / 10


def refine(fields: NDArray[Any]) -> NDArray[Any]:
    """Return what their refinements compute, in NumPy: a fifth of each field `[B, H, W]`."""
    return fields / 5


def quality(fields: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Return what the models report, `[B]` each: multiples of a thousandth of the mean, and 0 for a maximum of 20."""
    bound = fields.mean(axis=(1, 2)) / 1000
    novelty = np.maximum(0, 1 - fields.max(axis=(1, 2)) / 20)
    return dict(zip(QUALITY, (bound, 4 * bound, 3 * bound, 2 * bound, novelty), strict=True))


def _traced() -> bytes:
    import io  # noqa: PLC0415 - as torch
    import warnings  # noqa: PLC0415 - as torch

    import torch  # noqa: PLC0415 - seconds, and few tests need it

    class Gauge(torch.nn.Module):
        def forward(self, coefficient: torch.Tensor) -> tuple[torch.Tensor, ...]:
            bound = coefficient.mean(dim=(1, 2))[:, None] / 1000
            novelty = torch.relu(1 - coefficient.amax(dim=(1, 2))[:, None] / 20)
            return coefficient / 10, bound, 4 * bound, 3 * bound, 2 * bound, novelty

    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # TorchScript is deprecated, and still served
        torch.jit.save(torch.jit.trace(Gauge(), torch.ones(2, 5, 4)), buffer)
    return buffer.getvalue()


def _graph(factor: float = 0.1, bound: float = 1e-3) -> bytes:
    import onnx.helper as make  # noqa: PLC0415 - few tests need it
    from onnx import TensorProto, numpy_helper  # noqa: PLC0415 - as above

    node = make.make_node
    nodes = [
        node("Mul", ["coefficient", "factor"], ["solution"]),
        node("ReduceMean", ["coefficient", "grid"], ["mean"]),
        node("Mul", ["mean", "bound"], ["bounds"]),
        node("Squeeze", ["bounds", "last"], ["error_bound"]),
        node("Add", ["error_bound", "error_bound"], ["error_estimate"]),
        node("Add", ["error_estimate", "error_bound"], ["misfit"]),
        node("Add", ["error_estimate", "error_estimate"], ["solve_bound"]),
        node("ReduceMax", ["coefficient", "grid"], ["highest"]),
        node("Mul", ["highest", "twentieth"], ["share"]),
        node("Sub", ["one", "share"], ["rest"]),
        node("Relu", ["rest"], ["unusual"]),
        node("Squeeze", ["unusual", "last"], ["novelty"]),
    ]
    numbers = {"factor": factor, "bound": bound, "twentieth": 0.05, "one": 1.0}
    constants = {name: np.float32(value) for name, value in numbers.items()}
    constants |= {"grid": np.array([1, 2]), "last": np.array([2])}
    axes = ["batch", "row", "column"]
    graph = make.make_graph(
        nodes,
        "gauge",
        [make.make_tensor_value_info("coefficient", TensorProto.FLOAT, axes)],
        [
            make.make_tensor_value_info("solution", TensorProto.FLOAT, axes),
            *(make.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 1]) for name in QUALITY),
        ],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    made = make.make_model(graph, opset_imports=[make.make_opsetid("", 18)], ir_version=9)
    serialised: bytes = made.SerializeToString()
    return serialised


def card(name: str, problem: str, limit: float = LIMIT) -> dict[str, Any]:
    axes = ["batch", "row", "column"]
    tensor = {"dtype": "FP32", "axes": axes, "shape": [None] * 3, "units": "1", "meaning": "", "positive": False}
    return {
        "model": name,
        "version": 1,
        "format": "torchscript" if name.endswith("_torchscript") else "onnx",
        "title": "A model that reports on itself",
        "problem": problem,
        "inputs": [{**tensor, "name": "coefficient"}],
        "outputs": [{**tensor, "name": "solution"}],
        "quality": list(QUALITY),
        "grid": {"axes": axes[1:], "minimum": 4, "maximum": 64, "declared": [16], "points": "cells"},
        "limits": {"batch": 8} | ({"solve_bound": limit, "novelty": 0.001} if name.startswith("limited") else {}),
        "training": {},
        "checkpoint": {"sha256": "0" * 64, "parameters": 0},
    }
