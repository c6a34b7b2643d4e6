"""A short soak: the load of `benchmarks.service.soak`, for seconds, in every format of the gateway."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psutil

from benchmarks.service.running import Addresses
from benchmarks.service.soak import Report, parts_of, soak

if TYPE_CHECKING:
    from tests.conftest import Gateway

GROWTH = 200 * 2**20  # in seconds: allocators warm up for minutes


async def test_a_mixed_load_ends_without_an_error_or_a_loss(gateway: Gateway) -> None:
    settings = gateway.settings
    addresses = Addresses(
        gateway.url,
        *(f"127.0.0.1:{port}" for port in (settings.grpc_port, settings.triton_grpc_port, settings.triton_http_port)),
    )
    report: Report = await soak(addresses, parts_of(psutil.Process()), seconds=12, measuring=2)
    tally = report.tally
    assert len(tally.seconds) > 20
    assert tally.refused
    assert tally.disconnected
    assert (dict(tally.lost), dict(tally.errors)) == ({}, {})
    for memory in report.memory.values():
        assert memory.resident[-1] > 0
        assert memory.grown < GROWTH
    assert dict(report.rows())["lost"] == "0"
