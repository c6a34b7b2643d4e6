"""A rollout as one graph: ONNX's Loop around the graph of one step, whose nodes stay as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnx import NodeProto, TensorProto, helper

from export.layout import FRAME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnx import GraphProto, ModelProto, ValueInfoProto

    from export.signature import ParameterSpec, Signature, TensorSpec

TYPES = {"FP32": TensorProto.FLOAT, "INT32": TensorProto.INT32}
JUDGED = "judged_"  # before the names of what only quality outputs need
LAST = "last_index"  # -1, for the last frame of a history


def looped(step: ModelProto, signature: Signature, states: Sequence[str]) -> ModelProto:
    """Return the graph that repeats a step, from states, steady fields and parameters, once per column of `frame`."""
    several = signature.frames is not None and signature.frames.history > 1
    scanned = [f"{spec.name}_frames" for spec in signature.outputs]
    loop = helper.make_node(
        "Loop",
        ["frame_count", "", *states],
        [*(f"final_{name}" for name in states), *scanned],
        body=body(step.graph, signature, states),
    )
    nodes = [
        helper.make_node("Shape", [FRAME], ["frame_columns"], start=1, end=2),
        helper.make_node("Squeeze", ["frame_columns"], ["frame_count"]),
        loop,
        *(
            helper.make_node("Transpose", [name], [spec.name], perm=[1, 0, *range(2, len(spec.shape))])
            for name, spec in zip(scanned, signature.outputs, strict=True)
        ),
    ]
    graph = helper.make_graph(
        nodes,
        "rollout",
        [value(spec) for spec in signature.arguments],
        [value(spec) for spec in signature.outputs],
        [*step.graph.initializer, *([helper.make_tensor(LAST, TensorProto.INT64, [], [-1])] if several else [])],
    )
    return helper.make_model(graph, opset_imports=[*step.opset_import], ir_version=step.ir_version)


def body(step: GraphProto, signature: Signature, states: Sequence[str]) -> GraphProto:
    """Return the loop's body: (iteration, condition, states) to (condition, next states, frames).

    What a step reads beside the states comes from outside the loop.
    """
    own = {name: f"{name}_before" for name in states}  # a name must not mean two things inside and outside of the loop
    nodes = [renamed(node, own) for node in step.node]
    nodes.append(helper.make_node("Identity", ["go_on"], ["still_going_on"]))
    several = signature.frames is not None and signature.frames.history > 1
    for result in step.output:
        frame = [f"{result.name}_frame"]
        nodes.append(
            helper.make_node("Gather", [result.name, LAST], frame, axis=1)
            if several
            else helper.make_node("Identity", [result.name], frame)
        )
    specs = {spec.name: spec for spec in signature.inputs}
    scalars = [
        helper.make_tensor_value_info("iteration", TensorProto.INT64, []),
        helper.make_tensor_value_info("go_on", TensorProto.BOOL, []),
    ]
    frames = [unshaped(f"{result.name}_frame") for result in step.output]
    return helper.make_graph(
        nodes,
        "step",
        [*scalars, *(value(specs[name], own[name]) for name in states)],
        [helper.make_tensor_value_info("still_going_on", TensorProto.BOOL, []), *step.output, *frames],
        value_info=step.value_info,
    )


def append(model: ModelProto, judged: ModelProto) -> None:
    """Let a rollout return the quality outputs, of the graph `judged`, of the state that it starts from, too."""
    graph, results = judged.graph, {each.name for each in judged.graph.output}
    own = {name: f"{JUDGED}{name}" for node in graph.node for name in node.output if name not in results}
    own |= {each.name: f"{JUDGED}{each.name}" for each in graph.initializer}
    for node in graph.node:
        model.graph.node.append(renamed(node, own))
        model.graph.node[-1].name = f"{JUDGED}{node.name}"
    for constant in graph.initializer:
        model.graph.initializer.append(constant)
        model.graph.initializer[-1].name = own[constant.name]
    model.graph.output.extend(graph.output)


def renamed(node: NodeProto, names: dict[str, str]) -> NodeProto:
    """Return a copy of a node with other names of its tensors."""
    found = NodeProto()
    found.CopyFrom(node)
    found.input[:] = [names.get(name, name) for name in node.input]
    found.output[:] = [names.get(name, name) for name in node.output]
    return found


def unshaped(name: str) -> ValueInfoProto:
    """Describe a tensor of unknown shape."""
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, None)


def value(spec: TensorSpec | ParameterSpec, name: str | None = None, dtype: int | None = None) -> ValueInfoProto:
    """Describe a tensor of a graph, by default under its name and of its type on the wire."""
    sides = [axis if points is None else points for axis, points in zip(spec.axes, spec.shape, strict=True)]
    return helper.make_tensor_value_info(name or spec.name, TYPES[spec.dtype] if dtype is None else dtype, sides)
