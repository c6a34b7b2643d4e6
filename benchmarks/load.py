"""Table 3, the service: takes the exported `darcy`, gives throughput and times by every road to it and to others.

All servers run at the same time, and one is loaded at a time, in turns; each has its own default settings and both its
formats. Times are the wall clock's: what somebody waits who keeps so many questions in flight.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import shutil
import statistics
import subprocess
import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import httpx2
import numpy as np
import onnxruntime
import orjson
import psutil

import physics.darcy
from benchmarks.baselines.environment import OURS, interpreter
from benchmarks.forward import newest
from benchmarks.questions import Question
from benchmarks.service import free_ports, running
from export import to_onnx, triton_config
from export.deployable import Deployable
from export.signature import Signature
from petrov_client import AsyncGrpcClient, PetrovError
from training.operators import build
from training.problems.registry import PROBLEMS
from training.recipes import recipe as recipes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

    from benchmarks.page import Table
    from benchmarks.service import Addresses

    Road = Callable[[Question], Awaitable[object]]

MODEL, EXACT, INPUT = "darcy", "published", "coefficient"
ONE, FOUR = ((141, 141),), ((141, 141), (140, 142), (139, 143), (142, 140))  # as many points, only other shapes
PATIENCE = 300.0  # seconds for a server to start on a busy machine
MEBIBYTE = 2**20
NAIVE, LITSERVE, GATEWAY = "naive service", "LitServe", "gateway"
ALONE = "ONNX Runtime, in process"
HEADER = (
    "grids",
    "in flight",
    "road",
    "fields/s",
    "of the naive service's JSON",
    "p50 ms",
    "p95 ms",
    "p99 ms",
    "refused",
)
STARTING = ("server", "ready after, s", "idle memory, MiB")
KEPT = ("road to the published network", "fields/s at 16 in flight", "of ONNX Runtime's own")


@dataclass(frozen=True)
class Plan:
    """How much to measure: questions in flight, turns, seconds of each, and mixtures of grids."""

    in_flight: tuple[int, ...] = (1, 4, 16, 64)
    turns: int = 3
    seconds: float = 4.0
    mixtures: tuple[tuple[tuple[int, int], ...], ...] = (ONE, FOUR)


FULL, QUICK = Plan(), Plan((16,), 1, 2.0, (ONE,))


class Started(NamedTuple):
    """A server: how long it took to be ready, and what it then held."""

    name: str
    seconds: float
    bytes: int


@dataclass
class Load:
    """What one road took under one load: seconds of each answer, and of all turns."""

    answers: list[float] = field(default_factory=list)
    seconds: float = 0.0
    refused: int = 0

    @property
    def throughput(self) -> float:
        """Fields a second."""
        return len(self.answers) / self.seconds

    def percentiles(self) -> tuple[float, float, float]:
        """Give p50, p95 and p99 in seconds."""
        cuts = statistics.quantiles(self.answers, n=100) if len(self.answers) > 1 else (self.answers or [math.nan]) * 99
        return cuts[49], cuts[94], cuts[98]


@dataclass(frozen=True)
class Found:
    """All that was measured: loads by (grids, in flight, road), the servers' starts, and the published network."""

    loads: dict[tuple[int, int, str], Load]
    started: list[Started]
    kept: dict[str, float]


def measure(plan: Plan, repository: Path, graph: Path | None = None) -> Found:
    """Start every server, load their roads in turns, then ask for the published network.

    Args:
        plan: How much to measure.
        repository: Exported models.
        graph: The published network, if it is exported already.
    """
    started: list[Started] = []
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        alone = Path(folder) / "released"
        shutil.copytree(repository / MODEL, alone / MODEL)
        begun = time.monotonic()
        service = stack.enter_context(running(alone, PATIENCE))
        [ours] = psutil.Process().children()
        started.append(settled("gateway and Triton", ours, begun))
        naive, lit = (stack.enter_context(server(name, started)) for name in (NAIVE, LITSERVE))
        loads = asyncio.run(turns(plan, service, naive, lit))
    return Found(loads, started, published(plan, repository, graph))


def settled(name: str, process: psutil.Process, begun: float) -> Started:
    """Tell how long a server took, and what it and its children hold; pages they share are counted once."""
    seconds = time.monotonic() - begun
    family = [process, *process.children(recursive=True)]
    return Started(name, seconds, sum(each.memory_full_info().pss for each in family))


@contextmanager
def server(name: str, started: list[Started]) -> Iterator[str]:
    """Run a rival's server until the block ends, and give its address."""
    [port] = free_ports(1)
    commands = {
        NAIVE: ["-m", "uvicorn", "--factory", "benchmarks.baselines.naive_service:create", "--port", f"{port}"],
        LITSERVE: ["-m", "benchmarks.baselines.litserve_service", f"{port}"],
    }
    python = interpreter({NAIVE: OURS, LITSERVE: "litserve"}[name])
    begun = time.monotonic()
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([python, *commands[name]], **quiet) as process:  # noqa: S603 -- our own command
        family: list[psutil.Process] = []
        try:
            wait_for(f"http://127.0.0.1:{port}/health")
            started.append(settled(name, psutil.Process(process.pid), begun))
            family = psutil.Process(process.pid).children(recursive=True)
            yield f"http://127.0.0.1:{port}"
        finally:
            for each in family:
                each.terminate()  # LitServe leaves its workers behind
            process.terminate()


def wait_for(url: str) -> None:
    """Return once a server answers that it is well.

    Raises:
        TimeoutError: it was not within the patience.
    """
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            if httpx2.get(url).status_code == httpx2.codes.OK:
                return
        except httpx2.TransportError:
            pass
        time.sleep(0.2)
    raise TimeoutError(f"{url} did not answer within {PATIENCE:g} s")


async def turns(plan: Plan, service: Addresses, naive: str, lit: str) -> dict[tuple[int, int, str], Load]:
    """Load road after road, again and again, for every mixture and number in flight."""
    loads: dict[tuple[int, int, str], Load] = {}
    async with (
        httpx2.AsyncClient(timeout=None, limits=httpx2.Limits(max_connections=None)) as http,
        AsyncGrpcClient(service.gateway_grpc) as front,
        AsyncGrpcClient(service.triton_grpc) as triton,
    ):
        known = roads(http, service.gateway, front, triton) | rival_roads(http, naive, lit)
        for grids, count, _ in itertools.product(plan.mixtures, plan.in_flight, range(plan.turns)):
            for name, road in known.items():
                load = loads.setdefault((len(grids), count, name), Load())
                await block(load, road, questions(MODEL, grids), count, plan.seconds)
    return loads


def roads(http: httpx2.AsyncClient, gateway: str, front: AsyncGrpcClient, triton: AsyncGrpcClient) -> dict[str, Road]:
    """Give every way to our own service."""
    return {
        "gateway, npy": lambda asked: post(http, f"{gateway}{asked.path}", asked.npy(), "application/x-npy"),
        "gateway, JSON": lambda asked: post(
            http, f"{gateway}{asked.path}", json_body({"inputs": {INPUT: asked.array}}), "application/json"
        ),
        "gateway, gRPC": lambda asked: front.predict(asked.model, asked.array),
        "Triton alone, gRPC": lambda asked: triton.predict(asked.model, asked.array),
    }


def rival_roads(http: httpx2.AsyncClient, naive: str, lit: str) -> dict[str, Road]:
    """Give every way to the others."""
    return {
        f"{NAIVE}, npy": lambda asked: post(http, f"{naive}/predict_npy", asked.npy(), "application/x-npy"),
        f"{NAIVE}, JSON": lambda asked: post(
            http, f"{naive}/predict", json_body({INPUT: asked.array}), "application/json"
        ),
        f"{LITSERVE}, JSON": lambda asked: post(
            http, f"{lit}/predict", json_body({INPUT: asked.array}), "application/json"
        ),
    }


def json_body(document: dict[str, Any]) -> bytes:
    """Write nested lists."""
    return orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)


async def post(http: httpx2.AsyncClient, url: str, body: bytes, media_type: str) -> None:
    """Ask and wait for the whole answer.

    Raises:
        HTTPStatusError: it is a refusal.
    """
    (await http.post(url, content=body, headers={"Content-Type": media_type})).raise_for_status()


def questions(model: str, grids: Sequence[tuple[int, int]]) -> Iterator[Question]:
    """Give one field after the other, grid by grid in turn, without end."""
    fields = [physics.darcy.example(max(grid), seed=0)[: grid[0], : grid[1]].astype(np.float32) for grid in grids]
    return itertools.cycle([Question(model, INPUT, "FP32", np.ascontiguousarray(each)) for each in fields])


async def block(load: Load, road: Road, asked: Iterator[Question], count: int, seconds: float) -> None:
    """Keep questions in flight for a while, after one that is not counted, and wait for the last answers."""
    await road(next(asked))
    begun = time.perf_counter()

    async def client() -> None:
        while (sent := time.perf_counter()) - begun < seconds:
            try:
                await road(next(asked))
            except (httpx2.HTTPStatusError, PetrovError):
                load.refused += 1
            else:
                load.answers.append(time.perf_counter() - sent)

    await asyncio.gather(*(client() for _ in range(count)))
    load.seconds += time.perf_counter() - begun


def published(plan: Plan, repository: Path, graph: Path | None) -> dict[str, float]:
    """Give the throughput of the published network with random weights, by our roads and in process."""
    with tempfile.TemporaryDirectory() as folder:
        served = publish(Path(folder), repository, graph)
        session = onnxruntime.InferenceSession(served, providers=["CPUExecutionProvider"])
        with running(Path(folder), PATIENCE) as service:
            return asyncio.run(shares(plan, service, session))


def publish(folder: Path, repository: Path, graph: Path | None) -> Path:
    """Write a repository of the published network alone, with the released model's card, and give its graph."""
    signature, version = Signature.of(PROBLEMS[MODEL].description), folder / EXACT / "1"
    version.mkdir(parents=True)
    if graph is None:
        operator = build(recipes.read_fields(recipes.find("darcy-paper")).operator)
        to_onnx.write(Deployable(operator, INPUT), signature, version / to_onnx.FILE)
    else:
        shutil.copy(graph, version / to_onnx.FILE)
    (folder / EXACT / "config.pbtxt").write_text(triton_config.text(EXACT, signature, "onnx"))
    card = orjson.loads((newest(repository / MODEL).parent / "card.json").read_bytes()) | {"model": EXACT, "version": 1}
    (version / "card.json").write_bytes(orjson.dumps(card))
    return version / to_onnx.FILE


async def shares(plan: Plan, service: Addresses, session: onnxruntime.InferenceSession) -> dict[str, float]:
    """Give the fields a second of every road to the published network, and of ONNX Runtime alone, in turns."""
    loads: dict[str, Load] = {}
    async with (
        httpx2.AsyncClient(timeout=None, limits=httpx2.Limits(max_connections=None)) as http,
        AsyncGrpcClient(service.gateway_grpc) as front,
        AsyncGrpcClient(service.triton_grpc) as triton,
    ):
        known = roads(http, service.gateway, front, triton)
        for _ in range(plan.turns):
            for name, road in known.items():
                await block(loads.setdefault(name, Load()), road, questions(EXACT, ONE), 16, 2 * plan.seconds)
            alone(loads.setdefault(ALONE, Load()), session, 2 * plan.seconds)
    return {name: load.throughput for name, load in loads.items()}


def alone(load: Load, session: onnxruntime.InferenceSession, seconds: float) -> None:
    """Run the graph for a while on batches of eight, with as many threads as there are cores."""
    batch = np.stack([next(questions(EXACT, ONE)).array] * 8)
    begun = time.perf_counter()
    while (sent := time.perf_counter()) - begun < seconds:
        session.run(None, {INPUT: batch})
        load.answers += [time.perf_counter() - sent] * len(batch)
    load.seconds += time.perf_counter() - begun


def document(found: Found) -> dict[str, Any]:
    """Give everything that was measured."""
    return {
        "loads": [
            {
                "grids": grids,
                "in_flight": count,
                "road": road,
                "fields_per_second": load.throughput,
                "percentiles": load.percentiles(),
                "answers": len(load.answers),
                "refused": load.refused,
            }
            for (grids, count, road), load in found.loads.items()
        ],
        "started": [each._asdict() for each in found.started],
        "kept": found.kept,
    }


def tables(found: Found) -> dict[str, Table]:
    """Lay out the page's three tables."""
    rows = [row(key, load, found.loads) for key, load in found.loads.items()]
    started = [(each.name, f"{each.seconds:.1f}", f"{each.bytes / MEBIBYTE:.0f}") for each in found.started]
    return {"service": (HEADER, rows), "starting": (STARTING, started), "kept": (KEPT, kept(found.kept))}


def row(key: tuple[int, int, str], load: Load, loads: Mapping[tuple[int, int, str], Load]) -> tuple[str, ...]:
    """Give a road's row, beside the naive service's JSON under the same load."""
    grids, count, road = key
    share = load.throughput / loads[grids, count, f"{NAIVE}, JSON"].throughput
    times = (f"{1e3 * cut:.0f}" for cut in load.percentiles())
    return (
        {1: "one", 4: "four"}[grids],
        f"{count}",
        road,
        f"{load.throughput:.1f}",
        f"{share:.2f}",
        *times,
        f"{load.refused}",
    )


def kept(found: dict[str, float]) -> list[tuple[str, ...]]:
    """Give what each road keeps of ONNX Runtime's own throughput."""
    most = found[ALONE]
    return [(name, f"{rate:.1f}", f"{rate / most:.0%}") for name, rate in found.items()]
