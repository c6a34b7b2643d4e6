"""The tables of `petrov models` and `petrov model`, readable at 80 columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

    from petrov_client._values.models import ModelInfo, ParameterInfo, TensorInfo

LISTED_WORDS = 40  # a longer vocabulary is shown by its first and last words
EDGES, GAP = 2, 2  # characters beside a table, and between two columns
#: Keys of a card whose column needs another heading.
HEADINGS = {"milliseconds": "ms", "milliseconds_of_8": "ms of 8"}
#: Keys of a card that are the same sentence in every row.
SENTENCES = frozenset({"method"})


def models(infos: Iterable[ModelInfo]) -> Table:
    """Return the list of models: their versions, inputs, outputs and sizes."""
    table = _table("Model", "Inputs", "Outputs", "Sizes")
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
    for key, title in (("errors", "Errors"), ("classical", "Classical solver"), ("accuracy", "Accuracy")):
        if rows := info.card.get(key):
            parts.extend(_measurements(title, rows))
    return Group(*parts)


def _table(*columns: str, **options: Any) -> Table:
    return Table(*columns, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold", pad_edge=False, **options)


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
    table = _table("Name", "Axes", "Units", "Meaning", title=title)
    for tensor in tensors:
        components = f": {', '.join(tensor.components)}" if tensor.components else ""
        axes = ", ".join(axis + components if axis == "component" else axis for axis in tensor.axes)
        meaning = ", ".join(filter(None, [tensor.meaning, "positive" if tensor.positive else "", _usual(tensor)]))
        table.add_row(*(escape(text) for text in (tensor.name, axes, tensor.units or "", meaning)))
    return table


def _usual(tensor: TensorInfo) -> str:
    return "" if tensor.default is None else f"{tensor.default:g} if left out"


def _parameters(parameters: Iterable[ParameterInfo]) -> Table:
    table = _table("Name", "Range", "Default", "Units", "Meaning", title="Parameters")
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


def _measurements(title: str, rows: list[Mapping[str, Any]]) -> Iterable[RenderableType]:
    """Yield a table of the card, with the columns of its first row, and the sentences that hold for all rows."""
    columns = {key: [_text(row.get(key, "")) for row in rows] for key in rows[0] if key not in SENTENCES}
    yield _Measurements(title, {HEADINGS.get(key, key.replace("_", " ")): cells for key, cells in columns.items()})
    yield from (Text(f"{key}: {rows[0][key]}") for key in rows[0] if key in SENTENCES)


class _Measurements:
    """A table in as many parts as the console is too narrow for; each begins with the first column.

    Args:
        title: Its title.
        columns: The cells of each column by its heading.
    """

    def __init__(self, title: str, columns: Mapping[str, list[str]]) -> None:
        self._title, self._columns = title, columns

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for position, part in enumerate(self._parts(options.max_width - EDGES)):
            table = _table(title=None if position else self._title, padding=(0, 1, 0, 0))
            for heading in part:
                table.add_column(escape(heading))
            for cells in zip(*(self._columns[heading] for heading in part), strict=True):
                table.add_row(*map(escape, cells))
            yield table

    def _parts(self, room: int) -> Iterable[list[str]]:
        """Yield the headings of each part."""
        widths = {heading: GAP + max(map(len, [*heading.split(), *cells])) for heading, cells in self._columns.items()}
        lead, *others = widths
        part, left = [lead], room - widths[lead]
        for heading in others:
            if widths[heading] > left and len(part) > 1:
                yield part
                part, left = [lead], room - widths[lead]
            part.append(heading)
            left -= widths[heading]
        yield part


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return " x ".join(map(str, value)) if isinstance(value, list) else str(value)
