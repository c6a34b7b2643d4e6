"""The table of the services: throughput and times of the exported `darcy` by each route, beside other servers.

All servers run at the same time and one is loaded at a time, interleaved. Each has its own default settings, and each
of its formats is measured. Times are wall clock: what a client waits that keeps so many requests in flight.
"""

from __future__ import annotations

import asyncio
import itertools
import shutil
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import psutil

from benchmarks.repository import newest_graph
from benchmarks.service import published_network
from benchmarks.service.load import INPUT, Load, block, fields, json_body, petrov_routes, post
from benchmarks.service.published_network import ALONE, MODEL
from benchmarks.service.running import running
from benchmarks.service.servers import (
    ENVIRONMENTS,
    IN_PROCESS,
    LITSERVE,
    NAIVE,
    RAW,
    START_SECONDS,
    Started,
    server,
    started,
)
from petrov_client import AsyncGrpcClient

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.report.page import Table
    from benchmarks.service.load import Route
    from benchmarks.service.running import Addresses

ONE, FOUR = ((141, 141),), ((141, 141), (140, 142), (139, 143), (142, 140))  # nearly equal numbers of points
MEBIBYTE = 2**20
GATEWAY = "gateway"
HEADER = (
    "grids",
    "in flight",
    "route",
    "fields/s",
    "divided by the naive service's JSON",
    "p50 ms",
    "p95 ms",
    "p99 ms",
    "refused",
)
STARTING = ("server", "ready after, s", "idle memory, MiB")
KEPT = ("route to the published network", "fields/s at 16 in flight", "share of ONNX Runtime's")


@dataclass(frozen=True)
class Plan:
    """The size of a run: requests in flight, rounds, seconds of each, and sets of grids."""

    in_flight: tuple[int, ...] = (1, 4, 16, 64)
    rounds: int = 3
    seconds: float = 4.0
    grids: tuple[tuple[tuple[int, int], ...], ...] = (ONE, FOUR)


FULL, QUICK = Plan(), Plan((16,), 1, 2.0, (ONE,))


@dataclass(frozen=True)
class Found:
    """The results: loads by (number of grids, in flight, route), the servers' starts, and the published network."""

    loads: dict[tuple[int, int, str], Load]
    started: list[Started]
    kept: dict[str, float]


def measure(plan: Plan, repository: Path, graph: Path | None = None) -> Found:
    """Start every server, load their routes, then measure the published network.

    Args:
        plan: The size of the run.
        repository: Exported models.
        graph: The published network, if it is exported already.
    """
    starts: list[Started] = []
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        released = Path(folder) / "released"
        shutil.copytree(repository / MODEL, released / MODEL)
        begun = time.monotonic()
        service = stack.enter_context(running(released, START_SECONDS))
        [process] = psutil.Process().children()
        starts.append(started("gateway and Triton", process, begun))
        exported = newest_graph(released / MODEL)
        others = {name: stack.enter_context(server(name, exported, starts)) for name in ENVIRONMENTS}
        loads = asyncio.run(load_all(plan, service, others))
    return Found(loads, starts, published_network.measure(repository, graph, plan.rounds, 2 * plan.seconds))


async def load_all(plan: Plan, service: Addresses, others: Mapping[str, str]) -> dict[tuple[int, int, str], Load]:
    """Load route after route, for each set of grids and number in flight.

    Args:
        plan: The size of the run.
        service: The addresses of the Petrov service.
        others: The URLs of the other servers by name.

    Returns:
        The loads by (number of grids, in flight, route).
    """
    loads: dict[tuple[int, int, str], Load] = {}
    async with (
        httpx2.AsyncClient(timeout=None, limits=httpx2.Limits(max_connections=None)) as http,
        AsyncGrpcClient(service.gateway_grpc) as front,
        AsyncGrpcClient(service.triton_grpc) as triton,
    ):
        routes = petrov_routes(http, service.gateway, front, triton) | baseline_routes(http, others)
        for grids, count, _ in itertools.product(plan.grids, plan.in_flight, range(plan.rounds)):
            for name, route in routes.items():
                load = loads.setdefault((len(grids), count, name), Load())
                await block(load, route, fields(MODEL, grids), count, plan.seconds)
    return loads


def baseline_routes(http: httpx2.AsyncClient, others: Mapping[str, str]) -> dict[str, Route]:
    """Return the routes to the other servers by their names.

    Args:
        http: A client without limits.
        others: The URLs of the servers by name.
    """

    def npy(url: str) -> Route:
        return lambda sample: post(http, url, sample.npy(), "application/x-npy")

    def json(url: str) -> Route:
        return lambda sample: post(http, url, json_body({INPUT: sample.array}), "application/json")

    return {
        f"{NAIVE}, npy": npy(f"{others[NAIVE]}/predict_npy"),
        f"{NAIVE}, JSON": json(f"{others[NAIVE]}/predict"),
        f"{IN_PROCESS}, npy": npy(f"{others[IN_PROCESS]}/predict_npy"),
        f"{IN_PROCESS}, JSON": json(f"{others[IN_PROCESS]}/predict"),
        f"{LITSERVE}, JSON": json(f"{others[LITSERVE]}/predict"),
        f"{RAW}, npy": npy(f"{others[RAW]}/predict"),
    }


def document(found: Found) -> dict[str, Any]:
    """Return everything that was measured."""
    return {
        "loads": [
            {
                "grids": grids,
                "in_flight": count,
                "route": route,
                "fields_per_second": load.throughput,
                "percentiles": load.percentiles(),
                "responses": len(load.responses),
                "refused": load.refused,
            }
            for (grids, count, route), load in found.loads.items()
        ],
        "started": [each._asdict() for each in found.started],
        "kept": found.kept,
    }


def tables(found: Found) -> dict[str, Table]:
    """Return the page's three tables."""
    rows = [row(key, load, found.loads) for key, load in found.loads.items()]
    starts = [(each.name, f"{each.seconds:.1f}", f"{each.bytes / MEBIBYTE:.0f}") for each in found.started]
    return {"service": (HEADER, rows), "starting": (STARTING, starts), "kept": (KEPT, kept(found.kept))}


def row(key: tuple[int, int, str], load: Load, loads: Mapping[tuple[int, int, str], Load]) -> tuple[str, ...]:
    """Return a route's row, beside the naive service's JSON under the same load.

    Args:
        key: Number of grids, requests in flight, and route.
        load: The route's load.
        loads: All loads.
    """
    grids, count, route = key
    share = load.throughput / loads[grids, count, f"{NAIVE}, JSON"].throughput
    times = (f"{1e3 * cut:.0f}" for cut in load.percentiles())
    return (
        {1: "one", 4: "four"}[grids],
        f"{count}",
        route,
        f"{load.throughput:.1f}",
        f"{share:.2f}",
        *times,
        f"{load.refused}",
    )


def kept(found: dict[str, float]) -> list[tuple[str, ...]]:
    """Return each route's throughput, and its share of ONNX Runtime's own."""
    most = found[ALONE]
    return [(name, f"{rate:.1f}", f"{rate / most:.0%}") for name, rate in found.items()]
