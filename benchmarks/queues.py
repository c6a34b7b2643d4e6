"""How many nodes a load needs: a simulation of requests that wait for instances, checked against three real nodes.

Instances take several waiting requests at once, and Envoy sends a request to the less busy one of two nodes, chosen at
random (`LEAST_REQUEST`). A formula such as that of M/G/c has one queue, and servers that take one request each; it is
neither. So events are simulated: requests arrive at random (Poisson), a node's free instance takes what waits there, up
to the largest batch, for `alone + each * batch` seconds.

The check uses a model that sleeps for a time that is known, since three nodes share the cores of one machine: what is
measured is the queue. Requests arrive at the same times in both.
"""

from __future__ import annotations

import asyncio
import heapq
import json
import math
import os
import statistics
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import psutil

from benchmarks.harness import OWN, Array, Row, feed, newest_graph, one_thread, read, result_of
from deploy.nodes.cluster import Cluster
from petrov_client import AsyncClient
from serving.settings import Settings

SLEEPER, LOADS = "sleeper", (0.5, 0.8, 0.95)
CONFIG = """\
name: "sleeper"
backend: "python"
max_batch_size: {batch}
input {{ name: "u" data_type: TYPE_FP32 dims: [ -1 ] }}
output {{ name: "v" data_type: TYPE_FP32 dims: [ -1 ] }}
instance_group {{ count: {instances} kind: KIND_CPU }}
dynamic_batching {{ }}
"""
PROGRAM = """\
import time

import triton_python_backend_utils as utils


class TritonPythonModel:
    def execute(self, requests):
        fields = [utils.get_input_tensor_by_name(request, "u").as_numpy() for request in requests]
        time.sleep({alone} + {each} * sum(map(len, fields)))
        return [utils.InferenceResponse([utils.Tensor("v", field)]) for field in fields]
"""
#: A response in time waits for at most as long as it is computed, in 99 of 100 cases.
WAIT = 1.0
RATES = (1_000, 100_000)
COUNTS, SHOWN = (1, 2, 4, 16), 4  # of nodes, whose load is found by simulation; more than 16 wait no longer
SIMULATED = 20_000  # requests
BATCHES, REPEATS, INSTANCES = (1, 2, 4, 8), 15, 2
MODELS: tuple[tuple[str, tuple[int, ...]], ...] = (
    ("burgers", (1024,)),
    ("darcy", (85, 85)),
    ("darcy", (211, 211)),
)
#: A gateway is one process. It is measured with a model that returns its input, at 141 x 141 points.
ROUTE, GATEWAY_LOAD = "gateway, npy over HTTP", 0.7


@dataclass(frozen=True)
class Nodes:
    """Nodes of one model.

    Example:
        >>> Nodes(nodes=3, instances=2, batch=2, alone=0.3, each=0.1).capacity
        24.0
    """

    nodes: int
    instances: int  # of the model per node
    batch: int  # requests that an instance takes at once
    alone: float  # seconds of a batch, whatever its size
    each: float  # seconds more per request in it

    @property
    def capacity(self) -> float:
        """Requests per second that are computed where all batches are full."""
        return self.nodes * self.instances * self.batch / self.seconds(self.batch)

    def seconds(self, batch: int) -> float:
        """Return the time of a batch."""
        return self.alone + self.each * batch

    def simulate(self, arrivals: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        """Return the seconds from each arrival to the response, and those of them in the queue.

        What the network and the gateway add is left out.
        """
        waiting = [deque[int]() for _ in range(self.nodes)]
        free, active = [self.instances] * self.nodes, [0] * self.nodes
        found, queued, pairs = (
            np.zeros(len(arrivals)),
            np.zeros(len(arrivals)),
            rng.integers(self.nodes, size=(len(arrivals), 2)).tolist(),
        )
        # Times, numbers of the requests that arrive, and nodes of the batches that end, with the requests in them.
        events: list[tuple[float, int, int, tuple[int, ...]]] = [
            (float(at), number, -1, ()) for number, at in enumerate(arrivals)
        ]
        while events:  # arrivals are in order already
            now, number, node, done = heapq.heappop(events)
            if node < 0:
                node = min(pairs[number], key=lambda each: active[each])
                waiting[node].append(number)
                active[node] += 1
            else:
                free[node] += 1
                active[node] -= len(done)
                for each in done:
                    found[each] = now - arrivals[each]
            if free[node] and waiting[node]:
                taken = tuple(waiting[node].popleft() for _ in range(min(self.batch, len(waiting[node]))))
                free[node] -= 1
                for each in taken:
                    queued[each] = now - arrivals[each]
                heapq.heappush(events, (now + self.seconds(len(taken)), -1, node, taken))
        return found, queued


def arrivals(rate: float, count: int, rng: np.random.Generator) -> Array:
    """Return times at which requests arrive at random."""
    return np.cumsum(rng.exponential(1 / rate, count))


#: The sleeping model of the check: times that are long beside what the gateway and a busy machine add.
CHECKED = Nodes(nodes=3, instances=2, batch=2, alone=0.3, each=0.1)


def check(*, quick: bool) -> Iterator[Row]:
    """Yield a row per load: mean and quantiles of the response time, of real nodes and as simulated."""
    seconds = 10.0 if quick else 60.0
    with tempfile.TemporaryDirectory() as folder:
        repository = Path(folder) / "repository"
        write(repository, CHECKED)
        settings = Settings.model_validate({"shadow_share": 0.0, "repository": repository})
        with Cluster(settings, Path(folder) / "nodes") as cluster:
            url = cluster.settings.url
            alone = asyncio.run(responses(url, np.arange(1, 13) * (CHECKED.seconds(1) + 0.1)))
            added = float(np.median(alone)) - CHECKED.seconds(1)  # network, proxy, gateway and client
            for load in LOADS:
                rng = np.random.default_rng(round(100 * load))
                times = arrivals(load * CHECKED.capacity, round(load * CHECKED.capacity * seconds), rng)
                measured = asyncio.run(responses(url, times))
                simulated = (
                    np.concatenate([CHECKED.simulate(times, np.random.default_rng(n))[0] for n in range(8)]) + added
                )
                yield {
                    "load": load,
                    "requests": len(times),
                    "added": added,
                    "measured": summary(measured),
                    "simulated": summary(simulated),
                    "cpu_load": os.getloadavg()[0],
                }


def plan(repository: Path, *, quick: bool) -> Iterator[Row]:
    """Yield a row per released model and grid: measured times and memory, and the nodes that some rates need."""
    per_gateway = next(
        row["per_second"] for row in read("overhead")["rows"] if row["route"] == ROUTE and "per_second" in row
    )
    for model, grid in MODELS[:1] if quick else MODELS:
        file = newest_graph(repository / model)
        found = result_of("benchmarks.queues", OWN, {"file": str(file), "grid": grid})
        each, alone = np.polyfit(BATCHES, found["seconds"], 1)
        one = Nodes(1, INSTANCES, BATCHES[-1], max(0.0, float(alone)), float(each))
        found_loads = {count: highest_load(replace(one, nodes=count)) for count in COUNTS}
        loads = {count: load for count, (load, _) in found_loads.items()}
        yield {
            "model": model,
            "grid": grid,
            "file_bytes": file.stat().st_size,
            **found,
            "batch": BATCHES[-1],
            "alone": one.alone,
            "each": one.each,
            "per_node": one.capacity,
            "per_gateway": per_gateway,
            "queued": found_loads[SHOWN][1],
            "loads": {str(count): share for count, share in loads.items()},
            "nodes": {str(rate): needed(rate, one, loads, per_gateway) for rate in RATES},
        }


def needed(rate: float, one: Nodes, loads: Mapping[int, float], per_gateway: float) -> int:
    """Return how many nodes serve so many requests per second in time; the gateway of each has its own limit."""
    count = 1
    while True:
        load = loads[max(each for each in loads if each <= count)]
        if rate <= count * min(load * one.capacity, GATEWAY_LOAD * per_gateway):
            return count
        count = max(count + 1, math.ceil(count * 1.01))


def highest_load(model: Nodes) -> tuple[float, float]:
    """Return the highest load in time, as a share of the capacity, and the mean seconds in the queue at that load.

    In time are 99 of 100 responses within twice the time of a full batch.
    """
    low, high, mean = 0.0, 1.0, 0.0
    while high - low > 0.01:
        load = (low + high) / 2
        rng = np.random.default_rng(0)
        times = arrivals(load * model.capacity, SIMULATED, rng)
        seconds, queued = model.simulate(times, rng)
        if np.quantile(seconds, 0.99) > (1 + WAIT) * model.seconds(model.batch):
            high = load
        else:
            low, mean = load, float(queued.mean())
    return round(low, 2), mean


def times_of(file: Path, grid: Sequence[int]) -> dict[str, object]:
    """Return the seconds of a graph by `BATCHES`, medians of one thread, and the memory that it adds to a process."""
    process = psutil.Process()
    before = process.memory_info().rss
    session, seconds = one_thread(file), []
    for batch in BATCHES:
        sent = feed(session, np.random.default_rng(0).uniform(3, 12, (batch, *grid)))
        session.run(None, sent)
        found = []
        for _ in range(REPEATS):
            began = time.process_time()
            session.run(None, sent)
            found.append(time.process_time() - began)
        seconds.append(statistics.median(found))
    return {"seconds": seconds, "resident_bytes": process.memory_info().rss - before}


def summary(seconds: Array) -> list[float]:
    """Return the mean and some quantiles."""
    return [float(seconds.mean()), *(float(np.quantile(seconds, share)) for share in (0.5, 0.95))]


async def responses(url: str, times: Array) -> Array:
    """Send requests at these times, whether or not earlier ones have their responses; return the seconds of each."""
    field, start = np.ones(8, np.float32), time.perf_counter()
    async with AsyncClient(url, timeout=120.0) as client:
        await client.predict(SLEEPER, field)

        async def one(due: float) -> float:
            await asyncio.sleep(start + due - time.perf_counter())
            began = time.perf_counter()
            await client.predict(SLEEPER, field)
            return time.perf_counter() - began

        start = time.perf_counter()
        return np.array(await asyncio.gather(*map(one, times.tolist())))


def write(repository: Path, model: Nodes) -> None:
    """Write a model that sleeps into a repository."""
    version = repository / SLEEPER / "1"
    version.mkdir(parents=True)
    (version.parent / "config.pbtxt").write_text(CONFIG.format(batch=model.batch, instances=model.instances))
    (version / "model.py").write_text(PROGRAM.format(alone=model.alone, each=model.each))
    tensor = {"dtype": "FP32", "axes": ["batch", "x"], "shape": [None, None], "units": "1"}
    card = {
        "model": SLEEPER,
        "version": 1,
        "format": "onnx",
        "title": "A model that sleeps",
        "problem": SLEEPER,
        "equation": "v = u",
        "boundary": "none",
        "inputs": [{"name": "u", "meaning": "", "positive": False, **tensor}],
        "outputs": [{"name": "v", "meaning": "", "positive": False, **tensor}],
        "grid": {"axes": ["x"], "minimum": 4, "maximum": 64, "declared": [8], "points": "x_i = i"},
        "limits": {"batch": model.batch},
        "training": {
            **dict.fromkeys(("fields", "epochs", "seconds", "seed"), 0),
            "distribution": "none",
            "grids": [],
            "preset": "tiny",
        },
        "errors": [],
        "classical": [],
        "checkpoint": {"sha256": "0" * 64, "parameters": 0},
    }
    (version / "card.json").write_text(json.dumps(card))


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    print(json.dumps(times_of(Path(asked["file"]), asked["grid"])))
