"""What the gateway costs: takes nothing, gives the time of an answer by every road to a model that does nothing.

On the identity no model hides the road. The roads take turns in short blocks, as in `latency`. One of them is the
gateway's own to Triton: by HTTP, without what gRPC costs in Python.
"""

from __future__ import annotations

import http.client
import io
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import tritonclient.grpc as triton
import uvloop
from numpy.typing import NDArray

from benchmarks import identity
from benchmarks.latency import interleave
from benchmarks.service import Addresses, running
from petrov_client import Client
from serving.triton.client import TritonInference

Road = Callable[[], NDArray[Any]]
GRIDS = (85, 141, 421)
DIRECT = "Triton, gRPC"
HEADER = ("grid", "road to the identity's answer", "p50 ms", "p95 ms", "more than Triton, ms", "times Triton")


def rows() -> list[tuple[str, ...]]:
    """Give a row for every grid and road: percentiles, and the median beside Triton's own."""
    with tempfile.TemporaryDirectory() as folder, running(identity.write(Path(folder))) as service:
        return [row for points in GRIDS for row in grid_rows(service, points)]


def grid_rows(service: Addresses, points: int) -> list[tuple[str, ...]]:
    """Give the rows of one grid."""
    field = np.random.default_rng(0).random((points, points), np.float32)
    with Client(service.gateway) as petrov:
        roads: dict[str, Road] = {
            DIRECT: grpc_road(service.triton_grpc, field),
            "Triton, HTTP, as the gateway asks": triton_road(service.triton_http, field),
            "gateway, gRPC": grpc_road(service.gateway_grpc, field),
            "gateway, npy over HTTP": npy_road(service.gateway, field),
            "gateway, npy, our client": lambda: petrov.predict(identity.MODEL, field),
        }
        for name, road in roads.items():
            np.testing.assert_array_equal(road(), field, name)
        times = interleave(roads)
    direct = statistics.median(times[DIRECT])
    return [(f"{points} x {points}", name, *figures(samples, direct)) for name, samples in times.items()]


def figures(samples: list[float], direct: float) -> tuple[str, ...]:
    """Give median, 95th percentile, difference and ratio to Triton's own median."""
    median, late = statistics.median(samples), statistics.quantiles(samples, n=20)[-1]
    return (f"{1e3 * median:.2f}", f"{1e3 * late:.2f}", f"{1e3 * (median - direct):.2f}", f"{median / direct:.2f}")


def grpc_road(address: str, field: NDArray[np.float32]) -> Road:
    """Ask by Triton's own client, whoever listens."""
    client = triton.InferenceServerClient(address)
    question = triton.InferInput(identity.QUESTION, [1, *field.shape], "FP32")

    def ask() -> NDArray[Any]:
        question.set_data_from_numpy(field[None])
        answer: NDArray[Any] = client.infer(identity.MODEL, [question]).as_numpy(identity.ANSWER)[0]
        return answer

    return ask


def triton_road(address: str, field: NDArray[np.float32]) -> Road:
    """Ask Triton as the gateway does, on an event loop like its own."""
    loop, inference = uvloop.new_event_loop(), TritonInference(address, field.nbytes)

    def ask() -> NDArray[Any]:
        asking = inference.infer(identity.MODEL, 1, {identity.QUESTION: field[None]}, seconds=60.0)
        answer: NDArray[Any] = loop.run_until_complete(asking)[identity.ANSWER][0]
        return answer

    return ask


def npy_road(url: str, field: NDArray[np.float32]) -> Road:
    """Ask over one connection of Python's own client, which does little else."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc)
    path, header = f"/v1/models/{identity.MODEL}/predict", {"Content-Type": "application/x-npy"}

    def ask() -> NDArray[Any]:
        file = io.BytesIO()
        np.save(file, field)
        connection.request("POST", path, file.getbuffer(), header)
        body = connection.getresponse().read()
        answer: NDArray[Any] = np.load(io.BytesIO(body))
        return answer

    return ask
