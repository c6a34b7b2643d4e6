"""`petrov models`, `petrov model` and `petrov example`: what a service has, in tables readable at 80 columns."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.console import Console, Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from petrov_client._commands import texts
from petrov_client._commands.options import (
    GATEWAY,
    AsJson,
    Name,
    Timeout,
    Url,
    connected,
    connected_over_http,
    document,
    print_json,
    write_sample,
)
from petrov_client._flow import TIMEOUT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rich.console import ConsoleOptions, RenderableType, RenderResult

    from petrov_client._models import ModelInfo, ParameterInfo, TensorInfo

LISTED_WORDS = 40  # a longer vocabulary is shown by its first and last words
EDGES, GAP = 2, 2  # characters beside a table, and between two columns
#: Tables of a card, and what they are called here.
TITLES = {
    "errors": "Errors",
    "rollout": "Errors by frame",
    "classical": "Classical solver",
    "accuracy": "Accuracy",
}
#: Keys of a card whose column needs another heading.
HEADINGS = {"milliseconds": "ms", "milliseconds_of_8": "ms of 8"}
#: Keys of a card that say what a row was measured on.
MEASURED_ON = ("grid", "noise", "split", "frame", "time")
#: Keys of a card that are the same sentence in every row.
SENTENCES = frozenset({"solver", "method"})
CONDITIONS = "conditions"  # the key of a card that is the same sentence in some rows, which are a table of their own


def models(as_json: AsJson = False, url: Url = GATEWAY, timeout: Timeout = TIMEOUT_SECONDS) -> None:
    """List the models that are ready: versions, inputs with their defaults, outputs, and sizes of the grid.

    Example: petrov models --url http://127.0.0.1:8080
    """
    with connected(url, timeout) as client:
        infos = client.models()
    if as_json:
        print_json([document(info) for info in infos])
    else:
        Console().print(_models_table(infos))


def model(
    name: Name,
    as_json: AsJson = False,
    url: Url = GATEWAY,
    timeout: Timeout = TIMEOUT_SECONDS,
) -> None:
    """Describe one model: its equation, its inputs, parameters and outputs, and its measured errors.

    The names in the tables are those of the arrays in a file for
    [bold]petrov predict[/]. The errors of the classical solver stand below
    those of the model. For a sequence model: its task, vocabulary, labels
    and accuracy.

    Example: petrov model darcy
    """
    with connected(url, timeout) as client:
        info = client.model(name)
    if as_json:
        print_json({**document(info), "card": info.card, "certificate": info.certificate})
    else:
        Console().print(described(info))


def example(
    model: Name,
    target: Annotated[
        Path | None,
        typer.Argument(metavar="OUT", dir_okay=False, help="The file for the inputs: .npy, .npz or .h5."),
    ] = None,
    truth: Annotated[
        Path | None,
        typer.Argument(metavar="TRUTH", dir_okay=False, help="A file for the true outputs, where they are known."),
    ] = None,
    index: Annotated[
        int | None, typer.Option(min=0, help="A stored test sample, whose true outputs are known.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="A new sample of the training distribution.")] = None,
    grid: Annotated[int | None, typer.Option(min=1, help="Points per axis of a new sample.")] = None,
    url: Url = GATEWAY,
    timeout: Timeout = TIMEOUT_SECONDS,
) -> None:
    """Write an input of the model to OUT, for [bold]petrov predict[/].

    Without options it is a new sample, where the problem has a sampler, or the first stored test sample. For a sequence
    model OUT may be left out: the text and its label are printed.

    Example: petrov example darcy permeability.npy

    Example: petrov example heat in.npz truth.npz --index 2
    """
    with connected_over_http(url, timeout, "example") as client:
        info = client.model(model)
        if target is None and info.vocabulary is None:
            raise typer.BadParameter("expected a file for the inputs", param_hint="OUT")
        found = client.example(model, index, seed=seed, grid=grid)
    if target is None:
        typer.echo(texts.example(info, found))
        return
    write_sample(target, found.inputs, info.arguments)
    if truth is not None:
        if not found.outputs:
            raise ValueError("the true outputs of a new sample are not known: --index chooses one whose outputs are")
        write_sample(truth, found.outputs, info.outputs)


def _models_table(infos: Iterable[ModelInfo]) -> Table:
    """Return the list of models: their versions, inputs, outputs and sizes."""
    table = empty_table("Model", "Inputs", "Outputs", "Sizes")
    for info in infos:
        versions = " ".join(f"v{version}" for version in info.versions)
        table.add_row(
            f"[bold]{escape(info.name)}[/] {versions}", _names(info.arguments), _names(info.outputs), _sizes(info)
        )
    return table


def described(info: ModelInfo) -> Group:
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
    for name, text in _facts_of(info).items():
        if text:
            table.add_row(name, escape(str(text)))
    return table


def _facts_of(info: ModelInfo) -> Mapping[str, Any]:
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


def empty_table(*columns: str, **options: Any) -> Table:
    """Return a table in the style of all tables, with headings and without rows."""
    return Table(*columns, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold", pad_edge=False, **options)


def measured(card: Mapping[str, Any]) -> Iterable[RenderableType]:
    """Yield the tables of a card: one for each of their conditions, and the sentences that hold for all rows."""
    for key, title in TITLES.items():
        rows = card.get(key) or []
        if rows and key == "rollout":
            rows = _doubling(rows)
        for conditions in dict.fromkeys(row.get(CONDITIONS, "") for row in rows):
            chosen = [row for row in rows if row.get(CONDITIONS, "") == conditions]
            yield Measurements(escape(f"{title}, {conditions}" if conditions else title), chosen)
        yield from (Text(f"{name}: {text}") for row in rows[:1] for name, text in row.items() if name in SENTENCES)


def _doubling(frames: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the first, second, fourth, eighth frame and so on, and the last one."""
    positions = {2**power - 1 for power in range(len(frames).bit_length())} | {len(frames) - 1}
    return [frames[position] for position in sorted(positions)]


class Measurements:
    """A table in as many parts as the console is too narrow for; each begins with what the rows were measured on.

    Args:
        title: Its title, as markup.
        rows: Its rows, of which each may have columns of its own.
    """

    def __init__(self, title: str, rows: list[Mapping[str, Any]]) -> None:
        keys = dict.fromkeys(key for row in rows for key in row if key not in {*SENTENCES, CONDITIONS})
        lead = [key for key in MEASURED_ON if key in keys]
        self._title, self._columns = title, _columns(rows, [*lead, *(key for key in keys if key not in lead)])
        self._lead, self._others = list(self._columns)[: len(lead)], list(self._columns)[len(lead) :]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the parts."""
        for position, part in enumerate(self._parts(options.max_width - EDGES)):
            table = empty_table(title=None if position else self._title, padding=(0, 1, 0, 0))
            for heading in part:
                table.add_column(escape(heading))
            for cells in zip(*(self._columns[heading] for heading in part), strict=True):
                table.add_row(*map(escape, cells))
            yield table

    def _parts(self, room: int) -> Iterable[list[str]]:
        """Yield the headings of each part."""
        widths = {heading: GAP + max(map(len, [*heading.split(), *cells])) for heading, cells in self._columns.items()}
        free = room - sum(widths[heading] for heading in self._lead)
        part, left = list[str](), free
        for heading in self._others:
            if widths[heading] > left and part:
                yield [*self._lead, *part]
                part, left = [], free
            part.append(heading)
            left -= widths[heading]
        yield [*self._lead, *part]


def _columns(rows: list[Mapping[str, Any]], keys: Iterable[str]) -> dict[str, list[str]]:
    """Return the cells of columns by their headings, which break at every space: rich might cut a word instead."""
    headings = {key: HEADINGS.get(key, key.replace("_", " ")).replace(" ", "\n") for key in keys}
    return {heading: [_text(row.get(key, "")) for row in rows] for key, heading in headings.items()}


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return " x ".join(map(str, value)) if isinstance(value, list) else str(value)
