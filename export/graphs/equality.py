"""Equality of exported graphs: what they compute, in which order and of which constants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

#: The most by which computed constants differ, relative to the largest number of each: some units in the last place.
ROUNDING = 5e-6


def equal(one: bytes, other: bytes) -> bool:
    """Return whether two serialised graphs are equal, whatever their inner values are called.

    Floating-point constants are equal to `ROUNDING`, the rest exactly.
    """
    if one == other:
        return True
    models = [onnx.load_model_from_string(each) for each in (one, other)]
    for model in models:
        wire = {each.name for each in (*model.graph.input, *model.graph.output)}
        number(model.graph, {"": ""} | {name: name for name in wire})
    first, second = ([taken_out(each) for each in constants(model.graph)] for model in models)

    def close(a: NDArray[Any], b: NDArray[Any]) -> bool:
        largest = np.abs(a[np.isfinite(a)]).max(initial=0)
        return bool(np.allclose(a, b, rtol=0, atol=ROUNDING * largest, equal_nan=True))

    return models[0] == models[1] and all(map(close, first, second))


def number(graph: onnx.GraphProto, names: dict[str, str]) -> None:
    """Name the values of a graph by their order, those in `names` as it says, and take the names of its nodes."""

    def numbered(name: str) -> str:
        return names.setdefault(name, str(len(names)))

    for value in (*graph.input, *graph.initializer):
        value.name = numbered(value.name)
    for node in graph.node:
        node.name = ""
        node.input[:] = map(numbered, node.input)
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                number(attribute.g, names)
        node.output[:] = map(numbered, node.output)
    for value in (*graph.output, *graph.value_info):
        value.name = numbered(value.name)


def constants(graph: onnx.GraphProto) -> Iterator[TensorProto]:
    """Return the floating-point constants of a graph and of the graphs inside it."""
    yield from (each for each in graph.initializer if each.data_type in {TensorProto.FLOAT, TensorProto.DOUBLE})
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from constants(attribute.g)


def taken_out(constant: TensorProto) -> NDArray[Any]:
    """Return the numbers of a constant, which keeps its type and shape alone."""
    numbers = numpy_helper.to_array(constant)
    for field in ("raw_data", "float_data", "double_data"):
        constant.ClearField(field)
    return numbers
