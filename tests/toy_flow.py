"""A toy model with derivatives that can be inverted: `flow` has the tensors of `darcy` and returns 1 / coefficient."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from tests import toy_fields

NAME = "flow"


def add(repository: Path) -> None:
    """Write the model and its derivatives into a repository, as export does."""
    from export.triton_config import text  # noqa: PLC0415 - few tests need it

    signature = toy_fields.add_products(repository, _graph(), card())
    version = repository / NAME / "1"
    version.mkdir(parents=True)
    (version / "model.onnx").write_bytes(_graph())
    (version / "card.json").write_text(json.dumps(card()))
    (version.parent / "config.pbtxt").write_text(text(NAME, signature, "onnx"))


def _graph() -> bytes:
    import onnx.helper as make  # noqa: PLC0415 - few tests need it
    from onnx import TensorProto, numpy_helper  # noqa: PLC0415 - as above

    axes = ["batch", "row", "column"]
    graph = make.make_graph(
        [make.make_node("Div", ["one", "coefficient"], ["solution"])],
        NAME,
        [make.make_tensor_value_info("coefficient", TensorProto.FLOAT, axes)],
        [make.make_tensor_value_info("solution", TensorProto.FLOAT, axes)],
        [numpy_helper.from_array(np.array(1.0, np.float32), "one")],
    )
    model = make.make_model(graph, opset_imports=[make.make_opsetid("", 18)], ir_version=9)
    return bytes(model.SerializeToString())


def card() -> dict[str, Any]:
    axes = ["batch", "row", "column"]
    tensor = {"dtype": "FP32", "axes": axes, "shape": [None] * 3, "components": [], "units": "1"}
    return {
        "model": NAME,
        "version": 1,
        "format": "onnx",
        "title": "A flow that is local",
        "problem": "darcy",
        "equation": "u = 1 / a",
        "boundary": "none",
        "inputs": [{"name": "coefficient", "meaning": "permeability", "positive": True, **tensor}],
        "parameters": [],
        "outputs": [{"name": "solution", "meaning": "pressure", "positive": False, **tensor}],
        "grid": {
            "axes": axes[1:],
            "minimum": 4,
            "maximum": 64,
            "declared": [16, 24],
            "unequal": [],
            "points": "x_i = (1/2 + 420 i/(n-1))/421",
            "lengths": [1.0, 1.0],
            "boundaries": ["wall", "wall"],
        },
        "limits": {"batch": 8},
        "training": {"distribution": "none", "preset": "tiny"},
        "errors": [{"grid": [16, 16], "fields": 1, "relative_l2": 0.01, "worst": 0.01}],
        "classical": [],
        "checkpoint": {"sha256": "0" * 64, "parameters": 1},
    }
