"""Fixtures for the tests of every stage: a toy model repository, free ports, a real Triton and gateway for the toys."""

from __future__ import annotations

import asyncio
import fcntl
import functools
import gc
import os
import shutil
import socket
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import httpcore2
import httpx2
import hypothesis
import numpy as np
import pytest
import uvicorn
from xdist.remote import Producer

from serving import system
from serving.app import create_app
from serving.connection import configuration
from serving.local_triton.server import TritonServer
from serving.service import Service
from serving.settings import Settings
from serving.system import StartupError
from serving.triton import Triton
from tests import distribution, toy_blur, toy_fields, toy_gauges, toy_rollouts, toy_sequences

# Tests run many processes on few cores: threads that wait for one another would spend most of the time waiting.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# A suite in a terminal, or where colours are asked for, sees the texts of a pipe; tests/terminal.py has terminals.
os.environ |= {"TERM": "dumb", "COLUMNS": "80"}
os.environ.pop("FORCE_COLOR", None)
# What one process has compiled the others read, whatever the environment says: every process imports all tests, and
# compiling them, with their assertions rewritten and the types of arguments checked, takes longer than all the rest.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# Every HTTP client reads the certificates of the system, which takes longer than most tests: a process does so once.
setattr(httpcore2, "default_ssl_context", functools.cache(httpcore2.default_ssl_context))  # noqa: B010 - as below

# No example has a time limit, whether CI is set or not: others use the machine.
hypothesis.settings.register_profile("suite", hypothesis.settings.default, deadline=None)
hypothesis.settings.load_profile("suite")

ENVIRONMENT = Path(__file__).parents[1] / ".runtime" / "triton-env"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    distribution.sort(items)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage while a process imports all packages, which hardly have any: a sixth of that time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()  # also in the process that distributes the tests, and imports none


def pytest_collection_finish() -> None:
    """Have the garbage collector leave out the imported packages, and run less often: an export is a tenth faster."""
    gc.freeze()  # with what little garbage there is: to look for it takes longer
    gc.set_threshold(100_000, 20, 100)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> distribution.Distribution:
    return distribution.Distribution(config, log)


@dataclass(frozen=True)
class Gateway:
    """A running gateway."""

    url: str
    settings: Settings
    service: Service


RunService = Callable[..., AbstractContextManager[Gateway]]  # of a repository, with settings by name


@pytest.fixture(scope="session")
def blur() -> Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]:
    """Return what the toys compute, in NumPy: each field [B, H, W] smoothed by a 3 x 3 kernel, zero outside."""

    def blurred(fields: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        _, rows, columns = fields.shape
        padded = np.pad(fields, ((0, 0), (1, 1), (1, 1)))
        shifts = [(i, j) for i in range(3) for j in range(3)]
        return sum(toy_blur.KERNEL[i, j] * padded[:, i : i + rows, j : j + columns] for i, j in shifts)

    return blurred


@pytest.fixture(scope="session")
def toy_repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a repository as export writes it: `blur` (ONNX), `blur_torchscript` and the other toys.

    Copy it before changing it: the processes of pytest-xdist share one, which the first of them writes.
    """
    base = tmp_path_factory.getbasetemp()
    folder = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    repository, part = folder / "toy_repository", folder / "toy_repository.part"
    with (folder / "toy_repository.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # which the kernel frees with the process
        if not repository.exists():
            shutil.rmtree(part, ignore_errors=True)  # of a process that was killed
            part.mkdir()
            _write_toys(part)
            part.rename(repository)
    return repository


def _write_toys(repository: Path) -> None:
    toy_blur.add(repository)
    toy_sequences.add(repository)
    toy_fields.add(repository)
    toy_fields.add_derivatives(repository)
    toy_gauges.add(repository)
    toy_rollouts.add(repository)
    toy_rollouts.add_pushed(repository)


@pytest.fixture(scope="session")
def free_ports() -> Callable[[int], list[int]]:
    """Return a function that finds n free ports of 127.0.0.1, each of them once.

    They lie below those that the system gives away for connections and for port 0, in an order of each process's own:
    hardly any other process takes a port between the moment when it is found and that when a server binds it.
    """
    candidates = iter((10_000 + np.random.default_rng(os.getpid()).permutation(22_000)).tolist())

    def find(count: int) -> list[int]:
        return list(islice(filter(is_free, candidates), count))

    def is_free(port: int) -> bool:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                return False
        return True

    return find


@pytest.fixture(scope="session")
def make_settings(
    free_ports: Callable[[int], list[int]], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Settings]:
    """Return a function that makes settings for a repository on free ports; further fields by name."""

    def make(repository: Path, **changes: object) -> Settings:
        names = ("port", "grpc_port", "triton_http_port", "triton_grpc_port", "triton_metrics_port")
        ports = dict(zip(names, free_ports(len(names)), strict=True))
        runtime = tmp_path_factory.getbasetemp() / f"runtime-{'of-a-long-name-' * 7}"  # longer than a socket's address
        triton = {"triton_runtime": runtime, "triton_environment": ENVIRONMENT}
        return Settings.model_validate({"repository": repository, **triton, **ports, **changes})

    return make


@pytest.fixture(scope="session")
def run_triton() -> Callable[..., AbstractContextManager[TritonServer]]:
    """Return a context in which a Triton runs, watched from a thread of its own; with every model, unless `empty`."""

    @contextmanager
    def running(settings: Settings, key: str = "", *, empty: bool = False) -> Iterator[TritonServer]:
        loop, triton = asyncio.new_event_loop(), TritonServer(settings, key)
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        try:
            asyncio.run_coroutine_threadsafe(triton.start(), loop).result()
            watching = asyncio.run_coroutine_threadsafe(triton.watch(), loop)
            if not empty:
                load_models(settings)
            yield triton
            asyncio.run_coroutine_threadsafe(triton.stop(), loop).result()
            watching.result()
        finally:
            asyncio.run_coroutine_threadsafe(triton.stop(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    return running


@pytest.fixture(scope="session")
def triton(
    toy_repository: Path,
    make_settings: Callable[..., Settings],
    run_triton: Callable[[Settings], AbstractContextManager[TritonServer]],
) -> Iterator[TritonServer]:
    """Yield a Triton that serves the toys; its `settings` name its ports. Leave it and its repository as they are."""
    with run_triton(make_settings(toy_repository)) as server:
        yield server


@pytest.fixture(scope="session")
def run_gateway() -> Callable[..., AbstractContextManager[Gateway]]:
    """Return a context in which a gateway listens, from a thread of its own, in front of the settings' Triton.

    A port in use is an error: the thread would end, and the test would speak to the other gateway.
    """

    @contextmanager
    def running(settings: Settings, key: str = "", triton: TritonServer | None = None) -> Iterator[Gateway]:
        for port in filter(None, (settings.port, settings.grpc_port)):
            if fault := system.port_fault(settings.host, port, "it"):
                raise StartupError(fault)
        addresses = {"address": settings.triton_address, "grpc_address": settings.triton_grpc_address}
        app = create_app(settings, Triton(**addresses, message_bytes=settings.max_body_bytes, key=key))
        if triton is not None and triton.device is not None:
            app.state.service.computes_on(triton.device)
            app.state.service.catalogue.budget.measured = triton.memory
        config = configuration(app, settings.model_copy(update={"drain_seconds": 1.0}))
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run)
        thread.start()
        url = settings.url
        try:
            wait_until(lambda: server.started or not thread.is_alive())
            assert server.started, f"the gateway on port {settings.port} has ended"
            wait_until(lambda: ready(url))
            yield Gateway(url, settings, app.state.service)
        finally:
            server.should_exit = True
            thread.join()

    return running


@pytest.fixture(scope="session")
def run_service(make_settings: Callable[..., Settings], run_triton: Any, run_gateway: Any) -> RunService:
    """Return a context in which a gateway and a Triton of their own serve a repository; further settings by name."""

    @contextmanager
    def running(repository: Path, key: str = "", *, empty: bool = False, **changes: object) -> Iterator[Gateway]:
        settings = make_settings(repository, **changes)
        with run_triton(settings, key, empty=empty) as server, run_gateway(settings, key, server) as found:
            yield found

    return running


@pytest.fixture(scope="session")
def gateway(
    triton: TritonServer, run_gateway: Callable[[Settings], AbstractContextManager[Gateway]]
) -> Iterator[Gateway]:
    """Yield the gateway in front of the shared Triton; it verifies every prediction that it has time for."""
    with run_gateway(triton.settings.model_copy(update={"shadow_share": 1.0})) as running:
        yield running


def one_instance(repository: Path) -> None:
    """Have every model of a repository run in one instance on the processor; exported ones start two processes."""
    for file in repository.glob("*/config.pbtxt"):
        if "instance_group" not in (text := file.read_text()):
            file.write_text(text + "instance_group { count: 1 kind: KIND_CPU }\n")


def load_models(settings: Settings) -> None:
    """Have a Triton load every model of the repository, as the gateway's catalogue does.

    On a busy machine its Python backend may crash while it loads (a lock_exception); then it is restarted, and empty. A
    load that hangs is asked for again.
    """
    url = f"http://127.0.0.1:{settings.triton_http_port}/v2/repository/models"
    left, end = sorted(settings.repository.glob("*/config.pbtxt")), time.monotonic() + 240.0
    while left:
        try:
            reply = httpx2.post(f"{url}/{left[0].parent.name}/load", timeout=60.0)
        except httpx2.TransportError:
            assert time.monotonic() < end
            time.sleep(0.5)
            left = sorted(settings.repository.glob("*/config.pbtxt"))
        else:
            assert reply.status_code == 200, reply.text
            left.pop(0)


def ready(url: str) -> bool:
    try:
        return httpx2.get(f"{url}/health/ready").status_code == 200
    except httpx2.TransportError:
        return False


def wait_until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Poll until the condition holds.

    Raises:
        TimeoutError: It does not hold in time.
    """
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.05)
