"""Toy models of numbers: `plate` returns a field and numbers with their intervals, `mass` a number alone."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

PLATE, MASS = "plate", "mass"
GRID = (12, 16)
HALF = 0.25  # the half-width of the intervals, as a share of the number
CONFIG = """\
name: "{name}"
backend: "onnxruntime"
max_batch_size: 8
{tensors}
instance_group {{ count: 1 kind: KIND_CPU }}
dynamic_batching {{ }}
parameters {{ key: "intra_op_thread_count" value {{ string_value: "1" }} }}
"""


def add(repository: Path) -> None:
    """Write both models into a repository."""
    found = samples()
    write(repository, PLATE, tensors(PLATE), graph(PLATE), card(PLATE), found | compute(**found))
    known = {"thickness": found["thickness"], "mass": found["thickness"].mean((1, 2))}
    write(repository, MASS, tensors(MASS), graph(MASS), card(MASS), known)


def write(
    repository: Path,
    name: str,
    tensors: tuple[dict[str, list[int]], dict[str, list[int]]],
    graph: bytes,
    card: dict[str, Any],
    examples: dict[str, NDArray[Any]],
) -> None:
    """Write a model into a repository, as export does; `tensors` are inputs and outputs."""
    version = repository / name / "1"
    version.mkdir(parents=True)
    lines = [
        f'{part} {{ name: "{tensor}" data_type: {"TYPE_INT32" if tensor == "grid" else "TYPE_FP32"} '
        f"dims: [ {', '.join(map(str, dims))} ] {shape} }}"
        for part, each in zip(("input", "output"), tensors, strict=True)
        for tensor, dims in each.items()
        for shape in ("" if dims != [1] or tensor.startswith(("error", "novelty")) else "reshape { shape: [ ] }",)
    ]
    (version.parent / "config.pbtxt").write_text(CONFIG.format(name=name, tensors="\n".join(lines)))
    (version / "model.onnx").write_bytes(graph)
    (version / "card.json").write_text(json.dumps(card))
    save_file(examples, version / "examples.safetensors")


def tensors(name: str) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
    """Return the tensors of a model with their sizes behind the batch axis."""
    if name == MASS:
        return {"thickness": [-1, -1]}, {"mass": [1], "error_estimate": [1], "novelty": [1]}
    outputs = {"bend": [-1, -1], "mass": [1], "force": [2], "error_estimate": [1]}
    intervals = {"error_estimate.mass": [1], "error_estimate.force": [2], "novelty": [1]}
    return {"thickness": [-1, -1], "load": [2]}, outputs | intervals


def samples(count: int = 2) -> dict[str, NDArray[np.float32]]:
    """Return inputs `[count, …]` by name."""
    rng = np.random.default_rng(0)
    thickness = 1 + rng.random((count, 1, 1)) + np.linspace(0, 1, GRID[1]) + np.zeros((count, *GRID))
    return {"thickness": thickness.astype(np.float32), "load": rng.uniform(1, 2, (count, 2)).astype(np.float32)}


def compute(thickness: NDArray[Any], load: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Return the outputs of `plate`, in NumPy."""
    bend = thickness * load[:, 0, None, None]
    return {"bend": bend, "mass": thickness.mean((1, 2)), "force": np.ascontiguousarray(2 * load)}


def graph(name: str) -> bytes:
    """Return the graph of a model."""
    from onnx.helper import make_node as node  # noqa: PLC0415 - few tests need it

    nodes = [
        node("ReduceMean", ["thickness", "grid"], ["mass"], keepdims=0),
        node("ReduceMean", ["thickness", "grid"], ["column"], keepdims=0),
        node("Unsqueeze", ["column", "one"], ["mean"]),
        node("Sub", ["mean", "mean"], ["zero"]),
        node("Add", ["zero", "half"], ["novelty"]),
        node("Mul", ["mean", "quarter"], ["error_estimate" if name == MASS else "error_estimate.mass"]),
    ]
    if name == PLATE:
        nodes += [
            node("Add", ["zero", "quarter"], ["error_estimate"]),
            node("Add", ["load", "load"], ["force"]),
            node("Mul", ["force", "quarter"], ["error_estimate.force"]),
            node("Slice", ["load", "first", "one", "one"], ["first_load"]),
            node("Unsqueeze", ["first_load", "last"], ["lever"]),
            node("Mul", ["thickness", "lever"], ["bend"]),
        ]
    free = {"thickness": ["batch", "row", "column_"], "bend": ["batch", "row", "column_"], "mass": ["batch"]}
    numbers = {"half": np.float32(0.5), "quarter": np.float32(HALF)}
    places = {key: np.array(each) for key, each in {"grid": [1, 2], "one": [1], "first": [0], "last": [2]}.items()}
    return serialised(name, nodes, tensors(name), free, places | numbers)


def serialised(
    name: str,
    nodes: list[Any],
    tensors: tuple[dict[str, list[int]], dict[str, list[int]]],
    free: dict[str, list[str]],
    constants: Mapping[str, Any],
) -> bytes:
    """Return a graph of some nodes; `free` names all axes of the tensors that have no fixed sizes."""
    import onnx.helper as make  # noqa: PLC0415 - few tests need it
    from onnx import TensorProto, numpy_helper  # noqa: PLC0415 - as above

    values = [
        [
            make.make_tensor_value_info(
                one, TensorProto.INT32 if one == "grid" else TensorProto.FLOAT, free.get(one, ["batch", *dims])
            )
            for one, dims in each.items()
        ]
        for each in tensors
    ]
    held = [numpy_helper.from_array(np.asarray(value), key) for key, value in constants.items()]
    model = make.make_model(
        make.make_graph(nodes, name, *values, held), opset_imports=[make.make_opsetid("", 18)], ir_version=9
    )
    return bytes(model.SerializeToString())


def card(name: str) -> dict[str, Any]:
    """Return the card of a model."""
    field = {"dtype": "FP32", "axes": ["batch", "row", "column"], "shape": [None, None, None], "components": []}
    mass = {
        "name": "mass",
        "meaning": "mass",
        "units": "kg",
        "scalar": True,
        "dtype": "FP32",
        "axes": ["batch"],
        "shape": [None],
    }
    vector = {"dtype": "FP32", "axes": ["batch", "component"], "shape": [None, 2], "components": ["x", "y"]}
    force = {"name": "force", "meaning": "force on the wall", "units": "N", "scalar": True, **vector}
    outputs = [{"name": "bend", "meaning": "deflection", "units": "mm", **field}, mass, force]
    rows = {"mass": [{"coverage": 0.9}], "force": [{"coverage": 0.88}, {"coverage": 0.91}]}
    errors = [{"grid": list(GRID), "fields": 50, "relative_l2": 0.02, "vrmse": 0.07, "worst": 0.1}]
    return on_a_plane(name, tensors(name)[1], [GRID], rows) | {
        "title": "A plate",
        "inputs": [{"name": "thickness", "meaning": "thickness", "units": "mm", "positive": True, **field}],
        "parameters": [{"name": "load", "meaning": "load", "units": "kN", **vector}] if name == PLATE else [],
        "outputs": outputs if name == PLATE else [mass],
        "training": {"distribution": "plates", "preset": "tiny"},
        "errors": errors,
        "measures": {"relative_l2": "relative L2 error", "vrmse": "error over the deviation from the mean"},
        "scalars": [{"output": "mass", "units": "kg", "deviation": 0.5, "mean_error": 0.01}],
    }


def on_a_plane(
    name: str, outputs: Iterable[str], grids: Sequence[tuple[int, int]], intervals: dict[str, Any]
) -> dict[str, Any]:
    """Return what cards of models on a plane have in common; their numbers have intervals on the last of the grids."""
    sizes = [list(each) for each in grids]
    return {
        "model": name,
        "version": 1,
        "format": "onnx",
        "problem": name,
        "equation": "",
        "boundary": "row: walls; column: walls",
        "quality": [one for one in outputs if one.startswith(("error_estimate", "novelty"))],
        "grid": {
            "axes": ["row", "column"],
            "minimum": 4,
            "maximum": 64,
            "declared": [],
            "unequal": sizes,
            "points": "cells",
            "lengths": [1.0, 1.5],
            "boundaries": ["wall", "wall"],
        },
        "limits": {"batch": 8},
        "calibration": {"test": [{"grid": sizes[-1], "fields": 50, "outside": 0.0, "intervals": intervals}]},
        "classical": [],
        "checkpoint": {"sha256": "0" * 64, "parameters": 1},
    }
