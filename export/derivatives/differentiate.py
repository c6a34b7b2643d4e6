r"""Products of the Jacobian J of an exported graph f and a vector, as graphs of their own.

.. math::
    \text{vjp: } (x, c) \mapsto (f(x), J(x)^T c), \qquad \text{jvp: } (x, t) \mapsto (f(x), J(x) t).

The first is reverse accumulation. It is linear in c, and the second is its transpose: reverse accumulation once more,
by c. What both do not need, such as quality outputs, is left out of the graph.

The products of a rollout are loops around the products of one step:

.. math::
    x_{n+1} = F(x_n, p), \qquad \lambda_n = F_x(x_n, p)^T (\lambda_{n+1} + c_{n+1}), \quad
    g_p = \sum_n F_p(x_n, p)^T (\lambda_{n+1} + c_{n+1})

where p are the arguments beside the states; a step sees one frame of those that have a value per frame, whose gradient
is that of each step, without a sum. A vector-Jacobian product keeps the states x that the steps start from, then runs
backwards over them with the cotangents c of the frames; a step is computed again where its derivative needs it. A
Jacobian-vector product is the rollout of state and tangent together.
"""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING

import onnx
from onnx import TensorProto, helper, numpy_helper

from export.derivatives.rules import CONSTANT, RULES, Step
from export.derivatives.tape import FLOATS, ONE, PREFIX, Tape
from export.graphs.to_onnx import (
    BEFORE,
    COUNT,
    LAST,
    GraphError,
    inner,
    inside_names,
    looped,
    renamed,
    taken_before,
    unshaped,
    value,
)
from schema.card import FRAME

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from export.signature import Signature
    from schema.card import Kind, Tensor


#: The integers that turn an axis round, and the last axis of columns.
BACKWARDS = {"from_last": -1, "to_first": -(2**63), "zero_axis": 0, "one_back": -1, "two_axis": 2}


def differentiate(model: onnx.ModelProto, kind: Kind, signature: Signature) -> onnx.ModelProto:
    """Return the graph of a product, whose signature is `signature`; see `Signature.product`.

    Raises:
        GraphError: An operator between inputs and outputs has no known derivative.
    """
    tape, names = Tape(model), {value.name for value in model.graph.input}
    inputs = [spec.name for spec in signature.arguments if spec.name in names and spec.dtype == "FP32"]
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
            names = names | reads([node])
    return found[::-1]


# Rollouts


def differentiate_rollout(model: onnx.ModelProto, kind: Kind, signature: Signature) -> onnx.ModelProto:
    """Return the graph of a product of a rollout, made by `export.graphs.to_onnx.looped`, by the model's signature.

    Raises:
        GraphError: The model is no rollout, or an operator of its step has no known derivative.
    """
    states, step = states_of(signature), signature.step()
    product = differentiate(step_of(model, signature), kind, step.product(kind))
    if kind == "vjp":
        return pulled(model, product, signature)
    both = [*(spec.name for spec in states), *(f"tangents.{spec.name}" for spec in states)]
    return looped(product, signature.product(kind), both)


def states_of(signature: Signature) -> list[Tensor]:
    """Return the inputs that are states, in the order of the outputs."""
    inputs = {spec.name: spec for spec in signature.inputs}
    return [inputs[name] for name in (signature.frames.states if signature.frames else ())]


def step_of(model: onnx.ModelProto, signature: Signature) -> onnx.ModelProto:
    """Return the graph of one step of a rollout: what `looped` was made of."""
    loop, states = loop_of(model.graph.node), states_of(signature)
    body, before = body_of(loop), takewhile(lambda node: node is not loop, model.graph.node)
    own, now = inside_names(signature, [spec.name for spec in states])
    names = {here: name for name, here in (own | now).items()}
    results = body.output[1 : 1 + len(states)]
    steps = (*before, *body.node)  # with what all steps share
    nodes = [renamed(node, names) for node in steps if names.keys().isdisjoint(node.output)]
    specs = {spec.name: value(spec) for spec in signature.step().arguments if spec.name in signature.forced}
    graph = helper.make_graph(
        needed(nodes, {each.name for each in results}),
        "step",
        [specs.get(each.name, each) for each in model.graph.input if each.name != FRAME],
        results,
        [each for each in model.graph.initializer if each.name != inner(LAST, signature)],
        value_info=body.value_info,
    )
    return helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)


def loop_of(nodes: Sequence[onnx.NodeProto]) -> onnx.NodeProto:
    """Return the loop among the nodes of a rollout."""
    loops = [node for node in nodes if node.op_type == "Loop"]
    if len(loops) != 1:
        raise GraphError(f"expected one loop, to differentiate a rollout, but found {len(loops)}")
    return loops[0]


def body_of(loop: onnx.NodeProto) -> onnx.GraphProto:
    """Return the body of a loop, not a copy."""
    return next(each.g for each in loop.attribute if each.name == "body")


def pulled(model: onnx.ModelProto, product: onnx.ModelProto, signature: Signature) -> onnx.ModelProto:
    """Return the vector-Jacobian product of a rollout; `product` is that of one step."""
    product_signature, states = signature.product("vjp"), states_of(signature)
    names = [name for name in signature.argument_names if name not in {FRAME, *signature.forced}]
    columns = {parameter.name for parameter in signature.parameters}
    forward = copied(needed(model.graph.node, {spec.name for spec in signature.outputs}))
    loop = loop_of(forward)
    for spec in states:  # it returns the states that its steps start from, too, one after the other
        before = inner(f"{spec.name}{BEFORE}", signature)
        body_of(loop).node.append(helper.make_node("Identity", [before], [f"{spec.name}_kept"]))
        body_of(loop).output.append(unshaped(f"{spec.name}_kept"))
        loop.output.append(f"{spec.name}_starts")
    body = backward_body(product, signature)
    made = {name for node in forward for name in node.output}
    shared = (
        taken_before(body, signature, [spec.name for spec in states])
        if signature.scattered or signature.mask is not None
        else []
    )
    count, last = inner(COUNT, signature), inner("last_frame", signature)
    backward = helper.make_node(
        "Loop",
        [count, "", *(f"{name}_zeros" for name in names)],
        [*(f"gradients.{name}" for name in names), *(f"{name}_backwards" for name in signature.forced)],
        body=body,
    )
    nodes = [
        *forward,
        *(node for node in shared if made.isdisjoint(node.output)),  # the steps forwards have some of these before
        helper.make_node("Sub", [count, "one_index"], [last]),
        *(node for name in names for node in zeros(name, column=name in columns)),
        backward,
        *(node for spec in product_signature.outputs for node in forwards(spec, signature, columns)),
    ]
    constants = {each.name: each for graph in (model.graph, product.graph) for each in graph.initializer}
    constants |= {each.name: each for each in integers(states, signature.frames.history if signature.frames else 1)}
    used = reads(nodes)
    graph = helper.make_graph(
        nodes,
        "rollout",
        [value(spec) for spec in product_signature.arguments],
        [value(spec) for spec in product_signature.outputs],
        [each for name, each in constants.items() if name in used],
    )
    return helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)


def backward_body(product: onnx.ModelProto, signature: Signature) -> onnx.GraphProto:
    """Return the body of the loop backwards, which carries the gradients by all arguments, those by states stepwise.

    Gradients by what has a value per frame are its results, one for each step.
    """
    states, several = states_of(signature), signature.frames is not None and signature.frames.history > 1
    carried = [spec.name for spec in states]
    summed = [name for name in signature.argument_names if name not in {*carried, *signature.forced, FRAME}]
    before, now = inside_names(signature, carried)
    number, condition, kept, last, frame = (
        inner(name, signature) for name in ("iteration", "go_on", "still_going_on", "last_frame", "backward_frame")
    )
    nodes = [helper.make_node("Sub", [last, number], [frame])]
    nodes += [helper.make_node("Gather", [name, frame], [here], axis=1) for name, here in now.items()]
    for spec, result in zip(states, signature.outputs, strict=True):
        name = spec.name
        nodes += [
            helper.make_node("Gather", [f"{name}_starts", frame], [before[name]], axis=0),
            *cotangent(f"cotangents.{result.name}", name, frame, several=several),
            helper.make_node("Add", [f"{name}_after", f"{name}_cotangent"], [f"cotangents.next_{name}"]),
        ]
    own = before | now
    own |= {f"gradients.{name}": f"{name}_gradient" for name in (*carried, *summed, *now)}
    results = {f"gradients.{name}" for name in (*carried, *summed, *now)}
    nodes += [renamed(node, own) for node in needed(product.graph.node, results)]
    nodes += [helper.make_node("Identity", [f"{name}_gradient"], [f"{name}_pulled"]) for name in carried]
    nodes += [helper.make_node("Add", [f"{name}_after", f"{name}_gradient"], [f"{name}_pulled"]) for name in summed]
    nodes.append(helper.make_node("Identity", [condition], [kept]))
    names = [name for name in signature.argument_names if name not in {FRAME, *now}]
    return helper.make_graph(
        nodes,
        "step_backwards",
        [
            helper.make_tensor_value_info(number, TensorProto.INT64, []),
            helper.make_tensor_value_info(condition, TensorProto.BOOL, []),
            *(unshaped(f"{name}_after") for name in names),
        ],
        [
            helper.make_tensor_value_info(kept, TensorProto.BOOL, []),
            *(unshaped(f"{name}_pulled") for name in names),
            *(unshaped(f"{name}_gradient") for name in now),
        ],
    )


def forwards(spec: Tensor, signature: Signature, columns: Collection[str]) -> list[onnx.NodeProto]:
    """Return the nodes that order a gradient `[step, batch, ...]`, the last step first, as its argument is.

    There are none for other results than gradients by what has a value per frame. A number per sample is a column.
    """
    name = spec.name.removeprefix("gradients.")
    if name == spec.name or name not in signature.forced:
        return []
    turned, ordered = f"{name}_forwards", f"{name}_ordered"
    nodes = [
        helper.make_node("Slice", [f"{name}_backwards", "from_last", "to_first", "zero_axis", "one_back"], [turned])
    ]
    if name not in columns:
        perm = [1, 0, *range(2, len(spec.sizes))]
        return [*nodes, helper.make_node("Transpose", [turned], [spec.name], perm=perm)]
    nodes.append(helper.make_node("Transpose", [turned], [ordered], perm=[1, 0, 2]))
    return [*nodes, helper.make_node("Squeeze", [ordered, "two_axis"], [spec.name])]


def cotangent(frames: str, state: str, frame: str, *, several: bool) -> list[onnx.NodeProto]:
    """Return the nodes that take the cotangent of a frame as one of the next state, whose last frame it is."""
    if not several:
        return [helper.make_node("Gather", [frames, frame], [f"{state}_cotangent"], axis=1)]
    return [
        helper.make_node("Gather", [frames, frame], [f"{state}_frame"], axis=1),
        helper.make_node("Unsqueeze", [f"{state}_frame", "one_axis"], [f"{state}_last"]),
        helper.make_node("Pad", [f"{state}_last", f"{state}_pads"], [f"{state}_cotangent"]),
    ]


def zeros(name: str, *, column: bool) -> list[onnx.NodeProto]:
    """Return the nodes that make zeros of the shape of an argument, or a column of them for a number per sample."""
    sizes = [f"{name}_sizes"]
    nodes = [helper.make_node("Shape", [name], sizes)]
    if column:
        nodes.append(helper.make_node("Concat", [*sizes, "one_axis"], [f"{name}_column"], axis=0))
        sizes = [f"{name}_column"]
    zero = helper.make_tensor("zero", TensorProto.FLOAT, [1], [0.0])
    return [*nodes, helper.make_node("ConstantOfShape", sizes, [f"{name}_zeros"], value=zero)]


def integers(states: Sequence[Tensor], history: int) -> Iterator[onnx.TensorProto]:
    """Return the integers that nodes of this module read; `history` counts the frames of a state."""
    yield helper.make_tensor("one_index", TensorProto.INT64, [], [1])
    yield helper.make_tensor("one_axis", TensorProto.INT64, [1], [1])
    for name, number in BACKWARDS.items():
        yield helper.make_tensor(name, TensorProto.INT64, [1], [number])
    for spec in states:
        before = [0, history - 1, *[0] * (len(spec.sizes) - 2)]  # a frame becomes the last one
        yield helper.make_tensor(
            f"{spec.name}_pads", TensorProto.INT64, [2 * len(before)], [*before, *[0] * len(before)]
        )


def reads(nodes: Sequence[onnx.NodeProto]) -> set[str]:
    """Return the names that nodes read, and those inside of loops."""
    found = {name for node in nodes for name in node.input}
    inner = [each.g.node for node in nodes for each in node.attribute if each.type == onnx.AttributeProto.GRAPH]
    return found.union(*map(reads, inner))


def copied(nodes: Sequence[onnx.NodeProto]) -> list[onnx.NodeProto]:
    """Return copies of nodes."""
    found = [onnx.NodeProto() for _ in nodes]
    for copy, node in zip(found, nodes, strict=True):
        copy.CopyFrom(node)
    return found
