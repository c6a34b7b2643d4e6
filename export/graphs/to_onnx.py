"""Export to `model.onnx`: one graph of standard operators with free batch and grid axes.

The exporter computes what does not depend on the inputs. Each kind of processor sums a matrix product in an order of
its own, so these constants differ in their last digits. Everything else is the same on every machine (`equality`).

A rollout is ONNX's Loop around the graph of one step, whose nodes stay as they are. On points of their own and with a
mask, what is the same in every step, such as the weights of the points on a latent grid, is computed once, before the
loop.
"""

from __future__ import annotations

import logging
import warnings
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import onnx
import onnxruntime
import torch
from onnx import TensorProto, helper
from onnxscript.rewriter import _basics, _matcher
from onnxscript.rewriter.pattern import Constant
from torch.export import Dim

from export.graphs.deployable import example, one_trace, shape_checks_off
from schema.card import FRAME

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray
    from torch import nn

    from export.graphs.deployable import Deployable
    from export.signature import Signature
    from schema.card import Parameter, Tensor

FILE = "model.onnx"
OPSET = 20  # the first with Gelu; ONNX Runtime reads it since 1.17

#: Slow, on the processor only, and wrong in some releases of ONNX Runtime.
FORBIDDEN = frozenset({"DFT", "STFT", "Rfft", "Irfft"})


TYPES = {"FP32": TensorProto.FLOAT, "INT32": TensorProto.INT32}
JUDGED = "judged_"  # before the names of what only quality outputs need
BEFORE = "_before"  # behind the names of the states that a step starts from
NOW = "_now"  # behind the names of what a step sees of arguments that have a value per frame
INSIDE = ".inside"  # behind the names of values that are called as a tensor on the wire
LAST = "last_index"  # -1, for the last frame of a history
COUNT = "frame_count"  # how many frames are wanted


# The optimiser lists all nodes of a graph for every node and every rule of two results, also where the node is of
# another operator than the rule's first. Asking for the operator before is a quarter of an export's time, and the graph
# is the same to the byte.
_match = _matcher.SimplePatternMatcher.match


def _match_operator(self: _matcher.SimplePatternMatcher, *arguments: Any, **options: Any) -> _basics.MatchResult:
    sought, node = self.pattern.output_nodes[0].op_identifier(), arguments[2]
    if sought is not None and sought != node.op_identifier():
        return _basics.MatchResult().fail("another operator")
    return _match(self, *arguments, **options)


setattr(_matcher.SimplePatternMatcher, "match", _match_operator)  # noqa: B010 - no rule can be exchanged by an option


class GraphError(ValueError):
    """A graph must not be deployed: the message says what it holds."""


def write(module: Deployable, signature: Signature, path: Path) -> None:
    """Export by the dynamo exporter, check and write; the same module gives the same bytes."""
    path.write_bytes(graph_of(module, signature))


def graph_of(module: Deployable, signature: Signature) -> bytes:
    """Return the bytes that `write` writes."""
    model = convert(module, signature)
    strip(model)
    return checked(model, signature)


def checked(model: onnx.ModelProto, signature: Signature) -> bytes:
    """Return the bytes of a graph, the same ones every time, if it runs everywhere and for every shape."""
    onnx.checker.check_model(model, full_check=True)
    check(model, signature)
    return model.SerializeToString(deterministic=True)


def convert(module: Deployable, signature: Signature) -> onnx.ModelProto:
    """Return the optimised graph."""
    if signature.frames is None:
        return traced(module, signature, signature.arguments, signature.result_names)
    wire = {*signature.argument_names, *signature.result_names}
    arguments = tuple(spec for spec in signature.arguments if spec.name != FRAME)
    names = tuple(spec.name for spec in arguments)
    described = signature.step()
    step = traced(module.step(names), described, described.arguments, described.result_names, wire)
    model = looped(step, signature, signature.frames.states)
    if signature.quality:
        append_judgement(model, traced(module.judgement(names), signature, arguments, signature.quality, wire))
    return model


def traced(
    module: nn.Module,
    signature: Signature,
    arguments: Sequence[Tensor | Parameter],
    results: Sequence[str],
    wire: Collection[str] = (),
) -> onnx.ModelProto:
    """Export a module and optimise its graph; `arguments` are the first ones of the signature.

    No value inside has the name of an argument or result, or one in `wire`.
    """
    # The optimiser takes constants below 1e-8 for 0, so that `sqrt(x + 1e-12)` would lose what keeps it from 0.
    setattr(Constant, "_abs_tol", property(lambda _: 0.0, lambda *_: None))  # noqa: B010 - a private attribute
    with shape_checks_off(), quiet(), one_trace(OPSET, len(results)):
        program = torch.onnx.export(
            module,
            example(signature)[: len(arguments)],
            dynamo=True,
            dynamic_shapes=free_axes(signature)[: len(arguments)],
            input_names=[spec.name for spec in arguments],
            output_names=list(results),
            opset_version=OPSET,
            optimize=True,
            external_data=False,
            verbose=False,
        )
    if program is None:
        raise GraphError("the exporter gave no graph")
    rename_inside(program.model.graph, {*wire, *results, *(spec.name for spec in arguments)})
    return program.model_proto


def rename_inside(graph: Any, wire: Collection[str]) -> None:
    """Give values inside of a graph of the exporter other names than those on the wire.

    It names them after operators, such as `mean`, and its results as asked, whether a value has the name or not.
    """
    outside = {id(each) for each in (*graph.inputs, *graph.outputs)}
    inside = (each for node in graph.all_nodes() for each in node.outputs)
    for each in [*graph.initializers.values(), *inside]:
        if each.name in wire and id(each) not in outside:
            each.name = f"{each.name}{INSIDE}"


def looped(step: onnx.ModelProto, signature: Signature, states: Sequence[str]) -> onnx.ModelProto:
    """Return the graph that repeats a step, from states and other arguments, once per column of `frame`."""
    several = signature.frames is not None and signature.frames.history > 1
    scanned = [inner(f"{spec.name}_frames", signature) for spec in signature.outputs]
    body = loop_body(step.graph, signature, states)
    shared = taken_before(body, signature, states) if signature.scattered or signature.mask is not None else []
    columns, count, last = (inner(name, signature) for name in ("frame_columns", COUNT, LAST))
    loop = helper.make_node(
        "Loop",
        [count, "", *states],
        [*(inner(f"final_{name}", signature) for name in states), *scanned],
        body=body,
    )
    nodes = [
        *shared,
        helper.make_node("Shape", [FRAME], [columns], start=1, end=2),
        helper.make_node("Squeeze", [columns], [count]),
        loop,
        *(
            helper.make_node("Transpose", [name], [spec.name], perm=[1, 0, *range(2, len(spec.sizes))])
            for name, spec in zip(scanned, signature.outputs, strict=True)
        ),
    ]
    graph = helper.make_graph(
        nodes,
        "rollout",
        [value(spec) for spec in signature.arguments],
        [value(spec) for spec in signature.outputs],
        [*step.graph.initializer, *([helper.make_tensor(last, TensorProto.INT64, [], [-1])] if several else [])],
    )
    return helper.make_model(graph, opset_imports=[*step.opset_import], ir_version=step.ir_version)


def loop_body(step: onnx.GraphProto, signature: Signature, states: Sequence[str]) -> onnx.GraphProto:
    """Return the loop's body: (iteration, condition, states) to (condition, next states, frames).

    What a step reads beside the states comes from outside the loop; of what has a value per frame it takes its own.
    """
    # A name must not mean two things inside and outside of the loop.
    own, now = inside_names(signature, states)
    number, condition, kept, last = (inner(name, signature) for name in ("iteration", "go_on", "still_going_on", LAST))
    nodes = [helper.make_node("Gather", [name, number], [here], axis=1) for name, here in now.items()]
    nodes += [renamed(node, own | now) for node in step.node]
    nodes.append(helper.make_node("Identity", [condition], [kept]))
    several = signature.frames is not None and signature.frames.history > 1
    frames = [inner(f"{result.name}_frame", signature) for result in step.output]
    for result, frame in zip(step.output, frames, strict=True):
        nodes.append(
            helper.make_node("Gather", [result.name, last], [frame], axis=1)
            if several
            else helper.make_node("Identity", [result.name], [frame])
        )
    specs = {spec.name: spec for spec in signature.inputs}
    scalars = [
        helper.make_tensor_value_info(number, TensorProto.INT64, []),
        helper.make_tensor_value_info(condition, TensorProto.BOOL, []),
    ]
    return helper.make_graph(
        nodes,
        "step",
        [*scalars, *(value(specs[name], own[name]) for name in states)],
        [helper.make_tensor_value_info(kept, TensorProto.BOOL, []), *step.output, *map(unshaped, frames)],
        value_info=step.value_info,
    )


def inner(name: str, signature: Signature) -> str:
    """Return a name inside of a rollout's graph: another one where a tensor on the wire is called so."""
    return f"{name}{INSIDE}" if name in {*signature.argument_names, *signature.result_names} else name


def inside_names(signature: Signature, states: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return how the body of a loop calls states, and what it sees of arguments that have a value per frame."""
    return (
        {name: inner(f"{name}{BEFORE}", signature) for name in states},
        {name: inner(f"{name}{NOW}", signature) for name in signature.forced},
    )


def taken_before(body: onnx.GraphProto, signature: Signature, states: Sequence[str]) -> list[onnx.NodeProto]:
    """Take the nodes out of a loop's body that compute the same in every iteration, and return them in order.

    The shape of a state is that of the one before the loop.
    """
    first = {inner(f"{name}{BEFORE}", signature): name for name in states}
    changing, shared, own = {each.name for each in body.input}, [], []
    for node in body.node:
        here = renamed(node, first if node.op_type == "Shape" else {})
        if changing.isdisjoint(here.input):
            shared.append(here)
        else:
            own.append(here)
            changing.update(here.output)
    del body.node[:]
    body.node.extend(own)
    return shared


def append_judgement(model: onnx.ModelProto, judged: onnx.ModelProto) -> None:
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


def renamed(node: onnx.NodeProto, names: dict[str, str]) -> onnx.NodeProto:
    """Return a copy of a node with other names of its tensors."""
    found = onnx.NodeProto()
    found.CopyFrom(node)
    found.input[:] = [names.get(name, name) for name in node.input]
    found.output[:] = [names.get(name, name) for name in node.output]
    return found


def unshaped(name: str) -> onnx.ValueInfoProto:
    """Describe a tensor of unknown shape."""
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, None)


def value(spec: Tensor | Parameter, name: str | None = None, dtype: int | None = None) -> onnx.ValueInfoProto:
    """Describe a tensor of a graph, by default under its name and of its type on the wire."""
    sides = [axis if points is None else points for axis, points in zip(spec.axes, spec.sizes, strict=True)]
    return helper.make_tensor_value_info(name or spec.name, TYPES[spec.dtype] if dtype is None else dtype, sides)


def free_axes(signature: Signature) -> tuple[dict[int, Dim], ...]:
    """Return the free axes of every argument with their limits; axes of one name have the same size."""
    grid = signature.grid
    sides = {name: Dim(name, min=grid.minimum, max=grid.maximum) for name in grid.axes}
    sides["batch"] = Dim("batch", min=1, max=signature.limits.batch)
    if signature.frames is not None:
        sides[FRAME] = Dim(FRAME, min=1, max=signature.frames.maximum)
    return tuple(
        {index: sides[axis] for index, axis in enumerate(tensor.axes) if tensor.sizes[index] is None}
        for tensor in signature.arguments
    )


def strip(model: onnx.ModelProto) -> None:
    """Drop what depends on the exporting machine: stack traces with its paths, and the build of torch (`+cpu`)."""
    version, local, _ = model.producer_version.partition("+")
    if local:
        model.producer_version = version
    graph = model.graph
    parts: list[Any] = [model, graph, *nodes(graph), *graph.value_info, *graph.input, *graph.output]
    for part in parts:
        del part.metadata_props[:]
        part.doc_string = ""


def check(model: onnx.ModelProto, signature: Signature) -> None:
    """Refuse graphs that do not run everywhere or run for one shape only."""
    if domains := {node.domain for node in nodes(model.graph)} - {"", "ai.onnx"}:
        raise GraphError(f"expected standard operators but found the domains {sorted(domains)}")
    if banned := FORBIDDEN & operators(model).keys():
        raise GraphError(f"expected no Fourier operators but found {sorted(banned)}")
    specs = (*signature.arguments, *signature.results)
    tensors = zip((*model.graph.input, *model.graph.output), specs, strict=True)
    for tensor, spec in tensors:
        sizes = tensor.type.tensor_type.shape.dim
        found = tuple(size.dim_value if size.HasField("dim_value") else None for size in sizes)
        if tensor.name != spec.name or found != spec.sizes:
            raise GraphError(
                f"expected {spec.sizes} for {spec.name!r}, axes {spec.axes}, but found {found} for {tensor.name!r}"
            )


def operators(model: onnx.ModelProto) -> dict[str, int]:
    """Count the graph's operators, by name, those of a loop's body included."""
    return dict(sorted(Counter(node.op_type for node in nodes(model.graph)).items()))


def nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Return the nodes of a graph and of the graphs inside it."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from nodes(attribute.g)


def read(path: Path) -> tuple[Callable[..., list[NDArray[np.float32]]], dict[str, int]]:
    """Open a written graph in ONNX Runtime: a function of its arguments that returns its outputs, and its operators."""
    options = onnxruntime.SessionOptions()
    # One thread: the order of sums, and so the certificate, does not depend on the machine's cores.
    options.intra_op_num_threads = 1
    kinds = operators(onnx.load(path))
    options.enable_mem_reuse = "Loop" not in kinds  # planning the reuse takes seconds for a loop of thousands of nodes
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [tensor.name for tensor in session.get_inputs()]

    def run(*arguments: NDArray[Any]) -> list[NDArray[np.float32]]:
        outputs: list[NDArray[np.float32]] = session.run(None, dict(zip(names, arguments, strict=True)))
        return outputs

    return run, kinds


@contextmanager
def quiet() -> Iterator[None]:
    """Silence messages of torch about itself and about packages that no graph needs."""
    logger = logging.getLogger("torch.onnx._internal.exporter._registration")
    level = logger.level
    logger.setLevel(logging.ERROR)  # "torchvision is not installed", once per operator
    try:
        with warnings.catch_warnings():
            # torch 2.13 copies its own pytree specifications, which warns of a class that it replaced itself.
            warnings.filterwarnings("ignore", message=".*LeafSpec", category=FutureWarning)
            # Arguments share their axes: that is what one name for several axes says.
            warnings.filterwarnings("ignore", message=".*The axis name: .* will not be used", category=UserWarning)
            yield
    finally:
        logger.setLevel(level)
