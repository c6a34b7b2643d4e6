"""Have `torch.onnx.export` trace a network once.

It traces twice: the network into the operators that training needs, and what came of it into those that ONNX has.
Inference needs the latter alone, so the first trace takes them at once, the second is left out, the table of ONNX's
operators is read once per process, and no node keeps the stack that made it, which `to_onnx.strip` takes out anyway.
An export takes two thirds of the time. The graph is equal (`equality`): some inner values have other names and places.
"""

from __future__ import annotations

import functools
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch.export import _trace
from torch.export.exported_program import (
    _override_composite_implicit_decomp,
    _split_decomp_table_to_cia_and_python_decomp,
)
from torch.fx import config
from torch.onnx._internal.exporter import _decomp, _fx_passes
from torch.onnx._internal.exporter._registration import ONNXRegistry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch.export import ExportedProgram

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
