"""`python -m serving` as an operator runs it: from the start-up message to the last process."""

from __future__ import annotations

import http.client
import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx2
import numpy as np
import psutil
import pytest

import petrov_client
from serving import running, system
from serving.local_triton.server import TritonServer
from serving.settings import Settings
from serving.system import StartupError
from tests.processes import below
from tests.serving.conftest import npy

ROOT = Path(__file__).parents[2]
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - which a test replaces by a small one


@pytest.fixture
def settings(toy_repository: Path, tmp_path: Path, make_settings: Callable[..., Settings]) -> Settings:
    """Return settings for a repository of one model, whose backend starts fast."""
    shutil.copytree(toy_repository / "blur", tmp_path / "repository" / "blur")
    return make_settings(tmp_path / "repository")


@contextmanager
def command(
    settings: Settings, *arguments: str, files: int = 1024, most: int | None = None, shared: str = ""
) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """Run the program with these settings in its environment; yield it and the file of its standard error.

    Args:
        settings: Its settings.
        arguments: Its arguments.
        files: How many files it may open.
        most: How far it may raise that number.
        shared: The size of its shared memory, else that of the machine.
    """
    fields = json.loads(settings.model_dump_json(exclude_defaults=True))
    environment = os.environ | {f"PETROV_{name.upper()}": str(value) for name, value in fields.items()}
    log = settings.repository.with_name("log")
    mount = f'mount -t tmpfs -o size={shared} tmpfs {SHARED_MEMORY} && exec "$@"'
    small = ["unshare", "--mount", "sh", "-c", mount, "sh"] if shared else []
    with (
        log.open("wb") as stderr,
        subprocess.Popen(
            [*small, "prlimit", f"--nofile={files}:{most or files}", sys.executable, "-m", "serving", *arguments],
            cwd=ROOT,
            env=environment,
            stderr=stderr,
        ) as service,
    ):
        try:
            yield service, log
        finally:
            service.kill()


def status(settings: Settings, path: str) -> int:
    """Return the status of a GET; 0 where no server listens."""
    connection = http.client.HTTPConnection("127.0.0.1", settings.port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except OSError:
        return 0
    finally:
        connection.close()


def wait_for(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(0.05)


@pytest.mark.parametrize("ending", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.deep)])
def test_the_service_comes_up_and_ends_in_order(settings: Settings, ending: signal.Signals) -> None:
    with command(settings) as (service, log):
        wait_for(lambda: status(settings, "/health/live") == 200)
        wait_for(lambda: status(settings, "/health/ready") == 200)
        wait_for(lambda: "Ready: blur." in log.read_text())
        assert f"http://127.0.0.1:{settings.port}" in log.read_text()
        family = psutil.Process(service.pid).children(recursive=True)
        service.send_signal(ending)
        assert service.wait(30) == 0
    assert not any(process.is_running() for process in family)


@pytest.mark.deep
def test_readiness_is_false_before_the_gateway_stops_listening(settings: Settings) -> None:
    with command(settings.model_copy(update={"notice_seconds": 3.0})) as (service, _):
        wait_for(lambda: status(settings, "/health/ready") == 200)
        service.terminate()
        wait_for(lambda: status(settings, "/health/ready") == 503)
        assert status(settings, "/v1/models") == 200
        assert service.wait(30) == 0


def test_the_gateway_alone_serves_through_a_triton_that_runs_elsewhere(
    triton: TritonServer, settings: Settings
) -> None:
    with command(settings, "gateway", "--triton", triton.settings.triton_address) as (service, log):
        wait_for(lambda: status(settings, "/health/ready") == 200)
        wait_for(lambda: f"gRPC on port {settings.grpc_port}" in " ".join(log.read_text().split()))
        with petrov_client.GrpcClient(f"127.0.0.1:{settings.grpc_port}") as client:
            assert client.predict("blur", np.ones((9, 9))).shape == (9, 9)
        service.send_signal(signal.SIGHUP)  # as the end of a terminal does
        assert service.wait(30) == 0
    assert "SIGHUP: not ready; connections are accepted for 0 s more" in log.read_text()
    assert log.read_text().splitlines()[-1].endswith("The service has ended")


def refusal(settings: Settings) -> str:
    """Return what a start that fails says, which is neither a traceback nor that the gateway listens."""
    with command(settings) as (service, log):
        assert service.wait(30) == 1
    text = " ".join(log.read_text().split())
    assert "Traceback" not in text
    assert "listens" not in text
    return text


def test_an_impossible_start_is_explained(settings: Settings) -> None:
    shutil.rmtree(settings.repository / "blur")
    assert "holds no model: make export" in refusal(settings)


@pytest.mark.deep  # `tests/pipeline/test_terminal.py` has the case of the port
@pytest.mark.parametrize("name", ["port", "grpc_port", "triton_http_port"])
def test_a_port_in_use_is_named(settings: Settings, name: str) -> None:
    port = getattr(settings, name)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        assert f"port {port} is in use: set PETROV_{name.upper()}" in refusal(settings)


@pytest.mark.deep
def test_two_settings_with_one_port_are_named(settings: Settings) -> None:
    shared = settings.model_copy(update={"grpc_port": settings.port})
    assert f"PETROV_PORT and PETROV_GRPC_PORT are both {settings.port}: give each" in refusal(shared)


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid", "a..b"])
def test_a_host_that_is_not_this_machine_is_named(settings: Settings, host: str) -> None:
    fault = system.port_fault(host, settings.port, "PETROV_PORT")
    assert f'"{host}" is no address of this machine' in (fault or "")


@pytest.mark.deep
def test_a_service_does_not_start_on_another_host(settings: Settings) -> None:
    assert '"192.0.2.1" is no address of this machine' in refusal(settings.model_copy(update={"host": "192.0.2.1"}))


@pytest.mark.deep
@pytest.mark.parametrize("folder", ["/dev/null", pytest.param("/proc/nowhere", marks=pytest.mark.deep)])
def test_a_runtime_folder_that_cannot_be_written_is_named(settings: Settings, folder: str) -> None:
    text = refusal(settings.model_copy(update={"triton_runtime": Path(folder)}))
    assert f"{folder}/triton-{settings.triton_http_port}.log cannot be written" in text
    assert "PETROV_TRITON_RUNTIME" in text


def test_a_full_disk_keeps_no_service_from_its_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    url, soft_hard = "http://127.0.0.1:8080", resource.getrlimit(resource.RLIMIT_FSIZE)
    with running.recorded(tmp_path, url, tmp_path):
        assert running.address(tmp_path, tmp_path) == url
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, soft_hard[1]))  # no file takes another byte
    try:
        with running.recorded(tmp_path, url, tmp_path):
            assert running.address(tmp_path, tmp_path) is None
            with pytest.raises(StartupError), running.recorded(tmp_path, url, tmp_path):
                pass
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, soft_hard)
    assert "another start will not find this service" in caplog.text


def test_a_second_start_waits_for_a_new_model_of_a_service_that_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter([{"ready": True, "reason": "not served: heat", "missing": ["heat"]}] * 20)
    models = {"models": [{"name": "heat", "version": 1}]}

    def get(url: str) -> object:
        return next(looks, {"ready": True, "missing": []}) if url.endswith("ready") else models

    monkeypatch.setattr(running, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(running, "_get", get)
    assert running.wait_for_models("http://x", {"heat": 1}) == "This repository is served already on http://x: heat"


def test_too_few_open_files_are_refused_with_the_number_that_is_needed(settings: Settings) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with command(settings, files=64) as (service, log):
        assert service.wait(30) == 1
    text = " ".join(log.read_text().split())
    assert "at most 64 files may be open; PETROV_MAX_REQUESTS_IN_FLIGHT=256 needs 384" in text
    assert "Traceback" not in text
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (soft, hard)


@pytest.mark.deep
def test_a_low_limit_of_open_files_is_raised_where_the_system_allows_it(settings: Settings) -> None:
    with command(settings, files=64, most=1024) as (service, _):
        wait_for(lambda: status(settings, "/health/ready") == 200)
        assert psutil.Process(service.pid).rlimit(psutil.RLIMIT_NOFILE) == (1024, 1024)
        service.terminate()
        assert service.wait(30) == 0


@pytest.mark.deep
def test_clients_leave_files_for_the_gateway(settings: Settings) -> None:
    head = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with command(settings, files=400) as (service, log), ExitStack() as clients:
        wait_for(lambda: status(settings, "/health/ready") == 200)
        with ExitStack() as connections:  # a server of HTTP/2 speaks first
            at = ("127.0.0.1", settings.grpc_port)
            several = [connections.enter_context(socket.create_connection(at, timeout=5)) for _ in range(300)]
            answered = [bool(client.recv(9)) for client in several]
            assert 128 < sum(answered) < 200
            assert status(settings, "/health/ready") == 200
        statuses = []
        for _ in range(400):
            client = clients.enter_context(socket.create_connection(("127.0.0.1", settings.port), timeout=5))
            with suppress(ConnectionError):
                client.sendall(head)
                statuses.append(client.recv(64)[9:12])
        assert {*statuses} == {b"200", b"503"}
        assert statuses.count(b"200") > 256
        assert psutil.Process(service.pid).num_fds() < 360
        time.sleep(2.0)  # the gateway looks at its repository twice
        clients.close()
        wait_for(lambda: status(settings, "/health/ready") == 200)
        assert "clients are refused" in log.read_text()
        assert "Too many open files" not in log.read_text()


def may_mount() -> bool:
    """Return whether a process may have a file system of its own, as root of a machine may."""
    mount = ("unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", SHARED_MEMORY)
    return subprocess.run(mount, capture_output=True, check=False).returncode == 0


@pytest.mark.deep
@pytest.mark.skipif(not may_mount(), reason="only root may give a process a small /dev/shm")
def test_shared_memory_that_is_full_is_named_and_freed(settings: Settings) -> None:
    shutil.copytree(settings.repository / "blur", settings.repository / "second")
    for name in ("blur", "second"):
        config, path = (settings.repository / name / each for each in ("config.pbtxt", "1/card.json"))
        config.write_text(
            re.sub("instance_group.*", "", config.read_text().replace('"blur"', f'"{name}"'))  # as in exported ones
        )
        card = json.loads(path.read_text())
        path.write_text(json.dumps(card | {"model": name, "grid": card["grid"] | {"maximum": 1024}}))
    with command(settings, shared="1m") as (service, log):
        assert service.wait(60) == 1
        assert (
            f"{SHARED_MEMORY} has 1 MiB free of 1, and 4 instances of models take one each: set it" in log.read_text()
        )

    def post(model: str, *shape: int) -> httpx2.Response:
        url = f"http://127.0.0.1:{settings.port}/v1/models/{model}/predict"
        body, headers = npy(np.ones(shape, np.float32)), {"Content-Type": "application/x-npy"}
        return httpx2.post(url, content=body, headers=headers, timeout=60)

    with command(settings, shared="16m") as (service, log):
        wait_for(lambda: status(settings, "/health/ready") == 200)
        assert "16, of which 4 instances of models take one each or more: batches run in small parts" in log.read_text()
        assert len(below(service.pid, "stub")) == 4
        assert post("blur", 1024, 1024).status_code == 200  # its instance keeps 9 MiB
        found = post("second", 1024, 1024)
        assert (found.status_code, found.json()["type"]) == (503, "urn:petrov:problem:shared-memory-full")
        assert "--shm-size" in found.json()["detail"]
        assert int(found.headers["retry-after"]) >= 1
        assert status(settings, "/health/ready") == 503
        wait_for(lambda: status(settings, "/health/ready") == 200)
        assert post("second", 4, 512, 512).status_code == 200
