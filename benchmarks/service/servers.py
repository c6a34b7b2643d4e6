"""The servers that are compared with the gateway, and the time and memory that a server takes to start."""

from __future__ import annotations

import subprocess
import tempfile
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, TextIO

import httpx2
import psutil

from benchmarks.baselines.environment import OWN, interpreter
from benchmarks.service.running import free_ports

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

START_SECONDS = 300.0  # for a server on a busy machine
NAIVE, IN_PROCESS, LITSERVE, RAW = "naive service", "FastAPI and ONNX Runtime", "LitServe", "LitServe, raw bodies"
ENVIRONMENTS = {NAIVE: OWN, IN_PROCESS: OWN, LITSERVE: "litserve", RAW: "litserve"}


class Started(NamedTuple):
    """A server that is ready: its name, the seconds that it took, and its memory in bytes."""

    name: str
    seconds: float
    bytes: int


def started(name: str, process: psutil.Process, begun: float) -> Started:
    """Return the time that a server took to start, and its memory.

    Args:
        name: The server's name in the table.
        process: Its process; its children count too, and pages that they share count once.
        begun: The reading of `time.monotonic` at its start.
    """
    seconds = time.monotonic() - begun
    family = [process, *process.children(recursive=True)]
    return Started(name, seconds, sum(each.memory_full_info().pss for each in family))


@contextmanager
def server(name: str, graph: Path, found: list[Started]) -> Iterator[str]:
    """Run a baseline's server until the block ends, and yield its address.

    Args:
        name: A key of `ENVIRONMENTS`.
        graph: The exported model, for the server that runs it.
        found: The server's time and memory are appended here.

    Raises:
        TimeoutError: It was not ready in time.
        RuntimeError: It ended; the message has its last output.
    """
    [port] = free_ports(1)
    begun = time.monotonic()
    command = [str(interpreter(ENVIRONMENTS[name])), *arguments(name, graph, port)]
    with (
        tempfile.TemporaryFile("w+") as output,
        subprocess.Popen(command, stdout=output, stderr=output) as process,  # noqa: S603 -- our own command
    ):
        family: list[psutil.Process] = []
        try:
            wait_for(f"http://127.0.0.1:{port}/health", process, output)
            found.append(started(name, psutil.Process(process.pid), begun))
            family = psutil.Process(process.pid).children(recursive=True)
            yield f"http://127.0.0.1:{port}"
        finally:
            for each in family:
                each.terminate()  # LitServe leaves its workers behind
            process.terminate()


def arguments(name: str, graph: Path, port: int) -> list[str]:
    """Return the arguments of the interpreter that start a server.

    Args:
        name: A key of `ENVIRONMENTS`.
        graph: The exported model.
        port: The server's port.
    """
    folder = "benchmarks.baselines.servers"
    if name == NAIVE:
        return ["-m", "uvicorn", "--factory", f"{folder}.naive_service:create", "--port", f"{port}"]
    if name == IN_PROCESS:
        return ["-m", f"{folder}.onnx_service", str(graph), f"{port}"]
    return ["-m", f"{folder}.litserve_service", f"{port}", *(["npy"] if name == RAW else [])]


def wait_for(url: str, process: subprocess.Popen[bytes], output: TextIO) -> None:
    """Return when a server responds with 200.

    Args:
        url: The address of its health check.
        process: The server.
        output: What it prints.

    Raises:
        TimeoutError: It did not in time.
        RuntimeError: It ended; the message has its last output.
    """
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            output.seek(0)
            raise RuntimeError(f"{url}: the server ended with status {process.returncode}: {output.read()[-800:]}")
        try:
            if httpx2.get(url).status_code == httpx2.codes.OK:
                return
        except httpx2.TransportError:
            pass
        time.sleep(0.2)
    raise TimeoutError(f"{url} did not respond within {START_SECONDS:g} s")
