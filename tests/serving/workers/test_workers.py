"""Two gateway processes on one port, as an operator runs them."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from petrov_client import GrpcClient
from serving.auth import key_file, keys
from serving.codecs import npy
from serving.workers import metric_files, processes
from serving.workers.table import Table
from tests import toy_flow
from tests.serving.inversion.test_inversions import endless
from tests.serving.test_commands import command, status, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from serving.settings import Settings
    from serving.triton.server import TritonServer

FIELD = npy.write(np.ones((1, 9, 9), np.float32))
BATCH = npy.write(np.ones((40, 64, 64), np.float32))
PREDICT = "/v1/models/blur/predict"
MOST = 3


@dataclass
class Running:
    """A service of two workers."""

    settings: Settings
    process: psutil.Process
    log: Path
    secrets: dict[str, str]

    @contextmanager
    def connections(self, count: int) -> Iterator[list[http.client.HTTPConnection]]:
        """Yield open connections, which both workers share."""
        with ExitStack() as stack:
            found = [
                stack.enter_context(closing(http.client.HTTPConnection("127.0.0.1", self.settings.port, timeout=60)))
                for _ in range(count)
            ]
            for each in found:
                each.connect()
            yield found

    def headers(self, owner: str = "operator") -> dict[str, str]:
        return {"Authorization": f"Bearer {self.secrets[owner]}"}

    def request(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: bytes | None = None,
        owner: str = "operator",
        kind: str = npy.MEDIA_TYPE,
    ) -> tuple[int, bytes]:
        connection.request(method, path, body, self.headers(owner) | ({"Content-Type": kind} if body else {}))
        response = connection.getresponse()
        return response.status, response.read()

    def once(self, *arguments: Any, **options: Any) -> tuple[int, bytes]:
        with self.connections(1) as [connection]:
            return self.request(connection, *arguments, **options)

    def metric(self, name: str, **labels: str) -> dict[str, float]:
        """Return the values of a metric by worker, or all of it under the empty name."""
        code, text = self.once("GET", "/metrics")
        assert code == 200
        return {
            sample.labels.get("worker", ""): sample.value
            for family in text_string_to_metric_families(text.decode())
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        }

    def workers(self) -> list[psutil.Process]:
        """Return the worker processes, in the order of their slots."""
        found = [child for child in self.process.children() if "worker" in child.cmdline()]
        with closing(Table(folder_of(found[0]))) as table:  # two that start in one tick have the same start time
            slots = {pid: slot for slot, pid in enumerate(table.columns["pid"])}
        return sorted(found, key=lambda each: slots[each.pid])


@pytest.fixture(scope="module")
def triton(
    toy_repository: Path,
    tmp_path_factory: pytest.TempPathFactory,
    make_settings: Callable[..., Settings],
    run_triton: Callable[[Settings], AbstractContextManager[TritonServer]],
) -> Iterator[TritonServer]:
    folder = tmp_path_factory.mktemp("workers") / "repository"
    toy_flow.add(folder)
    shutil.copytree(toy_repository / "blur", folder / "blur")
    with run_triton(make_settings(folder)) as server:
        yield server


@pytest.fixture(scope="module")
def run(
    triton: TritonServer, make_settings: Callable[..., Settings], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., AbstractContextManager[Running]]:
    """Return a context in which two workers run."""

    @contextmanager
    def running(**changes: Any) -> Iterator[Running]:
        address = triton.settings.triton_addresses[0]
        repository = tmp_path_factory.mktemp("run") / "repository"
        shutil.copytree(triton.settings.repository, repository)
        entries = {"operator": (keys.Scope.ADMIN, None), "slow": (keys.Scope.INFER, 1e-6)}
        made = {name: keys.make(name, (scope,), rate, rate and 6) for name, (scope, rate) in entries.items()}
        file = repository.with_name("keys.toml")
        for _, entry in made.values():
            key_file.append(file, entry)
        settings = make_settings(repository, workers=2, log_format="json", keys=file, **changes)
        with command(settings, "gateway", "--triton", address) as (service, log):
            wait_for(lambda: status(settings, "/health/ready") == 200)
            found = Running(settings, psutil.Process(service.pid), log, {name: made[name][0] for name in made})
            wait_for(lambda: shared(found))
            yield found

    return running


@pytest.fixture(scope="module")
def service(run: Callable[..., AbstractContextManager[Running]]) -> Iterator[Running]:
    with run(max_requests_in_flight=MOST) as running:
        yield running


def test_both_workers_answer_and_their_metrics_are_one(service: Running) -> None:
    """Every scrape counts all requests, whichever worker it comes from."""
    fields = service.metric("petrov_fields_total", model="blur").get("", 0.0)
    with service.connections(8) as connections:
        codes = [service.request(each, "POST", PREDICT, FIELD)[0] for each in connections]
        assert codes == [200] * 8
        scrapes = [service.request(each, "GET", "/metrics") for each in connections]
    assert {code for code, _ in scrapes} == {200}
    for _ in range(4):
        assert service.metric("petrov_fields_total", model="blur") == {"": fields + 8}
    assert set(service.metric("process_resident_memory_bytes")) == {"0", "1"}
    wait_for(lambda: service.metric("petrov_ready") == {"": 1.0})  # the workers say so once a second


def test_a_rate_holds_over_all_workers(service: Running) -> None:
    with service.connections(8) as connections:
        codes = [service.request(each, "POST", PREDICT, FIELD, "slow")[0] for each in connections]
    assert codes == [200] * 6 + [429] * 2


@contextmanager
def admitted(service: Running, connection: http.client.HTTPConnection) -> Iterator[None]:
    """Send the head of a request, and yield once it counts as in flight and waits for its body."""
    head = {"Content-Type": npy.MEDIA_TYPE, "Content-Length": str(len(FIELD)), "Expect": "100-continue"}
    lines = [f"{name}: {value}" for name, value in (service.headers() | head).items()]
    connection.sock.sendall("\r\n".join([f"POST {PREDICT} HTTP/1.1", "Host: localhost", *lines, "", ""]).encode())
    assert connection.sock.recv(1000).startswith(b"HTTP/1.1 100")
    yield


def test_the_limit_in_flight_holds_over_all_workers(service: Running) -> None:
    with service.connections(MOST + 4) as connections, ExitStack() as stack:
        waiting, others = connections[:MOST], connections[MOST:]
        for each in waiting:
            stack.enter_context(admitted(service, each))
        found = [service.request(each, "POST", PREDICT, FIELD) for each in others]
        assert [code for code, _ in found] == [503] * 4
        assert all(f"{MOST} requests are in flight" in json.loads(text)["detail"] for _, text in found)
        waiting[0].sock.sendall(FIELD)
        assert waiting[0].sock.recv(12) == b"HTTP/1.1 200"
        wait_for(lambda: service.request(others[0], "POST", PREDICT, FIELD)[0] == 200)


def test_an_inversion_is_found_from_any_connection(service: Running) -> None:
    path, body = f"/v1/models/{toy_flow.NAME}/inversions", json.dumps(endless()).encode()
    with service.connections(4) as connections:
        code, text = service.request(connections[0], "POST", path, body, kind="application/json")
        assert code == 202
        name = json.loads(text)["id"]
        for each in connections:
            code, text = service.request(each, "GET", f"{path}/{name}?wait=0.01")
            assert (code, json.loads(text)["id"]) == (200, name)
            assert service.request(each, "GET", f"{path}/{name}", owner="slow")[0] == 404
            assert service.request(each, "GET", f"{path}/{name}/result")[0] == 409
        assert [service.request(each, "DELETE", f"{path}/{name}")[0] for each in connections] == [204, 404, 404, 404]
        for odd in ("9.1.x", "99999999999.1.x", "1.99.x", "-1.1.x", "0.1.", "x"):
            assert service.request(connections[0], "GET", f"{path}/{odd}")[0] == 404


def test_a_worker_that_is_killed_is_replaced(service: Running) -> None:
    """What it had in flight counts no longer, its inversions are unknown, and readiness stays."""
    path, body = f"/v1/models/{toy_flow.NAME}/inversions", json.dumps(endless()).encode()
    name = json.loads(service.once("POST", path, body, kind="application/json")[1])["id"]
    slot = name.partition(".")[0]
    starts = service.metric("petrov_worker_starts_total")
    fields = service.metric("petrov_fields_total", model="blur")
    victim = service.workers()[int(slot)]
    with ExitStack() as stack:
        for _ in range(MOST):
            connection = stack.enter_context(closing(http.client.HTTPConnection("localhost")))
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.connect(str(folder_of(victim) / f"worker-{slot}.sock"))
            stack.enter_context(admitted(service, connection))
        assert service.once("POST", PREDICT, FIELD)[0] == 503
        victim.kill()
        wait_for(lambda: not victim.is_running())
        with ThreadPoolExecutor(1) as pool:
            statuses = list[int]()
            replaced = threading.Event()

            def poll() -> None:
                while not replaced.is_set():
                    statuses.append(status(service.settings, "/health/ready"))

            polling = pool.submit(poll)
            try:
                wait_for(lambda: service.metric("petrov_worker_starts_total")[slot] == starts[slot] + 1)
                assert service.once("POST", PREDICT, FIELD)[0] == 200  # from the other one
                wait_for(lambda: shared(service))
            finally:
                replaced.set()
            polling.result()
    assert set(statuses) == {200}
    for _ in range(2):
        code, text = service.once("GET", f"{path}/{name}")
        assert code == 404
        assert "not beyond the end of the process" in json.loads(text)["detail"]
    assert service.metric("petrov_fields_total", model="blur")[""] > fields[""]
    assert service.metric("petrov_inflight_requests") == {"": 1.0}
    assert f"worker {slot} ended with status -9 and is replaced" in service.log.read_text()


async def test_a_frozen_worker_is_replaced(
    triton: TritonServer, make_settings: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "LOOK_SECONDS", 0.3)
    monkeypatch.setattr(processes, "MAX_SILENT_LOOKS", 10)
    settings = make_settings(triton.settings.repository, workers=2, triton=triton.settings.triton_addresses)
    with processes.shared_folder() as folder:
        workers = processes.Processes(settings, folder)
        running, columns = asyncio.create_task(workers.run()), Table(folder).columns

        async def accepts(start: int) -> None:
            async with asyncio.timeout(60):
                while not (columns["start"][1] == start and columns["state"][1]):  # noqa: ASYNC110 - another process
                    await asyncio.sleep(0.05)

        await accepts(1)
        os.kill(columns["pid"][1], signal.SIGSTOP)
        await accepts(2)
        workers.shut_down()
        await running


def test_the_space_of_shared_files_is_reserved(service: Running) -> None:
    """A page that a full disk cannot hold would end the process that writes it."""
    folder = folder_of(service.workers()[0])
    found = [folder / "table", *(folder / "metrics").glob("*.db")]
    assert len(found) == 1 + 2 * len(metric_files.SIZES), "a kind of metric has no reserved file"
    assert [path.name for path in found if path.stat().st_blocks * 512 < path.stat().st_size] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_too_little_space_for_shared_files_is_named(
    make_settings: Callable[..., Settings], tmp_path: Path, triton: TritonServer
) -> None:
    settings = make_settings(triton.settings.repository, workers=2).model_dump_json(exclude_defaults=True)
    fields = {f"PETROV_{name.upper()}": str(value) for name, value in json.loads(settings).items()}
    script = 'mount -t tmpfs -o size=1m tmpfs "$TMPDIR" && exec "$@"'
    program = [sys.executable, "-m", "serving", "gateway", "--triton", triton.settings.triton_addresses[0]]
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, "sh", *program],
        env=os.environ | fields | {"TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert f"{tmp_path} cannot hold what 2 workers share (No space left on device): set TMPDIR" in done.stderr
    assert "Traceback" not in done.stderr


def folder_of(worker: psutil.Process) -> Path:
    """Return the folder of what a worker shares."""
    [lock] = [Path(file.path) for file in worker.open_files() if Path(file.path).name == "lock"]
    return lock.parent


def shared(service: Running) -> bool:
    """Return whether both workers accept connections."""
    with service.connections(6) as connections:
        for each in connections:
            service.request(each, "GET", "/health/live")
        shares = service.metric("petrov_worker_connections")
        return len(shares) == 2 and min(shares.values()) >= 2


def test_grpc_is_served_by_the_workers(service: Running) -> None:
    for _ in range(4):
        with GrpcClient(f"127.0.0.1:{service.settings.grpc_port}", api_key=service.secrets["operator"]) as client:
            assert client.predict("blur", np.ones((9, 9))).shape == (9, 9)


def test_sigterm_under_load_loses_no_response(service: Running) -> None:
    """Every client gets a whole response or a refused connection; the log and the clients agree on how many."""
    before = logged(service)
    responses, stop = list[int](), threading.Event()
    headers = service.headers() | {"Content-Type": npy.MEDIA_TYPE, "Connection": "close"}

    def send() -> None:
        while not stop.is_set():
            with closing(http.client.HTTPConnection("127.0.0.1", service.settings.port, timeout=60)) as connection:
                try:
                    connection.request("POST", PREDICT, BATCH, headers)
                    reply = connection.getresponse()
                except OSError:  # the workers have stopped listening
                    stop.set()
                    return
                assert len(reply.read()) == len(BATCH)  # a truncated response raises
                responses.append(reply.status)

    with ThreadPoolExecutor(MOST) as pool:
        running = [pool.submit(send) for _ in range(MOST)]
        wait_for(lambda: len(responses) > 10)
        service.process.terminate()
        assert service.process.wait(60) == 0
        for each in running:
            each.result()
    assert set(responses) == {200}
    assert logged(service)[len(before) :] == ["200"] * len(responses)


def logged(service: Running) -> list[str]:
    """Return the statuses of all predictions over HTTP in the log."""
    lines = [json.loads(line) for line in service.log.read_text().splitlines()]
    return [line["status"] for line in lines if line.get("route", "") == "/v1/models/{model}/predict"]


def test_the_workers_end_with_their_parent(run: Callable[..., AbstractContextManager[Running]]) -> None:
    with run() as service:
        workers = service.workers()
        [folder] = {folder_of(each) for each in workers}
        service.process.kill()
        wait_for(lambda: not any(each.is_running() for each in workers))
    assert not folder.exists()
