"""A long mixed load of a service: errors, lost requests, times and memory.

First the capacity is measured, with a few clients that send without pause. Then requests arrive at 80 % of it,
independently of earlier responses: every model, grid and batch, as .npy, JSON and gRPC. Some clients disconnect before
the response, and some send half a body. A request is lost if it was sent and nothing came back.

    .venv/bin/python -m benchmarks soak --minutes 60
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import httpx2
import numpy as np
import psutil

from benchmarks.service.inputs import OK, ModelInput, Sender, model_inputs
from benchmarks.service.running import Addresses, running

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from pathlib import Path

SHARE = 0.8  # of the capacity
IN_FLIGHT = 8  # while the capacity is measured
HEADER = ("quantity", "figure")
LOST_SECONDS = 90.0  # the gateway responds within 60, at least with an error
DISCONNECT_SECONDS = 0.02
DISCONNECTING, TRUNCATING = 0.04, 0.04  # shares of the clients
MEBIBYTE = 2**20


@dataclass
class Tally:
    """The outcomes of the requests."""

    seconds: list[float] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    refused: int = 0
    disconnected: int = 0
    lost: Counter[str] = field(default_factory=Counter)

    @property
    def requests(self) -> int:
        """The number of all requests."""
        return len(self.seconds) + self.errors.total() + self.refused + self.disconnected + self.lost.total()


@dataclass
class Memory:
    """The resident bytes of some processes over time."""

    processes: Sequence[psutil.Process]
    seconds: list[float] = field(default_factory=list)
    resident: list[int] = field(default_factory=list)

    def sample(self) -> None:
        """Append a sample, unless a process has ended, which the errors show."""
        with contextlib.suppress(psutil.NoSuchProcess):
            resident = sum(process.memory_info().rss for process in self.processes)
            self.seconds.append(time.perf_counter())
            self.resident.append(resident)

    @property
    def grown(self) -> int:
        """The difference in bytes between the medians of the two halves; the first half fills pools and caches."""
        middle = len(self.resident) // 2
        return round(statistics.median(self.resident[middle:]) - statistics.median(self.resident[:middle]))

    @property
    def slope(self) -> float:
        """The growth in bytes per hour in the second half, by least squares."""
        middle = len(self.resident) // 2
        return float(3600 * np.polyfit(self.seconds[middle:], self.resident[middle:], 1)[0])


@dataclass(frozen=True)
class Report:
    """The results: capacity in requests per second, outcomes of the requests, and memory by the part's name."""

    capacity: float
    tally: Tally
    memory: Mapping[str, Memory]

    @property
    def faultless(self) -> bool:
        """Whether nothing failed and nothing was lost."""
        return not self.tally.errors and not self.tally.lost

    def rows(self) -> list[tuple[str, ...]]:
        """Return the rows of the table."""
        tally = self.tally
        cuts = statistics.quantiles(tally.seconds, n=100)
        return [
            ("capacity, requests/s", f"{self.capacity:.1f}"),
            ("sent, requests/s", f"{SHARE * self.capacity:.1f}"),
            ("requests", str(tally.requests)),
            ("completed", str(len(tally.seconds))),
            ("half a body, refused", str(tally.refused)),
            ("disconnected before the response", str(tally.disconnected)),
            ("errors", counts(tally.errors)),
            ("lost", counts(tally.lost)),
            ("p50, ms", f"{1e3 * cuts[49]:.1f}"),
            ("p99, ms", f"{1e3 * cuts[98]:.1f}"),
            *(row for name, memory in self.memory.items() for row in memory_rows(name, memory)),
        ]


def counts(found: Counter[str]) -> str:
    """Return the counts as text."""
    return ", ".join(f"{count} x {name}" for name, count in found.items()) or "0"


def memory_rows(name: str, memory: Memory) -> list[tuple[str, str]]:
    """Return the rows of a part of the service: memory at the start and at the end, and its growth."""
    first, last = memory.resident[0] / MEBIBYTE, memory.resident[-1] / MEBIBYTE
    return [
        (f"{name}: memory at the start and at the end, MiB", f"{first:.0f}, {last:.0f}"),
        (f"{name}: slope of the memory in the second half, MiB/h", f"{memory.slope / MEBIBYTE:+.1f}"),
    ]


async def soak(
    service: Addresses, parts: Mapping[str, Sequence[psutil.Process]], seconds: float, measuring: float
) -> Report:
    """Measure the capacity, then load the service.

    Args:
        service: The addresses of the service.
        parts: Its processes, by their names in the report.
        seconds: The duration of the load.
        measuring: Seconds for the measurement of the capacity.
    """
    samples = model_inputs(service.gateway)
    async with Sender(service) as sender:
        rate = await capacity(sender, samples, measuring)
        memory = {name: Memory(processes) for name, processes in parts.items()}
        watching = asyncio.create_task(watch(memory, max(0.2, seconds / 1000)))
        tally = await load(sender, samples, SHARE * rate, seconds)
        watching.cancel()
    return Report(rate, tally, memory)


async def capacity(sender: Sender, samples: Sequence[ModelInput], seconds: float) -> float:
    """Return the requests per second that the service completes for a few clients without pause.

    Args:
        sender: The sender of the requests.
        samples: The inputs.
        seconds: The duration.
    """
    tally, end = Tally(), time.perf_counter() + seconds

    async def client(seed: int) -> None:
        random = np.random.default_rng(seed)
        while time.perf_counter() < end:
            await send(tally, *choice(sender, samples, random))

    start = time.perf_counter()
    await asyncio.gather(*(client(seed) for seed in range(IN_FLIGHT)))
    return len(tally.seconds) / (time.perf_counter() - start)


async def load(sender: Sender, samples: Sequence[ModelInput], rate: float, seconds: float) -> Tally:
    """Send requests at random times, and wait for the last responses.

    Args:
        sender: The sender of the requests.
        samples: The inputs.
        rate: Requests per second.
        seconds: The duration.
    """
    tally, random = Tally(), np.random.default_rng(0)
    moment = time.perf_counter()
    end = moment + seconds
    async with asyncio.TaskGroup() as group:
        while (moment := moment + random.exponential(1 / rate)) < end:
            await asyncio.sleep(moment - time.perf_counter())
            group.create_task(client(tally, sender, samples, random))
    return tally


async def client(tally: Tally, sender: Sender, samples: Sequence[ModelInput], random: np.random.Generator) -> None:
    """Send one request; a few clients disconnect before the response, and a few send half of the body.

    Args:
        tally: The outcome is counted here.
        sender: The sender of the requests.
        samples: The inputs.
        random: The source of the choices.
    """
    send_sample, sample = choice(sender, samples, random)
    kind = random.random()
    if kind < DISCONNECTING:
        await disconnect(tally, send_sample, sample)
    elif kind < DISCONNECTING + TRUNCATING:
        await send_truncated(tally, sender, sample)
    else:
        await send(tally, send_sample, sample)


def choice(
    sender: Sender, samples: Sequence[ModelInput], random: np.random.Generator
) -> tuple[Callable[[ModelInput], Awaitable[str]], ModelInput]:
    """Return a random format's method of the sender, and a random input."""
    formats = list(sender.formats.values())
    return formats[random.integers(len(formats))], samples[int(random.integers(len(samples)))]


async def send(tally: Tally, send_sample: Callable[[ModelInput], Awaitable[str]], sample: ModelInput) -> None:
    """Send a request, and count its outcome."""
    start = time.perf_counter()
    status = await status_of(tally, send_sample(sample))
    if status == OK:
        tally.seconds.append(time.perf_counter() - start)
    elif status is not None:
        tally.errors[status] += 1


async def send_truncated(tally: Tally, sender: Sender, sample: ModelInput) -> None:
    """Send half of a body, and count any response but a refusal as an error."""
    status = await status_of(tally, sender.send_truncated(sample))
    if status == "400":
        tally.refused += 1
    elif status is not None:
        tally.errors[f"{status} for half a body"] += 1


async def status_of(tally: Tally, response: Awaitable[str]) -> str | None:
    """Return the status, or None if no response arrives; the request then counts as lost."""
    try:
        async with asyncio.timeout(LOST_SECONDS):
            return await response
    except (TimeoutError, httpx2.TransportError) as error:
        tally.lost[repr(error)] += 1
        return None


async def disconnect(tally: Tally, send_sample: Callable[[ModelInput], Awaitable[str]], sample: ModelInput) -> None:
    """Send a request, and disconnect before the response, unless it arrives at once."""
    tally.disconnected += 1
    response = asyncio.ensure_future(send_sample(sample))
    await asyncio.wait([response], timeout=DISCONNECT_SECONDS)
    response.cancel()
    await asyncio.gather(response, return_exceptions=True)


async def watch(memory: Mapping[str, Memory], pause: float) -> None:
    """Append samples of the memory until the task is cancelled."""
    while True:
        for each in memory.values():
            each.sample()
        await asyncio.sleep(pause)


def parts_of(service: psutil.Process) -> dict[str, list[psutil.Process]]:
    """Return the processes of a service: the gateway, and Triton with its children."""
    tritons = [child for child in service.children(recursive=True) if child.name().startswith("triton")]
    return {"gateway": [service], "Triton": tritons}


def measure(repository: Path, minutes: float) -> Report:
    """Serve a model repository, and load it for a number of minutes."""
    with running(repository) as service:
        [gateway] = psutil.Process().children()
        return asyncio.run(soak(service, parts_of(gateway), 60 * minutes, max(10.0, 2 * minutes)))
