"""The tables of `petrov models` and `petrov model`, readable at 80 columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from petrov_client._commands.measurements import empty_table, measured

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rich.console import RenderableType

    from petrov_client._values.models import ModelInfo, ParameterInfo, TensorInfo

LISTED_WORDS = 40  # a longer vocabulary is shown by its first and last words


def models(infos: Iterable[ModelInfo]) -> Table:
    """Return the list of models: their versions, inputs, outputs and sizes."""
    table = empty_table("Model", "Inputs", "Outputs", "Sizes")
    for info in infos:
        versions = " ".join(f"v{version}" for version in info.versions)
        table.add_row(
            f"[bold]{escape(info.name)}[/] {versions}", _names(info.arguments), _names(info.outputs), _sizes(info)
        )
    return table


def model(info: ModelInfo) -> Group:
    """Return the description of one model: what it computes, its tensors, and its measured errors."""
    parts: list[RenderableType] = [Text(f"{info.name}  {info.title}".strip(), style="bold"), _facts(info)]
    parts.append(_tensors("Inputs", info.inputs))
    if info.parameters:
        parts.append(_parameters(info.parameters))
    parts.append(_tensors("Outputs", info.outputs))
    return Group(*parts, *measured(info.card))


def _names(tensors: Iterable[TensorInfo | ParameterInfo]) -> str:
    return "\n".join(escape(tensor.name + _default(tensor)) for tensor in tensors)


def _default(tensor: TensorInfo | ParameterInfo) -> str:
    return "" if tensor.default is None else f" = {tensor.default:g}"


def _sizes(info: ModelInfo) -> str:
    if info.grid is None:
        return "unknown"
    unit = f"points, {len(info.grid.axes)}-D" if info.vocabulary is None else "words"
    return f"{info.grid.minimum} to {info.grid.maximum} {unit}"


def _facts(info: ModelInfo) -> Table:
    table = Table.grid("", "", padding=(0, 2))
    for name, text in _described(info).items():
        if text:
            table.add_row(name, escape(str(text)))
    return table


def _described(info: ModelInfo) -> Mapping[str, Any]:
    return {
        "equation": info.card.get("equation"),
        "boundary": info.card.get("boundary"),
        "task": info.card.get("task"),
        "versions": ", ".join(map(str, info.versions)),
        "sizes": _sizes(info),
        "points": info.grid and info.grid.points,
        "reports": ", ".join(info.quality),
        **_words(info),
    }


def _words(info: ModelInfo) -> Mapping[str, str]:
    """Return the vocabulary and labels of a sequence model; of a long vocabulary its first and last words."""
    if info.vocabulary is None:
        return {}
    words = info.vocabulary.words[1:]
    shown = words if len(words) <= LISTED_WORDS else (*words[:4], "…", *words[-4:])
    return {
        "words": " ".join(shown),
        "labels": ", ".join(info.vocabulary.labels),
        "labelled": f"every {info.vocabulary.labelled}",
    }


def _tensors(title: str, tensors: Iterable[TensorInfo]) -> Table:
    table = empty_table("Name", "Axes", "Units", "Meaning", title=title)
    for tensor in tensors:
        components = f": {', '.join(tensor.components)}" if tensor.components else ""
        axes = ", ".join(axis + components if axis == "component" else axis for axis in tensor.axes)
        meaning = ", ".join(filter(None, [tensor.meaning, "positive" if tensor.positive else "", _usual(tensor)]))
        table.add_row(*(escape(text) for text in (tensor.name, axes, tensor.units or "", meaning)))
    return table


def _usual(tensor: TensorInfo) -> str:
    return "" if tensor.default is None else f"{tensor.default:g} if left out"


def _parameters(parameters: Iterable[ParameterInfo]) -> Table:
    table = empty_table("Name", "Range", "Default", "Units", "Meaning", title="Parameters")
    for parameter in parameters:
        usual = "required" if parameter.default is None else f"{parameter.default:g}"
        texts = (parameter.name, _range(parameter), usual, parameter.units or "", parameter.meaning or "")
        table.add_row(*(escape(text) for text in texts))
    return table


def _range(parameter: ParameterInfo) -> str:
    low, high = parameter.minimum, parameter.maximum
    if low is not None and high is not None:
        return f"{low:g} to {high:g}"
    return "any" if low == high else f"from {low:g}" if high is None else f"up to {high:g}"
