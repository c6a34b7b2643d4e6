"""Takes a service, gives what became of it under a long mixed load: errors, lost requests, times and memory.

First its capacity is measured, by a few clients that ask without pause. Then, for an hour, requests come at 80 % of it
whatever becomes of those before them: every model, grid and batch, as .npy, JSON and gRPC; some clients leave before
the answer, some send half a question. A request is lost if it was sent and nothing came back for it.

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

from benchmarks.questions import OK, Asker, Question, questions
from benchmarks.service import Addresses, running

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from pathlib import Path

SHARE = 0.8  # of the capacity
IN_FLIGHT = 8  # while the capacity is measured
HEADER = ("what", "figure")
LOST_SECONDS = 90.0  # the gateway answers within 60, if only that it could not
LEAVE_SECONDS = 0.02
LEAVING, HALVING = 0.04, 0.04  # shares of the clients
MEBIBYTE = 2**20


@dataclass
class Tally:
    """What became of the requests."""

    seconds: list[float] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    refused: int = 0
    left: int = 0
    lost: Counter[str] = field(default_factory=Counter)

    @property
    def requests(self) -> int:
        """All of them."""
        return len(self.seconds) + self.errors.total() + self.refused + self.left + self.lost.total()


@dataclass
class Memory:
    """Resident bytes of some processes, as time goes on."""

    processes: Sequence[psutil.Process]
    seconds: list[float] = field(default_factory=list)
    resident: list[int] = field(default_factory=list)

    def look(self) -> None:
        """Take a sample; there is none once a process has ended, which the errors tell."""
        with contextlib.suppress(psutil.NoSuchProcess):
            resident = sum(process.memory_info().rss for process in self.processes)
            self.seconds.append(time.perf_counter())
            self.resident.append(resident)

    @property
    def grown(self) -> int:
        """Bytes from the first half's median to the second's: the first fills pools and caches."""
        middle = len(self.resident) // 2
        return round(statistics.median(self.resident[middle:]) - statistics.median(self.resident[:middle]))

    @property
    def slope(self) -> float:
        """Bytes per hour in the second half, by least squares."""
        middle = len(self.resident) // 2
        return float(3600 * np.polyfit(self.seconds[middle:], self.resident[middle:], 1)[0])


@dataclass(frozen=True)
class Report:
    """What a soak found: capacity in requests a second, what became of the requests, memory by the part's name."""

    capacity: float
    tally: Tally
    memory: Mapping[str, Memory]

    @property
    def whole(self) -> bool:
        """Whether nothing failed and nothing was lost."""
        return not self.tally.errors and not self.tally.lost

    def rows(self) -> list[tuple[str, ...]]:
        """Give the report as a table."""
        tally = self.tally
        cuts = statistics.quantiles(tally.seconds, n=100)
        return [
            ("capacity, requests/s", f"{self.capacity:.1f}"),
            ("asked, requests/s", f"{SHARE * self.capacity:.1f}"),
            ("requests", str(tally.requests)),
            ("answered", str(len(tally.seconds))),
            ("half a question, refused", str(tally.refused)),
            ("left before the answer", str(tally.left)),
            ("errors", counts(tally.errors)),
            ("lost", counts(tally.lost)),
            ("p50, ms", f"{1e3 * cuts[49]:.1f}"),
            ("p99, ms", f"{1e3 * cuts[98]:.1f}"),
            *(row for name, memory in self.memory.items() for row in memory_rows(name, memory)),
        ]


def counts(found: Counter[str]) -> str:
    """Give what was found how often, in words."""
    return ", ".join(f"{count} x {what}" for what, count in found.items()) or "0"


def memory_rows(name: str, memory: Memory) -> list[tuple[str, str]]:
    """Give what a part of the service holds at first and at last, and how that changes in the second half."""
    first, last = memory.resident[0] / MEBIBYTE, memory.resident[-1] / MEBIBYTE
    return [
        (f"{name}: memory at first and at last, MiB", f"{first:.0f}, {last:.0f}"),
        (f"{name}: its slope in the second half, MiB/h", f"{memory.slope / MEBIBYTE:+.1f}"),
    ]


async def soak(
    service: Addresses, parts: Mapping[str, Sequence[psutil.Process]], seconds: float, measuring: float
) -> Report:
    """Measure the capacity, then load the service.

    Args:
        service: Where it answers.
        parts: Its processes, by what they are called in the report.
        seconds: Of the load.
        measuring: Seconds for the capacity.
    """
    asked = questions(service.gateway)
    async with Asker(service) as asker:
        rate = await capacity(asker, asked, measuring)
        memory = {name: Memory(processes) for name, processes in parts.items()}
        watching = asyncio.create_task(watch(memory, max(0.2, seconds / 1000)))
        tally = await load(asker, asked, SHARE * rate, seconds)
        watching.cancel()
    return Report(rate, tally, memory)


async def capacity(asker: Asker, asked: Sequence[Question], seconds: float) -> float:
    """Give the requests per second that a few clients without pause are answered."""
    tally, end = Tally(), time.perf_counter() + seconds

    async def client(seed: int) -> None:
        random = np.random.default_rng(seed)
        while time.perf_counter() < end:
            await ask(tally, *choice(asker, asked, random))

    start = time.perf_counter()
    await asyncio.gather(*(client(seed) for seed in range(IN_FLIGHT)))
    return len(tally.seconds) / (time.perf_counter() - start)


async def load(asker: Asker, asked: Sequence[Question], rate: float, seconds: float) -> Tally:
    """Send requests at random moments, so many a second, and wait for what becomes of the last."""
    tally, random = Tally(), np.random.default_rng(0)
    moment = time.perf_counter()
    end = moment + seconds
    async with asyncio.TaskGroup() as group:
        while (moment := moment + random.exponential(1 / rate)) < end:
            await asyncio.sleep(moment - time.perf_counter())
            group.create_task(client(tally, asker, asked, random))
    return tally


async def client(tally: Tally, asker: Asker, asked: Sequence[Question], random: np.random.Generator) -> None:
    """Ask one question: most wait for the answer, a few leave, a few send half of it."""
    way, question = choice(asker, asked, random)
    kind = random.random()
    if kind < LEAVING:
        await leave(tally, way, question)
    elif kind < LEAVING + HALVING:
        await ask_half(tally, asker, question)
    else:
        await ask(tally, way, question)


def choice(
    asker: Asker, asked: Sequence[Question], random: np.random.Generator
) -> tuple[Callable[[Question], Awaitable[str]], Question]:
    """Give any way and any question."""
    ways = list(asker.ways.values())
    return ways[random.integers(len(ways))], asked[random.integers(len(asked))]


async def ask(tally: Tally, way: Callable[[Question], Awaitable[str]], question: Question) -> None:
    """Ask, and count what comes back."""
    start = time.perf_counter()
    status = await status_of(tally, way(question))
    if status == OK:
        tally.seconds.append(time.perf_counter() - start)
    elif status is not None:
        tally.errors[status] += 1


async def ask_half(tally: Tally, asker: Asker, question: Question) -> None:
    """Ask what cannot be answered, and count any answer but a refusal as an error."""
    status = await status_of(tally, asker.ask_half(question))
    if status == "400":
        tally.refused += 1
    elif status is not None:
        tally.errors[f"{status} for half a question"] += 1


async def status_of(tally: Tally, asking: Awaitable[str]) -> str | None:
    """Give the status; None, and count the request as lost, if there is none."""
    try:
        async with asyncio.timeout(LOST_SECONDS):
            return await asking
    except (TimeoutError, httpx2.TransportError) as error:
        tally.lost[repr(error)] += 1
        return None


async def leave(tally: Tally, way: Callable[[Question], Awaitable[str]], question: Question) -> None:
    """Ask, and go away before the answer, if it is not very quick."""
    tally.left += 1
    asking = asyncio.ensure_future(way(question))
    await asyncio.wait([asking], timeout=LEAVE_SECONDS)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)


async def watch(memory: Mapping[str, Memory], pause: float) -> None:
    """Take samples, until cancelled."""
    while True:
        for each in memory.values():
            each.look()
        await asyncio.sleep(pause)


def parts_of(service: psutil.Process) -> dict[str, list[psutil.Process]]:
    """Give the processes of a service: the gateway, and Triton with all that it has started."""
    tritons = [child for child in service.children(recursive=True) if child.name().startswith("triton")]
    return {"gateway": [service], "Triton": tritons}


def measure(repository: Path, minutes: float) -> Report:
    """Serve a model repository and load it for so long."""
    with running(repository) as service:
        [gateway] = psutil.Process().children()
        return asyncio.run(soak(service, parts_of(gateway), 60 * minutes, max(10.0, 2 * minutes)))
