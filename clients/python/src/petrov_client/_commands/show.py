"""`petrov models`, `petrov model` and `petrov example`: what a service has, in tables readable at 80 columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from petrov_client._commands import texts
from petrov_client._commands.options import (
    GATEWAY,
    AsJson,
    Name,
    RootCertificates,
    Timeout,
    Url,
    connected,
    connected_over_http,
    document,
    print_json,
    write_sample,
)
from petrov_client._descriptions import readable
from petrov_client._flow import TIMEOUT_SECONDS
from petrov_client._models import ModelInfo
from petrov_client._schema import COMPONENT, ParameterInfo

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
HEADINGS = {
    "relative_l2": "relative L2",
    "relative_h1": "relative H1",
    "vrmse": "VRMSE",
    "percentile_95": "95th percentile",
    "milliseconds": "ms",
    "milliseconds_of_8": "ms of 8",
    "eager_milliseconds": "eager ms",
    "eager_milliseconds_of_8": "eager ms of 8",
}
#: Keys of a card that say what a row was measured on.
MEASURED_ON = ("grid", "noise", "split", "frame", "time")
#: Keys of a card that are the same sentence in every row.
SENTENCES = frozenset({"solver", "method"})
CONDITIONS = "conditions"  # the key of a card that is the same sentence in some rows, which are a table of their own


def models(
    as_json: AsJson = False,
    url: Url = GATEWAY,
    timeout: Timeout = TIMEOUT_SECONDS,
    root_certificates: RootCertificates = None,
) -> None:
    """List the models that are ready: versions, inputs with their defaults, outputs, and sizes of the grid.

    Example: petrov models --url http://127.0.0.1:8080
    """
    with connected(url, timeout, root_certificates) as client:
        infos = client.models()
    if as_json:
        print_json([document(info) for info in infos])
        return
    table = _table("Model", "Inputs", "Outputs", "Sizes")
    for column in table.columns:
        column.overflow = "fold"  # in a narrow terminal a name is broken, and not cut off
    for info in infos:
        versions = " ".join(f"v{version}" for version in info.versions)
        names = [
            "\n".join(each.name + ("" if each.default is None else f" = {each.default:g}") for each in tensors)
            for tensors in (info.arguments, info.outputs)
        ]
        table.add_row(f"[bold]{escape(info.name)}[/] {versions}", *map(escape, names), info.sizes)
    Console().print(table)


def model(
    name: Name,
    as_json: AsJson = False,
    url: Url = GATEWAY,
    timeout: Timeout = TIMEOUT_SECONDS,
    root_certificates: RootCertificates = None,
) -> None:
    """Describe one model: its equation, its inputs, parameters and outputs, and its measured errors.

    The names in the tables are those of the arrays in a file for
    [bold]petrov predict[/]. The errors of the classical solver stand below
    those of the model, and warnings, as of a large error, above all. For a
    sequence model: its task, vocabulary, labels and accuracy.

    Example: petrov model darcy
    """
    with connected(url, timeout, root_certificates) as client:
        info = client.model(name)
    if as_json:
        print_json({**document(info), "card": info.card, "certificate": info.certificate})
    else:
        Console().print(_described(info))


def example(
    model: Name,
    target: Annotated[
        Path | None,
        typer.Argument(metavar="OUT", dir_okay=False, help="The file for the inputs: .npy, .npz, .h5, .nc or .mat."),
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
    root_certificates: RootCertificates = None,
) -> None:
    """Write an input of the model to OUT, for [bold]petrov predict[/].

    Without options it is a new sample, where the problem has a sampler, or the
    first stored test sample. For a sequence model OUT may be left out: the text
    and its label are printed.

    Example: petrov example darcy permeability.npy

    Example: petrov example heat in.npz truth.npz --index 2
    """
    with connected_over_http(url, timeout, "example", root_certificates) as client:
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


@readable("the card of a model")
def _described(info: ModelInfo) -> Group:
    """Return the description of one model: what it computes, its tensors, and its measured errors."""
    facts, inputs, parameters, outputs = (
        Table.grid("", "", padding=(0, 2)),
        _table("Name", "Axes", "Units", "Meaning", title="Inputs"),
        _table("Name", "Range", "Default", "Units", "Meaning", title="Parameters"),
        _table("Name", "Axes", "Units", "Meaning", title="Outputs"),
    )
    known: dict[str, Any] = {name: info.card.get(name) for name in ("equation", "boundary", "task")}
    known |= {"versions": ", ".join(map(str, info.versions)), "sizes": info.sizes}
    known |= {"points": info.grid and info.grid.points, "reports": ", ".join(info.quality)}
    if vocabulary := info.vocabulary:
        words = vocabulary.words[1:]
        known["words"] = " ".join(words if len(words) <= LISTED_WORDS else (*words[:4], "…", *words[-4:]))
        known |= {"labels": ", ".join(vocabulary.labels), "labelled": f"every {vocabulary.labelled}"}
    for name, text in known.items():
        if text:
            facts.add_row(name, escape(str(text)))
    for table, tensors in ((inputs, info.inputs), (outputs, info.outputs)):
        for tensor in tensors:
            components = f": {', '.join(tensor.components)}" if tensor.components else ""
            axes = ", ".join(axis + components if axis == COMPONENT else axis for axis in tensor.axes)
            usual = "" if tensor.default is None else f"{tensor.default:g} if left out"
            meaning = ", ".join(filter(None, [tensor.meaning, "positive" if tensor.positive else "", usual]))
            table.add_row(*map(escape, (tensor.name, axes, tensor.units or "", meaning)))
    for each in info.parameters:
        usual = "required" if each.default is None else f"{each.default:g}"
        name = f"{each.name}: {', '.join(each.components)}" if each.components else each.name
        table_row = (name, _range(each), usual, each.units or "", each.meaning or "")
        parameters.add_row(*map(escape, table_row))
    title = Text(f"{info.name}  {info.title}".strip(), style="bold")
    warnings = [Text(str(each), style="yellow") for each in info.card.get("warnings", ())]
    tables = [inputs, *([parameters] if info.parameters else []), outputs]
    return Group(title, *warnings, facts, "", *tables, *measured(info.card))


def _range(parameter: ParameterInfo) -> str:
    low, high = parameter.minimum, parameter.maximum
    if low is not None and high is not None:
        return f"{low:g} to {high:g}"
    return "any" if low == high else f"from {low:g}" if high is None else f"up to {high:g}"


def _table(*columns: str, **options: Any) -> Table:
    """Return a table in the style of all tables, with headings and without rows."""
    return Table(*columns, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold", pad_edge=False, **options)


def measured(card: Mapping[str, Any]) -> Iterable[RenderableType]:
    """Yield the tables of a card: one for each of their conditions, and the sentences that hold for all rows."""
    for key, title in TITLES.items():
        rows = card.get(key) or []
        if rows and key == "rollout":  # the first, second, fourth, eighth frame and so on, and the last one
            positions = {2**power - 1 for power in range(len(rows).bit_length())} | {len(rows) - 1}
            rows = [rows[position] for position in sorted(positions)]
        for conditions in dict.fromkeys(row.get(CONDITIONS, "") for row in rows):
            chosen = [row for row in rows if row.get(CONDITIONS, "") == conditions]
            yield Measurements(escape(f"{title}, {conditions}" if conditions else title), chosen)
        yield from (Text(f"{name}: {text}") for row in rows[:1] for name, text in row.items() if name in SENTENCES)


class Measurements:
    """A table in as many parts as the console is too narrow for; each begins with what the rows were measured on.

    Args:
        title: Its title, as markup.
        rows: Its rows, of which each may have columns of its own.
    """

    def __init__(self, title: str, rows: list[Mapping[str, Any]]) -> None:
        keys = dict.fromkeys(key for row in rows for key in row if key not in {*SENTENCES, CONDITIONS})
        lead = [key for key in MEASURED_ON if key in keys]
        self._title = title
        #: Cells by heading, which breaks at every space: rich might cut a word instead.
        self._columns = {
            HEADINGS.get(key, key.replace("_", " ")).replace(" ", "\n"): [_text(row.get(key, "")) for row in rows]
            for key in (*lead, *(key for key in keys if key not in lead))
        }
        self._lead, self._others = list(self._columns)[: len(lead)], list(self._columns)[len(lead) :]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the parts."""
        widths = {heading: GAP + max(map(len, [*heading.split(), *cells])) for heading, cells in self._columns.items()}
        free = options.max_width - EDGES - sum(widths[heading] for heading in self._lead)
        parts, left = [list[str]()], free
        for heading in self._others:
            if widths[heading] > left and parts[-1]:
                parts.append([])
                left = free
            parts[-1].append(heading)
            left -= widths[heading]
        for position, part in enumerate(parts):
            table, headings = _table(title=None if position else self._title, padding=(0, 1, 0, 0)), self._lead + part
            for heading in headings:
                table.add_column(escape(heading))
            for cells in zip(*(self._columns[heading] for heading in headings), strict=True):
                table.add_row(*map(escape, cells))
            yield table


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return " x ".join(map(str, value)) if isinstance(value, list) else str(value)
