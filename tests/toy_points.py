"""A toy model on points: `cloud` takes a field at points in the plane or in space and returns a field and a vector."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

MOST = 20_000
CONFIG = """\
name: "{name}"
backend: "onnxruntime"
max_batch_size: 8
input {{ name: "coordinates" data_type: TYPE_FP32 dims: [ -1, {dimensions} ] }}
input {{ name: "heat" data_type: TYPE_FP32 dims: [ -1 ] }}
input {{ name: "counts" data_type: TYPE_FP32 dims: [ 1 ] reshape {{ shape: [ ] }} optional: true }}
output {{ name: "height" data_type: TYPE_FP32 dims: [ -1 ] }}
output {{ name: "flux" data_type: TYPE_FP32 dims: [ -1, {dimensions} ] }}
instance_group {{ count: 1 kind: KIND_CPU }}
parameters {{ key: "default.counts" value {{ string_value: "0" }} }}
"""


def add(repository: Path, name: str, coordinates: NDArray[np.float32]) -> None:
    """Write the model into a repository, as export does, with points `[sample, point, dimension]` as its examples."""
    dimensions = coordinates.shape[-1]
    version = repository / name / "1"
    version.mkdir(parents=True)
    (repository / name / "config.pbtxt").write_text(CONFIG.format(name=name, dimensions=dimensions))
    (version / "model.onnx").write_bytes(_graph(dimensions))
    (version / "card.json").write_text(json.dumps(_card(name, dimensions)))
    inputs = {"coordinates": coordinates, "heat": np.cos(coordinates).prod(axis=2)}
    arrays = {**inputs, **compute(**inputs)}
    counts = np.full(len(coordinates), coordinates.shape[1], np.float32)
    save_file(
        {key: np.ascontiguousarray(value, np.float32) for key, value in arrays.items()} | {"counts": counts},
        version / "examples.safetensors",
    )


def compute(coordinates: NDArray[Any], heat: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Return what the model computes, in NumPy."""
    return {"height": coordinates.sum(axis=2) + heat, "flux": coordinates * heat[:, :, None]}


def _graph(dimensions: int) -> bytes:
    import onnx.helper as make  # noqa: PLC0415 - few tests need it
    from onnx import TensorProto, numpy_helper  # noqa: PLC0415 - as above

    node, info = make.make_node, make.make_tensor_value_info
    graph = make.make_graph(
        [
            node("ReduceSum", ["coordinates", "last"], ["sum"], keepdims=0),
            node("Add", ["sum", "heat"], ["height"]),
            node("Unsqueeze", ["heat", "last"], ["each"]),
            node("Mul", ["coordinates", "each"], ["flux"]),
        ],
        "cloud",
        [
            info("coordinates", TensorProto.FLOAT, ["batch", "point", dimensions]),
            info("heat", TensorProto.FLOAT, ["batch", "point"]),
            info("counts", TensorProto.FLOAT, ["batch"]),
        ],
        [
            info("height", TensorProto.FLOAT, ["batch", "point"]),
            info("flux", TensorProto.FLOAT, ["batch", "point", dimensions]),
        ],
        [numpy_helper.from_array(np.array([2]), "last")],
    )
    model = make.make_model(graph, opset_imports=[make.make_opsetid("", 18)], ir_version=9)
    return bytes(model.SerializeToString())


def _card(name: str, dimensions: int) -> dict[str, Any]:
    scalar = {"dtype": "FP32", "axes": ["batch", "point"], "shape": [None, None], "components": []}
    vector = {"dtype": "FP32", "axes": ["batch", "point", "component"], "shape": [None, None, dimensions]}
    vector["components"] = ["x", "y", "z"][:dimensions]
    return {
        "model": name,
        "version": 1,
        "format": "onnx",
        "title": "A toy on points",
        "problem": "cloud",
        "boundary": "none",
        "inputs": [
            {"name": "coordinates", "meaning": "coordinates", "units": "m", "positive": False, **vector},
            {"name": "heat", "meaning": "heat", "units": "K", "positive": False, **scalar},
        ],
        "parameters": [{"name": "counts", "meaning": "points", "units": "1", "default": 0.0, "minimum": 0.0}],
        "outputs": [
            {"name": "height", "meaning": "height", "units": "m", "positive": False, **scalar},
            {"name": "flux", "meaning": "flux", "units": "W/m2", "positive": False, **vector},
        ],
        "grid": {
            "axes": ["point"],
            "minimum": 4,
            "maximum": MOST,
            "declared": [],
            "unequal": [],
            "points": "anywhere",
            "lengths": [1.0],
            "boundaries": ["open"],
        },
        "limits": {"batch": 8},
        "training": {"distribution": "random points", "preset": "tiny"},
        "errors": [],
        "classical": [],
        "checkpoint": {"sha256": "0" * 64, "parameters": 1},
    }
