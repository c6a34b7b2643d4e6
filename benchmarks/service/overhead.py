"""The time of a prediction of the identity model by each route, which is the cost of the route.

The routes are interleaved in short blocks, as in `latency`. One of them is the gateway's own route to Triton, over
HTTP, without the cost of gRPC in Python.
"""

from __future__ import annotations

import asyncio
import http.client
import io
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import tritonclient.grpc as triton
import uvloop
from numpy.typing import NDArray

from benchmarks.service import identity
from benchmarks.service.latency import interleave
from benchmarks.service.running import Addresses, running
from petrov_client import Client
from serving.triton.client import TritonInference

Route = Callable[[], NDArray[Any]]
GRIDS = (85, 141, 421)
DIRECT = "Triton, gRPC"
HEADER = ("grid", "route to the identity model", "p50 ms", "p95 ms", "more than Triton, ms", "times Triton")


def rows() -> list[tuple[str, ...]]:
    """Return a row per grid and route: percentiles, and the median beside Triton's own."""
    with tempfile.TemporaryDirectory() as folder, running(identity.write(Path(folder))) as service:
        return [row for points in GRIDS for row in grid_rows(service, points)]


def grid_rows(service: Addresses, points: int) -> list[tuple[str, ...]]:
    """Return the rows of one grid."""
    field = np.random.default_rng(0).random((points, points), np.float32)
    with Client(service.gateway) as petrov, ExitStack() as stack:
        routes: dict[str, Route] = {
            DIRECT: stack.enter_context(grpc_route(service.triton_grpc, field)),
            "Triton, HTTP, as the gateway uses it": stack.enter_context(triton_route(service.triton_http, field)),
            "gateway, gRPC": stack.enter_context(grpc_route(service.gateway_grpc, field)),
            "gateway, npy over HTTP": stack.enter_context(npy_route(service.gateway, field)),
            "gateway, npy, petrov_client": lambda: petrov.predict(identity.MODEL, field),
        }
        for name, route in routes.items():
            np.testing.assert_array_equal(route(), field, name)
        times = interleave(routes)
    direct = statistics.median(times[DIRECT])
    return [(f"{points} x {points}", name, *figures(samples, direct)) for name, samples in times.items()]


def figures(samples: list[float], direct: float) -> tuple[str, ...]:
    """Return median, 95th percentile, and difference and ratio to Triton's own median."""
    median, late = statistics.median(samples), statistics.quantiles(samples, n=20)[-1]
    return (f"{1e3 * median:.2f}", f"{1e3 * late:.2f}", f"{1e3 * (median - direct):.2f}", f"{median / direct:.2f}")


@contextmanager
def grpc_route(address: str, field: NDArray[np.float32]) -> Iterator[Route]:
    """Yield the route of Triton's own client to an address."""
    tensor = triton.InferInput(identity.INPUT, [1, *field.shape], "FP32")

    def predict() -> NDArray[Any]:
        tensor.set_data_from_numpy(field[None])
        output: NDArray[Any] = client.infer(identity.MODEL, [tensor]).as_numpy(identity.OUTPUT)[0]
        return output

    with triton.InferenceServerClient(address) as client:
        yield predict


@contextmanager
def triton_route(address: str, field: NDArray[np.float32]) -> Iterator[Route]:
    """Yield the gateway's own route to Triton, on the same kind of event loop."""
    inference = TritonInference(address, field.nbytes)

    def predict() -> NDArray[Any]:
        prediction = inference.infer(identity.MODEL, 1, {identity.INPUT: field[None]}, seconds=60.0)
        output: NDArray[Any] = runner.get_loop().run_until_complete(prediction)[identity.OUTPUT][0]
        return output

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            yield predict
        finally:
            runner.run(inference.__aexit__(None, None, None))


@contextmanager
def npy_route(url: str, field: NDArray[np.float32]) -> Iterator[Route]:
    """Yield the route over one connection of Python's own HTTP client, which adds little time of its own."""
    path, header = f"/v1/models/{identity.MODEL}/predict", {"Content-Type": "application/x-npy"}

    def predict() -> NDArray[Any]:
        file = io.BytesIO()
        np.save(file, field)
        connection.request("POST", path, file.getbuffer(), header)
        body = connection.getresponse().read()
        output: NDArray[Any] = np.load(io.BytesIO(body))
        return output

    with closing(http.client.HTTPConnection(urlsplit(url).netloc)) as connection:
        yield predict
