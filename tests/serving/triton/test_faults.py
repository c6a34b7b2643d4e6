"""Faults around the gateway: hostile bodies, a Triton that hangs or dies, a repository that changes."""

from __future__ import annotations

import io
import json
import shutil
import signal
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import psutil
import pytest

from serving import triton
from serving.settings import Settings
from tests.conftest import Gateway, RunService, wait_until
from tests.processes import below
from tests.serving.http.test_gateway import sample

MODEL = "blur"
PATH = f"/v1/models/{MODEL}/predict"
NPY = {"Content-Type": "application/x-npy"}
MEBIBYTE = 2**20


@pytest.fixture(scope="module")
def tight_gateway(
    toy_repository: Path,
    tmp_path_factory: pytest.TempPathFactory,
    run_service: RunService,
) -> Iterator[Gateway]:
    """Yield a gateway with tight limits in front of a Triton and a repository of its own."""
    repository = tmp_path_factory.mktemp("tight_gateway") / "model_repository"
    shutil.copytree(toy_repository / MODEL, repository / MODEL)
    with run_service(
        repository,
        max_body_bytes=MEBIBYTE,
        max_bytes_in_flight=MEBIBYTE + MEBIBYTE // 2,
        max_requests_in_flight=4,
        receive_seconds=2.0,
        request_seconds=5.0,
    ) as gateway:
        yield gateway


@pytest.fixture
def http(tight_gateway: Gateway) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=tight_gateway.url, timeout=30) as client:
        yield client
        wait_until(lambda: client.get("/health/ready").status_code == 200)
        assert predict(client).status_code == 200  # whatever a test did, the next good request succeeds


def predict(client: httpx2.Client, points: int = 16) -> httpx2.Response:
    file = io.BytesIO()
    np.save(file, np.ones((points, points), np.float32))
    return client.post(PATH, content=file.getvalue(), headers=NPY)


def kind(response: httpx2.Response) -> str:
    return str(response.json()["type"]).rpartition(":")[2]


@contextmanager
def connection(tight_gateway: Gateway, *headers: str) -> Iterator[socket.socket]:
    """Open a connection and send the head of a prediction, without its body."""
    with closing(
        socket.create_connection((tight_gateway.settings.host, tight_gateway.settings.port), timeout=20)
    ) as wire:
        lines = (f"POST {PATH} HTTP/1.1", "Host: localhost", "Content-Type: application/x-npy", *headers, "", "")
        wire.sendall("\r\n".join(lines).encode())
        yield wire


def reply(wire: socket.socket) -> tuple[int, dict[str, Any]]:
    """Return status and problem of the response, after which the gateway closes the connection."""
    response = b""
    while chunk := wire.recv(65536):
        response += chunk
    head, _, body = response.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


def test_two_gigabytes_are_refused_unread(tight_gateway: Gateway, http: httpx2.Client) -> None:
    before = psutil.Process().memory_info().rss
    with connection(tight_gateway, "Content-Length: 2000000000") as wire:
        status, problem = reply(wire)
    assert (status, problem["type"]) == (413, "urn:petrov:problem:body-too-large")
    assert "Content-Length is 2000000000; the limit is 1048576 bytes" in problem["detail"]
    assert psutil.Process().memory_info().rss - before < 100 * MEBIBYTE
    assert http.get("/health/live").status_code == 200


@pytest.mark.parametrize("announced", ["-1", "1e9", "9" * 400])
def test_an_invalid_length_is_refused(tight_gateway: Gateway, http: httpx2.Client, announced: str) -> None:
    del http
    with connection(tight_gateway, f"Content-Length: {announced}") as wire:
        assert b" 4" in wire.recv(65536)[:12]


def test_a_body_without_a_length_is_counted(http: httpx2.Client) -> None:
    response = http.post(PATH, content=(bytes(65536) for _ in range(64)), headers=NPY)
    assert (response.status_code, kind(response)) == (413, "body-too-large")
    assert "longer than the limit" in response.json()["detail"]


def test_a_slow_body_is_cut_off(tight_gateway: Gateway, http: httpx2.Client) -> None:
    del http
    with connection(tight_gateway, "Content-Length: 1000") as wire:
        wire.sendall(b"\x93NUMPY")
        status, problem = reply(wire)
    assert (status, problem["type"]) == (408, "urn:petrov:problem:slow-body")
    assert "6 bytes arrived within 2 s" in problem["detail"]


def test_an_endless_body_delays_no_other(tight_gateway: Gateway, http: httpx2.Client) -> None:
    with connection(tight_gateway, "Content-Length: 1000") as wire:
        wire.sendall(b"\x93NUMPY")
        assert predict(http).status_code == 200
    wait_until(lambda: inflight(http) == 1)


def test_bodies_that_do_not_arrive_keep_no_place_from_others(tight_gateway: Gateway, http: httpx2.Client) -> None:
    with ExitStack() as stack:
        for _ in range(tight_gateway.settings.max_requests_in_flight):
            stack.enter_context(connection(tight_gateway, "Content-Length: 9"))
        wait_until(lambda: inflight(http) == 5)
        assert inflight(http, "predictions") == 0
        assert predict(http).status_code == 200


def test_beyond_the_limit_requests_are_refused(tight_gateway: Gateway, http: httpx2.Client) -> None:
    limit = tight_gateway.settings.max_requests_in_flight
    with stopped(tight_gateway.settings), ThreadPoolExecutor(limit) as pool:
        waiting = [pool.submit(predict, http) for _ in range(limit)]
        wait_until(lambda: tight_gateway.service.admission.requests == limit)
        response = predict(http)
        assert (response.status_code, kind(response)) == (503, "overloaded")
        assert int(response.headers["retry-after"]) >= 1
        assert http.get("/health/live").status_code == 200
        assert inflight(http, "predictions") == inflight(http, "requests_limit") == limit
        assert {each.result().status_code for each in waiting} == {504}


def test_bytes_in_flight_are_bounded(tight_gateway: Gateway, http: httpx2.Client) -> None:
    with connection(tight_gateway, f"Content-Length: {MEBIBYTE}") as wire:
        wire.sendall(bytes(MEBIBYTE - 1))
        wait_until(lambda: inflight(http, "bytes") > MEBIBYTE // 2)
        assert inflight(http, "bytes_limit") == tight_gateway.settings.max_bytes_in_flight
        response = http.post(PATH, content=bytes(MEBIBYTE), headers=NPY)
    assert (response.status_code, kind(response)) == (503, "overloaded")
    wait_until(lambda: tight_gateway.service.admission.bytes == 0)


def test_a_hanging_triton_is_abandoned_at_the_deadline(tight_gateway: Gateway, http: httpx2.Client) -> None:
    with stopped(tight_gateway.settings):
        response = predict(http)
        assert (response.status_code, kind(response)) == (504, "deadline-exceeded")


def test_a_call_that_breaks_its_connection_costs_no_other_request(tight_gateway: Gateway, http: httpx2.Client) -> None:
    client = tight_gateway.service.predictor._triton.http
    request = client.request

    async def cut(method: str, path: str, *args: Any) -> Any:
        if path.endswith("/infer"):
            raise ConnectionResetError
        return await request(method, path, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(client, "request", cut)
        response = predict(http)
        assert (response.status_code, kind(response)) == (503, "triton-unavailable")
    assert predict(http).status_code == 200
    assert http.get("/health/ready").status_code == 200


def test_a_slow_triton_is_waited_for(tight_gateway: Gateway, http: httpx2.Client) -> None:
    with ThreadPoolExecutor(1) as pool:
        with stopped(tight_gateway.settings):
            pending = pool.submit(_predict_alone, tight_gateway)
            wait_until(lambda: inflight(http) == 2, 4.0)  # and well before the deadline Triton goes on
        assert pending.result().status_code == 200


def _predict_alone(tight_gateway: Gateway) -> httpx2.Response:
    return httpx2.post(tight_gateway.url + PATH, content=_ones(), headers=NPY, timeout=30)


def impatient(seconds: float) -> httpx2.Timeout:
    """Wait so long for a response, and as long as it takes to send the request."""
    return httpx2.Timeout(30, read=seconds)


def test_a_client_that_disconnects_is_forgotten(tight_gateway: Gateway, http: httpx2.Client) -> None:
    with stopped(tight_gateway.settings):
        with pytest.raises(httpx2.ReadTimeout):
            httpx2.post(tight_gateway.url + PATH, content=_ones(), headers=NPY, timeout=impatient(0.2))
        wait_until(lambda: inflight(http) == 1, 4.0)  # well before the deadline


def test_what_was_abandoned_in_the_queue_is_not_computed(
    tight_gateway: Gateway, http: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triton, "MERGED_BYTES", 1)  # so that small requests wait as large ones do
    limit, before = tight_gateway.settings.max_requests_in_flight, computed(tight_gateway.settings)
    with stopped(tight_gateway.settings), ThreadPoolExecutor(limit) as pool:
        request = {"content": _ones(), "headers": NPY, "timeout": impatient(0.4)}
        waiting = [pool.submit(httpx2.post, tight_gateway.url + PATH, **request) for _ in range(limit)]
        for each in waiting:
            with pytest.raises(httpx2.ReadTimeout):
                each.result()
        wait_until(lambda: inflight(http) == 1, 4.0)
    assert predict(http).status_code == 200
    assert (
        computed(tight_gateway.settings) - before <= 3
    )  # this one, and those of an instance and the next in its queue


def computed(settings: Settings) -> float:
    """Return for how many samples Triton has run models."""
    lines = httpx2.get(f"http://127.0.0.1:{settings.triton_metrics_port}/metrics").text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("nv_inference_count{"))


@pytest.mark.parametrize("victims", ["server", "instances"])
def test_a_killed_triton_costs_only_what_was_in_flight(
    tight_gateway: Gateway, http: httpx2.Client, victims: str
) -> None:
    statuses: list[int] = []
    stop = threading.Event()

    def load() -> None:
        with httpx2.Client(base_url=tight_gateway.url, timeout=30) as client:
            while not stop.is_set():
                statuses.append(predict(client).status_code)

    with ThreadPoolExecutor(2) as pool:
        workers = [pool.submit(load) for _ in range(2)]
        wait_until(lambda: statuses.count(200) > 20)
        servers = tritons(tight_gateway.settings)
        for process in (
            servers if victims == "server" else [stub for each in servers for stub in below(each.pid, "stub")]
        ):
            process.send_signal(signal.SIGKILL)
        wait_until(lambda: http.get("/health/ready").status_code == 503)
        killed = len(statuses)
        wait_until(lambda: http.get("/health/ready").status_code == 200)
        wait_until(lambda: statuses[killed:].count(200) > 20)
        stop.set()
        for worker in workers:
            worker.result()
    hanging = {504} if victims == "instances" else set()  # a call of a dead instance ends with its server, or in time
    assert {200, 503} <= set(statuses) <= {200, 503} | hanging


def test_a_new_version_is_served_without_a_restart(tight_gateway: Gateway, http: httpx2.Client) -> None:
    repository = tight_gateway.settings.repository
    publish(repository, MODEL, 2, hidden=repository.parent)
    wait_until(lambda: predict(http).headers.get("petrov-version") == "2")
    assert http.get(f"/v1/models/{MODEL}").json()["versions"] == [1, 2]
    shutil.rmtree(repository / MODEL / "2")
    wait_until(lambda: predict(http).headers.get("petrov-version") == "1")
    gone = http.post(f"/v1/models/{MODEL}/versions/2/predict", content=_ones(), headers=NPY)
    assert (gone.status_code, kind(gone)) == (404, "unknown-version")


def test_an_update_costs_no_response(tight_gateway: Gateway, http: httpx2.Client) -> None:
    repository, found, stop = tight_gateway.settings.repository, list[tuple[int, str]](), threading.Event()

    def load() -> None:
        with httpx2.Client(base_url=tight_gateway.url, timeout=30) as client:
            while not stop.is_set():
                response = predict(client)
                found.append((response.status_code, response.headers.get("petrov-version", response.text)))

    with ThreadPoolExecutor(2) as pool:
        loading = [pool.submit(load) for _ in range(2)]
        publish(repository, MODEL, 2, hidden=repository.parent)
        wait_until(lambda: found.count((200, "2")) > 20)
        stop.set()
        for each in loading:
            each.result()
    shutil.rmtree(repository / MODEL / "2")
    wait_until(lambda: predict(http).headers.get("petrov-version") == "1")
    assert set(found) == {(200, "1"), (200, "2")}


def test_a_new_model_is_served_without_a_restart(tight_gateway: Gateway, http: httpx2.Client) -> None:
    repository = tight_gateway.settings.repository
    add(repository, "second")
    wait_until(lambda: [model["name"] for model in http.get("/v1/models").json()["models"]] == [MODEL, "second"])
    assert http.post("/v1/models/second/predict", content=_ones(), headers=NPY).status_code == 200
    shutil.rmtree(repository / "second")


def test_an_entry_of_the_repository_that_triton_cannot_look_at_costs_no_model(
    tight_gateway: Gateway, http: httpx2.Client, caplog: pytest.LogCaptureFixture
) -> None:
    link, before = tight_gateway.settings.repository / "nowhere", sample(http.get("/metrics").text, "petrov_ready")
    link.symlink_to("/nowhere")
    try:
        wait_until(lambda: f"Triton's index of models: 500: failed to stat file {link}" in caplog.text)
        assert (before, sample(http.get("/metrics").text, "petrov_ready")) == (1, 1)
        assert predict(http).status_code == 200
        add(tight_gateway.settings.repository, "second")
        wait_until(lambda: http.post("/v1/models/second/predict", content=_ones(), headers=NPY).status_code == 200)
        shutil.rmtree(tight_gateway.settings.repository / "second")
        wait_until(lambda: http.get("/v1/models/second").status_code == 404)
    finally:
        link.unlink()
    assert "does not respond" not in caplog.text


def test_readiness_names_a_new_model_that_is_missing_and_stays_since_every_gateway_sees_it(
    tight_gateway: Gateway, http: httpx2.Client
) -> None:
    repository = tight_gateway.settings.repository
    add(repository, "broken", artefact=b"no graph at all")
    wait_until(lambda: "broken (version 1 cannot be loaded" in http.get("/health/ready").json().get("reason", ""))
    ready = http.get("/health/ready")
    reason = "not served: broken (version 1 cannot be loaded by Triton)"
    assert (ready.status_code, ready.json()) == (200, {"ready": True, "reason": reason, "missing": ["broken"]})
    assert sample(http.get("/metrics").text, "petrov_newest_version_served", model="broken") == 0
    response = http.post("/v1/models/broken/predict", content=_ones(), headers=NPY)
    assert (response.status_code, kind(response)) == (503, "model-not-ready")
    assert predict(http).status_code == 200
    shutil.rmtree(repository / "broken")


def _ones() -> bytes:
    file = io.BytesIO()
    np.save(file, np.ones((16, 16), np.float32))
    return file.getvalue()


def inflight(client: httpx2.Client, what: str = "requests") -> int:
    """Return the requests in flight, this one included, or what else there is of them."""
    lines = client.get("/metrics").text.splitlines()
    [value] = [line.split()[1] for line in lines if line.startswith(f"petrov_inflight_{what} ")]
    return int(float(value))


def tritons(settings: Settings) -> list[psutil.Process]:
    """Return the processes of these settings' Triton, without its model stubs."""
    return below(None, "tritonserver", f"--grpc-port={settings.triton_grpc_port}")


@contextmanager
def stopped(settings: Settings) -> Iterator[None]:
    """Suspend Triton's processes."""
    processes = tritons(settings)
    assert processes
    for process in processes:
        process.suspend()
    wait_until(lambda: all(process.status() == psutil.STATUS_STOPPED for process in processes))
    try:
        yield
    finally:
        for process in processes:
            process.resume()


def publish(repository: Path, name: str, version: int, hidden: Path) -> None:
    """Publish a further version, complete when it appears, as export does."""
    shutil.copytree(repository / name / "1", hidden / "version")
    card = json.loads((hidden / "version" / "card.json").read_text())
    (hidden / "version" / "card.json").write_text(json.dumps(card | {"version": version}))
    (hidden / "version").rename(repository / name / str(version))


def add(repository: Path, name: str, artefact: bytes | None = None) -> None:
    """Publish a further model, like the first one."""
    folder = repository.parent / name
    shutil.copytree(repository / MODEL, folder)
    config = folder / "config.pbtxt"
    config.write_text(config.read_text().replace(f'"{MODEL}"', f'"{name}"'))
    card = json.loads((folder / "1" / "card.json").read_text())
    (folder / "1" / "card.json").write_text(json.dumps(card | {"model": name}))
    if artefact is not None:
        (folder / "1" / "model.onnx").write_bytes(artefact)
        (folder / "1" / "certificate.json").unlink()
    folder.rename(repository / name)
