"""A key over its rate: the same exception over HTTP and gRPC, and patience as long as the time limit allows."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from petrov_client import RateLimited, TooLarge, Unavailable, UnknownModel
from petrov_client._retry import ATTEMPTS, Attempts

PROBLEM = {"Content-Type": "application/problem+json"}
BODY = b'{"type": "urn:petrov:problem:rate-limited", "title": "No", "status": 429, "detail": "over its rate"}'
LIMITED = grpc.StatusCode.RESOURCE_EXHAUSTED


def over_its_rate(http_service: Any, grpc_service: Any, seconds: str, times: int = 1) -> None:
    """Both services say so that many times, and then that there is no such model."""
    http_service.replies = {
        "/v1/models/toy": [(429, {"Retry-After": seconds, **PROBLEM}, BODY)] * times + [(404, PROBLEM, BODY)]
    }
    grpc_service.statuses = [LIMITED] * times + [grpc.StatusCode.NOT_FOUND]
    grpc_service.trailing = (("retry-after", seconds),)


def test_the_service_says_when_to_go_on(asker: Any, http_service: Any, grpc_service: Any) -> None:
    over_its_rate(http_service, grpc_service, "3600")
    with pytest.raises(RateLimited) as caught:
        asker.ask((http_service if asker.http else grpc_service).address, "model", "toy")
    assert caught.value.retry_after == 3600.0
    assert len(http_service.seen) + grpc_service.calls == 1


def test_a_turn_is_waited_for_as_often_as_it_takes(asker: Any, http_service: Any, grpc_service: Any) -> None:
    over_its_rate(http_service, grpc_service, "0", times=3 * ATTEMPTS)
    with pytest.raises(UnknownModel):
        asker.ask((http_service if asker.http else grpc_service).address, "model", "toy")
    assert len(http_service.seen) + grpc_service.calls == 3 * ATTEMPTS + 1


def test_what_is_too_large_is_so_at_any_time(grpc_asker: Any, grpc_service: Any) -> None:
    grpc_service.statuses = [LIMITED]
    with pytest.raises(TooLarge):
        grpc_asker.ask(grpc_service.address, "model", "toy")


def test_a_busy_server_names_its_time_over_grpc_too(grpc_asker: Any, grpc_service: Any) -> None:
    grpc_service.statuses, grpc_service.trailing = [grpc.StatusCode.UNAVAILABLE], (("retry-after", "3600"),)
    with pytest.raises(Unavailable) as caught:
        grpc_asker.ask(grpc_service.address, "model", "toy")
    assert caught.value.retry_after == 3600.0
    assert grpc_service.calls == 1


def test_without_a_time_there_is_no_turn_to_wait_for() -> None:
    fault = RateLimited("over its rate")
    with pytest.raises(RateLimited) as caught:
        Attempts(60.0).pause_after(fault)
    assert caught.value is fault
