"""What several commands have: options and arguments, the client for an address, and what is printed."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from petrov_client import _files as files
from petrov_client._client import Client, SyncPredictor
from petrov_client._mesh_series import Source
from petrov_client._models import ModelInfo
from petrov_client._quality import ERROR_ESTIMATE, NOVELTY, OUTSIDE, RELIABLE, Outside, held
from petrov_client._schema import ParameterInfo, TensorInfo
from petrov_client._spans import Span

GATEWAY = "http://127.0.0.1:8080"
Url = Annotated[
    str,
    typer.Option(
        envvar="PETROV_URL",
        help="The address of the service: http(s)://HOST:PORT of the gateway, or grpc(s)://HOST:PORT of its gRPC port.",
    ),
]
Timeout = Annotated[float, typer.Option(help="Seconds for each request, its repetitions included.")]
RootCertificates = Annotated[
    Path | None,
    typer.Option(
        "--ca-certs",
        metavar="FILE",
        help="The authorities that are trusted, for https:// and grpcs://: a file of certificates (PEM). By default "
        "SSL_CERT_FILE, SSL_CERT_DIR or the system says them.",
    ),
]
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
        help="The largest error bound. A field with a larger one is computed again with more iterations, then by the "
        "classical solver, and refused where neither meets it."
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
GridOption = Annotated[
    str | None,
    typer.Option(
        metavar="POINTS",
        help="Points of the outputs along every axis, such as 32,48, or one number for all: of a model whose inputs "
        "are numbers alone. By default the grid of its training samples.",
    ),
]
ShowProgress = Annotated[bool, typer.Option("--progress/--no-progress", help="Show a progress bar.")]
_GRPC = ("grpc", "grpcs")
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


def numbers_of(options: list[str] | None) -> dict[str, float]:
    """Return the parameters of the command line by name."""
    numbers = {}
    for option in options or ():
        name, _, number = option.partition("=")
        try:
            numbers[name.strip()] = float(number)
        except ValueError as error:
            raise typer.BadParameter(f"expected NAME=NUMBER but got {option}", param_hint="--parameter") from error
    return numbers


def points_of(option: str | None) -> list[int] | None:
    """Return the points per axis of the command line."""
    try:
        return None if option is None else [int(part) for part in option.split(",")]
    except ValueError as error:
        raise typer.BadParameter(f"expected points such as 32,48 but got {option}", param_hint="--grid") from error


def key_of_environment() -> str | None:
    """Return the key; None where the variable is not set, or empty, as a file of settings may leave it."""
    return os.environ.get("PETROV_API_KEY") or None


def connected(url: str, timeout: float, root_certificates: Path | None) -> SyncPredictor:
    """Return the client for an address: over gRPC for `grpc://`, encrypted for `grpcs://`, else over HTTP."""
    key = key_of_environment()
    scheme, _, address = url.partition("://")
    if scheme in _GRPC:
        from petrov_client import GrpcClient  # noqa: PLC0415  optional

        return GrpcClient(address, key, timeout, scheme == "grpcs", root_certificates)
    return Client(url, key, timeout, root_certificates=root_certificates)


def connected_over_http(url: str, timeout: float, command: str, root_certificates: Path | None) -> Client:
    """Return a client of the gateway's HTTP port, the only one that has samples and solvers."""
    if url.partition("://")[0] in _GRPC:
        raise typer.BadParameter(f"{command} needs the gateway's HTTP address", param_hint="--url")
    return Client(url, key_of_environment(), timeout, root_certificates=root_certificates)


def checked_files(
    client: SyncPredictor,
    model: str,
    source: Path,
    target: Path,
    suffixes: frozenset[str] = files.ARRAYS,
    *,
    resumed: bool = False,
) -> ModelInfo:
    """Return the model, after checks of both files."""
    check_exists(source)
    files.check_output(target, suffixes, resumed=resumed)
    info = client.model(model)
    files.check_holds(target, info.outputs)
    return info


def check_exists(source: Path) -> None:
    """Check that an input file, or a folder of zarr, is there."""
    of_zarr = source.suffix.lower() == files.ZARR
    if source.is_dir() and not of_zarr:
        message = f"expected a file, such as a list .pvd of meshes, but {source} is a folder"
        raise typer.BadParameter(message, param_hint="IN")
    if source.is_file() and of_zarr:
        message = f"expected a folder of zarr but {source} is a file: unpack it, if it is an archive"
        raise typer.BadParameter(message, param_hint="IN")
    if not (source.is_dir() or source.is_file()):
        raise typer.BadParameter(f"File '{source}' does not exist.", param_hint="IN")


def write_sample(target: Path, arrays: Mapping[str, Any], tensors: Sequence[TensorInfo | ParameterInfo]) -> None:
    """Write inputs or outputs of one sample, in the order of the card, and say what the file holds."""
    known = [tensor.name for tensor in tensors if tensor.name in arrays]
    arrays = {name: arrays[name] for name in (*known, *(name for name in arrays if name not in known))}
    files.check_output(target)
    files.check_holds(target, [tensor for tensor in tensors if tensor.name in arrays])
    files.write(target, arrays, tensors)
    report(arrays, target)


def document(info: ModelInfo) -> dict[str, Any]:
    """Return the description of a model without card and certificate, as JSON has it."""
    return {name: value for name, value in asdict(info).items() if name not in {"card", "certificate"}}


def print_json(content: Any) -> None:
    """Print JSON for programs."""
    every = (sys.stdout.encoding or "").lower().startswith("utf")  # whether it has all characters
    typer.echo(json.dumps(content, indent=2, ensure_ascii=not every))


def report(arrays: Mapping[str, Any], target: Path, columns: Mapping[str, Any] | None = None) -> None:
    """Print what a file holds: name, shape and range of each array, and the names of numbers per field."""
    described = [f"{name} {list(array.shape)} {Span(array)}" for name, array in arrays.items()]
    typer.echo(f"{', '.join([*described, *(columns or ())])} -> {target}")


def report_unused(path: Path, found: Source) -> None:
    """Say which arrays of a file are not read, how many points of a mesh, and what else is worth a look."""
    if found.unused:
        typer.echo(f"petrov: ignored in {path}: {', '.join(found.unused)}", err=True)
    if found.loose:
        typer.echo(f"petrov: {found.loose} points of {path} are in no cell, and left out", err=True)
    if found.remark:
        typer.echo(f"petrov: {found.remark}", err=True)


def sentence(numbers: Mapping[str, Any], coverage: float | None = None, *, per_frame: bool = False) -> str:
    """Return what the numbers say: the range of each, and how many inputs are unlike the training data.

    Beside an error estimate stands the share of test fields for which it held; it is not shown where that is small.
    An input is unlike them where any of its numbers is; numbers `[frame]` of a single one are `per_frame`.
    """
    shown = {name: str(Span(values)) for name, values in numbers.items()}
    if ERROR_ESTIMATE in shown and coverage is not None:
        estimate = f"{shown[ERROR_ESTIMATE]} " if coverage >= RELIABLE else ""
        shown[ERROR_ESTIMATE] = f"{estimate}({held(coverage)})"
    parts = [f"{name} {text}" for name, text in shown.items()]
    if NOVELTY in numbers:
        below = np.atleast_1d(numbers[NOVELTY]) < OUTSIDE
        count = 1 if per_frame and below.ndim == 1 else len(below)
        unlike = int(below.reshape(count, -1).any(axis=1).sum())
        parts.append(f"{unlike} of {count} inputs unlike the training data")
    return ", ".join(parts)


def published(info: ModelInfo, grid: tuple[int, ...]) -> str:
    """Return the relative error that the card publishes for a grid, in a few words; empty where it has none."""
    rows = [row for row in info.card.get("errors", ()) if tuple(row.get("grid", ())) == grid]
    errors = [float(row["relative_l2"]) for row in rows if "relative_l2" in row]
    return f"mean relative error of test samples {Span(errors)}" if errors else ""
