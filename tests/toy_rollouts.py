"""Toy models of trajectories: `growth` multiplies a state by a number per frame; a large state is novel.

`pushed` adds a forcing of the frame, times its power, to the state; a large forcing is novel.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

NAME, PUSHED = "growth", "pushed"
TRAINED = 12
ESTIMATES = [round(0.01 * frame, 2) for frame in range(1, TRAINED + 1)]
LARGEST = 20.0  # a state of this maximum has a novelty of 0


def add(repository: Path, version: int = 1, factor: float = 1.0) -> None:
    """Write a version of the model into a repository, as export does; the factor is a second one per frame."""
    import onnx.helper as make  # noqa: PLC0415 - few tests need it
    from onnx import TensorProto, numpy_helper  # noqa: PLC0415 - as above

    from export.graphs.to_onnx import looped  # noqa: PLC0415 - as above
    from export.signature import Signature  # noqa: PLC0415 - as above
    from export.triton_config import text  # noqa: PLC0415 - as above

    described = card() | {"version": version}
    parts = {key: described[key] for key in ("inputs", "parameters", "outputs", "grid", "frames", "quality")}
    signature = Signature.model_validate(parts | {"limits": described["limits"]})
    node, state = make.make_node, make.make_tensor_value_info("next", TensorProto.FLOAT, ["batch", "x"])
    step = make.make_graph(
        [
            node("Unsqueeze", ["rate", "last"], ["rates"]),
            node("Mul", ["u", "rates"], ["grown"]),
            node("Mul", ["grown", "factor"], ["next"]),
        ],
        "step",
        [],
        [state],
        [numpy_helper.from_array(np.array([1]), "last"), numpy_helper.from_array(np.float32(factor), "factor")],
    )
    made = make.make_model(step, opset_imports=[make.make_opsetid("", 18)], ir_version=9)
    model = looped(made, signature, ["u"])
    model.graph.node.extend(
        [
            node("ReduceMax", ["u", "last"], ["highest"]),
            node("Mul", ["highest", "share"], ["part"]),
            node("Sub", ["one", "part"], ["rest"]),
            node("Relu", ["rest"], ["novelty"]),
        ]
    )
    numbers = {"share": 1 / LARGEST, "one": 1.0}
    model.graph.initializer.extend(
        numpy_helper.from_array(np.array(each, np.float32), n) for n, each in numbers.items()
    )
    model.graph.output.append(make.make_tensor_value_info("novelty", TensorProto.FLOAT, ["batch", 1]))
    folder, hidden = repository / NAME / str(version), repository / NAME / f".{version}"
    hidden.mkdir(parents=True)
    (hidden / "model.onnx").write_bytes(model.SerializeToString())
    (hidden / "card.json").write_text(json.dumps(described))
    (repository / NAME / "config.pbtxt").write_text(text(NAME, signature, "onnx"))
    hidden.rename(folder)


def add_pushed(repository: Path) -> None:
    """Write the model whose inputs change in time, and its vector-Jacobian product, as export does."""
    import onnx.helper as make  # noqa: PLC0415 - few tests need it
    from onnx import TensorProto, numpy_helper  # noqa: PLC0415 - as above
    from onnx.shape_inference import infer_shapes  # noqa: PLC0415 - as above

    from export.derivatives.differentiate import differentiate_rollout  # noqa: PLC0415 - as above
    from export.graphs.to_onnx import checked, looped, value  # noqa: PLC0415 - as above
    from export.signature import Signature  # noqa: PLC0415 - as above
    from export.triton_config import text  # noqa: PLC0415 - as above
    from export.versions import companion_card  # noqa: PLC0415 - as above
    from schema.card import Card  # noqa: PLC0415 - as above

    described = pushed_card()
    parts = {key: described[key] for key in ("inputs", "parameters", "outputs", "grid", "frames")}
    signature = Signature.model_validate(parts | {"limits": described["limits"]})
    node, step_signature = make.make_node, signature.step()
    step = make.make_graph(
        [
            node("Unsqueeze", ["power", "last"], ["powers"]),
            node("Mul", ["f", "powers"], ["pushes"]),
            node("Add", ["u", "pushes"], ["next_u"]),
        ],
        "step",
        [value(spec) for spec in step_signature.arguments],
        [value(spec) for spec in step_signature.outputs],
        [numpy_helper.from_array(np.array([1]), "last")],
    )
    made = infer_shapes(make.make_model(step, opset_imports=[make.make_opsetid("", 20)], ir_version=9))
    whole = looped(made, signature, ["u"])
    products = {"_vjp": differentiate_rollout(whole, "vjp", signature)}
    whole.graph.node.extend(
        [
            node("Abs", ["f"], ["strength"]),
            node("ReduceMax", ["strength", "two"], ["highest"], keepdims=0),
            node("Mul", ["highest", "share"], ["part"]),
            node("Sub", ["one", "part"], ["rest"]),
            node("Relu", ["rest"], ["novelty"]),
        ]
    )
    numbers = {"share": np.float32(1 / LARGEST), "one": np.float32(1), "two": np.array([2])}
    whole.graph.initializer.extend(numpy_helper.from_array(np.asarray(each), n) for n, each in numbers.items())
    whole.graph.output.append(make.make_tensor_value_info("novelty", TensorProto.FLOAT, ["batch", "frame"]))
    reporting = signature.model_copy(update={"quality": ("novelty",)})
    product = signature.product("vjp")
    for name, graph, about, card_ in (
        (PUSHED, checked(whole, reporting), reporting, described),
        (
            f"{PUSHED}_vjp",
            checked(products["_vjp"], product),
            product,
            companion_card(Card.model_validate(described), "vjp", product).document,
        ),
    ):
        version = repository / name / "1"
        version.mkdir(parents=True)
        (version / "model.onnx").write_bytes(graph)
        (version / "card.json").write_text(json.dumps(card_))
        (repository / name / "config.pbtxt").write_text(text(name, about, "onnx"))


def compute(u: NDArray[Any], rate: float, frames: int) -> NDArray[Any]:
    """Return what the model computes, in NumPy: `[B, frame, x]`."""
    return np.stack([u * rate ** (frame + 1) for frame in range(frames)], axis=1)


def push(u: NDArray[Any], f: NDArray[Any], power: NDArray[Any] | float = 1.0) -> NDArray[Any]:
    """Return what `pushed` computes of states `[B, x]` and forcings `[B, frame, x]`, in NumPy: `[B, frame, x]`."""
    powers = np.broadcast_to(np.asarray(power, np.float32), f.shape[:2])
    return np.asarray(u[:, None] + np.cumsum(f * powers[..., None], axis=1))


def pushed_card() -> dict[str, Any]:
    forcing = {"axes": ["batch", "frame", "x"], "shape": [None, None, None], "per_frame": "start"}
    found = card()
    return found | {
        "model": PUSHED,
        "title": "A state that is pushed",
        "problem": PUSHED,
        "equation": "u' = p f",
        "inputs": [*found["inputs"], found["inputs"][0] | {"name": "f", "meaning": "forcing", **forcing}],
        "parameters": [
            {
                "name": "power",
                "meaning": "factor of the forcing",
                "units": "1",
                "default": 1.0,
                "axes": ["batch", "frame"],
                "shape": [None, None],
                "per_frame": "start",
            }
        ],
        "rollout": [],
        "differentiable": ["vjp"],
    }


def card() -> dict[str, Any]:
    tensor = {"dtype": "FP32", "components": [], "units": "1", "meaning": "height", "positive": False}
    return {
        "model": NAME,
        "version": 1,
        "format": "onnx",
        "title": "A state that grows",
        "problem": NAME,
        "equation": "u' = r u",
        "boundary": "none",
        "inputs": [{"name": "u", "axes": ["batch", "x"], "shape": [None, None], **tensor}],
        "parameters": [
            {
                "name": "rate",
                "meaning": "factor per frame",
                "units": "1",
                "default": 1.0,
                "minimum": 0.0,
                "maximum": 9.0,
            }
        ],
        "outputs": [{"name": "state", "axes": ["batch", "frame", "x"], "shape": [None, None, None], **tensor}],
        "quality": ["novelty"],
        "grid": {
            "axes": ["x"],
            "minimum": 4,
            "maximum": 100_000,
            "declared": [16],
            "unequal": [],
            "points": "x_i = i/n",
            "lengths": [1.0],
            "boundaries": ["periodic"],
        },
        "frames": {"step": 0.5, "history": 1, "states": ["u"], "trained": TRAINED, "maximum": 1000},
        "limits": {"batch": 8},
        "training": {"distribution": "none", "preset": "tiny"},
        "errors": [],
        "classical": [],
        "rollout": [{"frame": frame, "error_estimate": each} for frame, each in enumerate(ESTIMATES, 1)],
        "checkpoint": {"sha256": "0" * 64, "parameters": 1},
    }
