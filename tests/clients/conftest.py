"""The four clients behind one interface, and real servers that respond wrongly."""

from __future__ import annotations

import asyncio
import inspect
import io
import json
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
import numpy as np
import pytest
from numpy.typing import NDArray
from tritonclient.grpc import service_pb2_grpc

from petrov_client import AsyncClient, AsyncGrpcClient, Client, GrpcClient
from petrov_client.__main__ import main
from serving.local_triton.server import TritonServer
from tests.conftest import Gateway

KINDS: dict[str, Any] = {
    "Client": Client,
    "AsyncClient": AsyncClient,
    "GrpcClient": GrpcClient,
    "AsyncGrpcClient": AsyncGrpcClient,
}
Reply = tuple[int, dict[str, str], bytes]


def address_for(kind: str, gateway: Gateway) -> str:
    """Return the address of a gateway for a kind of client: a URL, or HOST:PORT for gRPC."""
    return f"127.0.0.1:{gateway.settings.grpc_port}" if "Grpc" in kind else gateway.url


@dataclass(frozen=True)
class Done:
    """The result of a run of the command."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def petrov(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """Run the command in this process, with these arguments and without PETROV variables in the environment."""

    def run(*arguments: object, stdin: str = "", **environment: str) -> Done:
        for name in ("PETROV_URL", "PETROV_API_KEY"):
            monkeypatch.delenv(name, raising=False)
        for name, value in {"COLUMNS": "200", **environment}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys, "argv", ["petrov", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        with pytest.raises(SystemExit) as end:
            main()
        return Done(int(end.value.code or 0), *capsys.readouterr())

    return run


@dataclass(frozen=True)
class AnyClient:
    """One of the four clients, called as if it were synchronous."""

    kind: str

    @property
    def http(self) -> bool:
        return "Grpc" not in self.kind

    def call(self, address: str, method: str, *args: Any, options: dict[str, Any] | None = None, **named: Any) -> Any:
        """Open a client, call one method, close the client. `address` is HOST:PORT, or a URL."""
        target = f"http://{address}" if self.http and "://" not in address else address
        make = partial(KINDS[self.kind], target, **(options or {}))  # later: a client belongs to its event loop
        if not inspect.iscoroutinefunction(KINDS[self.kind].predict):
            with make() as client:
                return getattr(client, method)(*args, **named)

        async def called() -> Any:
            async with make() as client:
                return await getattr(client, method)(*args, **named)

        return asyncio.run(called())


@pytest.fixture(params=list(KINDS))
def any_client(request: pytest.FixtureRequest) -> AnyClient:
    return AnyClient(request.param)


@pytest.fixture
def call(any_client: AnyClient, gateway: Gateway) -> Callable[..., Any]:
    """Return a function that calls a method of one of the four clients of the gateway."""
    return partial(any_client.call, address_for(any_client.kind, gateway).removeprefix("http://"))


@pytest.fixture
def call_triton(any_client: AnyClient, gateway: Gateway, triton: TritonServer) -> Callable[..., Any]:
    """Return the same for the gateway over HTTP, and for the plain Triton behind it over gRPC."""
    grpc = f"127.0.0.1:{triton.settings.triton_grpc_port}"
    return partial(any_client.call, gateway.url.removeprefix("http://") if any_client.http else grpc)


@pytest.fixture(params=["Client", "AsyncClient"])
def http_client(request: pytest.FixtureRequest) -> AnyClient:
    return AnyClient(request.param)


@pytest.fixture(params=["GrpcClient", "AsyncGrpcClient"])
def grpc_client(request: pytest.FixtureRequest) -> AnyClient:
    return AnyClient(request.param)


@pytest.fixture
def gauged() -> NDArray[np.float32]:
    """Return 20 inputs of `gauge`, more than one request holds; the 18th is unlike its training data."""
    drawn = np.random.default_rng(0).uniform(3, 12, (20, 8, 9)).astype(np.float32)
    drawn[17, 2, 3] = 30
    return drawn


@pytest.fixture
def closed_port() -> str:
    """Return an address without a listener."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


@contextmanager
def _listening(greeting: bytes | None) -> Iterator[str]:
    """Run a TCP server that sends a greeting and closes the connection, or sends nothing and waits."""
    connections: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                connections.append(connection)
                if greeting is not None:
                    connection.sendall(greeting)
                    connection.recv(65536)
                    connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        yield "{}:{}".format(*server.getsockname())
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
    for connection in connections:
        connection.close()


@pytest.fixture
def silent_server() -> Iterator[str]:
    with _listening(None) as address:
        yield address


@pytest.fixture
def garbage_server() -> Iterator[str]:
    with _listening(b"\x00\xff\x17 neither HTTP nor gRPC\r\n\r\n") as address:
        yield address


@dataclass
class HttpService:
    """An HTTP server with a list of replies per path; the last one is repeated."""

    address: str = ""
    replies: dict[str, list[Reply]] = field(default_factory=dict)
    seen: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)

    def next(self, path: str) -> Reply:
        replies = self.replies[path]
        return replies.pop(0) if len(replies) > 1 else replies[0]


@pytest.fixture
def http_service() -> Iterator[HttpService]:
    service = HttpService()

    class Handler(BaseHTTPRequestHandler):
        def respond(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            service.seen.append(
                (self.command, self.path, {name.lower(): value for name, value in self.headers.items()})
            )
            status, headers, body = service.next(self.path)
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_DELETE = respond  # noqa: N815  the names that http.server looks for

        def log_message(self, *_: Any) -> None:
            """Keep quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        service.address = "{}:{}".format(*server.server_address)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))  # seconds between looks at shutdown
        thread.start()
        yield service
        server.shutdown()
        thread.join()


@dataclass
class GrpcService(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]  # ships no types
    """A gRPC server that fails every `ModelMetadata` with the next of its statuses; the last one is repeated."""

    statuses: list[grpc.StatusCode] = field(default_factory=list)
    trailing: tuple[tuple[str, str], ...] = ()
    address: str = ""
    calls: int = 0
    metadata: dict[str, str] = field(default_factory=dict)

    def ModelMetadata(self, request: Any, context: Any) -> Any:
        del request
        self.calls += 1
        self.metadata = dict(context.invocation_metadata())
        context.set_trailing_metadata(self.trailing)
        context.abort(self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0], "said by the server")


@contextmanager
def served(service: Any) -> Iterator[None]:
    """Run a gRPC server whose calls a service answers, and write its address into the service."""
    server = grpc.server(ThreadPoolExecutor(2))
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(service, server)
    service.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    yield
    server.stop(0).wait()


@pytest.fixture
def grpc_service() -> Iterator[GrpcService]:
    service = GrpcService()
    with served(service):
        yield service


WARNING = "The mean relative L2 error of test samples is 31% on 85 x 85 points."


@pytest.fixture
def description() -> Callable[..., Reply]:
    """Return the function that makes the gateway's JSON description of a model "toy"."""

    def describe(
        *,
        batch: int = 64,
        minimum: int = 2,
        maximum: int = 512,
        positive: bool = True,
        quality: tuple[str, ...] = (),
    ) -> Reply:
        axes = ["batch", "row", "column"]
        common = {"dtype": "FP32", "axes": axes, "units": "1"}
        card = {
            "title": "A toy",
            "inputs": [{"name": "coefficient", "meaning": "permeability", "positive": positive, **common}],
            "outputs": [{"name": "solution", "meaning": "pressure", "positive": False, **common}],
            "grid": {"axes": axes[1:], "minimum": minimum, "maximum": maximum, "declared": [8], "points": "x_i = i"},
            "limits": {"batch": batch},
            "quality": quality,
            "errors": [{"grid": [85, 85], "relative_l2": 0.01234}],
            "warnings": [WARNING],
        }
        document = {"name": "toy", "version": 2, "versions": [1, 2], "card": card, "certificate": None}
        return 200, {"Content-Type": "application/json"}, json.dumps(document).encode()

    return describe
