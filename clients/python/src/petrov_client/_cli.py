"""The command line: `petrov models`, `model`, `example`, `predict`, `reference` and `score`.

A fault ends the command with one line on standard error and an exit code for scripts:

    0  done
    2  wrong usage, or a wrong local file
    3  the service refused the request         (RequestError)
    4  the service failed or had no time       (ServiceError)
    5  no usable response arrived              (TransportError)
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version as installed
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.console import Console

from petrov_client import _columns, _files, _frame_files, _inversion, _journal, _tables, _texts
from petrov_client._arrays import check_input
from petrov_client._async_client import IN_FLIGHT
from petrov_client._client import Client
from petrov_client._exceptions import PetrovError, RequestError, ServiceError
from petrov_client._quality import IncompleteRolloutWarning, Options, Outside, Quality, warn
from petrov_client._retry import TIMEOUT_SECONDS
from petrov_client._rollout import by_name, time_axis
from petrov_client._score import PATIENCE_SECONDS, artefact
from petrov_client._score import score as score_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from petrov_client._client import SyncPredictor
    from petrov_client._models import ModelInfo, ParameterInfo, TensorInfo

WRONG_USE, REFUSED, FAILED, UNREACHABLE = 2, 3, 4, 5

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="Predict with the models of a Petrov service: solutions of differential equations, and labels of texts.\n\n"
    "Begin with [bold]petrov models[/], which lists the models of the service, and [bold]petrov model darcy[/], which "
    "describes one of them. [bold]petrov example darcy permeability.npy[/] writes an input to try. "
    "Then [bold]petrov predict darcy permeability.npy pressure.npy[/] computes a file, "
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
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
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
def models(as_json: AsJson = False, url: Url = GATEWAY, timeout: Timeout = TIMEOUT_SECONDS) -> None:
    """List the models that are ready: versions, inputs with their defaults, outputs, and sizes of the grid.

    Example: petrov models --url http://127.0.0.1:8080
    """
    with _client(url, timeout) as client:
        infos = client.models()
    if as_json:
        _print_json([_document(info) for info in infos])
    else:
        Console().print(_tables.models(infos))


@app.command()
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
    with _client(url, timeout) as client:
        info = client.model(name)
    if as_json:
        _print_json({**_document(info), "card": info.card, "certificate": info.certificate})
    else:
        Console().print(_tables.model(info))


@app.command()
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
    with _http_client(url, timeout, "example") as client:
        info = client.model(model)
        if target is None and info.vocabulary is None:
            raise typer.BadParameter("expected a file for the inputs", param_hint="OUT")
        found = client.example(model, index, seed=seed, grid=grid)
    if target is None:
        typer.echo(_texts.example(info, found))
        return
    _write_sample(target, found.inputs, info.arguments)
    if truth is not None:
        if not found.outputs:
            raise ValueError("the true outputs of a new sample are not known: --index chooses one whose outputs are")
        _write_sample(truth, found.outputs, info.outputs)


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
    .npz or HDF5 file has one number per field for each of them, such as
    error_bound and novelty, and the command prints their range.

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
def rollout(
    model: Name,
    source: Annotated[
        Path, typer.Argument(metavar="IN", help="The states to start from: .npy with one array, .npz or .h5.")
    ],
    target: Annotated[
        Path,
        typer.Argument(
            metavar="OUT", help="The trajectories: .npy, .npz, .h5 or, of one sample, .mp4; or a new folder .zarr."
        ),
    ],
    frames: Annotated[
        int | None,
        typer.Option(min=1, help="How many frames follow; as many as a training trajectory has by default."),
    ] = None,
    parameter: Parameters = None,
    url: Url = GATEWAY,
    version: Version = None,
    timeout: Timeout = TIMEOUT_SECONDS,
    partial: Annotated[
        bool, typer.Option("--partial", help="Keep the frames before an error, and the samples that do not fail.")
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on behind the frames that an earlier run has left in OUT.partial.")
    ] = False,
    progress: Annotated[bool, typer.Option(help="Show a progress bar.")] = False,
) -> None:
    r"""Predict the trajectories that follow from the states in IN, and write them to OUT as \[..., frame, ...].

    IN is read as by [bold]petrov predict[/]. Frames are written to
    OUT.partial as they arrive, so memory holds a few of them. OUT is there
    once it is complete: after an error there is no OUT or, with --partial,
    one with fewer frames.

    After an error, an interrupt or a kill the same command with --resume
    goes on behind the last whole frame in OUT.partial, and OUT becomes the
    same. It refuses the frames of another model, input or parameter. An .h5
    or .zarr that is complete is continued to more --frames. Without --resume
    the rollout starts again.

    A movie shows every output frame by frame, with one scale for all frames.

    Example: petrov rollout navier_stokes vorticity.npy flow.h5 --frames 200 --progress

    Example: petrov rollout navier_stokes vorticity.npy flow.h5 --frames 200 --resume
    """
    if resume:
        _journal.check_left(target)
    with _client(url, timeout) as client:
        info = _checked(client, model, source, target, _files.TRAJECTORIES, resumed=resume)
        total = time_axis(info).trained if frames is None else frames
        with _files.opened(source, info) as found:
            _report_unused(source, found.unused)
            arrays, number = _files.with_numbers(found.arrays, _numbers(parameter)), version or info.version
            described = _journal.job(check_input(info, arrays), number, artefact(info, number))
            with _journal.Journal(target, described, resume=resume) as journal, _reported(journal):
                if resume and not journal.done and target.exists() and not _taken(journal, target, info, total):
                    return
                rolled = client.rollout_stream(
                    model,
                    arrays,
                    total,
                    version=number,
                    progress=progress,
                    quality=True,
                    partial=partial,
                    earlier=journal.frames(total),
                )
                ended = _append_frames(rolled, journal, target, info)
                count = min(journal.done, total)
                written = _frame_files.write(target, journal.frames(count), info, count, described)
                if ended:
                    _report_kept(journal)
                else:
                    journal.remove()
        spans = {name: _columns.span(array) for name, array in written.spans.items()}
        holds = [f"{name} {list(shape)} {spans[name]}" for name, shape in written.shapes.items()]
        typer.echo(f"{', '.join(holds)} -> {target}")
        if journal.outside:
            warn(model)
    if ended:
        _end(ended, FAILED)


@app.command()
def reference(
    model: Name,
    source: Annotated[Path, typer.Argument(metavar="IN", help="As for predict.")],
    target: Annotated[Path, typer.Argument(metavar="OUT", dir_okay=False, help="As for predict.")],
    parameter: Parameters = None,
    url: Url = GATEWAY,
    timeout: Timeout = TIMEOUT_SECONDS,
    progress: Annotated[bool, typer.Option(help="Show a progress bar.")] = False,
) -> None:
    """Solve all fields of IN with the classical solver of the model's problem, one by one, and write them to OUT.

    Example: petrov reference darcy permeability.npy solved.npy
    """
    with _http_client(url, timeout, "reference") as client:
        info, start = _checked(client, model, source, target), time.monotonic()
        with _files.opened(source, info) as found:
            arrays = _files.with_numbers(found.arrays, _numbers(parameter))
            outputs = by_name(client.reference(model, arrays, progress=progress), info)
        _files.write(target, outputs, info.outputs)
        _report(outputs, target)
        typer.echo(f"classical solver, {time.monotonic() - start:.2f} s")


@app.command()
def invert(
    model: Name,
    source: Annotated[
        Path,
        typer.Argument(
            metavar="IN",
            exists=True,
            dir_okay=False,
            help="A .csv file with a line per sensor: row, column, value and, unless --noise is set, its noise. Rows "
            "and columns are positions in sides of the domain, from 0 to 1.",
        ),
    ],
    target: Annotated[Path, typer.Argument(metavar="OUT", dir_okay=False, help="A .npz file.")],
    noise: Annotated[
        float | None, typer.Option(help="Standard deviation of all errors, in units of the values.")
    ] = None,
    prior: Annotated[str | None, typer.Option(help="log-normal or two-materials.")] = None,
    solver: Annotated[bool, typer.Option("--solver", help="Use the classical solver instead of the network.")] = False,
    points: Annotated[tuple[int, int] | None, typer.Option(metavar="ROWS COLUMNS", help="Grid of the model.")] = None,
    url: Url = GATEWAY,
    timeout: Timeout = TIMEOUT_SECONDS,
    progress: Annotated[bool, typer.Option(help="Show a progress bar.")] = False,
) -> None:
    """Infer an input of a model from its output at sensors, and write it with its uncertainty to OUT.

    Example: petrov invert darcy sensors.csv permeability.npz --noise 1e-4
    """
    _files.check_output(target, frozenset({".npz"}))
    sensors = _inversion.sensors(source, noise)
    with _http_client(url, timeout, "invert") as client:
        found = client.invert(
            model,
            *sensors,
            prior=None if prior is None else {"kind": prior},
            forward="solver" if solver else None,
            grid=points,
            progress=progress,
        )
    arrays = {**found.inputs, **{name: getattr(found, name) for name in (*_inversion.FIELDS, *_inversion.VECTORS)}}
    np.savez(target, **arrays)
    _report(arrays, target)
    typer.echo(f"misfit {found.misfit:.2f} after {found.iterations} steps, {found.seconds:.1f} s")


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
    shapes = ", ".join(f"{name} {list(shape)}" for name, shape in done.shapes.items())
    typer.echo(f"{shapes} -> {target}" + (f" ({earlier} computed earlier)" if earlier else ""))
    if done.quality:
        typer.echo(_columns.sentence(done.quality))


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
    _check_exists(job.source)
    if target is None:
        raise typer.BadParameter("expected a file for the output", param_hint="OUT")
    info, start = _checked(client, job.model, job.source, target), time.monotonic()
    outputs, numbers, grid = _predicted(client, info, job, progress=progress)
    seconds = time.monotonic() - start
    columns = numbers if target.suffix in _files.SEVERAL else {}
    _files.write(target, {**outputs, **columns}, (*info.outputs, *_columns.tensors(info)))
    _report(outputs, target, columns)
    known = _columns.sentence(numbers) if numbers else _columns.published(info, grid)
    typer.echo(f"{info.name} version {job.version or info.version}, {seconds:.2f} s{known and f', {known}'}")


def _taken(journal: _journal.Journal, target: Path, info: ModelInfo, total: int) -> bool:
    """Return whether a rollout goes on from a finished file, which has fewer frames."""
    with _frame_files.finished(target, info) as finished:
        if journal.take(finished, total):
            return True
        typer.echo(f"{target} has {finished.count} frames already")
        return False


def _append_frames(
    rolled: Iterator[Any], journal: _journal.Journal, target: Path, info: ModelInfo
) -> IncompleteRolloutWarning | None:
    """Keep frames as they arrive, and return how the rollout ended if not with its last frame."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", IncompleteRolloutWarning)
        try:
            for frame, known in rolled:
                outputs = by_name(frame, info)
                _frame_files.check_frame(target, outputs, info)
                journal.add(outputs, outside=known.outside is not None and bool(np.any(known.outside)))
        except IncompleteRolloutWarning as ended:
            return ended
    return None


@contextmanager
def _reported(journal: _journal.Journal) -> Iterator[None]:
    """Say which frames are kept where the block fails or is interrupted."""
    try:
        yield
    except BaseException:
        if journal.done:
            _report_kept(journal)
        raise


def _report_kept(journal: _journal.Journal) -> None:
    typer.echo(f"petrov: {journal.path} has {journal.done} frames; --resume goes on behind them", err=True)


def _checked(
    client: SyncPredictor,
    model: str,
    source: Path,
    target: Path,
    suffixes: frozenset[str] = _files.ARRAYS,
    *,
    resumed: bool = False,
) -> ModelInfo:
    """Return the model, after checks of both files."""
    _check_exists(source)
    _files.check_output(target, suffixes, resumed=resumed)
    info = client.model(model)
    _files.check_holds(target, info.outputs)
    return info


def _check_exists(source: Path) -> None:
    if not source.is_file():
        raise typer.BadParameter(f"File '{source}' does not exist.", param_hint="IN")


def _predicted(
    client: SyncPredictor, info: ModelInfo, job: FieldJob, *, progress: bool
) -> tuple[dict[str, Any], dict[str, Any], tuple[int, ...]]:
    """Return the outputs for a file and what is known about their errors, by name, and the grid."""
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
        grid = np.shape(found.arrays[info.first_name])[-len(info.grid.axes) :] if info.grid else ()
    arrays, quality = predicted if info.quality else (predicted, Quality())
    return by_name(arrays, info), _columns.arrays(info, quality), grid


def _write_sample(target: Path, arrays: Mapping[str, Any], tensors: Sequence[TensorInfo | ParameterInfo]) -> None:
    """Write inputs or outputs of one sample, and say what the file holds."""
    _files.check_output(target)
    _files.check_holds(target, [tensor for tensor in tensors if tensor.name in arrays])
    _files.write(target, arrays, tensors)
    _report(arrays, target)


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


def _http_client(url: str, timeout: float, command: str) -> Client:
    """Return a client of the gateway's HTTP port, the only one that has samples and solvers."""
    if url.startswith("grpc://"):
        raise typer.BadParameter(f"{command} needs the gateway's HTTP address", param_hint="--url")
    return Client(url, os.environ.get("PETROV_API_KEY"), timeout)


def _document(info: ModelInfo) -> dict[str, Any]:
    """Return the description of a model without card and certificate, as JSON has it."""
    document = asdict(info)
    return {name: value for name, value in document.items() if name not in {"card", "certificate"}}


def _print_json(document: Any) -> None:
    typer.echo(json.dumps(document, indent=2, ensure_ascii=False))


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


def _report(arrays: Mapping[str, Any], target: Path, columns: Mapping[str, Any] | None = None) -> None:
    """Print what a file holds: name, shape and range of each array, and the names of numbers per field."""
    described = [f"{name} {list(array.shape)} {_columns.span(array)}" for name, array in arrays.items()]
    typer.echo(f"{', '.join([*described, *(columns or ())])} -> {target}")


def _report_unused(source: Path, names: tuple[str, ...]) -> None:
    if names:
        typer.echo(f"petrov: ignored in {source}: {', '.join(names)}", err=True)
