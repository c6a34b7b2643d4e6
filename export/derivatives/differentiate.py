r"""Products of the Jacobian J of an exported graph f and a vector, as graphs of their own.

.. math::
    \text{vjp: } (x, c) \mapsto (f(x), J(x)^T c), \qquad \text{jvp: } (x, t) \mapsto (f(x), J(x) t).

The first is reverse accumulation. It is linear in c, and the second is its transpose: reverse accumulation once more,
by c. What both do not need, such as quality outputs, is left out of the graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx
from onnx import helper, numpy_helper

from export.derivatives.rules import CONSTANT, RULES, Step
from export.derivatives.tape import FLOATS, ONE, PREFIX, Tape
from export.graphs.rollout import value
from export.graphs.to_onnx import GraphError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from export.signature import Kind, Signature


def differentiate(model: onnx.ModelProto, kind: Kind, signature: Signature) -> onnx.ModelProto:
    """Return the graph of a product, whose signature is `signature`; see `Signature.product`.

    Raises:
        GraphError: An operator between inputs and outputs has no known derivative.
    """
    tape, names = Tape(model), {value.name for value in model.graph.input}
    inputs = [spec.name for spec in signature.arguments if spec.name in names]
    vectors = [spec for spec in signature.arguments if spec.name not in names]
    outputs = [spec.name for spec in signature.outputs if "." not in spec.name]
    for spec in vectors:
        tape.describe(value(spec, dtype=tape.types[outputs[0]]))
    if kind == "vjp":
        found = accumulate(tape, inputs, [(name, f"cotangents.{name}") for name in outputs])
        results = {f"gradients.{name}": whole(tape, found.get(name), name) for name in inputs}
    else:
        results = push(tape, inputs, outputs)
    return finished(tape, model, signature, dict.fromkeys(outputs, "") | results)


def push(tape: Tape, inputs: Sequence[str], outputs: Sequence[str]) -> dict[str, str]:
    """Append a Jacobian-vector product, and return its tensors by their names on the wire."""
    cotangents = [(name, tape.unknown(name)) for name in outputs]
    gradients = accumulate(tape, inputs, cotangents)
    tangents = [(whole(tape, gradients[name], name), f"tangents.{name}") for name in inputs if name in gradients]
    found = accumulate(tape, [cotangent for _, cotangent in cotangents], tangents)
    return {f"tangents.{name}": whole(tape, found.get(cotangent), name) for name, cotangent in cotangents}


def accumulate(tape: Tape, inputs: Sequence[str], seeds: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Append the gradients by inputs of tensors that depend on them, and return that of each tensor between.

    The seeds are such tensors, each with its gradient.
    """
    nodes, active = list(tape.nodes), set(inputs)  # the tensors of real numbers that change with the inputs
    for node in nodes:
        if node.op_type not in CONSTANT and not active.isdisjoint(node.input):
            active |= {result for result in node.output if tape.types.get(result) in FLOATS}
    found: dict[str, str] = {}

    def put(tensor: str, gradient: str) -> None:
        found[tensor] = tape.binary("Add", found[tensor], gradient) if tensor in found else gradient

    for tensor, gradient in seeds:
        put(tensor, gradient)
    for node in reversed(nodes):
        gradients = tuple(found.get(result) for result in node.output)
        wanted = tuple(name in active for name in node.input)
        if any(wanted) and any(gradients) and not active.isdisjoint(node.output):
            if node.op_type not in RULES:
                raise GraphError(f"{node.op_type} {node.name!r} has no known derivative")
            for index, gradient in RULES[node.op_type](Step(tape, node, gradients, wanted)).items():
                if wanted[index]:
                    put(node.input[index], gradient)
    return found


def whole(tape: Tape, gradient: str | None, like: str) -> str:
    """Return a gradient in the shape of a tensor, zeros where there is none."""
    return tape.spread(tape.number(0, like) if gradient is None else gradient, tape.shapes[like])


def finished(tape: Tape, model: onnx.ModelProto, signature: Signature, results: Mapping[str, str]) -> onnx.ModelProto:
    """Return the graph that computes results, and nothing else.

    The results are tensors by their names on the wire, "" where the name is the same.
    """
    for spec in signature.outputs:
        if source := results[spec.name]:
            shaped = tape.reshape(source, (*tape.shapes[source], ONE)) if spec.axes == ("batch", "value") else source
            tape.nodes.append(helper.make_node("Identity", [shaped], [spec.name], f"{PREFIX}{spec.name}"))
    nodes = needed(tape.nodes, {spec.name for spec in signature.outputs})
    used = {name for node in nodes for name in node.input}
    own = {value.name: value for value in model.graph.input}
    dtype = model.graph.output[0].type.tensor_type.elem_type
    graph = helper.make_graph(
        nodes,
        model.graph.name,
        [own.get(spec.name) or value(spec, dtype=dtype) for spec in signature.arguments],
        [value(spec, dtype=dtype) for spec in signature.outputs],
        [numpy_helper.from_array(array, name) for name, array in tape.constants.items() if name in used],
    )
    made = helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
    made.producer_name = model.producer_name
    return made


def needed(nodes: Sequence[onnx.NodeProto], names: set[str]) -> list[onnx.NodeProto]:
    """Return the nodes that tensors depend on, in order."""
    found = []
    for node in reversed(nodes):
        if not names.isdisjoint(node.output):
            found.append(node)
            names = names | set(node.input)
    return found[::-1]
