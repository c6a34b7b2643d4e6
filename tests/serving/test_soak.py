"""A short soak: every model, grid and batch at 80 % of the capacity, in every format, with clients that misbehave.

Requests arrive independently of earlier responses. Some clients disconnect before the response, and some send half a
body. A request is lost if it was sent and nothing came back.
"""

from __future__ import annotations

import asyncio
import io
import itertools
import statistics
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import httpx2
import numpy as np
import orjson
import psutil
import pytest
from tritonclient.grpc import InferInput
from tritonclient.grpc.aio import InferenceServerClient
from tritonclient.utils import InferenceServerException

from tests.conftest import Gateway

SECONDS, MEASURING = 12.0, 2.0
GROWTH = 200 * 2**20  # in seconds: allocators warm up for minutes
LOST_SECONDS = 90.0  # the gateway responds within 60, at least with an error
LARGEST = 2**17  # points of an input
NPY = "application/x-npy"


class Sample(NamedTuple):
    """An input of a model with one input."""

    model: str
    name: str
    datatype: str
    array: np.ndarray


Send = Callable[[Sample], Awaitable[str]]


@dataclass
class Tally:
    """The outcomes of the requests."""

    completed: int = 0
    refused: int = 0
    disconnected: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)

    async def send(self, response: Awaitable[str], expected: str = "200") -> None:
        """Wait for the status of a response, and count it."""
        try:
            async with asyncio.timeout(LOST_SECONDS):
                status = await response
        except (TimeoutError, httpx2.TransportError) as error:
            self.lost[repr(error)] += 1
            return
        if status != expected:
            self.errors[f"{status} instead of {expected}"] += 1
        elif expected == "200":
            self.completed += 1
        else:
            self.refused += 1

    async def disconnect(self, response: Awaitable[str]) -> None:
        """Disconnect before the response, unless it arrives at once."""
        self.disconnected += 1
        sent = asyncio.ensure_future(response)
        await asyncio.wait([sent], timeout=0.02)
        sent.cancel()
        await asyncio.gather(sent, return_exceptions=True)


def samples(cards: list[dict[str, Any]]) -> list[Sample]:
    """Return random values that each card of one input allows, per declared grid and batch."""
    random, found = np.random.default_rng(0), []
    for card in (each for each in cards if len(each["inputs"]) == 1):
        for batch, points in itertools.product((1, 3), card["grid"]["declared"]):
            shape = (batch, *[points] * len(card["grid"]["axes"]))
            if np.prod(shape) > LARGEST:
                continue
            [tensor] = card["inputs"]
            if tensor["dtype"] == "INT32":
                array = random.integers(1, len(card["vocabulary"]["words"]), shape).astype(np.int32)
            else:
                array = random.uniform(1, 2, shape).astype(np.float32)
            found.append(Sample(card["model"], tensor["name"], tensor["dtype"], array))
    return found


def as_npy(sample: Sample) -> bytes:
    file = io.BytesIO()
    np.save(file, sample.array)
    return file.getvalue()


@pytest.mark.deep
async def test_a_mixed_load_ends_without_an_error_or_a_loss(gateway: Gateway) -> None:  # noqa: C901
    unlimited = httpx2.Limits(max_connections=None, max_keepalive_connections=64)
    async with (
        httpx2.AsyncClient(base_url=gateway.url, timeout=None, limits=unlimited) as http,
        InferenceServerClient(f"127.0.0.1:{gateway.settings.grpc_port}") as grpc,
    ):
        models = (await http.get("/v1/models")).json()["models"]
        inputs = samples([(await http.get(f"/v1/models/{model['name']}")).json()["card"] for model in models])

        async def post(sample: Sample, body: bytes, media_type: str) -> str:
            path = f"/v1/models/{sample.model}/predict"
            return str((await http.post(path, content=body, headers={"Content-Type": media_type})).status_code)

        async def infer(sample: Sample) -> str:
            tensor = InferInput(sample.name, list(sample.array.shape), sample.datatype)
            try:
                await grpc.infer(sample.model, [tensor.set_data_from_numpy(sample.array)])
            except InferenceServerException as error:
                return str(error.status())
            return "200"

        def listed(sample: Sample) -> bytes:
            return orjson.dumps({"inputs": {sample.name: sample.array}}, option=orjson.OPT_SERIALIZE_NUMPY)

        formats: list[Send] = [
            lambda sample: post(sample, as_npy(sample), NPY),
            lambda sample: post(sample, listed(sample), "application/json"),
            infer,
        ]
        random = np.random.default_rng(1)

        def chosen() -> tuple[Send, Sample]:
            return formats[random.integers(len(formats))], inputs[random.integers(len(inputs))]

        async def client(tally: Tally) -> None:
            (send, sample), kind = chosen(), random.random()
            if kind < 0.04:
                await tally.disconnect(send(sample))
            elif kind < 0.08:
                whole = as_npy(sample)
                await tally.send(post(sample, whole[: (len(whole) + 1) // 2], NPY), expected="400")
            else:
                await tally.send(send(sample))

        measured, end = Tally(), time.perf_counter() + MEASURING

        async def busy() -> None:
            while time.perf_counter() < end:
                send, sample = chosen()
                await measured.send(send(sample))

        await asyncio.gather(*(busy() for _ in range(8)))
        rate = 0.8 * measured.completed / MEASURING

        process, resident, tally = psutil.Process(), list[int](), Tally()
        moment = time.perf_counter()
        end = moment + SECONDS
        async with asyncio.TaskGroup() as group:
            while (moment := moment + random.exponential(1 / rate)) < end:
                await asyncio.sleep(moment - time.perf_counter())
                group.create_task(client(tally))
                resident.append(process.memory_info().rss)
    assert tally.completed > 20
    assert tally.refused
    assert tally.disconnected
    assert (dict(tally.lost), dict(tally.errors)) == ({}, {})
    half = len(resident) // 2
    assert statistics.median(resident[half:]) - statistics.median(resident[:half]) < GROWTH
