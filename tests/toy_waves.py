"""Toy models of parameters alone: `waves` returns a field on the grid of the request and a number, `lift` a number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.toy_numbers import HALF, on_a_plane, serialised, write

WAVES, LIFT = "waves", "lift"
GRID, OTHER = (12, 16), (24, 32)


def add(repository: Path) -> None:
    """Write both models into a repository."""
    found = samples()
    found |= compute(**found, grid=GRID)
    for name in (WAVES, LIFT):
        known = {key: found[key] for each in tensors(name) for key in each if key in found}
        write(repository, name, tensors(name), graph(name), card(name), known)


def tensors(name: str) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
    """Return the tensors of a model with their sizes behind the batch axis."""
    if name == LIFT:
        return {"speed": [1], "grid": [-1, -1]}, {"lift": [1], "error_estimate": [1]}
    outputs = {"height": [-1, -1], "lift": [1], "error_estimate": [1], "error_estimate.lift": [1]}
    return {"speed": [1], "wind": [2], "grid": [-1, -1]}, outputs


def samples(count: int = 2) -> dict[str, NDArray[np.float32]]:
    """Return parameters `[count, …]` by name."""
    rng = np.random.default_rng(0)
    return {
        "speed": rng.uniform(1, 2, count).astype(np.float32),
        "wind": rng.uniform(1, 2, (count, 2)).astype(np.float32),
    }


def compute(speed: NDArray[Any], wind: NDArray[Any], grid: tuple[int, ...]) -> dict[str, NDArray[Any]]:
    """Return the outputs of `waves`, in NumPy."""
    across = np.arange(1, grid[1] + 1) / grid[1] + np.zeros(grid)
    return {
        "height": np.float32(speed[:, None, None] * across + wind[:, :1, None]),
        "lift": np.float32(2 * speed),
    }


def graph(name: str) -> bytes:
    """Return the graph of a model."""
    from onnx import TensorProto  # noqa: PLC0415 - few tests need it
    from onnx.helper import make_node as node  # noqa: PLC0415 - as above

    estimate = "error_estimate" if name == LIFT else "error_estimate.lift"
    nodes = [
        node("Add", ["speed", "speed"], ["lift"]),
        node("Unsqueeze", ["lift", "one"], ["lifts"]),
        node("Mul", ["lifts", "quarter"], [estimate]),
    ]
    if name == WAVES:
        nodes += [
            node("Cast", ["grid"], ["zeros"], to=TensorProto.FLOAT),
            node("Exp", ["zeros"], ["ones"]),
            node("CumSum", ["ones", "last"], ["column"]),
            node("ReduceMax", ["column", "last_"], ["columns"]),
            node("Div", ["column", "columns"], ["across"]),
            node("Unsqueeze", ["speed", "behind"], ["speeds"]),
            node("Mul", ["across", "speeds"], ["slope"]),
            node("Slice", ["wind", "first", "one", "one"], ["gust"]),
            node("Unsqueeze", ["gust", "last_"], ["gusts"]),
            node("Add", ["slope", "gusts"], ["height"]),
            node("Sub", ["lifts", "lifts"], ["zero"]),
            node("Add", ["zero", "quarter"], ["error_estimate"]),
        ]
    free = {"grid": ["batch", "row", "column"], "height": ["batch", "row", "column"]}
    free |= {"speed": ["batch"], "lift": ["batch"]}
    places = {"one": [1], "first": [0], "behind": [1, 2], "last_": [2], "last": 2}
    constants = {key: np.array(value) for key, value in places.items()} | {"quarter": np.float32(HALF)}
    return serialised(name, nodes, tensors(name), free, constants)


def card(name: str) -> dict[str, Any]:
    """Return the card of a model."""
    number = {"dtype": "FP32", "axes": ["batch"], "shape": [None]}
    speed = {"name": "speed", "meaning": "speed", "units": "m/s", "minimum": 0.0, "maximum": 4.0, **number}
    wind = {"name": "wind", "meaning": "wind", "units": "m/s", "dtype": "FP32", "axes": ["batch", "component"]}
    wind |= {"shape": [None, 2], "components": ["x", "y"]}
    height = {"name": "height", "meaning": "height", "units": "m", "dtype": "FP32", "axes": ["batch", "row", "column"]}
    lift = {"name": "lift", "meaning": "lift", "units": "N", "scalar": True, **number}
    return on_a_plane(name, tensors(name)[1], [OTHER, GRID], {"lift": [{"coverage": 0.9}]}) | {
        "title": "Waves of a wind",
        "inputs": [],
        "parameters": [speed, wind] if name == WAVES else [speed],
        "outputs": [height | {"shape": [None, None, None]}, lift] if name == WAVES else [lift],
        "training": {"distribution": "winds", "preset": "tiny"},
        "errors": [{"grid": list(grid), "fields": 50, "relative_l2": 0.02, "worst": 0.1} for grid in (OTHER, GRID)],
        "measures": {"relative_l2": "relative L2 error"},
        "scalars": [{"output": "lift", "units": "N", "deviation": 0.5, "mean_error": 0.01}],
    }
