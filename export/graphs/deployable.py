"""A module that can be traced, made of an operator in physical units or of a classifier of tokens.

Normalisation and the boundary factor are parts of the operator, so the server has nothing to add. The module's
arguments have the names on the wire.
"""

from __future__ import annotations

import copy
import functools
import inspect
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import jaxtyping
import torch
from torch import Tensor, nn
from torch.export import _trace
from torch.export.exported_program import (
    _override_composite_implicit_decomp,
    _split_decomp_table_to_cia_and_python_decomp,
)
from torch.fx import config
from torch.onnx._internal.exporter import _decomp, _fx_passes
from torch.onnx._internal.exporter._registration import ONNXRegistry

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
    """Return the function with other names for its arguments."""

    def forward(*tensors: Tensor) -> Any:
        return call(*tensors)

    parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in arguments]
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


# `torch.onnx.export` traces twice: the network into the operators that training needs, and what came of it into those
# that ONNX has. Inference needs the latter alone, so the first trace takes them at once, the second is left out, the
# table of ONNX's operators is read once per process, and no node keeps the stack that made it, which `to_onnx.strip`
# takes out anyway. An export takes two thirds of the time. The graph is equal (`equality`): some inner values have
# other names and places.


read_registry = ONNXRegistry.from_torchlib


@functools.cache
def registry(opset_version: int) -> ONNXRegistry:
    """Return what torch's operators are in ONNX."""
    return read_registry(opset_version)


@functools.cache
def decompositions(opset_version: int) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """Return what operators that ONNX lacks are made of: those that torch takes apart by itself, and the others."""
    known = {*_decomp.get_onnx_implemented_overloads(registry(opset_version))}
    table: Any = _decomp.create_onnx_friendly_decomposition_table(known)
    composite, other = _split_decomp_table_to_cia_and_python_decomp(table)
    return composite, other


@contextmanager
def one_trace(opset_version: int) -> Iterator[None]:
    """Let exports inside of this context trace once."""

    def into_operators(*arguments: Any, **options: Any) -> Any:
        composite, other = decompositions(opset_version)
        with _override_composite_implicit_decomp(composite):
            return _trace._export_to_aten_ir(*arguments, **options, decomp_table=other)  # noqa: SLF001 - as below

    def as_it_is(program: ExportedProgram, _: ONNXRegistry) -> ExportedProgram:
        return program

    places: list[tuple[Any, str, Any]] = [
        (_trace, "_export_to_aten_ir_make_fx", into_operators),
        (_fx_passes, "decompose_with_registry", as_it_is),
        (ONNXRegistry, "from_torchlib", staticmethod(registry)),
        (config, "do_not_emit_stack_traces", True),
    ]
    kept = [vars(module)[name] for module, name, _ in places]
    for module, name, other in places:  # torch has no option for the first three
        setattr(module, name, other)
    try:
        yield
    finally:
        for (module, name, _), own in zip(places, kept, strict=True):
            setattr(module, name, own)
