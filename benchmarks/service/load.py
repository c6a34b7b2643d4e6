"""A load of one route: a constant number of requests in flight, and the times of their responses."""

from __future__ import annotations

import asyncio
import itertools
import math
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import httpx2
import numpy as np
import orjson

import physics.darcy
from benchmarks.service.inputs import ModelInput
from petrov_client import AsyncGrpcClient, PetrovError

if TYPE_CHECKING:
    from numpy.typing import NDArray

Route: TypeAlias = Callable[[ModelInput], Awaitable[object]]

INPUT = "coefficient"


@dataclass
class Load:
    """The responses of one route under one load: the seconds of each, and of all rounds together."""

    responses: list[float] = field(default_factory=list)
    seconds: float = 0.0
    refused: int = 0

    @property
    def throughput(self) -> float:
        """Fields per second."""
        return len(self.responses) / self.seconds

    def percentiles(self) -> tuple[float, float, float]:
        """Return p50, p95 and p99 in seconds."""
        few = (self.responses or [math.nan]) * 99
        cuts = statistics.quantiles(self.responses, n=100) if len(self.responses) > 1 else few
        return cuts[49], cuts[94], cuts[98]


def petrov_routes(
    http: httpx2.AsyncClient, gateway: str, front: AsyncGrpcClient, triton: AsyncGrpcClient
) -> dict[str, Route]:
    """Return the routes to a Petrov service by their names.

    Args:
        http: A client without limits.
        gateway: The gateway's URL.
        front: A client of the gateway's gRPC port.
        triton: A client of Triton itself.
    """
    return {
        "gateway, npy": lambda sample: post(http, f"{gateway}{sample.path}", sample.npy(), "application/x-npy"),
        "gateway, JSON": lambda sample: post(
            http, f"{gateway}{sample.path}", json_body({"inputs": {INPUT: sample.array}}), "application/json"
        ),
        "gateway, gRPC": lambda sample: front.predict(sample.model, sample.array),
        "Triton alone, gRPC": lambda sample: triton.predict(sample.model, every_input(sample)),
    }


def every_input(sample: ModelInput) -> NDArray[np.float32] | dict[str, NDArray[np.float32]]:
    """Return a sample with the inputs that have a default, which the gateway adds and Triton does not know."""
    if sample.model != "darcy":
        return sample.array
    return {INPUT: sample.array, "source": np.ones_like(sample.array)}


def json_body(document: dict[str, Any]) -> bytes:
    """Return JSON with arrays as nested lists."""
    return orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)


async def post(http: httpx2.AsyncClient, url: str, body: bytes, media_type: str) -> None:
    """Send a request, and wait for the whole response.

    Args:
        http: The client.
        url: The route.
        body: The bytes of the request.
        media_type: The `Content-Type` of the request.

    Raises:
        HTTPStatusError: The response is a refusal.
    """
    (await http.post(url, content=body, headers={"Content-Type": media_type})).raise_for_status()


def fields(model: str, grids: Sequence[tuple[int, int]]) -> Iterator[ModelInput]:
    """Yield one field after the other, grid by grid in rotation, without end."""
    found = [physics.darcy.example(max(grid), seed=0)[: grid[0], : grid[1]].astype(np.float32) for grid in grids]
    return itertools.cycle([ModelInput(model, INPUT, "FP32", np.ascontiguousarray(each)) for each in found])


async def block(load: Load, route: Route, samples: Iterator[ModelInput], count: int, seconds: float) -> None:
    """Keep requests in flight, after one that is not counted, and wait for the last responses.

    Args:
        load: The responses are appended here.
        route: The route.
        samples: The inputs.
        count: The number of requests in flight.
        seconds: The time during which requests are sent.
    """
    await route(next(samples))
    begun = time.perf_counter()

    async def client() -> None:
        while (sent := time.perf_counter()) - begun < seconds:
            try:
                await route(next(samples))
            except (httpx2.HTTPStatusError, PetrovError):
                load.refused += 1
            else:
                load.responses.append(time.perf_counter() - sent)

    await asyncio.gather(*(client() for _ in range(count)))
    load.seconds += time.perf_counter() - begun
