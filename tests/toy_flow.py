"""A toy model with derivatives that can be inverted: `flow` has the tensors of `darcy` and returns 1 / coefficient."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

NAME = "flow"


def add(repository: Path) -> None:
    """Write the model and its derivatives into a repository, as export does."""
    import onnx  # noqa: PLC0415 - few tests need it

    from export.derivatives.differentiate import differentiate  # noqa: PLC0415 - as above
    from export.signature import Signature  # noqa: PLC0415 - as above
    from export.triton_config import text  # noqa: PLC0415 - as above
    from export.versions import companion_card  # noqa: PLC0415 - as above
    from schema.card import KINDS, Card  # noqa: PLC0415 - as above

    card = _card()
    parts = {key: card[key] for key in ("inputs", "parameters", "outputs", "grid")}
    signature = Signature.model_validate(parts | {"limits": card["limits"]})
    model = onnx.shape_inference.infer_shapes(onnx.load_from_string(_graph()), data_prop=True)
    for kind in KINDS:
        described = signature.product(kind)
        graph = differentiate(model, kind, described).SerializeToString()
        _write(repository, f"{NAME}_{kind}", graph, companion_card(Card.model_validate(card), kind, described).document)
        config = text(f"{NAME}_{kind}", described, "onnx")
        (repository / f"{NAME}_{kind}" / "config.pbtxt").write_text(config)
    _write(repository, NAME, _graph(), card)
    (repository / NAME / "config.pbtxt").write_text(text(NAME, signature, "onnx"))


def _write(repository: Path, name: str, graph: bytes, card: dict[str, Any]) -> None:
    version = repository / name / "1"
    version.mkdir(parents=True)
    (version / "model.onnx").write_bytes(graph)
    (version / "card.json").write_text(json.dumps(card))


def _graph() -> bytes:
    import onnx.helper as make  # noqa: PLC0415 - few tests need it
    from onnx import TensorProto, numpy_helper  # noqa: PLC0415 - as above

    axes = ["batch", "row", "column"]
    graph = make.make_graph(
        [make.make_node("Div", ["one", "coefficient"], ["solution"])],
        NAME,
        [make.make_tensor_value_info("coefficient", TensorProto.FLOAT, axes)],
        [make.make_tensor_value_info("solution", TensorProto.FLOAT, axes)],
        [numpy_helper.from_array(_one(), "one")],
    )
    model = make.make_model(graph, opset_imports=[make.make_opsetid("", 18)], ir_version=9)
    return bytes(model.SerializeToString())


def _one() -> Any:
    import numpy as np  # noqa: PLC0415 - beside onnx

    return np.array(1.0, np.float32)


def _card() -> dict[str, Any]:
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
