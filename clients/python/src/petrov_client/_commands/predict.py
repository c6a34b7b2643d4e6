"""`petrov predict` and `petrov reference`: the outputs for a file, or labels of texts."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.console import Console

from petrov_client._commands import labelled_texts
from petrov_client._commands.connections import check_exists, checked_files, connected, connected_over_http
from petrov_client._commands.options import (
    GATEWAY,
    Name,
    OutsideOption,
    Parameters,
    Timeout,
    Tolerance,
    Url,
    Version,
    numbers_of,
)
from petrov_client._commands.reports import report, report_unused
from petrov_client._files import local, quality_columns
from petrov_client._requests.rollout import by_name
from petrov_client._values.quality import Options, Quality
from petrov_client._wire.retry import TIMEOUT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from petrov_client._client import SyncPredictor
    from petrov_client._values.models import ModelInfo


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
    with connected(url, timeout) as client:
        if Path(source).suffix in local.ARRAYS:
            options = Options(tolerance=tolerance, outside=outside)
            job = FieldJob(model, Path(source), version, numbers_of(parameter), options)
            _predict_fields(client, job, target, progress=progress)
        else:
            _predict_texts(client, model, labelled_texts.read(source), target, version, progress=progress)


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
    with connected_over_http(url, timeout, "reference") as client:
        info, start = checked_files(client, model, source, target), time.monotonic()
        with local.opened(source, info) as found:
            arrays = local.with_numbers(found.arrays, numbers_of(parameter))
            outputs = by_name(client.reference(model, arrays, progress=progress), info)
        local.write(target, outputs, info.outputs)
        report(outputs, target)
        typer.echo(f"classical solver, {time.monotonic() - start:.2f} s")


@dataclass(frozen=True)
class FieldJob:
    """A prediction for the fields of a file."""

    model: str
    source: Path
    version: int | None
    numbers: Mapping[str, float]
    options: Options


def _predict_fields(client: SyncPredictor, job: FieldJob, target: Path | None, *, progress: bool) -> None:
    check_exists(job.source)
    if target is None:
        raise typer.BadParameter("expected a file for the output", param_hint="OUT")
    info, start = checked_files(client, job.model, job.source, target), time.monotonic()
    outputs, numbers, grid = _predicted(client, info, job, progress=progress)
    seconds = time.monotonic() - start
    columns = numbers if target.suffix in local.SEVERAL else {}
    local.write(target, {**outputs, **columns}, (*info.outputs, *quality_columns.tensors(info)))
    report(outputs, target, columns)
    known = quality_columns.sentence(numbers) if numbers else quality_columns.published(info, grid)
    typer.echo(f"{info.name} version {job.version or info.version}, {seconds:.2f} s{known and f', {known}'}")


def _predicted(
    client: SyncPredictor, info: ModelInfo, job: FieldJob, *, progress: bool
) -> tuple[dict[str, Any], dict[str, Any], tuple[int, ...]]:
    """Return the outputs for a file and what is known about their errors, by name, and the grid."""
    options = job.options
    with local.opened(job.source, info) as found:
        report_unused(job.source, found.unused)
        predicted = client.predict(
            info.name,
            local.with_numbers(found.arrays, job.numbers),
            version=job.version,
            progress=progress,
            quality=bool(info.quality),
            tolerance=options.tolerance,
            outside=options.outside,
        )
        grid = np.shape(found.arrays[info.first_name])[-len(info.grid.axes) :] if info.grid else ()
    arrays, quality = predicted if info.quality else (predicted, Quality())
    return by_name(arrays, info), quality_columns.arrays(info, quality), grid


def _predict_texts(
    client: SyncPredictor, model: str, texts: list[str], target: Path | None, version: int | None, *, progress: bool
) -> None:
    if target is not None and str(target) != labelled_texts.STANDARD:
        local.check_output(target, frozenset({".csv"}))
    info = client.model(model)
    labelled_texts.check(info, texts)
    columns, rows = labelled_texts.header(info), list(labelled_texts.predict(client, info, texts, version, progress))
    if target is not None:
        labelled_texts.write(target, columns, rows)
    elif len(rows) == 1:
        typer.echo(labelled_texts.sentence(rows[0]))
    else:
        Console().print(labelled_texts.table(columns, rows))
