"""The time of one prediction of the exported `darcy`, by each route.

The routes are interleaved in short blocks, so that other load on the machine slows them alike: ratios count. The first
predictions of a block are discarded, because threads of the previous route may still be spinning. The baselines are
the least that serves the graph over HTTP, and a classical solver that stops where the grid's own error begins.
"""

from __future__ import annotations

import io
import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import httpx2
import numpy as np
import onnxruntime
import tritonclient.grpc as triton
from numpy.typing import NDArray

import physics.darcy
import physics.numerics.early_stopping
from benchmarks.repository import feed, newest_graph
from benchmarks.service import servers
from benchmarks.service.running import Addresses, running
from petrov_client import Client

if TYPE_CHECKING:
    from pathlib import Path

Route = Callable[[], NDArray[Any]]
MODEL, ROUNDS, BLOCK, WARM_UP = "darcy", 5, 15, 4
STEPS = 6  # of conjugate gradients: at 141 x 141 more do not lower the error
HEADER = ("route to one 141 x 141 prediction", "p50 ms", "p95 ms", "difference from the gateway's")


def rows(repository: Path, points: int = 141) -> list[tuple[str, ...]]:
    """Return a row per route: median and 95th percentile in milliseconds, and difference from the gateway's output."""
    field = physics.darcy.example(points, seed=0).astype(np.float32)
    graph = newest_graph(repository / MODEL)
    with (
        running(repository) as service,
        Client(service.gateway) as petrov,
        servers.server(servers.IN_PROCESS, graph, []) as plain,
        httpx2.Client(timeout=None) as http,
    ):
        routes: dict[str, Route] = {
            "gateway, npy": lambda: petrov.predict(MODEL, field),
            "Triton, gRPC": triton_route(service, field),
            "ONNX Runtime, in process": runtime_route(repository, field),
            f"{servers.IN_PROCESS}, npy": http_route(http, plain, field),
            f"conjugate gradients, {STEPS} steps, float32": lambda: physics.numerics.early_stopping.solve(field, STEPS),
        }
        outputs = {name: route() for name, route in routes.items()}
        times = interleave(routes)
    gateway = outputs["gateway, npy"]
    return [
        (
            name,
            f"{1000 * statistics.median(samples):.1f}",
            f"{1000 * statistics.quantiles(samples, n=20)[-1]:.1f}",
            f"{np.linalg.norm(outputs[name] - gateway) / np.linalg.norm(gateway):.0e}",
        )
        for name, samples in times.items()
    ]


def interleave(routes: dict[str, Route]) -> dict[str, list[float]]:
    """Return the seconds of every call of each route, measured in interleaved blocks."""
    times: dict[str, list[float]] = {name: [] for name in routes}
    for _ in range(ROUNDS):
        for name, route in routes.items():
            times[name] += [seconds(route) for _ in range(BLOCK)][WARM_UP:]
    return times


def seconds(route: Route) -> float:
    """Return the seconds of one call."""
    started = time.perf_counter()
    route()
    return time.perf_counter() - started


def triton_route(service: Addresses, field: NDArray[np.float32]) -> Route:
    """Return the route to Triton itself, by its own client."""
    client = triton.InferenceServerClient(service.triton_grpc)
    tensor, source = (triton.InferInput(name, [1, *field.shape], "FP32") for name in ("coefficient", "source"))
    source.set_data_from_numpy(np.ones_like(field[None]))

    def predict() -> NDArray[Any]:
        tensor.set_data_from_numpy(field[None])
        output: NDArray[Any] = client.infer(MODEL, [tensor, source]).as_numpy("solution")[0]
        return output

    return predict


def http_route(http: httpx2.Client, url: str, field: NDArray[np.float32]) -> Route:
    """Return the route to the graph in a plain FastAPI service."""
    file = io.BytesIO()
    np.save(file, field)

    def predict() -> NDArray[Any]:
        response = http.post(f"{url}/predict_npy", content=file.getvalue()).raise_for_status()
        output: NDArray[Any] = np.load(io.BytesIO(response.content), allow_pickle=False)
        return output

    return predict


def runtime_route(repository: Path, field: NDArray[np.float32]) -> Route:
    """Return the route through ONNX Runtime in this process, with the default number of threads, as Triton uses."""
    session = onnxruntime.InferenceSession(newest_graph(repository / MODEL), providers=["CPUExecutionProvider"])

    def run() -> NDArray[Any]:
        output: NDArray[Any] = session.run(None, feed(session, field[None]))[0][0]
        return output

    return run
