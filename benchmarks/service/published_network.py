"""The throughput of the published Darcy network behind the gateway, beside ONNX Runtime in this process."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2
import numpy as np
import onnxruntime
import orjson

from benchmarks.repository import newest_graph
from benchmarks.service.load import INPUT, Load, block, fields, petrov_routes
from benchmarks.service.running import running
from benchmarks.service.servers import START_SECONDS
from export import triton_config
from export.graphs import to_onnx
from export.graphs.deployable import Deployable
from export.signature import Signature
from petrov_client import AsyncGrpcClient
from training.operators import build
from training.problems.registry import PROBLEMS
from training.recipes import recipe as recipes

if TYPE_CHECKING:
    from benchmarks.service.running import Addresses

MODEL, NAME = "darcy", "published"
GRID = (141, 141)
ALONE = "ONNX Runtime, in process"
IN_FLIGHT = 16


def measure(repository: Path, graph: Path | None, rounds: int, seconds: float) -> dict[str, float]:
    """Return the fields per second of each route to the network, and of ONNX Runtime alone.

    Args:
        repository: The exported models; the card of the released `darcy` is used.
        graph: The network, if it is exported already.
        rounds: How often each route is loaded.
        seconds: The duration of a load.
    """
    with tempfile.TemporaryDirectory() as folder:
        served = publish(Path(folder), repository, graph)
        session = onnxruntime.InferenceSession(served, providers=["CPUExecutionProvider"])
        with running(Path(folder), START_SECONDS) as service:
            return asyncio.run(throughputs(service, session, rounds, seconds))


def publish(folder: Path, repository: Path, graph: Path | None) -> Path:
    """Write a repository that holds the network alone, with the released model's card, and return its graph.

    Args:
        folder: The new repository.
        repository: The exported models.
        graph: The network, if it is exported already; else it is exported with random weights.
    """
    signature, version = Signature.of(PROBLEMS[MODEL].description), folder / NAME / "1"
    version.mkdir(parents=True)
    if graph is None:
        operator = build(recipes.read_fields(recipes.find("darcy-paper")).operator)
        to_onnx.write(Deployable(operator, (INPUT,)), signature, version / to_onnx.FILE)
    else:
        shutil.copy(graph, version / to_onnx.FILE)
    (folder / NAME / "config.pbtxt").write_text(triton_config.text(NAME, signature, "onnx"))
    card = orjson.loads((newest_graph(repository / MODEL).parent / "card.json").read_bytes())
    # The published network takes the coefficient alone, and says nothing of its error.
    own = {"model": NAME, "version": 1, "inputs": card["inputs"][:1], "quality": []}
    (version / "card.json").write_bytes(orjson.dumps(card | own))
    return version / to_onnx.FILE


async def throughputs(
    service: Addresses, session: onnxruntime.InferenceSession, rounds: int, seconds: float
) -> dict[str, float]:
    """Return the fields per second of each route and of the session, interleaved.

    Args:
        service: The addresses of the service.
        session: The network in ONNX Runtime.
        rounds: How often each is loaded.
        seconds: The duration of a load.
    """
    loads: dict[str, Load] = {}
    async with (
        httpx2.AsyncClient(timeout=None, limits=httpx2.Limits(max_connections=None)) as http,
        AsyncGrpcClient(service.gateway_grpc) as front,
        AsyncGrpcClient(service.triton_grpc) as triton,
    ):
        routes = petrov_routes(http, service.gateway, front, triton)
        for _ in range(rounds):
            for name, route in routes.items():
                await block(loads.setdefault(name, Load()), route, fields(NAME, [GRID]), IN_FLIGHT, seconds)
            alone(loads.setdefault(ALONE, Load()), session, seconds)
    return {name: load.throughput for name, load in loads.items()}


def alone(load: Load, session: onnxruntime.InferenceSession, seconds: float) -> None:
    """Run the graph on batches of eight, with the default number of threads.

    Args:
        load: The times are appended here.
        session: The network.
        seconds: The duration.
    """
    batch = np.stack([next(fields(NAME, [GRID])).array] * 8)
    begun = time.perf_counter()
    while (sent := time.perf_counter()) - begun < seconds:
        session.run(None, {INPUT: batch})
        load.responses += [time.perf_counter() - sent] * len(batch)
    load.seconds += time.perf_counter() - begun
