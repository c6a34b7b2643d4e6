"""The client of a command, and checks of its files before anything is sent."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from petrov_client._client import Client
from petrov_client._files import local

if TYPE_CHECKING:
    from petrov_client._client import SyncPredictor
    from petrov_client._values.models import ModelInfo


def connected(url: str, timeout: float) -> SyncPredictor:
    """Return the client for an address: over gRPC for `grpc://`, else over HTTP."""
    key = os.environ.get("PETROV_API_KEY")
    if url.startswith("grpc://"):
        from petrov_client import GrpcClient  # noqa: PLC0415  optional

        return GrpcClient(url.removeprefix("grpc://"), key, timeout)
    return Client(url, key, timeout)


def connected_over_http(url: str, timeout: float, command: str) -> Client:
    """Return a client of the gateway's HTTP port, the only one that has samples and solvers.

    Raises:
        BadParameter: The address is that of the gRPC port.
    """
    if url.startswith("grpc://"):
        raise typer.BadParameter(f"{command} needs the gateway's HTTP address", param_hint="--url")
    return Client(url, os.environ.get("PETROV_API_KEY"), timeout)


def checked_files(
    client: SyncPredictor,
    model: str,
    source: Path,
    target: Path,
    suffixes: frozenset[str] = local.ARRAYS,
    *,
    resumed: bool = False,
) -> ModelInfo:
    """Return the model, after checks of both files."""
    check_exists(source)
    local.check_output(target, suffixes, resumed=resumed)
    info = client.model(model)
    local.check_holds(target, info.outputs)
    return info


def check_exists(source: Path) -> None:
    """Check that an input file is there.

    Raises:
        BadParameter: It is not.
    """
    if not source.is_file():
        raise typer.BadParameter(f"File '{source}' does not exist.", param_hint="IN")
