"""The command line: `petrov models`, `petrov model`, `petrov predict` and `petrov score`.

A fault ends the command with one line on standard error and an exit code for scripts:

    0  done
    2  wrong usage, or a wrong local file
    3  the service refused the request         (RequestError)
    4  the service failed or had no time       (ServiceError)
    5  no usable response arrived              (TransportError)
"""

from __future__ import annotations

import os
import sys
from importlib.metadata import version as installed
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from petrov_client import _files, _texts
from petrov_client._async_client import IN_FLIGHT
from petrov_client._client import Client
from petrov_client._exceptions import PetrovError, RequestError, ServiceError
from petrov_client._retry import TIMEOUT_SECONDS
from petrov_client._score import PATIENCE_SECONDS
from petrov_client._score import score as score_file

if TYPE_CHECKING:
    from petrov_client._client import SyncPredictor
    from petrov_client._models import ModelInfo, TensorInfo

WRONG_USE, REFUSED, FAILED, UNREACHABLE = 2, 3, 4, 5
LISTED_WORDS = 40  # a longer vocabulary is shown by its first and last words

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Predict with the models of a Petrov service: solutions of differential equations, and labels of texts.\n\n"
    "Begin with [bold]petrov models[/], which lists the models of the service, and [bold]petrov model darcy[/], which "
    "describes one of them. Then [bold]petrov predict darcy permeability.npy pressure.npy[/] computes a file, and "
    "[bold]petrov score[/] a file of any length, with several gateways. "
    "The environment variable PETROV_URL holds the address of the service, and PETROV_API_KEY the key if it needs one.",
    epilog="Exit codes: 0 done, 2 wrong usage or file, 3 refused by the service, 4 failed by it, 5 no usable response.",
)

Url = Annotated[
    str,
    typer.Option(
        envvar="PETROV_URL",
        help="The address of the service: http(s)://HOST:PORT of the gateway, or grpc://HOST:PORT of its gRPC port.",
    ),
]
Timeout = Annotated[float, typer.Option(help="Seconds for each request, its repetitions included.")]
Name = Annotated[str, typer.Argument(help="A model of the list that `petrov models` prints.")]
Version = Annotated[int | None, typer.Option(min=1, help="A version of the model; the newest by default.")]
GATEWAY = "http://127.0.0.1:8080"


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"petrov-client {installed('petrov-client')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Define the options of the command itself; `--version` acts in its callback."""
    del version


@app.command()
def models(url: Url = GATEWAY, timeout: Timeout = TIMEOUT_SECONDS) -> None:
    """List the models that are ready: versions, inputs, outputs and sizes of the grid.

    Example: petrov models --url http://127.0.0.1:8080
    """
    table = Table("Model", "Versions", "Inputs", "Outputs", "Sizes")
    with _client(url, timeout) as client:
        for info in client.models():
            table.add_row(*_cells(info))
    Console().print(table)


@app.command()
def model(
    name: Name,
    url: Url = GATEWAY,
    timeout: Timeout = TIMEOUT_SECONDS,
) -> None:
    """Describe one model: its equation, its grids, and its measured errors beside those of the classical solver.

    For a sequence model: its task, its vocabulary and labels, and its accuracy beside that of the most common label.

    Example: petrov model darcy
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
    model: Name,
    source: Annotated[
        str,
        typer.Argument(
            metavar="IN",
            help="One field or a batch: .npy or .h5. For a sequence model: a text, a file of one text per line, or -.",
        ),
    ],
    target: Annotated[
        Path | None,
        typer.Argument(metavar="OUT", dir_okay=False, help="The output file: .npy or .h5; .csv or - for texts."),
    ] = None,
    url: Url = GATEWAY,
    version: Version = None,
    timeout: Timeout = TIMEOUT_SECONDS,
    progress: Annotated[bool, typer.Option(help="Show a progress bar.")] = False,
) -> None:
    r"""Predict the outputs for all fields of IN, in physical units, and write them to OUT with the same rank.

    IN may be larger than memory: it is read and sent in pieces. In an HDF5 file the dataset with the name of the
    model's input is read, or the only one; the dataset in OUT has the name of the model's output.

    For a text the output is its label, the label's probability and the second most probable label: one sentence for
    one text, a table for several, or CSV if OUT is given.

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
    model: Name,
    source: Annotated[Path, typer.Argument(metavar="IN", help="A batch of any length: .h5, .npy.")],
    target: Annotated[Path, typer.Argument(metavar="OUT", dir_okay=False, help="The output file: .h5.")],
    url: Annotated[
        list[str] | None,
        typer.Option(envvar="PETROV_URL", help="A gateway, http(s)://HOST:PORT; repeat the option to use several."),
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(help="The dataset of IN; by default the one with the name of the input, or the only one."),
    ] = None,
    in_flight: Annotated[int, typer.Option(min=1, help="Requests in flight per gateway.")] = IN_FLIGHT,
    version: Version = None,
    timeout: Annotated[float, typer.Option(help="Seconds for each request.")] = TIMEOUT_SECONDS,
    patience: Annotated[
        float, typer.Option(help="Seconds without a response from any gateway before the command fails.")
    ] = PATIENCE_SECONDS,
    progress: Annotated[bool, typer.Option(help="Show a progress bar.")] = True,
) -> None:
    """Predict the outputs for a file of any length, and write them to OUT; the same command resumes.

    Memory holds a few requests per gateway. A gateway that is overloaded or gone is used again later, and the others
    take its share. Until OUT is complete it is called OUT.partial: after a kill or a power cut the same command
    resumes, and the complete file has the same bytes.

    Example: petrov score darcy fields.h5 pressures.h5 --url http://one:8080 --url http://two:8080
    """
    done = score_file(
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
    earlier = done.shape[0] - done.computed
    typer.echo(f"{done.name} {list(done.shape)} -> {target}" + (f" ({earlier} computed earlier)" if earlier else ""))


def run() -> None:
    """Run the command line, and end a fault with one line and an exit code."""
    try:
        app(prog_name="petrov")
    except PetrovError as fault:
        _end(fault, _code(fault))
    except (OSError, ValueError, ModuleNotFoundError) as error:
        _end(error, WRONG_USE)


def _predict_fields(
    client: SyncPredictor, model: str, source: Path, target: Path | None, version: int | None, *, progress: bool
) -> None:
    if not source.is_file():
        raise typer.BadParameter(f"File '{source}' does not exist.", param_hint="IN")
    if target is None:
        raise typer.BadParameter("expected a file for the output", param_hint="OUT")
    _files.check_output(target)
    info = client.model(model)
    with _files.opened(source, info.inputs[0]) as array:
        solution = client.predict(model, array, version=version, progress=progress)
    _files.write(target, solution, info.outputs[0])
    typer.echo(f"{info.outputs[0].name} {list(solution.shape)} -> {target}")


def _predict_texts(
    client: SyncPredictor, model: str, texts: list[str], target: Path | None, version: int | None, *, progress: bool
) -> None:
    if target is not None and str(target) != _texts.STANDARD:
        _files.check_output(target, frozenset({".csv"}))
    info = client.model(model)
    _texts.check(info, texts)
    columns, rows = _texts.header(info), list(_texts.predict(client, info, texts, version, progress))
    if target is not None:
        _texts.write(target, columns, rows)
    elif len(rows) == 1:
        typer.echo(_texts.sentence(rows[0]))
    else:
        Console().print(_texts.table(columns, rows))


def _client(url: str, timeout: float) -> SyncPredictor:
    key = os.environ.get("PETROV_API_KEY")
    if url.startswith("grpc://"):
        from petrov_client import GrpcClient  # noqa: PLC0415  optional

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
    inputs, outputs = ("\n".join(_quantity(tensor) for tensor in tensors) for tensors in (info.inputs, info.outputs))
    return [escape(text) for text in (info.name, versions, inputs, outputs, _grids(info))]


def _quantity(tensor: TensorInfo) -> str:
    axes = ", ".join(tensor.axes)
    return f"{tensor.name} ({axes})" if tensor.meaning is None else f"{tensor.name} ({axes}): {tensor.meaning}"


def _grids(info: ModelInfo) -> str:
    if info.grid is None:
        return "unknown over gRPC"
    unit = "points per axis" if info.vocabulary is None else "words"
    return f"{info.grid.minimum} to {info.grid.maximum} {unit}"


def _words(info: ModelInfo) -> dict[str, str]:
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


def _summary(info: ModelInfo) -> Table:
    table = Table.grid("", "", padding=(0, 2))
    inputs, outputs = ("\n".join(_full(tensor) for tensor in tensors) for tensors in (info.inputs, info.outputs))
    rows = {
        "model": f"{info.name} {info.title}".strip(),
        "versions": ", ".join(map(str, info.versions)),
        "equation": info.card.get("equation"),
        "boundary": info.card.get("boundary"),
        "task": info.card.get("task"),
        "inputs": inputs,
        "outputs": outputs,
        **_words(info),
        "sizes": _grids(info),
        "points": info.grid and info.grid.points,
    }
    for name, text in rows.items():
        if text:
            table.add_row(name, escape(str(text)))
    return table


def _full(tensor: TensorInfo) -> str:
    units = "" if tensor.units is None or tensor.dtype == "INT32" else f" in units of {tensor.units}"
    return _quantity(tensor) + units + (", positive" if tensor.positive else "")


def _measurements(title: str, rows: list[dict[str, Any]]) -> Table:
    """Return a table of the card, with the columns of its first row."""
    columns = list(rows[0])
    table = Table(*(escape(column) for column in columns), title=title)
    for row in rows:
        table.add_row(*(escape(_text(row.get(column, ""))) for column in columns))
    return table


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return " x ".join(map(str, value)) if isinstance(value, list) else str(value)
