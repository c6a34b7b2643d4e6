"""A pool of real Tritons, some of which are down."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from serving.observability.metrics import Metrics
from serving.triton.client import TritonInference
from serving.triton.pool import TritonPool
from serving.triton.retry_budget import RetryBudget
from tests.refusals import refused

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from serving.triton.server import TritonServer

FIELD = {"coefficient": np.ones((1, 6, 5), np.float32)}


def pool_of(addresses: Sequence[str], metrics: Metrics | None = None) -> TritonPool:
    tritons = [TritonInference(address, 2**20) for address in addresses]
    return TritonPool(tritons, RetryBudget(0.2, 8), metrics or Metrics("test"))


async def test_requests_go_past_a_server_that_is_down(
    triton: TritonServer, free_ports: Callable[[int], list[int]]
) -> None:
    down, up = f"127.0.0.1:{free_ports(1)[0]}", triton.settings.triton_addresses[0]
    metrics = Metrics("test")
    async with pool_of([down, up], metrics) as pool:
        assert ("blur", 1) in await pool.loaded()
        await pool.warm("blur", 1, lambda: [FIELD], 10)
        for _ in range(4):
            outputs = await pool.infer("blur", 1, FIELD, seconds=10)
            assert outputs["solution"].shape == (1, 6, 5)
        shown = metrics.text().decode()
    assert f'petrov_endpoint_up{{endpoint="{down}"}} 0.0' in shown
    assert f'petrov_endpoint_up{{endpoint="{up}"}} 1.0' in shown


async def test_a_version_that_is_warm_on_no_server_is_not_run(triton: TritonServer) -> None:
    async with pool_of(triton.settings.triton_addresses) as pool:
        await pool.loaded()
        with refused("model-not-ready", match='"blur" version 1 is not loaded'):
            await pool.infer("blur", 1, FIELD, seconds=5)
        await pool.warm("blur", 1, lambda: [FIELD], 10)
        assert pool.capacity("blur", 1) > 1
        assert (await pool.infer("blur", 1, FIELD, seconds=5))["solution"].shape == (1, 6, 5)


async def test_a_pool_without_a_responding_server_is_unavailable(free_ports: Callable[[int], list[int]]) -> None:
    async with pool_of([f"127.0.0.1:{port}" for port in free_ports(2)]) as pool:
        with refused("triton-unavailable"):
            await pool.loaded()
        with refused("triton-unavailable"):
            await pool.infer("blur", 1, FIELD, seconds=5)
