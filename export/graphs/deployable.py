"""A module that can be traced, made of an operator in physical units or of a classifier of tokens.

Normalisation and the boundary factor are parts of the operator, so the server has nothing to add. The module's
arguments have the names on the wire.
"""

from __future__ import annotations

import copy
import functools
import inspect
from contextlib import contextmanager
from keyword import iskeyword
from typing import TYPE_CHECKING, Any

import jaxtyping
import torch
from torch import Tensor, fx, nn
from torch._dynamo import config as dynamo
from torch._functorch import aot_autograd
from torch._functorch._aot_autograd.schemas import InputAliasInfo, OutputAliasInfo, OutputType, ViewAndMutationMeta
from torch._functorch._aot_autograd.subclass_utils import create_subclass_meta
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.export import _trace
from torch.export.exported_program import (
    _override_composite_implicit_decomp,
    _split_decomp_table_to_cia_and_python_decomp,
)
from torch.fx import config
from torch.onnx._internal.exporter import _decomp, _fx_passes
from torch.onnx._internal.exporter._registration import ONNXRegistry
from torch.onnx._internal.fx.passes.type_promotion import _TypePromotionInterpreter, get_type_promotion_rule

from export.signature import quality_of
from schema.card import FRAME
from training.calibration import CalibratedOperator
from training.nn.attention import GalerkinAttention
from training.nn.scalers import Downscaler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch.export import ExportedProgram

    from export.signature import Signature

#: What the types on the wire are to torch.
DTYPES = {"FP32": torch.float32, "INT32": torch.int32}

VECTOR = 16  # float32 channels that the widest vector registers hold together


class Deployable(nn.Module):
    """An operator in evaluation mode, without gradients, on the processor, in float32 or, to judge rounding, float64.

    It maps fields `[batch, *grid]` in physical units to others, or tokens `[batch, token]` to scores; quality outputs
    follow. It is copied and prepared for inference: channels are padded to whole vectors, keys and values are centred.
    The arguments of `forward` have the names on the wire, by which Triton's PyTorch backend finds inputs.
    """

    def __init__(self, operator: nn.Module, arguments: tuple[str, ...], dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.operator = copy.deepcopy(operator).to("cpu", dtype).requires_grad_(requires_grad=False)
        for module in self.operator.modules():
            if isinstance(module, Downscaler):
                module.pad_chain(VECTOR)
            if isinstance(module, GalerkinAttention):
                module.prepare_inference()
        network: Any = self.operator
        self.forward = renamed(network.with_quality if quality_of(operator) else network, arguments)
        self.eval()

    def step(self, arguments: tuple[str, ...]) -> Renamed:
        """Return one step of a rollout, with the names of its arguments: every state in the order of the outputs."""
        operator: Any = self.operator
        operator = operator.operator if isinstance(operator, CalibratedOperator) else operator

        def states(*inputs: Tensor) -> tuple[Tensor, ...]:
            moved = operator.advance(inputs)
            return tuple(moved[index] for index in operator.config.states)

        return Renamed(operator, states, arguments)

    def judgement(self, arguments: tuple[str, ...]) -> Renamed:
        """Return the quality outputs of a rollout's first state, with the names of the arguments without `frame`."""
        operator: Any = self.operator
        return Renamed(operator, operator.judged, arguments)


class Renamed(nn.Module):
    """A function of an operator's parameters under other names of its arguments."""

    def __init__(self, operator: nn.Module, call: Callable[..., Any], arguments: tuple[str, ...]) -> None:
        super().__init__()
        self.operator = operator
        self.forward = renamed(call, arguments)
        self.eval()


def renamed(call: Callable[..., Any], arguments: tuple[str, ...]) -> Callable[..., Any]:
    """Return the function with other names for its arguments.

    A word of Python's own, such as `lambda`, is no argument's name: it gets `_` behind it.
    """

    def forward(*tensors: Tensor) -> Any:
        return call(*tensors)

    names = (f"{name}_" if iskeyword(name) else name for name in arguments)
    parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    vars(forward)["__signature__"] = inspect.Signature(parameters)
    return forward


def example(signature: Signature) -> tuple[Tensor, ...]:
    """Return the batch that a graph is traced with: two on an unequal, small grid. Comparisons never use this shape."""
    steps = range(3, 3 + 2 * len(signature.grid.axes), 2)
    shape = (2, *(signature.grid.minimum + step for step in steps))
    return tuple(torch.ones(sides, dtype=DTYPES[dtype]) for sides, dtype in argument_shapes(signature, shape))


def argument_shapes(
    signature: Signature, shape: tuple[int, ...], frames: int | None = None
) -> list[tuple[tuple[int, ...], str]]:
    """Return shape and type of every argument for a batch and points per axis.

    A trajectory has as many frames as there are samples, up to three, by default.
    """
    sides = dict(zip(("batch", *signature.grid.axes), shape, strict=True)) | {FRAME: frames or min(shape[0], 3)}
    return [
        (
            tuple(fixed or sides[axis] for axis, fixed in zip(tensor.axes, tensor.sizes, strict=True)),
            tensor.dtype,
        )
        for tensor in signature.arguments
    ]


@contextmanager
def shape_checks_off() -> Iterator[None]:
    """Suspend jaxtyping's checks of shapes: they branch on the values of shapes, which a trace would freeze."""
    config: Any = jaxtyping.config
    before = config.jaxtyping_disable
    config.update("jaxtyping_disable", True)  # noqa: FBT003 - jaxtyping's own signature
    try:
        yield
    finally:
        config.update("jaxtyping_disable", before)


# `torch.onnx.export` runs the network four times on symbols: to see which arguments and buffers it changes, for a trace
# into the operators that training needs, for one of what came of it into those that ONNX has, and to give both operands
# of an operator one type. Inference needs the third alone: a network that is served changes nothing, the trace takes
# ONNX's operators at once, and it has left the type of every value at its node. The table of ONNX's operators is read
# once per process, and no node keeps the stack that made it, which `to_onnx.strip` takes out anyway. An export takes
# half of the time. The graph is equal (`equality`): some inner values have other names and places.


registry = functools.cache(ONNXRegistry.from_torchlib)  # what torch's operators are in ONNX


@functools.cache
def decompositions(opset_version: int) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """Return what operators that ONNX lacks are made of: those that torch takes apart by itself, and the others."""
    # The argument has its name as torch gives it: a cache would read the table once more for the same one without.
    known = {*_decomp.get_onnx_implemented_overloads(registry(opset_version=opset_version))}
    table: Any = _decomp.create_onnx_friendly_decomposition_table(known)
    composite, other = _split_decomp_table_to_cia_and_python_decomp(table)
    return composite, other


def unchanged(results: int, _: Any, *, keep_input_mutations: bool, **__: Any) -> Callable[..., ViewAndMutationMeta]:
    """Say of a network what torch finds out by running it: it changes no argument, and its results are new tensors."""
    untouched = InputAliasInfo(
        is_leaf=True,
        mutates_data=False,
        mutates_metadata=False,
        mutations_hidden_from_autograd=True,
        mutations_under_no_grad_or_inference_mode=False,
        mutation_inductor_storage_resize=False,
        mutates_storage_metadata=False,
        requires_grad=False,
        keep_input_mutations=keep_input_mutations,
    )

    fresh = OutputAliasInfo(
        output_type=OutputType.non_alias,
        raw_type=FunctionalTensor,
        base_idx=None,
        dynamic_dims=None,
        requires_grad=False,
        requires_grad_for_backward=False,
    )

    def of(*arguments: Any) -> ViewAndMutationMeta:
        return ViewAndMutationMeta(
            input_info=[untouched] * len(arguments),
            output_info=[fresh] * results,
            num_intermediate_bases=0,
            keep_input_mutations=keep_input_mutations,
            traced_tangents=[],
            traced_tangents_descs=[],
            subclass_inp_meta=create_subclass_meta(arguments),
            subclass_fw_graph_out_meta=create_subclass_meta([None] * results),
            subclass_tangent_meta=[],
        )

    return of


def promoted(self: _TypePromotionInterpreter, node: fx.Node) -> Any:
    """Give the operands of a node one type, and return the value that the trace or the change has left at it."""
    with self._set_current_node(node):
        if rule := get_type_promotion_rule(node, self.type_promotion_table):
            self._maybe_promote_node(node, rule)
    known = node.meta.get("val") if node.op == "call_function" else None
    return fx.Interpreter.run_node(self, node) if known is None else known


@contextmanager
def one_trace(opset_version: int, results: int = 1) -> Iterator[None]:
    """Let exports of modules with so many results inside of this context trace once."""

    def into_operators(*arguments: Any, **options: Any) -> Any:
        composite, other = decompositions(opset_version)
        with _override_composite_implicit_decomp(composite):
            return _trace._export_to_aten_ir(*arguments, **options, decomp_table=other)  # noqa: SLF001 - as below

    def as_it_is(program: ExportedProgram, _: ONNXRegistry) -> ExportedProgram:
        return program

    places: list[tuple[Any, str, Any]] = [
        (_trace, "_export_to_aten_ir_make_fx", into_operators),
        (aot_autograd, "run_functionalized_fw_and_collect_metadata", functools.partial(unchanged, results)),
        (_TypePromotionInterpreter, "run_node", promoted),
        (_fx_passes, "decompose_with_registry", as_it_is),
        (ONNXRegistry, "from_torchlib", staticmethod(registry)),
        (config, "do_not_emit_stack_traces", True),
    ]
    kept = [vars(place)[name] for place, name, _ in places]
    for place, name, other in places:  # torch has an option for the last one alone
        setattr(place, name, other)
    try:
        # One trace sees few operators twice on the same shapes: it takes a fifth less time than with a table of them.
        with dynamo.patch(fake_tensor_cache_enabled=False):
            yield
    finally:
        for (place, name, _), own in zip(places, kept, strict=True):
            setattr(place, name, own)
