"""`petrov predict`, `reference`, `score` and `invert`: a file of results for a file of inputs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from petrov_client import _files as files
from petrov_client import _inversion as inversion
from petrov_client._client import AsyncClient
from petrov_client._commands import texts
from petrov_client._commands.options import (
    GATEWAY,
    GridOption,
    Name,
    OutsideOption,
    Parameters,
    RootCertificates,
    ShowProgress,
    Timeout,
    Tolerance,
    Url,
    Version,
    check_exists,
    checked_files,
    connected,
    connected_over_http,
    key_of_environment,
    numbers_of,
    points_of,
    published,
    report,
    report_unused,
    sentence,
)
from petrov_client._flow import TIMEOUT_SECONDS
from petrov_client._mesh_series import MESHES, READ
from petrov_client._quality import Quality, column_arrays, columns
from petrov_client._rollout import by_name
from petrov_client._score import PATIENCE_SECONDS
from petrov_client._score import score as score_file


def predict(
    model: Name,
    source: Annotated[
        str,
        typer.Argument(
            metavar="IN",
            help="Single fields or batches: .npy with one array, .npz or .h5 with several. For a model on points: a "
            "mesh, such as .vtu. For a sequence model: a text, a file of one text per line, or -.",
        ),
    ],
    target: Annotated[
        Path | None,
        typer.Argument(
            metavar="OUT",
            dir_okay=False,
            help="The output: .npy, .npz, .h5, .nc or .mat; .vtu of a mesh; .csv for texts.",
        ),
    ] = None,
    parameter: Parameters = None,
    tolerance: Tolerance = None,
    outside: OutsideOption = "answer",
    grid: GridOption = None,
    url: Url = GATEWAY,
    version: Version = None,
    timeout: Timeout = TIMEOUT_SECONDS,
    root_certificates: RootCertificates = None,
    progress: ShowProgress = False,
) -> None:
    r"""Predict the outputs for all fields of IN, in physical units, and write them to OUT with the same rank.

    The arrays in an .npz, HDF5, netCDF or MATLAB file have the names of the
    model's inputs and parameters, which [bold]petrov model[/] lists. What has
    a default may be left out, and other arrays are ignored. For a model that
    requires one input the only array of a file may have any name. The arrays
    in OUT have the names of the model's outputs. If the model reports its
    errors, a file of several arrays has one number per field for each of
    them, such as error_bound and novelty, and the command prints their range.

    .npy and HDF5 files may be larger than memory: they are read and sent in
    pieces. In netCDF files dimensions are known by their names, and
    coordinates are kept.

    A mesh file (VTU, VTK, VTP, MSH, XDMF, INP or Exodus) is one sample; its
    point data have the names of the inputs. A mesh file as OUT is that of IN
    with the outputs among its point data; VTP, INP and Exodus are not written.

    For a text the output is its label, the label's probability and the
    second most probable label: one sentence for one text, a table for
    several, or CSV if OUT is given.

    Example: petrov predict darcy permeability.npy pressure.npy --progress

    Example: petrov predict heat in.npz out.npz --parameter wind=0.3

    Example: petrov predict waves numbers.npz fields.npz --grid 32,48

    Example: petrov predict plate plate.vtu stress.vtu

    Example: petrov predict listops "\[MAX 2 9 \[MIN 4 7 ] 0 ]"
    """
    with connected(url, timeout, root_certificates) as client:
        if Path(source).suffix.lower() not in files.ARRAYS | READ | {files.ZARR}:
            texts.predict(client, model, source, target, version, progress)
            return
        check_exists(Path(source))
        if target is None:
            raise typer.BadParameter("expected a file for the output", param_hint="OUT")
        suffixes = files.ARRAYS | (MESHES if Path(source).suffix.lower() in READ else frozenset())
        info, start = checked_files(client, model, Path(source), target, suffixes), time.monotonic()
        with files.opened(Path(source), info, given=numbers_of(parameter)) as found:
            report_unused(Path(source), found)
            predicted = client.predict(
                model,
                files.with_numbers(found.arrays, numbers_of(parameter)),
                version=version,
                progress=progress,
                quality=bool(info.quality),
                tolerance=tolerance,
                outside=outside,
                grid=points_of(grid),
            )
            # What has a default may not be in the file.
            lead = next((np.shape(found.arrays[one.name]) for one in info.inputs if one.name in found.arrays), ())
        seconds = time.monotonic() - start
        arrays, quality = predicted if info.quality else (predicted, Quality())
        outputs, numbers = by_name(arrays, info), column_arrays(info, quality)
        beside = numbers if target.suffix.lower() in files.SEVERAL else {}
        files.write(target, {**outputs, **beside}, (*info.outputs, *columns(info)), found.mesh)
        report(outputs, target, beside)
        if not info.inputs:  # the grid is that of an output
            lead = next((np.shape(outputs[one.name]) for one in info.outputs if not one.scalar), ())
        sides = lead[-len(info.grid.axes) :] if info.grid else ()
        known = sentence(numbers, quality.coverage, per_frame=info.frames is not None)
        if not numbers and version in {None, info.version}:  # the card is that of the newest version
            known = published(info, sides)
        typer.echo(f"{info.name} version {version or info.version}, {seconds:.2f} s{known and f', {known}'}")


def reference(
    model: Name,
    source: Annotated[Path, typer.Argument(metavar="IN", help="As for predict.")],
    target: Annotated[Path, typer.Argument(metavar="OUT", dir_okay=False, help="As for predict.")],
    parameter: Parameters = None,
    url: Url = GATEWAY,
    timeout: Timeout = TIMEOUT_SECONDS,
    root_certificates: RootCertificates = None,
    progress: ShowProgress = False,
) -> None:
    """Solve all fields of IN with the classical solver of the model's problem, one by one, and write them to OUT.

    Example: petrov reference darcy permeability.npy solved.npy
    """
    with connected_over_http(url, timeout, "reference", root_certificates) as client:
        info, start = checked_files(client, model, source, target), time.monotonic()
        with files.opened(source, info, given=numbers_of(parameter)) as found:
            arrays = files.with_numbers(found.arrays, numbers_of(parameter))
            outputs = by_name(client.reference(model, arrays, progress=progress), info)
        files.write(target, outputs, info.outputs)
        report(outputs, target)
        typer.echo(f"classical solver, {time.monotonic() - start:.2f} s")


def score(
    model: Name,
    source: Annotated[Path, typer.Argument(metavar="IN", help="Batches of any length: .h5, .zarr, .npz or .npy.")],
    target: Annotated[Path, typer.Argument(metavar="OUT", help="The output file: .h5 or .zarr.")],
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
    in_flight: Annotated[int, typer.Option(min=1, help="Requests in flight per gateway.")] = AsyncClient.in_flight,
    version: Version = None,
    timeout: Annotated[float, typer.Option(help="Seconds for each request.")] = TIMEOUT_SECONDS,
    root_certificates: RootCertificates = None,
    patience: Annotated[
        float, typer.Option(help="Seconds without a response from any gateway before the command fails.")
    ] = PATIENCE_SECONDS,
    progress: ShowProgress = True,
) -> None:
    r"""Predict the outputs for a file of any length, and write them to OUT; the same command resumes.

    The datasets of IN have the names of the model's inputs and parameters,
    and the axes \[sample, ...], parameters \[sample]; those of OUT have the
    names of the outputs. A model that requires one input reads the only
    dataset of a file under any name.

    Memory holds a few requests per gateway. A gateway that is overloaded or
    gone is used again later, and the others take its share. Until OUT is
    complete it is called OUT.partial: after a kill or a power cut the same
    command resumes, and the complete file has the same bytes. With
    RAY_ADDRESS the machines of a Ray cluster send the requests; they see
    both files by the same paths.

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
        parameters=numbers_of(parameter),
        tolerance=tolerance,
        outside=outside,
        version=version,
        in_flight=in_flight,
        api_key=key_of_environment(),
        timeout=timeout,
        root_certificates=root_certificates,
        patience=patience,
        progress=progress,
    )
    earlier = done.count - done.computed
    shapes = ", ".join(f"{name} {list(shape)}" for name, shape in done.shapes.items())
    typer.echo(f"{shapes} -> {target}" + (f" ({earlier} computed earlier)" if earlier else ""))
    if done.quality:
        typer.echo(sentence(done.quality, done.coverage))


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
    root_certificates: RootCertificates = None,
    progress: ShowProgress = False,
) -> None:
    """Infer an input of a model from its output at sensors, and write it with its uncertainty to OUT.

    Example: petrov invert darcy sensors.csv permeability.npz --noise 1e-4
    """
    files.check_output(target, frozenset({".npz"}))
    sensors = inversion.sensors(source, noise)
    with connected_over_http(url, timeout, "invert", root_certificates) as client:
        found = client.invert(
            model,
            *sensors,
            prior=None if prior is None else {"kind": prior},
            forward="solver" if solver else None,
            grid=points,
            progress=progress,
        )
    arrays = {**found.inputs, **{name: getattr(found, name) for name in (*inversion.FIELDS, *inversion.VECTORS)}}
    with files.replacing(target) as temporary, temporary.open("wb") as file:
        np.savez(file, **arrays)
    report(arrays, target)
    typer.echo(f"misfit {found.misfit:.2f} after {found.iterations} steps, {found.seconds:.1f} s")
