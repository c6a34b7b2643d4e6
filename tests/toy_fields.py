"""A toy model of several tensors: `drift` takes a scalar field, a vector field and a number, and returns two fields."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from schema.card import KINDS, Card

if TYPE_CHECKING:
    from export.signature import Signature

NAME = "drift"
GRID = (60, 90)
SAMPLES = 3
CONFIG = """\
name: "{name}"
backend: "onnxruntime"
max_batch_size: 8
input {{ name: "density" data_type: TYPE_FP32 dims: [ -1, -1 ] }}
input {{ name: "velocity" data_type: TYPE_FP32 dims: [ 2, -1, -1 ] }}
input {{ name: "time" data_type: TYPE_FP32 dims: [ 1 ] reshape {{ shape: [ ] }} }}
output {{ name: "moved" data_type: TYPE_FP32 dims: [ -1, -1 ] }}
output {{ name: "flux" data_type: TYPE_FP32 dims: [ 2, -1, -1 ] }}
instance_group {{ count: 1 kind: KIND_CPU }}
dynamic_batching {{ }}
parameters {{ key: "intra_op_thread_count" value {{ string_value: "1" }} }}
"""


def add(repository: Path, name: str = NAME, velocity: float | None = None) -> None:
    """Write the model into a repository, as export does.

    Args:
        repository: The repository.
        name: The model's name.
        velocity: The default of the vector field, which its examples have, too; None where it is required.
    """
    version = repository / name / "1"
    version.mkdir(parents=True)
    (repository / name / "config.pbtxt").write_text(CONFIG.format(name=name))
    (version / "model.onnx").write_bytes(_graph())
    (version / "card.json").write_text(json.dumps(_card(name, velocity)))
    inputs = samples()
    if velocity is not None:
        inputs["velocity"][...] = velocity
    save_file({**inputs, **compute(**inputs)}, version / "examples.safetensors")


def add_derivatives(repository: Path) -> None:
    """Write the derivatives of the model beside it, as export does."""
    add_products(repository, _graph(), _card(NAME, None))


def add_products(repository: Path, graph: bytes, card: dict[str, Any]) -> Signature:
    """Write the derivatives of a model into a repository, as export does, and return its signature."""
    import onnx  # noqa: PLC0415 - few tests need it

    from export.derivatives.differentiate import differentiate  # noqa: PLC0415 - as above
    from export.signature import Signature  # noqa: PLC0415 - as above
    from export.triton_config import text  # noqa: PLC0415 - as above
    from export.versions import companion_card  # noqa: PLC0415 - as above

    parts = {key: card[key] for key in ("inputs", "parameters", "outputs", "grid")}
    signature = Signature.model_validate(parts | {"limits": card["limits"]})
    model = onnx.shape_inference.infer_shapes(onnx.load_from_string(graph), data_prop=True)
    for kind in KINDS:
        described = signature.product(kind)
        version = repository / f"{card['model']}_{kind}" / "1"
        version.mkdir(parents=True)
        (version / "model.onnx").write_bytes(differentiate(model, kind, described).SerializeToString())
        made = companion_card(Card.model_validate(card), kind, described)
        (version / "card.json").write_text(json.dumps(made.document))
        (version.parent / "config.pbtxt").write_text(text(version.parent.name, described, "onnx"))
    return signature


def samples(count: int = SAMPLES, grid: tuple[int, int] = GRID) -> dict[str, NDArray[np.float32]]:
    """Return inputs `[count, …]` by name."""
    rng = np.random.default_rng(0)
    down, across = np.meshgrid(*(np.linspace(0, 2 * np.pi, points) for points in grid), indexing="ij")
    phases = rng.uniform(0, 2 * np.pi, (count, 3, 1, 1))
    waves = np.stack(
        [np.sin(down + phases[:, 0]), np.cos(across + phases[:, 1]), np.sin(down - across)[None] + 0 * phases[:, 2]], 1
    )
    arrays = {"density": 2 + waves[:, 2], "velocity": waves[:, :2], "time": rng.uniform(0, 2, count)}
    return {name: np.ascontiguousarray(array, np.float32) for name, array in arrays.items()}


def compute(density: NDArray[Any], velocity: NDArray[Any], time: NDArray[Any]) -> Mapping[str, NDArray[np.float32]]:
    """Return what the model computes, in NumPy."""
    moved = density + velocity.sum(axis=1) * time[:, None, None]
    return {"moved": moved.astype(np.float32), "flux": (velocity * density[:, None]).astype(np.float32)}


def drawn(like: Mapping[str, NDArray[Any]], seed: int) -> dict[str, NDArray[np.float32]]:
    """Return random arrays of the shapes and names of some, as what derivatives are taken along."""
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(array.shape).astype(np.float32) for name, array in like.items()}


def gradients(x: dict[str, NDArray[Any]], c: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return the gradients of the inner product of outputs and c."""
    time, moved = x["time"][:, None, None], c["moved"]
    velocity = (time * moved)[:, None] + x["density"][:, None] * c["flux"]
    return {
        "density": moved + (x["velocity"] * c["flux"]).sum(axis=1),
        "velocity": velocity,
        "time": (moved * x["velocity"].sum(axis=1)).sum(axis=(1, 2)),
    }


def tangents(x: dict[str, NDArray[Any]], t: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return the derivatives of the outputs along t."""
    speed, time, step = x["velocity"].sum(axis=1), x["time"][:, None, None], t["time"][:, None, None]
    moved = t["density"] + t["velocity"].sum(axis=1) * time + speed * step
    return {"moved": moved, "flux": t["velocity"] * x["density"][:, None] + x["velocity"] * t["density"][:, None]}


def _graph() -> bytes:
    import onnx.helper as make  # noqa: PLC0415 - few tests need it
    from onnx import TensorProto, numpy_helper  # noqa: PLC0415 - as above

    node, info, grid = make.make_node, make.make_tensor_value_info, ["row", "column"]
    graph = make.make_graph(
        [
            node("ReduceSum", ["velocity", "first"], ["speed"], keepdims=0),
            node("Unsqueeze", ["time", "last"], ["step"]),
            node("Mul", ["speed", "step"], ["way"]),
            node("Add", ["density", "way"], ["moved"]),
            node("Unsqueeze", ["density", "first"], ["each"]),
            node("Mul", ["velocity", "each"], ["flux"]),
        ],
        NAME,
        [
            info("density", TensorProto.FLOAT, ["batch", *grid]),
            info("velocity", TensorProto.FLOAT, ["batch", 2, *grid]),
            info("time", TensorProto.FLOAT, ["batch"]),
        ],
        [
            info("moved", TensorProto.FLOAT, ["batch", *grid]),
            info("flux", TensorProto.FLOAT, ["batch", 2, *grid]),
        ],
        [numpy_helper.from_array(np.array([1]), "first"), numpy_helper.from_array(np.array([1, 2]), "last")],
    )
    model = make.make_model(graph, opset_imports=[make.make_opsetid("", 18)], ir_version=9)
    return bytes(model.SerializeToString())


def taking(*names: str, optional: Collection[str] = ()) -> Card:
    """Return the card of version 3 of a model `m` with inputs of these names."""
    card = Card.model_validate(_card("m", None))
    lead = card.inputs[0]
    inputs = [lead.model_copy(update={"name": each, "default": 1.0 if each in optional else None}) for each in names]
    return card.model_copy(update={"version": 3, "inputs": tuple(inputs), "parameters": ()})


def _card(name: str, velocity: float | None) -> dict[str, Any]:
    scalar = {"dtype": "FP32", "axes": ["batch", "row", "column"], "shape": [None, None, None], "components": []}
    vector = {"dtype": "FP32", "axes": ["batch", "component", "row", "column"], "shape": [None, 2, None, None]}
    vector["components"] = ["x", "y"]
    return {
        "model": name,
        "version": 1,
        "format": "onnx",
        "title": "A density that drifts",
        "problem": "drift",
        "equation": "density + time * div",
        "boundary": "row: walls; column: periodic",
        "inputs": [
            {"name": "density", "meaning": "density", "units": "kg/m3", "positive": True, **scalar},
            {
                "name": "velocity",
                "meaning": "velocity",
                "units": "m/s",
                "positive": False,
                "default": velocity,
                **vector,
            },
        ],
        "parameters": [
            {"name": "time", "meaning": "time", "units": "s", "default": 1.0, "minimum": 0.0, "maximum": 2.0}
        ],
        "outputs": [
            {"name": "moved", "meaning": "density afterwards", "units": "kg/m3", "positive": False, **scalar},
            {"name": "flux", "meaning": "flux", "units": "kg/(m2 s)", "positive": False, **vector},
        ],
        "grid": {
            "axes": ["row", "column"],
            "minimum": 4,
            "maximum": 128,
            "declared": [],
            "unequal": [list(GRID)],
            "points": "cells",
            "lengths": [1.0, 1.5],
            "boundaries": ["wall", "periodic"],
        },
        "limits": {"batch": 8},
        "training": {"distribution": "sines", "preset": "tiny"},
        "errors": [{"grid": list(GRID), "fields": SAMPLES, "relative_l2": 0.0, "worst": 0.0}],
        "classical": [],
        "checkpoint": {"sha256": "0" * 64, "parameters": 1},
    }
