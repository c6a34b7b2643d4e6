"""The throughput of one gateway process and of two in front of the same Triton, and of that Triton alone.

The identity model, 16 requests in flight on as many connections, in interleaved rounds: ratios count. All routes speak
HTTP and have the same load generator, which sends prepared bytes, so that it takes little of the processor. The
processor time per request of every part is measured, too: it hardly depends on other load on the machine, and a load
model of larger machines follows from it.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import httpx2
import numpy as np
import psutil
import uvloop
from prometheus_client.parser import text_string_to_metric_families
from tritonclient.http import InferenceServerClient, InferInput

from benchmarks.service import identity
from benchmarks.service.inputs import ModelInput
from benchmarks.service.running import running

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from benchmarks.report.page import Table

IN_FLIGHT, POINTS = 16, 85
WORKERS = 2
ALONE, ONE, TWO = "Triton alone", "1 worker", f"{WORKERS} workers"
WARM_UP = 0.5
SUMS = ("_sum", "_count")
MACHINES = ((2, 1), (2, 2), (16, 1), (16, 2), (16, 4), (16, 8), (16, 12))  # cores and workers of the load model
HEADER = (
    "route",
    "requests/s",
    "divided by 1 worker's",
    "p50 ms",
    "p99 ms",
    "fields in a call of Triton",
    "gateway, CPU ms per request",
    "Triton, CPU ms per request",
    "load generator, CPU ms per request",
)
MODEL_HEADER = ("cores", "workers", "requests/s", "divided by 1 worker's", "limit")


class Plan(NamedTuple):
    """The size of a run: rounds, and seconds of each route in a round."""

    rounds: int
    seconds: float


FULL, QUICK = Plan(8, 3.0), Plan(2, 1.0)


@dataclass(frozen=True)
class Target:
    """A route: where to send which bytes."""

    host: str
    port: int
    request: bytes


@dataclass
class Measured:
    """The rounds of one route: requests per second of each, all times, mean batch, and processor seconds by part."""

    rates: list[float] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    batch: float = 1.0
    processor: dict[str, float] = field(default_factory=lambda: dict.fromkeys(("gateway", "triton", "client"), 0.0))

    @property
    def rate(self) -> float:
        """Requests per second: the median of the rounds."""
        return statistics.median(self.rates)

    def cost(self, part: str) -> float:
        """Return the processor seconds of a part per request."""
        return self.processor[part] / len(self.times)


class Client(asyncio.Protocol):
    """One connection with one request in flight.

    Args:
        request: The bytes of the request, which are sent again after each response.
        times: The seconds of each response are appended here.

    Attributes:
        fault: What came instead of a response with status 200.
    """

    def __init__(self, request: bytes, times: list[float]) -> None:
        self._request, self._times = request, times
        self._received, self._expected, self._sent = b"", 0, 0.0
        self.fault = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport
        self._send()

    def _send(self) -> None:
        self._received, self._expected, self._sent = b"", 0, time.perf_counter()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._received += data
        if not self._expected and b"\r\n\r\n" in self._received:
            head, _, _ = self._received.partition(b"\r\n\r\n")
            if not head.startswith(b"HTTP/1.1 200"):
                self.fault = head.decode(errors="replace")
                self._transport.close()
                return
            [length] = [int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            self._expected = len(head) + 4 + length
        if self._expected and len(self._received) >= self._expected:
            self._times.append(time.perf_counter() - self._sent)
            self._send()

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()


def measure(plan: Plan) -> dict[str, Measured]:
    """Return what was measured by route."""
    with tempfile.TemporaryDirectory() as folder, started(identity.write(Path(folder))) as (targets, parts):
        found = {name: Measured() for name in targets}
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            for _ in range(plan.rounds):
                for name, target in targets.items():
                    runner.run(block(found[name], target, parts[name], plan.seconds))
        for name in (ONE, TWO):
            found[name].batch = batch(f"http://{targets[name].host}:{targets[name].port}/metrics")
    return found


def batch(url: str) -> float:
    """Return the mean number of fields in a call of Triton, from a gateway's metrics."""
    families = text_string_to_metric_families(httpx2.get(url).raise_for_status().text)
    [found] = [family for family in families if family.name == "petrov_batch_fields"]
    sums = {suffix: sum(each.value for each in found.samples if each.name.endswith(suffix)) for suffix in SUMS}
    return sums["_sum"] / sums["_count"]


@contextmanager
def started(repository: Path) -> Iterator[tuple[dict[str, Target], dict[str, dict[str, list[psutil.Process]]]]]:
    """Run a service of one process, and two more gateway processes in front of its Triton.

    Args:
        repository: The repository of the identity model.

    Yields:
        The targets, and the processes of each part, by route.
    """
    sample = ModelInput(
        identity.MODEL, identity.INPUT, "FP32", np.random.default_rng(0).random((1, POINTS, POINTS), np.float32)
    )
    with running(repository) as service:
        [one] = psutil.Process().children()
        triton = one.children(recursive=True)
        elsewhere = ("gateway", "--triton", service.triton_http)
        with running(repository, arguments=elsewhere, settings={"PETROV_WORKERS": str(WORKERS)}) as several:
            [two] = [child for child in psutil.Process().children() if child != one]
            yield (
                {
                    ALONE: target(
                        f"http://{service.triton_http}", f"/v2/models/{sample.model}/infer", *triton_request(sample)
                    ),
                    ONE: target(service.gateway, sample.path, *npy_request(sample)),
                    TWO: target(several.gateway, sample.path, *npy_request(sample)),
                },
                {
                    ALONE: {"triton": triton},
                    ONE: {"triton": triton, "gateway": [one]},
                    TWO: {"triton": triton, "gateway": [two, *two.children()]},
                },
            )


def npy_request(sample: ModelInput) -> tuple[bytes, dict[str, str]]:
    """Return body and headers of a prediction."""
    return sample.npy(), {"Content-Type": "application/x-npy"}


def triton_request(sample: ModelInput) -> tuple[bytes, dict[str, str]]:
    """Return body and headers of Triton's own route, with the array in binary both ways."""
    tensor = InferInput(sample.input, list(sample.array.shape), sample.datatype).set_data_from_numpy(sample.array)
    body, header_bytes = InferenceServerClient.generate_request_body([tensor])
    return body, {
        "Content-Type": "application/octet-stream",
        "Inference-Header-Content-Length": str(header_bytes or len(body)),
    }


def target(url: str, path: str, body: bytes, headers: Mapping[str, str]) -> Target:
    """Return where to send a request, and its bytes."""
    address = urlsplit(url)
    lines = [f"POST {path} HTTP/1.1", f"Host: {address.netloc}", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return Target(address.hostname or "", address.port or 0, "\r\n".join([*lines, "", ""]).encode() + body)


async def block(
    measured: Measured, where: Target, parts: Mapping[str, Sequence[psutil.Process]], seconds: float
) -> None:
    """Keep requests in flight, and add what was measured after the warm-up.

    Args:
        measured: The results so far.
        where: The route.
        parts: The processes of each part.
        seconds: The duration.

    Raises:
        RuntimeError: A response was not 200.
    """
    times: list[float] = []
    clients = [Client(where.request, times) for _ in range(IN_FLIGHT)]
    loop = asyncio.get_running_loop()
    for client in clients:
        await loop.create_connection(lambda client=client: client, where.host, where.port)  # type: ignore[misc]
    await asyncio.sleep(WARM_UP)
    times.clear()
    before, start = spent(parts), time.perf_counter()
    await asyncio.sleep(seconds)
    after, end = spent(parts), time.perf_counter()
    for client in clients:
        client.close()
    if faults := [client.fault for client in clients if client.fault]:
        raise RuntimeError(faults[0])
    measured.rates.append(len(times) / (end - start))
    measured.times += times
    for part in after:
        measured.processor[part] += after[part] - before[part]


def spent(parts: Mapping[str, Sequence[psutil.Process]]) -> dict[str, float]:
    """Return the processor seconds of every part so far, this process included."""
    found = {part: sum(map(seconds_of, processes)) for part, processes in parts.items()}
    return found | {"client": time.process_time()}


def seconds_of(process: psutil.Process) -> float:
    """Return the processor seconds of a process."""
    times = process.cpu_times()
    return float(times.user + times.system)


def document(found: Mapping[str, Measured]) -> dict[str, Any]:
    """Return everything that was measured."""
    return {
        "in_flight": IN_FLIGHT,
        "grid": [POINTS, POINTS],
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "routes": {
            name: {
                "rates": each.rates,
                "responses": len(each.times),
                "seconds": statistics.quantiles(each.times, n=100),
                "batch": each.batch,
                "processor": each.processor,
            }
            for name, each in found.items()
        },
        "model": [predicted(found, *machine)._asdict() for machine in MACHINES],
    }


class Predicted(NamedTuple):
    """The load model's rate for so many workers, and what limits it."""

    cores: int
    workers: int
    rate: float
    limit: str


def predicted(found: Mapping[str, Measured], cores: int, workers: int) -> Predicted:
    """Return the load model's rate: a worker has one core at most, and all parts together have the machine.

    Args:
        found: The measured processor times: those of two workers count for more, too.
        cores: How many cores; of two the load generator uses a part, as in the measurement.
        workers: How many workers.
    """
    gateway, triton, client = (
        found[ONE if workers == 1 else TWO].cost(part) for part in ("gateway", "triton", "client")
    )
    by_workers = workers / gateway
    by_cores = cores / (gateway + triton + client * (cores == MACHINES[0][0]))
    return Predicted(cores, workers, min(by_workers, by_cores), "workers" if by_workers < by_cores else "cores")


def tables(found: Mapping[str, Measured]) -> dict[str, Table]:
    """Return the page's two tables."""
    model = [
        (f"{each.cores}", f"{each.workers}", f"{each.rate:.0f}", f"{each.rate / base:.1f}", each.limit)
        for each, base in ((predicted(found, *machine), predicted(found, machine[0], 1).rate) for machine in MACHINES)
    ]
    rows = [row(name, each, found[ONE].rates) for name, each in found.items()]
    return {"workers": (HEADER, rows), "workers-model": (MODEL_HEADER, model)}


def row(name: str, measured: Measured, base: Sequence[float]) -> tuple[str, ...]:
    """Return the row of a route; its ratio is the median of those of the rounds."""
    cuts = statistics.quantiles(measured.times, n=100)
    ratio = statistics.median(rate / one for rate, one in zip(measured.rates, base, strict=True))
    costs = (f"{1e3 * measured.cost(part):.2f}" for part in ("gateway", "triton", "client"))
    return (
        name,
        f"{measured.rate:.0f}",
        f"{ratio:.2f}",
        f"{1e3 * cuts[49]:.1f}",
        f"{1e3 * cuts[98]:.1f}",
        "" if name == ALONE else f"{measured.batch:.1f}",
        *costs,
    )
