"""The command line: `petrov models`, `petrov model NAME`, `petrov predict MODEL IN OUT` or `TEXT`, `petrov score`.

A fault ends the command with one line on standard error and a code that a script can switch on:

    0  done
    2  the command itself, or a local file, is wrong
    3  the service refused the question          (RequestError)
    4  the service failed or had no time         (ServiceError)
    5  no usable answer came back                (TransportError)
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from petrov_client import _files, _texts
from petrov_client._async_client import IN_FLIGHT
from petrov_client._client import Client, GrpcClient
from petrov_client._exceptions import PetrovError, RequestError, ServiceError
from petrov_client._retry import TIMEOUT_SECONDS
from petrov_client._score import PATIENCE_SECONDS
from petrov_client._score import score as bulk

if TYPE_CHECKING:
    from petrov_client._models import ModelInfo, TensorInfo

WRONG_USE, REFUSED, FAILED, UNREACHABLE = 2, 3, 4, 5
Asked = Client | GrpcClient
MANY = 40  # words that are shown one by one

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Ask a Petrov service for solutions of differential equations, and for the labels of sequences.\n\n"
    "[bold]petrov models[/] lists what it can solve, [bold]petrov predict[/] solves it for your fields and texts, "
    "[bold]petrov score[/] for files of any length. "
    "A key, where the service wants one, is taken from the environment variable PETROV_API_KEY.",
    epilog="Exit codes: 0 done, 2 wrong use or file, 3 refused by the service, 4 failed by it, 5 no usable answer.",
)

Url = Annotated[
    str,
    typer.Option(
        envvar="PETROV_URL",
        help="Where the service listens: http(s)://HOST:PORT of a gateway, or grpc://HOST:PORT of a Triton.",
    ),
]
Timeout = Annotated[float, typer.Option(help="Seconds for each request, its repetitions included.")]
GATEWAY = "http://127.0.0.1:8080"


@app.command()
def models(url: Url = GATEWAY, timeout: Timeout = TIMEOUT_SECONDS) -> None:
    """List the models that answer now: what each takes, what it gives, and on which grids."""
    table = Table("Model", "Versions", "Takes", "Gives", "Sizes")
    with _client(url, timeout) as client:
        for info in client.models():
            table.add_row(*_cells(info))
    Console().print(table)


@app.command()
def model(
    name: Annotated[str, typer.Argument(help="A model of the list that `petrov models` prints.")],
    url: Url = GATEWAY,
    timeout: Timeout = TIMEOUT_SECONDS,
) -> None:
    """Show one model: its equation, its grids, and its measured errors beside the classical solver's.

    Of a model of sequences: its task, its words and labels, and its accuracy beside that of the commonest label.
    """
    with _client(url, timeout) as client:
        info = client.model(name)
    console = Console()
    console.print(_summary(info))
    for title in ("errors", "classical", "accuracy"):
        if rows := info.card.get(title):
            console.print(_measurements(title, rows))


@app.command()
def predict(
    model: Annotated[str, typer.Argument(help="A model of the list that `petrov models` prints.")],
    source: Annotated[
        str,
        typer.Argument(
            metavar="IN",
            help="One field or a batch: .npy, .h5. For a model of sequences a text, a file of texts, one a line, or -.",
        ),
    ],
    target: Annotated[
        Path | None,
        typer.Argument(metavar="OUT", dir_okay=False, help="Where the answer goes: .npy, .h5; .csv or - for texts."),
    ] = None,
    url: Url = GATEWAY,
    version: Annotated[int | None, typer.Option(min=1, help="A version of the model; the newest by default.")] = None,
    timeout: Timeout = TIMEOUT_SECONDS,
    progress: Annotated[bool, typer.Option(help="Show a bar while a long batch is answered.")] = False,
) -> None:
    r"""Solve for every field of IN and write the solutions to OUT, of the same rank, in physical units.

    IN may be larger than memory: it is read and sent a piece at a time. In an HDF5 file the dataset with the name of
    the model's input is read, or the only one, and OUT's is named for the model's output.

    A text is answered with its label, the label's probability and the runner-up: one text on a line, several in a
    table, or as CSV if there is an OUT.

    Example: petrov predict darcy permeability.npy pressure.npy --progress

    Example: petrov predict listops "\[MAX 2 9 \[MIN 4 7 ] 0 ]"
    """
    with _client(url, timeout) as client:
        if Path(source).suffix in _files.ARRAYS:
            _predict_fields(client, model, Path(source), target, version, progress=progress)
        else:
            _predict_texts(client, model, _texts.read(source), target, version, progress=progress)


@app.command()
def score(
    model: Annotated[str, typer.Argument(help="A model of the list that `petrov models` prints.")],
    source: Annotated[Path, typer.Argument(metavar="IN", help="A batch of any length: .h5, .npy.")],
    target: Annotated[Path, typer.Argument(metavar="OUT", dir_okay=False, help="Where the answers go: .h5.")],
    url: Annotated[
        list[str] | None,
        typer.Option(envvar="PETROV_URL", help="A gateway, http(s)://HOST:PORT; repeat it to keep several busy."),
    ] = None,
    dataset: Annotated[str | None, typer.Option(help="The dataset of IN, where its name does not tell.")] = None,
    in_flight: Annotated[int, typer.Option(min=1, help="Requests under way at each gateway.")] = IN_FLIGHT,
    version: Annotated[int | None, typer.Option(min=1, help="A version of the model; the newest by default.")] = None,
    timeout: Annotated[float, typer.Option(help="Seconds for each request.")] = TIMEOUT_SECONDS,
    patience: Annotated[
        float, typer.Option(help="Seconds without an answer from any gateway before giving up.")
    ] = PATIENCE_SECONDS,
    progress: Annotated[bool, typer.Option(help="Show a bar.")] = True,
) -> None:
    """Solve for every field of IN, however many, and write the solutions to OUT; the same command resumes.

    Memory holds a few requests of each gateway. A gateway that is overloaded or gone is asked again later, and its
    share goes to the others. Until OUT is whole it is called OUT.partial: after a kill or a power cut the same command
    goes on from there, and the OUT of the end has the same bytes.

    Example: petrov score darcy fields.h5 pressures.h5 --url http://one:8080 --url http://two:8080
    """
    done = bulk(
        model,
        source,
        target,
        url or [GATEWAY],
        dataset=dataset,
        version=version,
        in_flight=in_flight,
        api_key=os.environ.get("PETROV_API_KEY"),
        timeout=timeout,
        patience=patience,
        progress=progress,
    )
    before = done.shape[0] - done.asked
    typer.echo(f"{done.name} {list(done.shape)} -> {target}" + (f" ({before} were there)" if before else ""))


def run() -> None:
    """Run the command line and turn a fault into one line and a code."""
    try:
        app(prog_name="petrov")
    except PetrovError as fault:
        _end(fault, _code(fault))
    except (OSError, ValueError, ModuleNotFoundError) as error:
        _end(error, WRONG_USE)


def _predict_fields(
    client: Asked, model: str, source: Path, target: Path | None, version: int | None, *, progress: bool
) -> None:
    if not source.is_file():
        raise typer.BadParameter(f"File '{source}' does not exist.", param_hint="IN")
    if target is None:
        raise typer.BadParameter("expected a file for the answer", param_hint="OUT")
    _files.check_output(target)
    info = client.model(model)
    with _files.reading(source, info.inputs[0]) as array:
        solution = client.predict(model, array, version=version, progress=progress)
    _files.write(target, solution, info.outputs[0])
    typer.echo(f"{info.outputs[0].name} {list(solution.shape)} -> {target}")


def _predict_texts(
    client: Asked, model: str, texts: list[str], target: Path | None, version: int | None, *, progress: bool
) -> None:
    if target is not None and str(target) != _texts.STANDARD:
        _files.check_output(target, frozenset({".csv"}))
    info = client.model(model)
    _texts.check(info, texts)
    columns, rows = _texts.header(info), list(_texts.ask(client, info, texts, version, progress))
    if target is not None:
        _texts.write(target, columns, rows)
    elif len(rows) == 1:
        typer.echo(_texts.sentence(rows[0]))
    else:
        Console().print(_texts.table(columns, rows))


def _client(url: str, timeout: float) -> Asked:
    key = os.environ.get("PETROV_API_KEY")
    if url.startswith("grpc://"):
        return GrpcClient(url.removeprefix("grpc://"), key, timeout)
    return Client(url, key, timeout)


def _end(error: Exception, code: int) -> None:
    typer.echo(f"petrov: {' '.join(str(error).split())}", err=True)
    sys.exit(code)


def _code(fault: PetrovError) -> int:
    if isinstance(fault, RequestError):
        return REFUSED
    return FAILED if isinstance(fault, ServiceError) else UNREACHABLE


def _cells(info: ModelInfo) -> list[str]:
    versions = ", ".join(map(str, info.versions))
    takes, gives = ("\n".join(_quantity(tensor) for tensor in tensors) for tensors in (info.inputs, info.outputs))
    return [escape(text) for text in (info.name, versions, takes, gives, _grids(info))]


def _quantity(tensor: TensorInfo) -> str:
    axes = ", ".join(tensor.axes)
    return f"{tensor.name} ({axes})" if tensor.meaning is None else f"{tensor.name} ({axes}): {tensor.meaning}"


def _grids(info: ModelInfo) -> str:
    if info.grid is None:
        return "not told over gRPC"
    unit = "points per axis" if info.vocabulary is None else "words"
    return f"{info.grid.minimum} to {info.grid.maximum} {unit}"


def _words(info: ModelInfo) -> dict[str, str]:
    """What a model of sequences knows: short lists as they are, long ones by their ends."""
    if info.vocabulary is None:
        return {}
    words = info.vocabulary.words[1:]
    shown = words if len(words) <= MANY else (*words[:4], "…", *words[-4:])
    return {
        "words": " ".join(shown),
        "labels": ", ".join(info.vocabulary.labels),
        "labelled": f"every {info.vocabulary.answer}",
    }


def _summary(info: ModelInfo) -> Table:
    table = Table.grid("", "", padding=(0, 2))
    takes, gives = ("\n".join(_full(tensor) for tensor in tensors) for tensors in (info.inputs, info.outputs))
    rows = {
        "model": f"{info.name} {info.title}".strip(),
        "versions": ", ".join(map(str, info.versions)),
        "equation": info.card.get("equation"),
        "boundary": info.card.get("boundary"),
        "task": info.card.get("task"),
        "takes": takes,
        "gives": gives,
        **_words(info),
        "sizes": _grids(info),
        "points": info.grid and info.grid.points,
    }
    for word, text in rows.items():
        if text:
            table.add_row(word, escape(str(text)))
    return table


def _full(tensor: TensorInfo) -> str:
    units = "" if tensor.units is None or tensor.dtype == "INT32" else f" in units of {tensor.units}"
    return _quantity(tensor) + units + (", positive" if tensor.positive else "")


def _measurements(title: str, rows: list[dict[str, Any]]) -> Table:
    """A table of the card, with the columns that its first row has."""
    columns = list(rows[0])
    table = Table(*(escape(column) for column in columns), title=title)
    for row in rows:
        table.add_row(*(escape(_text(row.get(column, ""))) for column in columns))
    return table


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return " x ".join(map(str, value)) if isinstance(value, list) else str(value)
