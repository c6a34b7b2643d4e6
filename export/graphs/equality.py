"""Equality of exported graphs: what they compute, and of which constants.

Releases of torch call inner values otherwise, and list operators that do not need one another in another order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from numpy.typing import NDArray

#: The most by which computed constants differ, relative to the largest number of each: some units in the last place.
ROUNDING = 5e-6


def equal(one: bytes, other: bytes) -> bool:
    """Return whether two serialised graphs compute every output by the same operators of the same values.

    Floating-point constants are equal to `ROUNDING`, the rest exactly.
    """
    if one == other:
        return True
    models = [onnx.load_model_from_string(each) for each in (one, other)]
    for model in models:
        arrange(model.graph)
        wire = {each.name for each in (*model.graph.input, *model.graph.output)}
        number(model.graph, {"": ""} | {name: name for name in wire})
    first, second = ([taken_out(each) for each in constants(model.graph)] for model in models)

    def close(a: NDArray[Any], b: NDArray[Any]) -> bool:
        largest = np.abs(a[np.isfinite(a)]).max(initial=0)
        return bool(np.allclose(a, b, rtol=0, atol=ROUNDING * largest, equal_nan=True))

    return models[0] == models[1] and all(map(close, first, second))


def arrange(graph: onnx.GraphProto) -> None:
    """Order nodes and constants as the outputs need them, one after the other, and those inside of nodes likewise."""
    made = {name: position for position, node in enumerate(graph.node) for name in node.output}
    order: dict[int, None] = {}
    begun: set[int] = set()  # a node that needs its own result, which no valid graph has, is not begun again
    waiting = [(position, False) for position in reversed([*needed(graph.output, made), *range(len(graph.node))])]
    while waiting:
        position, ready = waiting.pop()
        if ready:
            order[position] = None
            continue
        if position in begun:
            continue
        begun.add(position)
        before = [made[name] for name in read(graph.node[position]) if name in made]
        waiting += [(position, True), *((each, False) for each in reversed(before))]
    nodes = [graph.node[position] for position in order]
    for inner in (each for node in nodes for each in inside(node)):
        arrange(inner)
    places = {name: place for place, name in enumerate(name for node in nodes for name in (*read(node), *node.output))}
    parts: list[Any] = [graph.initializer, graph.value_info]
    for part in parts:
        put(part, sorted(part, key=lambda each: places.get(each.name, -1)))
    put(graph.node, nodes)


def needed(values: Iterable[onnx.ValueInfoProto], made: Mapping[str, int]) -> list[int]:
    """Return the positions of the nodes that make values."""
    return [made[each.name] for each in values if each.name in made]


def read(node: onnx.NodeProto) -> list[str]:
    """Return the names of what a node reads, and of what the graphs inside it read."""
    return [*node.input, *(name for graph in inside(node) for each in graph.node for name in read(each))]


def inside(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    """Return the graphs inside a node: the body of a loop, or branches."""
    return [each.g for each in node.attribute if each.type == onnx.AttributeProto.GRAPH]


def put(part: Any, messages: Iterable[Any]) -> None:
    """Put messages into a repeated field, in this order."""
    kept = [type(each).FromString(each.SerializeToString()) for each in messages]
    del part[:]
    part.extend(kept)


def number(graph: onnx.GraphProto, names: dict[str, str]) -> None:
    """Name the values of a graph by their order, those in `names` as it says, and take the names of its nodes."""

    def numbered(name: str) -> str:
        return names.setdefault(name, str(len(names)))

    given: list[Any] = [*graph.input, *graph.initializer]
    for value in given:
        value.name = numbered(value.name)
    for node in graph.node:
        node.name = ""
        node.input[:] = map(numbered, node.input)
        for inner in inside(node):
            number(inner, names)
        node.output[:] = map(numbered, node.output)
    for value in (*graph.output, *graph.value_info):
        value.name = numbered(value.name)
        del value.metadata_props[:]  # what the optimiser made a constant of


def constants(graph: onnx.GraphProto) -> Iterator[TensorProto]:
    """Return the floating-point constants of a graph and of the graphs inside it."""
    yield from (each for each in graph.initializer if each.data_type in {TensorProto.FLOAT, TensorProto.DOUBLE})
    for node in graph.node:
        for inner in inside(node):
            yield from constants(inner)


def taken_out(constant: TensorProto) -> NDArray[Any]:
    """Return the numbers of a constant, which keeps its type and shape alone."""
    numbers = numpy_helper.to_array(constant)
    for field in ("raw_data", "float_data", "double_data"):
        constant.ClearField(field)
    return numbers
