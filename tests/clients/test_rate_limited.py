"""A key over its rate: the same exception over HTTP and gRPC, and repetition within the time limit."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from petrov_client import RateLimited, TooLarge, Unavailable, UnknownModel
from petrov_client._flow import ATTEMPTS, Attempts

PROBLEM = {"Content-Type": "application/problem+json"}
BODY = b'{"type": "urn:petrov:problem:rate-limited", "title": "No", "status": 429, "detail": "over its rate"}'
LIMITED = grpc.StatusCode.RESOURCE_EXHAUSTED


def over_its_rate(http_service: Any, grpc_service: Any, seconds: str, times: int = 1) -> None:
    """Let both services refuse so many times, and then report an unknown model."""
    http_service.replies = {
        "/v1/models/toy": [(429, {"Retry-After": seconds, **PROBLEM}, BODY)] * times + [(404, PROBLEM, BODY)]
    }
    grpc_service.statuses = [LIMITED] * times + [grpc.StatusCode.NOT_FOUND]
    grpc_service.trailing = (("retry-after", seconds),)


def test_a_wait_beyond_the_time_limit_is_an_exception(any_client: Any, http_service: Any, grpc_service: Any) -> None:
    over_its_rate(http_service, grpc_service, "3600")
    with pytest.raises(RateLimited) as caught:
        any_client.call((http_service if any_client.http else grpc_service).address, "model", "toy")
    assert caught.value.retry_after == 3600.0
    assert len(http_service.seen) + grpc_service.calls == 1


def test_the_request_is_repeated_as_often_as_necessary(any_client: Any, http_service: Any, grpc_service: Any) -> None:
    over_its_rate(http_service, grpc_service, "0", times=3 * ATTEMPTS)
    with pytest.raises(UnknownModel):
        any_client.call((http_service if any_client.http else grpc_service).address, "model", "toy")
    asked = [path for _, path, *_ in http_service.seen if path == "/v1/models/toy"]
    assert len(asked) + grpc_service.calls == 3 * ATTEMPTS + 1


def test_a_request_that_is_too_large_is_not_repeated(grpc_client: Any, grpc_service: Any) -> None:
    grpc_service.statuses = [LIMITED]
    with pytest.raises(TooLarge):
        grpc_client.call(grpc_service.address, "model", "toy")


def test_an_overloaded_server_names_its_delay_over_grpc_too(grpc_client: Any, grpc_service: Any) -> None:
    grpc_service.statuses, grpc_service.trailing = [grpc.StatusCode.UNAVAILABLE], (("retry-after", "3600"),)
    with pytest.raises(Unavailable) as caught:
        grpc_client.call(grpc_service.address, "model", "toy")
    assert caught.value.retry_after == 3600.0
    assert grpc_service.calls == 1


def test_without_a_delay_a_refusal_is_final() -> None:
    fault = RateLimited("over its rate")
    with pytest.raises(RateLimited) as caught:
        Attempts(60.0).pause_after(fault)
    assert caught.value is fault
