"""The configuration of Envoy, before servers that fail on purpose and count what they receive."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi.routing import APIRoute
from tritonclient.grpc import service_pb2

from deploy.nodes import envoy
from deploy.nodes.cluster import Process, program
from deploy.nodes.envoy import Endpoint, Front
from serving.app import create_app
from serving.settings import Settings
from serving.triton import Triton
from tests.conftest import wait_until

PREDICT, ROLLOUT, JOBS = "/v1/models/m/predict", "/v1/models/m/versions/2/rollout", "/v1/models/m/inversions"
TRY_SECONDS, FRAME_SECONDS = 0.6, 3.0
LATE_SECONDS = 4.0
SILENT_SECONDS = 60.0  # longer than a client waits


class Upstream(ThreadingHTTPServer):
    """A server in the place of a node.

    Attributes:
        received: How many requests it has received, by path.
        headers: Those of the last one.
        does: What it does: `respond`, `reset`, `late`, `break` or `silent` (both after a first part), or a status;
            `hold` until `released`.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.received: Counter[str] = Counter()
        self.headers: dict[str, str] = {}
        self.bytes = 0
        self.does: str | int = "respond"
        self.released = threading.Event()
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of connections that end early."""


class _Handler(BaseHTTPRequestHandler):
    server: Upstream
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        server, does = self.server, self.server.does
        ready = self.path == "/health/ready"
        length = int(self.headers.get("content-length", 0))
        if self.headers.get("transfer-encoding"):
            while size := int(self.rfile.readline(), 16):
                server.bytes += len(self.rfile.read(size + 2)) - 2
            self.rfile.readline()
        server.bytes += len(self.rfile.read(length))
        if ready:
            does = "respond"
        else:
            server.received[self.path] += 1
            server.headers = {name.lower(): value for name, value in self.headers.items()}
        if does == "reset":
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
            return
        if does == "late":
            time.sleep(LATE_SECONDS)
        if does == "hold":
            server.released.wait()
        self.send_response(does if isinstance(does, int) else 200)
        self.send_header("X-Node", str(server.server_port))
        if does in {"break", "silent"}:
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"5\r\nfirst\r\n")
            time.sleep(SILENT_SECONDS if does == "silent" else 0.2)
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
            return
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    do_POST = do_DELETE = do_GET  # noqa: N815  as the base class looks for them

    def log_message(self, *_: object) -> None:
        """Write no log."""


Nodes = list[Upstream]
Before = tuple[httpx2.Client, Nodes, Front]


@pytest.fixture(scope="module")
def start(free_ports: Callable[[int], list[int]], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a context in which Envoy runs before two servers, for a gateway with such settings."""

    @contextmanager
    def running(**settings: object) -> Iterator[Before]:
        folder, nodes = tmp_path_factory.mktemp("envoy"), [Upstream(), Upstream()]
        port, grpc_port, admin, probes = free_ports(4)
        given = Settings.model_validate(settings)
        patience = {"try_seconds": TRY_SECONDS, "frame_seconds": FRAME_SECONDS}
        front = Front(given, port, grpc_port, admin, probe_port=probes, **patience)
        for cluster in ("http", "grpc"):
            found = [Endpoint("127.0.0.1", each.server_port, each.server_port) for each in nodes]
            (folder / f"{cluster}.json").write_text(json.dumps(envoy.endpoints(cluster, found, 1)))
        path = folder / "envoy.json"
        path.write_text(json.dumps(envoy.configuration(front, folder)))
        command = [program(), "-c", str(path), "--disable-hot-restart", "--concurrency", "1"]
        process = Process(command, folder / "log", os.environ, [])
        try:
            with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=30.0) as client:
                wait_until(lambda: responds(client))
                yield client, nodes, front
        finally:
            process.end()
            process.wait()
            for each in nodes:
                each.shutdown()
                each.server_close()

    return running


def responds(client: httpx2.Client) -> bool:
    """Tell whether both servers are known to be ready, so that each gets some of the requests."""
    try:
        found = [client.get("/health/live").headers.get("x-node") for _ in range(8)]
    except httpx2.TransportError:
        return False
    return None not in found and len(set(found)) == 2


@pytest.fixture(scope="module")
def proxy(start: Any) -> Iterator[Before]:
    with start() as found:
        yield found


@pytest.fixture
def before(proxy: Before) -> Iterator[Before]:
    client, nodes, _ = proxy
    wait_until(lambda: responds(client))
    for each in nodes:
        each.received.clear()
        each.does, each.bytes = "respond", 0
    yield proxy
    for each in nodes:
        each.does = "respond"


def count(nodes: Nodes, path: str) -> int:
    return sum(each.received[path] for each in nodes)


@pytest.mark.parametrize("does", ["reset", 503])
@pytest.mark.parametrize(
    ("method", "path", "times"),
    [
        ("POST", PREDICT, 3),
        ("POST", "/v1/models/m/versions/1/vjp", 3),
        ("POST", "/v2/models/m/infer", 3),
        ("POST", "/umbridge/Evaluate", 3),
        ("POST", "/tesseract/m/apply", 3),
        ("GET", "/v1/models", 3),
        ("POST", ROLLOUT, 3),
        ("POST", JOBS, 1),
        ("DELETE", f"{JOBS}/7", 1),
        ("POST", "/v1/models/m/something", 1),
    ],
)
def test_what_only_computes_is_repeated_and_nothing_else(
    before: Before, method: str, path: str, times: int, does: str | int
) -> None:
    client, nodes, _ = before
    for each in nodes:
        each.does = does
    assert client.request(method, path).status_code == 503
    assert count(nodes, path) == times


def test_one_failing_node_is_not_noticed(before: Before) -> None:
    client, nodes, _ = before
    nodes[0].does = "reset"
    assert [client.post(PREDICT).status_code for _ in range(8)] == [200] * 8


def test_a_fault_of_a_request_takes_no_node_out(before: Before) -> None:
    client, nodes, _ = before
    for each in nodes:
        each.does = 502  # as for an output that is not finite
    assert [client.post(PREDICT).status_code for _ in range(20)] == [502] * 20
    assert count(nodes, PREDICT) == 20
    for each in nodes:
        each.does = "respond"
    assert responds(client)


def test_a_late_response_is_asked_for_elsewhere_too(before: Before) -> None:
    client, nodes, _ = before
    nodes[0].does = "late"
    for _ in range(3):  # the late node's own response would come before that of a node that is asked later than it
        assert client.post(PREDICT).headers["x-node"] == str(nodes[1].server_port)
    nodes[0].received.clear()
    nodes[1].does = "late"
    assert client.post(PREDICT).status_code == 200  # the first of both is not cut
    assert count(nodes, PREDICT) >= 2


def test_a_node_that_does_not_respond_gets_no_more_requests_than_others(before: Before) -> None:
    client, nodes, _ = before
    with held(before, JOBS, 1):
        [silent] = [each for each in nodes if each.received[JOBS]]
        [other] = [each for each in nodes if each is not silent]
        other.does = "respond"
        assert {client.post(PREDICT).headers["x-node"] for _ in range(60)} == {str(other.server_port)}
    # One where the other node once takes longer than `TRY_SECONDS`; a quarter of them by Envoy's own choice of nodes.
    assert silent.received[PREDICT] < 4


def test_repetitions_are_few_where_all_nodes_are_busy(before: Before) -> None:
    client, nodes, _ = before
    requests, limit = 60, envoy.LEAST_RETRIES
    assert requests * envoy.RETRY_PERCENT / 100 < limit
    with held(before, PREDICT, requests):
        wait_until(lambda: count(nodes, PREDICT) >= requests + limit)
        time.sleep(3 * TRY_SECONDS)  # in which all of them become due
        assert count(nodes, PREDICT) <= requests + envoy.RETRIES * limit
    assert [client.post(PREDICT).status_code for _ in range(4)] == [200] * 4


@contextmanager
def held(before: Before, path: str, requests: int) -> Iterator[None]:
    """Have nodes keep so many requests waiting; each has its response in the end."""
    client, nodes, _ = before
    for each in nodes:
        each.released.clear()
        each.does = "hold"
    with ThreadPoolExecutor(requests) as pool:
        sent = [pool.submit(client.post, path) for _ in range(requests)]
        try:
            wait_until(lambda: count(nodes, path) >= requests)
            yield
        finally:
            for each in nodes:
                each.does = "respond"
                each.released.set()
        assert {each.result().status_code for each in sent} == {200}


def test_a_stream_arrives_part_by_part_and_is_not_repeated(before: Before) -> None:
    client, nodes, _ = before
    for does, limit in (("break", FRAME_SECONDS), ("silent", SILENT_SECONDS)):
        for each in nodes:
            each.does = does
            each.received.clear()
        start = time.monotonic()
        with client.stream("POST", ROLLOUT) as response:
            parts = response.iter_bytes()
            assert next(parts) == b"first"  # before the end is there
            with pytest.raises(httpx2.RemoteProtocolError):  # the client's own patience is not at an end
                next(parts)
        assert time.monotonic() - start < limit
        assert count(nodes, ROLLOUT) == 1


def test_requests_for_a_job_reach_its_node(before: Before) -> None:
    client, nodes, _ = before
    client.cookies.clear()
    begun = client.post(JOBS).headers["x-node"]
    assert {client.get(f"{JOBS}/7").headers["x-node"] for _ in range(8)} == {begun}
    assert len({client.post(PREDICT).headers["x-node"] for _ in range(8)}) == 2  # the others do not follow it
    client.cookies.clear()
    assert sum(each.received[PREDICT] for each in nodes) == 8


def test_a_body_of_the_largest_size_passes_and_can_be_repeated(before: Before) -> None:
    client, nodes, front = before
    size = front.settings.max_body_bytes // 2
    for each in nodes:
        each.does = 503
    assert client.post(PREDICT, content=bytes(size)).status_code == 503
    assert sum(each.bytes for each in nodes) == 3 * size


def test_headers_of_a_proxy_are_its_own(before: Before) -> None:
    client, nodes, _ = before
    lies = {"X-Forwarded-Prefix": "/evil", "X-Forwarded-Proto": "https", "Host": "lab.example"}
    lies |= {"X-Forwarded-For": "203.0.113.7"}
    client.post(PREDICT, headers=lies)
    [headers] = [each.headers for each in nodes if each.received[PREDICT]]
    assert "x-forwarded-prefix" not in headers
    assert headers["x-forwarded-proto"] == "http"
    address = ip_address(headers["x-forwarded-for"])  # of this machine: which one, depends on its network
    assert str(address) != lies["X-Forwarded-For"]
    assert headers["host"] == "lab.example"


def test_a_prefix_is_said_and_its_routes_are_known(start: Any) -> None:
    with start(path_prefix="/petrov") as (client, nodes, front):
        for each in nodes:
            each.does = "reset"
        assert client.post(f"/petrov{PREDICT}", headers={"X-Forwarded-Prefix": "/evil"}).status_code == 503
        assert count(nodes, f"/petrov{PREDICT}") == 3
        assert {each.headers["x-forwarded-prefix"] for each in nodes if each.received} == {"/petrov"}
        probes = f"http://127.0.0.1:{front.probe_port}"
        assert httpx2.get(f"{probes}/ready").status_code == 200
        assert "envoy_cluster_upstream_rq" in httpx2.get(f"{probes}/stats/prometheus").text
        assert httpx2.post(f"{probes}/quitquitquit").status_code == 404


def test_every_route_that_computes_is_known(tmp_path: Path) -> None:
    settings = Settings(repository=tmp_path, grpc_port=0)
    app = create_app(settings, Triton(settings.triton_address, settings.max_body_bytes))
    routes = {route.path for route in app.routes if isinstance(route, APIRoute) and "POST" in route.methods}
    known = [*envoy.PURE, envoy.STREAM, envoy.JOBS]
    plain = {re.sub(r"\{[^}]*\}", "7", path) for path in routes}
    assert len(plain) > 10
    assert {path for path in plain if not any(re.fullmatch(each, path) for each in known)} == set()
    streamed = service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"].methods_by_name.values()
    found = [f"/{each.containing_service.full_name}/{each.name}" for each in streamed if each.server_streaming]
    assert found == [envoy.GRPC_STREAM]


def test_the_manifest_is_up_to_date_and_envoy_accepts_it() -> None:
    assert envoy.MANIFEST.read_text() == envoy.of_kubernetes(), "run python -m deploy.nodes.envoy"
    command = [program(), "--mode", "validate", "-c", str(envoy.MANIFEST)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not re.search("deprecated|unknown field", done.stderr, re.IGNORECASE)
