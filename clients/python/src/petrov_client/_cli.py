"""The command line: `petrov models`, `petrov model NAME`, `petrov predict MODEL IN OUT`.

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
from pathlib import Path  # noqa: TC003  typer reads annotations when it runs
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from petrov_client import _files
from petrov_client._client import Client, GrpcClient
from petrov_client._exceptions import PetrovError, RequestError, ServiceError
from petrov_client._retry import TIMEOUT_SECONDS

if TYPE_CHECKING:
    from petrov_client._models import ModelInfo, TensorInfo

WRONG_USE, REFUSED, FAILED, UNREACHABLE = 2, 3, 4, 5

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Ask a Petrov service for solutions of differential equations.\n\n"
    "[bold]petrov models[/] lists what it can solve, [bold]petrov predict[/] solves it for your fields. "
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
    table = Table("Model", "Versions", "Takes", "Gives", "Points per axis")
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
    """Show one model: its equation, its grids, and its measured errors beside the classical solver's."""
    with _client(url, timeout) as client:
        info = client.model(name)
    console = Console()
    console.print(_summary(info))
    for title in ("errors", "classical"):
        if rows := info.card.get(title):
            console.print(_measurements(title, rows))


@app.command()
def predict(
    model: Annotated[str, typer.Argument(help="A model of the list that `petrov models` prints.")],
    source: Annotated[
        Path, typer.Argument(metavar="IN", exists=True, dir_okay=False, help="One field or a batch: .npy, .h5.")
    ],
    target: Annotated[Path, typer.Argument(metavar="OUT", dir_okay=False, help="Where the answer goes: .npy, .h5.")],
    url: Url = GATEWAY,
    version: Annotated[int | None, typer.Option(min=1, help="A version of the model; the newest by default.")] = None,
    timeout: Timeout = TIMEOUT_SECONDS,
    progress: Annotated[bool, typer.Option(help="Show a bar while a long batch is answered.")] = False,
) -> None:
    """Solve for every field of IN and write the solutions to OUT, of the same rank, in physical units.

    IN may be larger than memory: it is read and sent a piece at a time. In an HDF5 file the dataset with the name of
    the model's input is read, or the only one, and OUT's is named for the model's output.

    Example: petrov predict darcy permeability.npy pressure.npy --progress
    """
    _files.check_output(target)
    with _client(url, timeout) as client:
        info = client.model(model)
        with _files.reading(source, info.inputs[0]) as array:
            solution = client.predict(model, array, version=version, progress=progress)
    _files.write(target, solution, info.outputs[0])
    typer.echo(f"{info.outputs[0].name} {list(solution.shape)} -> {target}")


def run() -> None:
    """Run the command line and turn a fault into one line and a code."""
    try:
        app(prog_name="petrov")
    except PetrovError as fault:
        _end(fault, _code(fault))
    except (OSError, ValueError, ModuleNotFoundError) as error:
        _end(error, WRONG_USE)


def _client(url: str, timeout: float) -> Client | GrpcClient:
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
    return "not told over gRPC" if info.grid is None else f"{info.grid.minimum} to {info.grid.maximum}"


def _summary(info: ModelInfo) -> Table:
    table = Table.grid("", "", padding=(0, 2))
    takes, gives = ("\n".join(_full(tensor) for tensor in tensors) for tensors in (info.inputs, info.outputs))
    rows = {
        "model": f"{info.name} {info.title}".strip(),
        "versions": ", ".join(map(str, info.versions)),
        "equation": info.card.get("equation"),
        "boundary": info.card.get("boundary"),
        "takes": takes,
        "gives": gives,
        "points per axis": _grids(info),
        "points": info.grid and info.grid.points,
    }
    for word, text in rows.items():
        if text:
            table.add_row(word, escape(str(text)))
    return table


def _full(tensor: TensorInfo) -> str:
    units = "" if tensor.units is None else f" in units of {tensor.units}"
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
