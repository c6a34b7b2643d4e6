"""What commands print: what a file holds, and JSON for programs."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from petrov_client._files import local, quality_columns

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from petrov_client._values.models import ModelInfo, ParameterInfo, TensorInfo


def write_sample(target: Path, arrays: Mapping[str, Any], tensors: Sequence[TensorInfo | ParameterInfo]) -> None:
    """Write inputs or outputs of one sample, and say what the file holds."""
    local.check_output(target)
    local.check_holds(target, [tensor for tensor in tensors if tensor.name in arrays])
    local.write(target, arrays, tensors)
    report(arrays, target)


def document(info: ModelInfo) -> dict[str, Any]:
    """Return the description of a model without card and certificate, as JSON has it."""
    return {name: value for name, value in asdict(info).items() if name not in {"card", "certificate"}}


def print_json(content: Any) -> None:
    """Print JSON for programs."""
    typer.echo(json.dumps(content, indent=2, ensure_ascii=False))


def report(arrays: Mapping[str, Any], target: Path, columns: Mapping[str, Any] | None = None) -> None:
    """Print what a file holds: name, shape and range of each array, and the names of numbers per field."""
    described = [f"{name} {list(array.shape)} {quality_columns.span(array)}" for name, array in arrays.items()]
    typer.echo(f"{', '.join([*described, *(columns or ())])} -> {target}")


def report_unused(source: Path, names: tuple[str, ...]) -> None:
    """Say which arrays of a file are not read."""
    if names:
        typer.echo(f"petrov: ignored in {source}: {', '.join(names)}", err=True)
