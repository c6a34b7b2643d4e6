"""A pool of real Tritons, some of them away."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from serving.inference import TritonInference
from serving.problem_details import TritonUnavailable
from serving.triton_pool import TritonPool

if TYPE_CHECKING:
    from collections.abc import Callable

    from serving.triton_server import TritonServer

FIELD = np.ones((1, 6, 5), np.float32)


async def test_requests_go_past_a_server_that_is_away(
    triton: TritonServer, free_ports: Callable[[int], list[int]]
) -> None:
    addresses = [f"127.0.0.1:{free_ports(1)[0]}", *triton.settings.triton_addresses]
    async with TritonPool([TritonInference(address, 2**20) for address in addresses]) as pool:
        assert ("blur", 1) in await pool.loaded()
        for _ in range(4):
            answer = await pool.infer("blur", 1, {"coefficient": FIELD}, seconds=10)
            assert answer["solution"].shape == FIELD.shape


async def test_a_pool_of_which_nobody_answers_says_so(free_ports: Callable[[int], list[int]]) -> None:
    members = [TritonInference(f"127.0.0.1:{port}", 2**20) for port in free_ports(2)]
    async with TritonPool(members) as pool:
        with pytest.raises(TritonUnavailable):
            await pool.loaded()
        with pytest.raises(TritonUnavailable):
            await pool.infer("blur", 1, {"coefficient": FIELD}, seconds=5)
