"""The service beside other servers of the same model, and the time that the gateway adds to Triton's.

All servers run at the same time and one is loaded at a time, interleaved. Each has its own default settings. Times are
wall clock: what a client waits that keeps so many requests in flight.
"""

from __future__ import annotations

import asyncio
import http.client
import io
import itertools
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import httpx2
import numpy as np
import onnx
import onnx.helper as make
import orjson
import psutil
import tritonclient.grpc as triton

import physics.darcy
from benchmarks.harness import OWN, Array, Row, interpreter
from petrov_client import AsyncGrpcClient, Client, PetrovError

Route: TypeAlias = Callable[[], Awaitable[object]]

START_SECONDS = 300.0  # for a server on a busy machine
MODEL, INPUT, POINTS = "darcy", "coefficient", 141
NPY, JSON = "application/x-npy", "application/json"
#: The other servers: name in the table, module and kind, environment, and path of each format.
SERVERS: dict[str, tuple[str, str, dict[str, str]]] = {
    "naive service": ("servers naive", OWN, {"npy": "predict_npy", "JSON": "predict"}),
    "FastAPI and ONNX Runtime": ("servers onnx", OWN, {"npy": "predict_npy", "JSON": "predict"}),
    "LitServe": ("lit_server json", "litserve", {"JSON": "predict"}),
    "LitServe, raw bodies": ("lit_server npy", "litserve", {"npy": "predict"}),
}
IDENTITY, IDENTITY_INPUT, GRIDS, AXES = "identity", "input", (85, 141, 211, 421), ("batch", "row", "column")
IN_FLIGHT = 16  # of the overhead's requests per second
ROUNDS, BLOCK, WARM_UP = 5, 15, 4  # of the overhead; the first calls of a block follow another route's threads


@dataclass(frozen=True)
class Addresses:
    """The id of the gateway's process, and the addresses of the parts of a running service."""

    process: int
    gateway: str
    gateway_grpc: str
    triton_grpc: str
    triton_http: str


@dataclass
class Load:
    """The responses of one route under one load: the seconds of each, and of all rounds together."""

    responses: list[float] = field(default_factory=list)
    seconds: float = 0.0
    refused: int = 0


def throughput(repository: Path, *, quick: bool) -> list[Row]:
    """Return a row per route and number of requests in flight; quickly without what needs other environments."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        shutil.copytree(repository / MODEL, Path(folder) / MODEL)
        service = stack.enter_context(running(Path(folder), START_SECONDS))
        names = [name for name, (_, environment, _) in SERVERS.items() if environment == OWN or not quick]
        others = {name: stack.enter_context(server(*SERVERS[name][:2])) for name in names}
        counts, rounds, seconds = ((16,), 1, 2.0) if quick else ((1, 4, 16, 64), 3, 4.0)
        loads = asyncio.run(load_all(service, others, counts, rounds, seconds))
    return [row(count, route, load) for (count, route), load in loads.items()]


def row(count: int, route: str, load: Load) -> Row:
    """Return what is kept of a load."""
    cuts = statistics.quantiles(load.responses, n=100) if len(load.responses) > 1 else [float("nan")] * 99
    return {
        "in_flight": count,
        "route": route,
        "fields_per_second": len(load.responses) / load.seconds,
        "percentiles": [cuts[49], cuts[94], cuts[98]],
        "refused": load.refused,
    }


async def load_all(
    service: Addresses, others: dict[str, str], counts: tuple[int, ...], rounds: int, seconds: float
) -> dict[tuple[int, str], Load]:
    """Load route after route, round by round."""
    loads: dict[tuple[int, str], Load] = {}
    field = physics.darcy.example(POINTS, seed=0).astype(np.float32)
    alone = {INPUT: field, "source": np.ones_like(field)}  # Triton knows no defaults
    bodies = {"npy": (npy(field), NPY), "JSON": (listed({INPUT: field}), JSON)}
    async with (
        httpx2.AsyncClient(timeout=None, limits=httpx2.Limits(max_connections=None)) as client,
        AsyncGrpcClient(service.gateway_grpc) as front,
        AsyncGrpcClient(service.triton_grpc) as back,
    ):

        def post(url: str, body: bytes, media_type: str) -> Route:
            async def route() -> None:
                (await client.post(url, content=body, headers={"Content-Type": media_type})).raise_for_status()

            return route

        path = f"{service.gateway}/v1/models/{MODEL}/predict"
        routes: dict[str, Route] = {
            "gateway, npy": post(path, *bodies["npy"]),
            "gateway, JSON": post(path, listed({"inputs": {INPUT: field}}), JSON),
            "gateway, gRPC": lambda: front.predict(MODEL, field),
            "Triton alone, gRPC": lambda: back.predict(MODEL, alone),
        }
        for name, address in others.items():
            paths = SERVERS[name][-1]
            routes |= {f"{name}, {kind}": post(f"{address}/{path}", *bodies[kind]) for kind, path in paths.items()}
        for count, _ in itertools.product(counts, range(rounds)):
            for name, route in routes.items():
                await block(loads.setdefault((count, name), Load()), route, count, seconds)
    return loads


async def block(load: Load, route: Route, count: int, seconds: float) -> None:
    """Keep requests in flight, after one that is not counted, and wait for the last responses."""
    await route()
    begun = time.perf_counter()

    async def client() -> None:
        while (sent := time.perf_counter()) - begun < seconds:
            try:
                await route()
            except (httpx2.HTTPStatusError, PetrovError):
                load.refused += 1
            else:
                load.responses.append(time.perf_counter() - sent)

    await asyncio.gather(*(client() for _ in range(count)))
    load.seconds += time.perf_counter() - begun


def npy(array: Array) -> bytes:
    """Return the bytes of an .npy file."""
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def listed(document: dict[str, Any]) -> bytes:
    """Return JSON with arrays as nested lists."""
    return orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)


def overhead(*, quick: bool) -> list[Row]:
    """Return a row per grid and route to the identity model, whose own time is negligible.

    The routes are interleaved in short blocks, one request after the other, and at one grid with many in flight. The
    bare ASGI proxy calls Triton as the gateway does, without anything else.
    """
    with (
        tempfile.TemporaryDirectory() as folder,
        running(identity(Path(folder))) as service,
        server("servers proxy", OWN, service.triton_http, IDENTITY) as proxy,
    ):
        return [
            row for points in ((POINTS,) if quick else (85, POINTS, 421)) for row in overhead_at(service, proxy, points)
        ]


def overhead_at(service: Addresses, proxy: str, points: int) -> list[Row]:
    """Return the rows of one grid."""
    field = np.random.default_rng(0).random((points, points), np.float32)
    routes: dict[str, Callable[[], AbstractContextManager[Callable[[], Array]]]] = {
        "Triton, gRPC": lambda: grpc_route(service.triton_grpc, field),
        "gateway, gRPC": lambda: grpc_route(service.gateway_grpc, field),
        "bare ASGI proxy, npy over HTTP": lambda: npy_route(proxy, field),
        "gateway, npy over HTTP": lambda: npy_route(service.gateway, field),
        "gateway, npy, petrov_client": lambda: client_route(service.gateway, field),
    }
    times: dict[str, list[float]] = {name: [] for name in routes}
    rates: dict[str, list[float]] = {name: [] for name in routes}
    with ExitStack() as stack:
        opened = {name: stack.enter_context(route()) for name, route in routes.items()}
        for name, route in opened.items():
            np.testing.assert_array_equal(route(), field, name)
        for _, (name, route) in itertools.product(range(ROUNDS), opened.items()):
            times[name] += [seconds(route) for _ in range(BLOCK)][WARM_UP:]
    for _, name in itertools.product(range(ROUNDS if points == POINTS else 0), routes):
        rates[name].append(rate(routes[name]))
    return [
        {"grid": points, "route": name, "p50": statistics.median(each), "p95": statistics.quantiles(each, n=20)[-1]}
        | ({"per_second": statistics.median(rates[name])} if rates[name] else {})
        for name, each in times.items()
    ]


def rate(open_route: Callable[[], AbstractContextManager[Callable[[], Array]]]) -> float:
    """Return the requests per second of a route with `IN_FLIGHT` connections, each with one request at a time."""
    with ExitStack() as stack, ThreadPoolExecutor(IN_FLIGHT) as threads:
        opened = [stack.enter_context(open_route()) for _ in range(IN_FLIGHT)]
        list(threads.map(lambda route: route(), opened))
        started = time.perf_counter()
        list(threads.map(lambda route: [route() for _ in range(BLOCK)], opened))
        return IN_FLIGHT * BLOCK / (time.perf_counter() - started)


def seconds(route: Callable[[], Array]) -> float:
    """Return the seconds of one call, wall clock."""
    started = time.perf_counter()
    route()
    return time.perf_counter() - started


@contextmanager
def grpc_route(address: str, field: Array) -> Iterator[Callable[[], Array]]:
    """Yield the route of Triton's own client to an address."""
    tensor = triton.InferInput(IDENTITY_INPUT, [1, *field.shape], "FP32")
    with triton.InferenceServerClient(address) as client:

        def predict() -> Array:
            tensor.set_data_from_numpy(field[None])
            return np.asarray(client.infer(IDENTITY, [tensor]).as_numpy("output")[0])

        yield predict


@contextmanager
def client_route(url: str, field: Array) -> Iterator[Callable[[], Array]]:
    """Yield the route of our own client."""
    with Client(url) as petrov:
        yield lambda: petrov.predict(IDENTITY, field)


@contextmanager
def npy_route(url: str, field: Array) -> Iterator[Callable[[], Array]]:
    """Yield the route over one connection of Python's own HTTP client, which adds little time of its own."""
    with closing(http.client.HTTPConnection(urlsplit(url).netloc)) as connection:

        def predict() -> Array:
            connection.request("POST", f"/v1/models/{IDENTITY}/predict", npy(field), {"Content-Type": NPY})
            return np.asarray(np.load(io.BytesIO(connection.getresponse().read())))

        yield predict


def identity(repository: Path) -> Path:
    """Write a model repository with a model that returns its input, and return the repository."""
    version = repository / IDENTITY / "1"
    version.mkdir(parents=True)
    tensors = [make.make_tensor_value_info(name, onnx.TensorProto.FLOAT, AXES) for name in (IDENTITY_INPUT, "output")]
    node = make.make_node("Identity", [IDENTITY_INPUT], ["output"])
    graph = make.make_graph([node], IDENTITY, tensors[:1], tensors[1:])
    model = make.make_model(graph, opset_imports=[make.make_opsetid("", 20)], ir_version=9)
    (version / "model.onnx").write_bytes(model.SerializeToString())
    dims = "data_type: TYPE_FP32 dims: [ -1, -1 ]"
    (repository / IDENTITY / "config.pbtxt").write_text(
        f'name: "{IDENTITY}" backend: "onnxruntime" max_batch_size: 64 '
        f'input {{ name: "{IDENTITY_INPUT}" {dims} }} output {{ name: "output" {dims} }} '
        "instance_group { count: 2 kind: KIND_CPU } dynamic_batching { } "
        'parameters { key: "intra_op_thread_count" value { string_value: "1" } }\n'
    )
    tensor = {"dtype": "FP32", "axes": AXES, "units": "1", "positive": False, "meaning": "anything"}
    card = {
        "model": IDENTITY,
        "version": 1,
        "format": "onnx",
        "title": "The identity",
        "problem": IDENTITY,
        "equation": "u = a",
        "boundary": "none",
        "inputs": [{"name": IDENTITY_INPUT, **tensor}],
        "outputs": [{"name": "output", **tensor}],
        "grid": {"axes": AXES[1:], "minimum": 1, "maximum": max(GRIDS), "declared": GRIDS, "points": "any"},
        "limits": {"batch": 64},
        "training": {},
        "errors": [],
        "classical": [],
        "checkpoint": {},
    }
    (version / "card.json").write_text(json.dumps(card))
    return repository


@contextmanager
def running(repository: Path, patience: float = START_SECONDS, **settings: str) -> Iterator[Addresses]:
    """Run `python -m serving` on free ports until the block ends, and yield its addresses when all models are warm.

    With further settings by name; one that has the address of a Triton runs the gateway alone.
    """
    names = ("PORT", "GRPC_PORT", "TRITON_HTTP_PORT", "TRITON_GRPC_PORT", "TRITON_METRICS_PORT")
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    variables = {f"PETROV_{name}": str(port) for name, port in ports.items()} | {
        "PETROV_REPOSITORY": str(repository),
        "PETROV_LOG_LEVEL": "warning",
        "PETROV_TRITON_START_SECONDS": str(patience),
        **{f"PETROV_{name.upper()}": value for name, value in settings.items()},
    }
    command = [sys.executable, "-m", "serving", *(["gateway"] if "triton" in settings else [])]
    url = f"http://127.0.0.1:{ports['PORT']}"
    with subprocess.Popen(command, env=os.environ | variables) as process:  # noqa: S603 - our own
        try:
            wait_for(f"{url}/health/ready", process)
            others = ("GRPC_PORT", "TRITON_GRPC_PORT", "TRITON_HTTP_PORT")
            yield Addresses(process.pid, url, *(f"127.0.0.1:{ports[name]}" for name in others))
        finally:
            process.terminate()


@contextmanager
def server(program: str, environment: str, *arguments: str) -> Iterator[str]:
    """Run a baseline's server until the block ends, and yield its address."""
    [port], (module, kind) = free_ports(1), program.split()
    command = [str(interpreter(environment)), "-m", f"benchmarks.{module}", kind, str(port), *arguments]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:  # noqa: S603 -- our own
        family: list[psutil.Process] = []
        try:
            wait_for(f"http://127.0.0.1:{port}/health", process)
            family = psutil.Process(process.pid).children(recursive=True)
            yield f"http://127.0.0.1:{port}"
        finally:
            for each in family:
                each.terminate()  # LitServe leaves its workers behind
            process.terminate()


def wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    """Return when a server responds with 200."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"{url}: the server ended with status {process.returncode}")
        try:
            if httpx2.get(url).status_code == httpx2.codes.OK:
                return
        except httpx2.TransportError:
            pass
        time.sleep(0.2)
    raise TimeoutError(f"{url} did not respond within {START_SECONDS:g} s")


def free_ports(count: int) -> list[int]:
    """Return free ports."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
