"""How many nodes a load needs: a simulation of requests that wait for instances, checked against three real nodes.

Instances take several waiting requests at once, and Envoy sends a request to the node with the fewest in flight. A
formula such as that of M/G/c has one queue, and servers that take one request each; it is neither. So events are
simulated: requests arrive at random (Poisson), a node's free instance takes what waits there, up to the largest batch,
for `alone + each * batch` seconds.

The check uses a model that sleeps, since three nodes share the cores of one machine: what is measured is the queue.
Requests are sent at the same times in both. How long a batch of each size takes, and an instance from the end of a
batch to the beginning of the next where requests wait, is measured in the same run: on busy cores the second is not
nothing. Which assumption is wrong where responses differ, say sizes of batches, times in the queue and the share of the
time in which instances compute, of both.
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
from typing import NamedTuple

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
dynamic_batching {{ default_queue_policy {{ max_queue_size: 256 }} }}
"""
#: Its outputs say when the batch began and ended, how many requests were in it, and which process computed it.
PROGRAM = """\
import os
import time

import numpy as np
import triton_python_backend_utils as utils


class TritonPythonModel:
    def execute(self, requests):
        fields = [utils.get_input_tensor_by_name(request, "u").as_numpy() for request in requests]
        count, began = sum(map(len, fields)), time.monotonic()
        time.sleep({alone} + {each} * count)
        stamps = np.float32([began % {turn}, time.monotonic() % {turn}, count, os.getpid()])
        return [utils.InferenceResponse([utils.Tensor("v", np.tile(stamps, (len(one), 2)))]) for one in fields]
"""
TURN = 1000.0  # seconds, modulo which float32 holds times to 0.1 ms
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
    between: float = 0.0  # seconds between two batches of an instance

    @property
    def capacity(self) -> float:
        """Requests per second that are computed where all batches are full."""
        return self.nodes * self.instances * self.batch / (self.seconds(self.batch) + self.between)

    def seconds(self, batch: int) -> float:
        """Return the time of a batch, from the beginning of the computation to its end."""
        return self.alone + self.each * batch

    def simulate(self, arrivals: Array, rng: np.random.Generator) -> Simulated:
        """Simulate requests that arrive at these times.

        What the network and the gateway add is left out.
        """
        waiting = [deque[int]() for _ in range(self.nodes)]
        free, active = [self.instances] * self.nodes, [0] * self.nodes
        found, queued, sizes = np.zeros(len(arrivals)), np.zeros(len(arrivals)), list[int]()
        drawn = rng.random(len(arrivals)).tolist()  # one of the nodes that are equally busy
        # Times, numbers of the requests that arrive, and nodes of the batches that end, with the requests in them; a
        # batch without any is the end of the time between two.
        events: list[tuple[float, int, int, tuple[int, ...]]] = [
            (float(at), number, -1, ()) for number, at in enumerate(arrivals)
        ]
        while events:  # arrivals are in order already
            now, number, node, done = heapq.heappop(events)
            if node < 0:
                least = min(active)
                equal = [each for each in range(self.nodes) if active[each] == least]
                node = equal[int(drawn[number] * len(equal))]
                waiting[node].append(number)
                active[node] += 1
            elif done and self.between:
                heapq.heappush(events, (now + self.between, -1, node, ()))
            else:
                free[node] += 1
            active[node] -= len(done)
            for each in done:
                found[each] = now - arrivals[each]
            if free[node] and waiting[node]:
                taken = tuple(waiting[node].popleft() for _ in range(min(self.batch, len(waiting[node]))))
                free[node] -= 1
                sizes.append(len(taken))
                for each in taken:
                    queued[each] = now - arrivals[each]
                heapq.heappush(events, (now + self.seconds(len(taken)), -1, node, taken))
        return Simulated(found, queued, np.array(sizes))


class Simulated(NamedTuple):
    """Seconds from each arrival to the response, those of them in the queue, and the size of each batch."""

    seconds: Array
    queued: Array
    sizes: Array


def arrivals(rate: float, count: int, rng: np.random.Generator) -> Array:
    """Return times at which requests arrive at random."""
    return np.cumsum(rng.exponential(1 / rate, count))


#: The sleeping model of the check: times that are long beside what the gateway and a busy machine add.
CHECKED = Nodes(nodes=3, instances=2, batch=2, alone=0.3, each=0.1)


def check(*, quick: bool) -> Iterator[Row]:
    """Yield a row per load of what real nodes measure and the simulation computes."""
    seconds = 10.0 if quick else 60.0
    with tempfile.TemporaryDirectory() as folder:
        repository = Path(folder) / "repository"
        write(repository, CHECKED)
        settings = Settings.model_validate({"shadow_share": 0.0, "repository": repository})
        with Cluster(settings, Path(folder) / "nodes") as cluster:
            url = cluster.settings.url
            alone = asyncio.run(responses(url, np.arange(1, 13) * (CHECKED.seconds(1) + 0.1)))
            way = float(np.median(alone.begun - alone.sent))  # through proxy and gateway
            added = float(np.median(alone.seconds - (alone.ended - alone.begun)))  # and back
            for load in LOADS:
                rng = np.random.default_rng(round(100 * load))
                times = arrivals(load * CHECKED.capacity, round(load * CHECKED.capacity * seconds), rng)
                measured = asyncio.run(responses(url, times))
                model = measured.model(way)
                simulated = model.simulate(times, rng)
                computed = model.seconds(1) * len(simulated.sizes) + model.each * (len(times) - len(simulated.sizes))
                instances = CHECKED.nodes * CHECKED.instances
                yield {
                    "load": load,
                    "requests": len(times),
                    "added": added,
                    "batch_seconds": [model.seconds(size) for size in range(1, CHECKED.batch + 1)],
                    "between_seconds": model.between,
                    "measured": summary(measured.seconds),
                    "simulated": summary(simulated.seconds + added),
                    "queued": [
                        float((measured.begun - measured.sent).mean()) - way,
                        float(simulated.queued.mean()),
                    ],
                    "sizes": [float((1 / measured.sizes).mean() ** -1), float(simulated.sizes.mean())],
                    "busy": [
                        float(((measured.ended - measured.begun) / measured.sizes).sum())
                        / (instances * float(measured.ended.max() - measured.begun.min())),
                        computed / (instances * float((times + simulated.seconds).max() - times[0])),
                    ],
                    "cpu_load": os.getloadavg()[0],
                }


class Measured(NamedTuple):
    """What each request met, in seconds of the monotonic clock."""

    sent: Array
    seconds: Array  # until its response
    begun: Array  # of its batch
    ended: Array
    sizes: Array
    instances: Array

    def model(self, way: float) -> Nodes:
        """Return the checked nodes with measured times; a request is at its node `way` seconds after it was sent."""
        took, between = self.ended - self.begun, []
        one, two = (float(took[self.sizes == size].mean()) for size in (1, 2))
        for instance in np.unique(self.instances):
            batches = np.unique(self.begun[self.instances == instance])
            before = batches[0]
            for begun in batches[1:]:
                ended = float(self.ended[(self.begun == before) & (self.instances == instance)][0])
                mine = (self.begun == begun) & (self.instances == instance)
                if (self.sent[mine] + way < ended).all():
                    between.append(begun - ended)
                before = begun
        return replace(CHECKED, alone=2 * one - two, each=two - one, between=float(np.mean(between)))


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
        loads = {count: load for count, (load, *_) in found_loads.items()}
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
            "queued_share": found_loads[SHOWN][2],
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


def highest_load(model: Nodes) -> tuple[float, float, float]:
    """Return the highest load in time, as a share of the capacity, with the mean seconds in the queue at that load.

    In time are 99 of 100 responses within twice the time of a full batch. The last number is the mean time in the queue
    as a share of that of the computation.
    """
    low, high, mean, share = 0.0, 1.0, 0.0, 0.0
    while high - low > 0.01:
        load = (low + high) / 2
        rng = np.random.default_rng(0)
        found = model.simulate(arrivals(load * model.capacity, SIMULATED, rng), rng)
        if np.quantile(found.seconds, 0.99) > (1 + WAIT) * model.seconds(model.batch):
            high = load
        else:
            low, mean = load, float(found.queued.mean())
            share = mean / float((found.seconds - found.queued).mean())
    return round(low, 2), mean, share


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


async def responses(url: str, times: Array) -> Measured:
    """Send requests at these times, whether or not earlier ones have their responses; return what each met."""
    field, start = np.ones(8, np.float32), 0.0
    async with AsyncClient(url, timeout=120.0) as client:
        await client.predict(SLEEPER, field)

        async def one(due: float) -> list[float]:
            await asyncio.sleep(start + due - time.monotonic())
            sent = time.monotonic()
            found = np.asarray(await client.predict(SLEEPER, field), float).ravel()
            seconds = time.monotonic() - sent
            # Rounded, so that all requests of a batch have the same.
            begun, ended = np.round(sent + (found[:2] - sent + TURN / 2) % TURN - TURN / 2, 6).tolist()
            return [sent, seconds, begun, ended, *found[2:4]]

        start = time.monotonic()
        return Measured(*np.array(await asyncio.gather(*map(one, times.tolist()))).T)


def write(repository: Path, model: Nodes) -> None:
    """Write a model that sleeps into a repository."""
    version = repository / SLEEPER / "1"
    version.mkdir(parents=True)
    (version.parent / "config.pbtxt").write_text(CONFIG.format(batch=model.batch, instances=model.instances))
    (version / "model.py").write_text(PROGRAM.format(alone=model.alone, each=model.each, turn=TURN))
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
