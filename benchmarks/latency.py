"""One field at a time: takes the exported `darcy`, gives the time of an answer by every road to it.

The roads take turns in short blocks, so that whatever else the machine does slows them alike: ratios count. The first
answers of a block are not counted, because the threads of the road before may still be spinning for work.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime
import tritonclient.grpc as triton
from numpy.typing import NDArray

import physics.darcy
from benchmarks.service import Addresses, running
from petrov_client import Client

if TYPE_CHECKING:
    from pathlib import Path

Road = Callable[[], NDArray[Any]]
MODEL, TURNS, BLOCK, WARM_UP = "darcy", 5, 15, 4
HEADER = ("road to one 141 x 141 answer", "p50 ms", "p95 ms", "difference to the gateway's answer")


def rows(repository: Path, points: int = 141) -> list[tuple[str, ...]]:
    """Give median and 95th percentile of each road in milliseconds, and its difference to the gateway's answer."""
    field = physics.darcy.example(points, seed=0).astype(np.float32)
    with running(repository) as service, Client(service.gateway) as petrov:
        roads: dict[str, Road] = {
            "gateway, npy": lambda: petrov.predict(MODEL, field),
            "Triton, gRPC": triton_road(service, field),
            "ONNX Runtime, in process": runtime_road(repository, field),
            "classical solve of the same field": lambda: physics.darcy.solve(field),
        }
        answers = {name: road() for name, road in roads.items()}
        times = interleave(roads)
    ours = answers["gateway, npy"]
    return [
        (
            name,
            f"{1000 * statistics.median(samples):.1f}",
            f"{1000 * statistics.quantiles(samples, n=20)[-1]:.1f}",
            f"{np.linalg.norm(answers[name] - ours) / np.linalg.norm(ours):.0e}",
        )
        for name, samples in times.items()
    ]


def interleave(roads: dict[str, Road]) -> dict[str, list[float]]:
    """Time every road block by block, in turns."""
    times: dict[str, list[float]] = {name: [] for name in roads}
    for _ in range(TURNS):
        for name, road in roads.items():
            times[name] += [seconds(road) for _ in range(BLOCK)][WARM_UP:]
    return times


def seconds(road: Road) -> float:
    """Time one answer."""
    started = time.perf_counter()
    road()
    return time.perf_counter() - started


def triton_road(service: Addresses, field: NDArray[np.float32]) -> Road:
    """Ask Triton itself, as any of its clients would."""
    client = triton.InferenceServerClient(service.triton_grpc)
    question = triton.InferInput("coefficient", [1, *field.shape], "FP32")

    def ask() -> NDArray[Any]:
        question.set_data_from_numpy(field[None])
        answer: NDArray[Any] = client.infer(MODEL, [question]).as_numpy("solution")[0]
        return answer

    return ask


def runtime_road(repository: Path, field: NDArray[np.float32]) -> Road:
    """Run the newest exported graph in this process, with the default threads, as its config asks of Triton."""
    newest = max((repository / MODEL).glob("[0-9]*"), key=lambda folder: int(folder.name))
    session = onnxruntime.InferenceSession(newest / "model.onnx", providers=["CPUExecutionProvider"])

    def run() -> NDArray[Any]:
        answer: NDArray[Any] = session.run(None, {"coefficient": field[None]})[0][0]
        return answer

    return run
