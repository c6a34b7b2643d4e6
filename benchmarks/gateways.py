"""What one Triton answers through one, two and four gateways: single fields, many in flight, from several clients.

The clients are processes, as many for one gateway as for four, so that they are never what differs. Each row stands
beside the rate of the graph itself on the same device.
"""

from __future__ import annotations

import asyncio
import secrets
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context
from pathlib import Path

import httpx2
import numpy as np

import physics.darcy
from benchmarks.harness import Row
from benchmarks.service import NPY, Load, block, npy, running

MODEL, POINTS, IN_FLIGHT = "darcy_galerkin", 141, 64
GATEWAYS, QUICK_GATEWAYS = (1, 2, 4), (1, 2)
CLIENTS = 4  # processes
SECONDS, QUICK_SECONDS = 8.0, 2.0


def measure(repository: Path, graph: Iterable[Row], *, quick: bool) -> list[Row]:
    """Return a row per number of gateways; `graph` has rows of `benchmarks.gpu` of the same model, if there are any."""
    counts, seconds = (QUICK_GATEWAYS, QUICK_SECONDS) if quick else (GATEWAYS, SECONDS)
    key, own, rows = secrets.token_hex(16), graph_rate(graph), list[Row]()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        shutil.copytree(repository / MODEL, Path(folder) / MODEL)
        first = stack.enter_context(running(Path(folder), triton_key=key, shadow_share="0"))
        urls = [first.gateway]
        processes = stack.enter_context(ProcessPoolExecutor(CLIENTS, mp_context=get_context("spawn")))
        for count in counts:
            while len(urls) < count:
                further = running(Path(folder), triton=first.triton_http, triton_key=key, shadow_share="0")
                urls.append(stack.enter_context(further).gateway)
            found = [*processes.map(load, clients(urls), [seconds] * CLIENTS)]
            rate = sum(found)
            share = {"graph_fields_per_second": own, "share": rate / own} if own else {}
            rows.append({"gateways": count, "in_flight": IN_FLIGHT, "fields_per_second": rate} | share)
    return rows


def clients(urls: Sequence[str]) -> list[str]:
    """Return the gateway of each client.

    Example:
        >>> clients(["a", "b", "c"])
        ['a', 'b', 'c', 'a']
    """
    return [urls[index % len(urls)] for index in range(CLIENTS)]


def load(url: str, seconds: float) -> float:
    """Keep this client's share of the requests in flight; return the answers per second."""
    body, found = npy(physics.darcy.example(POINTS, seed=0).astype(np.float32)), Load()

    async def run() -> None:
        async with httpx2.AsyncClient(timeout=None, limits=httpx2.Limits(max_connections=None)) as client:

            async def route() -> None:
                path = f"{url}/v1/models/{MODEL}/predict"
                (await client.post(path, content=body, headers={"Content-Type": NPY})).raise_for_status()

            await block(found, route, IN_FLIGHT // CLIENTS, seconds)

    asyncio.run(run())
    return len(found.responses) / found.seconds


def graph_rate(rows: Iterable[Row]) -> float | None:
    """Return the most fields a second of the graph itself at these points, on the GPU where there is one."""
    own = [row for row in rows if row["model"] == MODEL and row.get("grid") == [POINTS, POINTS] and "fault" not in row]
    return max((row.get("fields_per_second") or 1e3 * row["batch"] / row["processor_ms"] for row in own), default=None)
