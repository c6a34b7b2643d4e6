"""A service (Triton and gateway) on free ports, for the time of a measurement."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import httpx2

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

START_SECONDS = 120.0


@dataclass(frozen=True)
class Addresses:
    """The addresses of the parts of a running service."""

    gateway: str
    gateway_grpc: str
    triton_grpc: str
    triton_http: str


@contextmanager
def running(
    repository: Path,
    patience: float = START_SECONDS,
    arguments: Sequence[str] = (),
    settings: Mapping[str, str] | None = None,
) -> Iterator[Addresses]:
    """Run `python -m serving` until the block ends, and yield its addresses.

    Args:
        repository: The exported models.
        patience: Seconds until it must be ready.
        arguments: Arguments of the command.
        settings: Further variables.

    Raises:
        TimeoutError: The service was not ready in time.
    """
    port, gateway_grpc, http, grpc, metrics = free_ports(5)
    variables = {
        "PETROV_REPOSITORY": str(repository),
        "PETROV_PORT": str(port),
        "PETROV_GRPC_PORT": str(gateway_grpc),
        "PETROV_TRITON_HTTP_PORT": str(http),
        "PETROV_TRITON_GRPC_PORT": str(grpc),
        "PETROV_TRITON_METRICS_PORT": str(metrics),
        "PETROV_LOG_LEVEL": "warning",
        "PETROV_TRITON_START_SECONDS": str(patience),
    }
    command = [sys.executable, "-m", "serving", *arguments]
    with subprocess.Popen(command, env=os.environ | variables | dict(settings or {})) as process:  # noqa: S603 - our own
        try:
            wait_until_ready(f"http://127.0.0.1:{port}", patience)
            yield Addresses(
                f"http://127.0.0.1:{port}", f"127.0.0.1:{gateway_grpc}", f"127.0.0.1:{grpc}", f"127.0.0.1:{http}"
            )
        finally:
            process.terminate()


def wait_until_ready(url: str, patience: float = START_SECONDS) -> None:
    """Return when every model is loaded and warm.

    Raises:
        TimeoutError: The service was not ready in time.
    """
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        try:
            if httpx2.get(f"{url}/health/ready").status_code == httpx2.codes.OK:
                return
        except httpx2.ConnectError:
            pass
        time.sleep(0.2)
    raise TimeoutError(f"{url} was not ready within {patience:g} s")


def free_ports(count: int) -> list[int]:
    """Return free ports."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
