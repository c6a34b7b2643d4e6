"""A model repository with the identity model, which returns its input.

Its own time is negligible, so it measures everything else: the routes to Triton, and Triton itself.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import onnx
import onnx.helper as make

if TYPE_CHECKING:
    from pathlib import Path

MODEL, INPUT, OUTPUT = "identity", "input", "output"
GRIDS = (85, 141, 211, 421)
BATCH = 64
AXES = ("batch", "row", "column")
CONFIG = f"""\
name: "{MODEL}"
backend: "onnxruntime"
max_batch_size: {BATCH}
input {{ name: "{INPUT}" data_type: TYPE_FP32 dims: [ -1, -1 ] }}
output {{ name: "{OUTPUT}" data_type: TYPE_FP32 dims: [ -1, -1 ] }}
instance_group {{ count: 2 kind: KIND_CPU }}
dynamic_batching {{ }}
parameters {{ key: "intra_op_thread_count" value {{ string_value: "1" }} }}
"""


def write(repository: Path) -> Path:
    """Write configuration, graph and card of version 1, and return the repository."""
    version = repository / MODEL / "1"
    version.mkdir(parents=True)
    (repository / MODEL / "config.pbtxt").write_text(CONFIG)
    (version / "model.onnx").write_bytes(graph().SerializeToString())
    (version / "card.json").write_text(json.dumps(card()))
    return repository


def graph() -> onnx.ModelProto:
    """Return the graph, which has one node."""
    source, result = (make.make_tensor_value_info(name, onnx.TensorProto.FLOAT, AXES) for name in (INPUT, OUTPUT))
    node = make.make_node("Identity", [INPUT], [OUTPUT])
    opset = [make.make_opsetid("", 20)]
    return make.make_model(make.make_graph([node], MODEL, [source], [result]), opset_imports=opset, ir_version=9)


def card() -> dict[str, object]:
    """Return the card: any sign is allowed, and the grids are those of the other models."""
    tensor = {"dtype": "FP32", "axes": AXES, "units": "1", "positive": False, "meaning": "anything"}
    return {
        "model": MODEL,
        "version": 1,
        "format": "onnx",
        "title": "The identity",
        "problem": MODEL,
        "equation": "u = a",
        "boundary": "none",
        "inputs": [{"name": INPUT, **tensor}],
        "outputs": [{"name": OUTPUT, **tensor}],
        "grid": {"axes": AXES[1:], "minimum": 1, "maximum": max(GRIDS), "declared": GRIDS, "points": "any"},
        "limits": {"batch": BATCH},
        "training": {},
        "errors": [],
        "classical": [],
        "checkpoint": {},
    }
