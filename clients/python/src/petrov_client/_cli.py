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
from dataclasses import dataclass
from importlib.metadata import version as installed
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from petrov_client import _columns, _files, _tables, _texts
from petrov_client._async_client import IN_FLIGHT
from petrov_client._client import Client
from petrov_client._exceptions import PetrovError, RequestError, ServiceError
from petrov_client._quality import Options, Outside, Quality
from petrov_client._retry import TIMEOUT_SECONDS
from petrov_client._score import PATIENCE_SECONDS
from petrov_client._score import score as score_file

if TYPE_CHECKING:
    from collections.abc import Mapping

    from petrov_client._client import SyncPredictor
    from petrov_client._models import ModelInfo

WRONG_USE, REFUSED, FAILED, UNREACHABLE = 2, 3, 4, 5

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Predict with the models of a Petrov service: solutions of differential equations, and labels of texts.\n\n"
    "Begin with [bold]petrov models[/], which lists the models of the service, and [bold]petrov model darcy[/], which "
    "describes one of them. Then [bold]petrov predict darcy permeability.npy pressure.npy[/] computes a file, "
    "[bold]petrov predict heat in.npz out.npz[/] one with several arrays, and [bold]petrov score[/] a file of any "
    "length, with several gateways. "
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
Parameters = Annotated[
    list[str] | None,
    typer.Option(
        "--parameter",
        "-p",
        metavar="NAME=NUMBER",
        help="A parameter of the model, the same for all fields; repeat the option to set several.",
    ),
]
Tolerance = Annotated[
    float | None,
    typer.Option(
        help="The largest error bound. A field with a larger one is solved by the classical solver, or refused where "
        "there is none."
    ),
]
OutsideOption = Annotated[
    Outside,
    typer.Option(
        metavar="CHOICE",
        help="What happens to a field that is unlike the training data: answer (predict it like any other), solve (use "
        "the classical solver) or refuse.",
    ),
]
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
    """List the models that are ready: versions, inputs with their defaults, outputs, and sizes of the grid.

    Example: petrov models --url http://127.0.0.1:8080
    """
    with _client(url, timeout) as client:
        infos = client.models()
    Console().print(_tables.models(infos))


@app.command()
def model(
    name: Name,
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
    with _client(url, timeout) as client:
        info = client.model(name)
    Console().print(_tables.model(info))


@app.command()
def predict(
    model: Name,
    source: Annotated[
        str,
        typer.Argument(
            metavar="IN",
            help="Single fields or batches: .npy with one array, .npz or .h5 with several. For a sequence model: a "
            "text, a file of one text per line, or -.",
        ),
    ],
    target: Annotated[
        Path | None,
        typer.Argument(metavar="OUT", dir_okay=False, help="The output file: .npy, .npz or .h5; .csv or - for texts."),
    ] = None,
    parameter: Parameters = None,
    tolerance: Tolerance = None,
    outside: OutsideOption = "answer",
    url: Url = GATEWAY,
    version: Version = None,
    timeout: Timeout = TIMEOUT_SECONDS,
    progress: Annotated[bool, typer.Option(help="Show a progress bar.")] = False,
) -> None:
    r"""Predict the outputs for all fields of IN, in physical units, and write them to OUT with the same rank.

    The arrays in an .npz or HDF5 file have the names of the model's inputs
    and parameters, which [bold]petrov model[/] lists. What has a default
    may be left out, and other arrays are ignored. For a model that requires
    one input the only array of a file may have any name. The arrays in OUT
    have the names of the model's outputs. If the model reports its errors, an
    .npz or HDF5 file has one number per field, too: error_bound,
    error_estimate and novelty, and the command prints their range.

    .npy and HDF5 files may be larger than memory: they are read and sent in
    pieces.

    For a text the output is its label, the label's probability and the
    second most probable label: one sentence for one text, a table for
    several, or CSV if OUT is given.

    Example: petrov predict darcy permeability.npy pressure.npy --progress

    Example: petrov predict heat in.npz out.npz --parameter wind=0.3

    Example: petrov predict listops "\[MAX 2 9 \[MIN 4 7 ] 0 ]"
    """
    with _client(url, timeout) as client:
        if Path(source).suffix in _files.ARRAYS:
            options = Options(tolerance=tolerance, outside=outside)
            job = FieldJob(model, Path(source), version, _numbers(parameter), options)
            _predict_fields(client, job, target, progress=progress)
        else:
            _predict_texts(client, model, _texts.read(source), target, version, progress=progress)


@app.command()
def score(
    model: Name,
    source: Annotated[Path, typer.Argument(metavar="IN", help="Batches of any length: .h5, .npz or .npy.")],
    target: Annotated[Path, typer.Argument(metavar="OUT", dir_okay=False, help="The output file: .h5.")],
    url: Annotated[
        list[str] | None,
        typer.Option(envvar="PETROV_URL", help="A gateway, http(s)://HOST:PORT; repeat the option to use several."),
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(
            help="The dataset of IN, for a model that requires one input, or the group that holds the datasets."
        ),
    ] = None,
    parameter: Parameters = None,
    tolerance: Tolerance = None,
    outside: OutsideOption = "answer",
    in_flight: Annotated[int, typer.Option(min=1, help="Requests in flight per gateway.")] = IN_FLIGHT,
    version: Version = None,
    timeout: Annotated[float, typer.Option(help="Seconds for each request.")] = TIMEOUT_SECONDS,
    patience: Annotated[
        float, typer.Option(help="Seconds without a response from any gateway before the command fails.")
    ] = PATIENCE_SECONDS,
    progress: Annotated[bool, typer.Option(help="Show a progress bar.")] = True,
) -> None:
    r"""Predict the outputs for a file of any length, and write them to OUT; the same command resumes.

    The datasets of IN have the names of the model's inputs and parameters,
    and the axes \[sample, ...], parameters \[sample]; those of OUT have the
    names of the outputs. A model that requires one input reads the only
    dataset of a file under any name.

    Memory holds a few requests per gateway. A gateway that is overloaded or
    gone is used again later, and the others take its share. Until OUT is
    complete it is called OUT.partial: after a kill or a power cut the same
    command resumes, and the complete file has the same bytes.

    Example: petrov score darcy fields.h5 pressures.h5 --url http://one:8080
    --url http://two:8080

    Example: petrov score heat simulations.h5 temperatures.h5 --dataset test
    """
    done = score_file(
        model,
        source,
        target,
        url or [GATEWAY],
        dataset=dataset,
        parameters=_numbers(parameter),
        tolerance=tolerance,
        outside=outside,
        version=version,
        in_flight=in_flight,
        api_key=os.environ.get("PETROV_API_KEY"),
        timeout=timeout,
        patience=patience,
        progress=progress,
    )
    earlier = done.count - done.computed
    _report(done.shapes, target, f" ({earlier} computed earlier)" if earlier else "")
    _report_quality(done.quality)


def run() -> None:
    """Run the command line, and end a fault with one line and an exit code."""
    try:
        app(prog_name="petrov")
    except PetrovError as fault:
        _end(fault, _code(fault))
    except (OSError, ValueError, ModuleNotFoundError) as error:
        _end(error, WRONG_USE)


@dataclass(frozen=True)
class FieldJob:
    """A prediction for the fields of a file."""

    model: str
    source: Path
    version: int | None
    numbers: Mapping[str, float]
    options: Options


def _predict_fields(client: SyncPredictor, job: FieldJob, target: Path | None, *, progress: bool) -> None:
    if not job.source.is_file():
        raise typer.BadParameter(f"File '{job.source}' does not exist.", param_hint="IN")
    if target is None:
        raise typer.BadParameter("expected a file for the output", param_hint="OUT")
    _files.check_output(target)
    info = client.model(job.model)
    _files.check_holds(target, info.outputs)
    outputs, numbers = _predicted(client, info, job, progress=progress)
    columns = numbers if target.suffix in _files.SEVERAL else {}
    _files.write(target, {**outputs, **columns}, (*info.outputs, *_columns.tensors(info)))
    _report({name: array.shape for name, array in (outputs | columns).items()}, target)
    _report_quality(numbers)


def _predicted(
    client: SyncPredictor, info: ModelInfo, job: FieldJob, *, progress: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the outputs for a file, and what is known about their errors, by name."""
    options = job.options
    with _files.opened(job.source, info) as found:
        _report_unused(job.source, found.unused)
        predicted = client.predict(
            info.name,
            _files.with_numbers(found.arrays, job.numbers),
            version=job.version,
            progress=progress,
            quality=bool(info.quality),
            tolerance=options.tolerance,
            outside=options.outside,
        )
    arrays, quality = predicted if info.quality else (predicted, Quality())
    outputs = arrays if isinstance(arrays, dict) else {info.outputs[0].name: arrays}
    return outputs, _columns.arrays(info, quality)


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


def _numbers(options: list[str] | None) -> dict[str, float]:
    """Return the parameters of the command line by name."""
    numbers = {}
    for option in options or ():
        name, _, number = option.partition("=")
        try:
            numbers[name.strip()] = float(number)
        except ValueError as error:
            raise typer.BadParameter(f"expected NAME=NUMBER but got {option}", param_hint="--parameter") from error
    return numbers


def _report(shapes: Mapping[str, tuple[int, ...]], target: Path, remark: str = "") -> None:
    arrays = ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())
    typer.echo(f"{arrays} -> {target}{remark}")


def _report_quality(numbers: Mapping[str, Any]) -> None:
    if numbers:
        typer.echo(_columns.sentence(numbers))


def _report_unused(source: Path, names: tuple[str, ...]) -> None:
    if names:
        typer.echo(f"petrov: ignored in {source}: {', '.join(names)}", err=True)
