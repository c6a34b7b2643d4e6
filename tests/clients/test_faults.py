"""The exception of every fault, the same over HTTP and gRPC, and the requests that are repeated."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import grpc
import httpx2
import numpy as np
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from petrov_client import (
    AsyncClient,
    Client,
    ConnectionFailed,
    DeadlineExceeded,
    InvalidInput,
    InvalidResponse,
    PetrovError,
    RateLimited,
    RequestError,
    ServerFault,
    TooLarge,
    Unauthorised,
    Unavailable,
    UnknownModel,
    Where,
)
from petrov_client._codecs import decode_npy as decode
from petrov_client._codecs import encode_npy as encode
from petrov_client._errors import retry_after
from petrov_client._flow import ATTEMPTS, LONGEST_PAUSE, Attempts, OtherServer

FIELD = np.ones((4, 4), np.float32)
NPY = {"Content-Type": "application/x-npy"}
PROBLEM = {"Content-Type": "application/problem+json"}


def problem(status: int, **more: Any) -> tuple[int, dict[str, str], bytes]:
    document = {"type": f"urn:petrov:problem:{status}", "title": "No", "status": status, "detail": "said by the server"}
    return status, PROBLEM, json.dumps(document | more).encode()


def test_a_closed_port_is_a_failed_connection(any_client: Any, closed_port: str) -> None:
    with pytest.raises(ConnectionFailed, match=closed_port):
        any_client.call(closed_port, "predict", "toy", FIELD)


def test_a_server_that_says_nothing_runs_into_the_deadline(any_client: Any, silent_server: str) -> None:
    with pytest.raises(DeadlineExceeded):
        any_client.call(silent_server, "predict", "toy", FIELD, timeout=0.5)


def test_a_server_of_another_protocol_is_a_failed_connection(any_client: Any, garbage_server: str) -> None:
    with pytest.raises((ConnectionFailed, DeadlineExceeded)) as caught:
        any_client.call(garbage_server, "predict", "toy", FIELD, timeout=5)
    assert type(caught.value) is ConnectionFailed


HTTP_FAULTS = {
    400: RequestError,
    401: Unauthorised,
    403: Unauthorised,
    404: UnknownModel,
    413: TooLarge,
    415: RequestError,
    422: InvalidInput,
    429: RateLimited,
    500: ServerFault,
    502: ServerFault,
    504: DeadlineExceeded,
}


@pytest.mark.parametrize("status", HTTP_FAULTS)
def test_a_problem_becomes_its_exception_and_is_not_sent_again(
    http_client: Any, http_service: Any, description: Callable[..., Any], status: int
) -> None:
    http_service.replies = {"/v1/models/toy": [description()], "/v1/models/toy/predict": [problem(status)]}
    with pytest.raises(PetrovError, match="said by the server") as caught:
        http_client.call(http_service.address, "predict", "toy", FIELD)
    assert type(caught.value) is HTTP_FAULTS[status]
    assert caught.value.problem["status"] == status
    assert [path for _, path, _ in http_service.seen] == ["/v1/models/toy", "/v1/models/toy/predict"]


GRPC_FAULTS = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidInput,
    grpc.StatusCode.UNAUTHENTICATED: Unauthorised,
    grpc.StatusCode.PERMISSION_DENIED: Unauthorised,
    grpc.StatusCode.NOT_FOUND: UnknownModel,
    grpc.StatusCode.RESOURCE_EXHAUSTED: TooLarge,
    grpc.StatusCode.INTERNAL: ServerFault,
    grpc.StatusCode.UNKNOWN: ServerFault,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
}


@pytest.mark.parametrize("status", GRPC_FAULTS)
def test_a_status_becomes_its_exception_and_is_not_sent_again(
    grpc_client: Any, grpc_service: Any, status: grpc.StatusCode
) -> None:
    grpc_service.statuses = [status]
    with pytest.raises(PetrovError) as caught:
        grpc_client.call(grpc_service.address, "predict", "toy", FIELD)
    assert type(caught.value) is GRPC_FAULTS[status]
    assert grpc_service.calls == 1


def test_the_location_of_a_fault_is_kept(http_client: Any, http_service: Any, description: Callable[..., Any]) -> None:
    refusal = problem(422, where={"array": "coefficient", "index": [0, 3]})
    http_service.replies = {"/v1/models/toy": [description()], "/v1/models/toy/predict": [refusal]}
    with pytest.raises(InvalidInput) as caught:
        http_client.call(http_service.address, "predict", "toy", FIELD)
    assert caught.value.where == Where("coefficient", (0, 3))


def test_a_request_is_repeated_while_the_service_is_unavailable(
    http_client: Any, http_service: Any, description: Callable[..., Any]
) -> None:
    busy = (503, {"Retry-After": "0", **PROBLEM}, problem(503)[2])
    success = (200, NPY, encode(FIELD[np.newaxis]))
    http_service.replies = {"/v1/models/toy": [description()], "/v1/models/toy/predict": [busy, busy, success]}
    np.testing.assert_array_equal(http_client.call(http_service.address, "predict", "toy", FIELD), FIELD)


def test_unavailable_for_good_is_raised_after_a_bounded_number_of_attempts(http_client: Any, http_service: Any) -> None:
    http_service.replies = {"/v1/models/toy": [problem(503)]}
    with pytest.raises(Unavailable):
        http_client.call(http_service.address, "model", "toy")
    assert len(http_service.seen) == ATTEMPTS


def test_a_server_that_says_unavailable_is_there(grpc_client: Any, grpc_service: Any) -> None:
    grpc_service.statuses = [grpc.StatusCode.UNAVAILABLE]
    with pytest.raises(Unavailable, match="said by the server"):
        grpc_client.call(grpc_service.address, "model", "toy")
    assert grpc_service.calls == ATTEMPTS


def test_a_wait_longer_than_the_time_left_is_not_begun(http_client: Any, http_service: Any) -> None:
    http_service.replies = {"/v1/models/toy": [(503, {"Retry-After": "3600", **PROBLEM}, problem(503)[2])]}
    with pytest.raises(Unavailable) as caught:
        http_client.call(http_service.address, "model", "toy")
    assert caught.value.retry_after == 3600.0
    assert len(http_service.seen) == 1


def test_the_key_travels_as_a_bearer_token(any_client: Any, http_service: Any, grpc_service: Any) -> None:
    http_service.replies, grpc_service.statuses = {"/v1/models/toy": [problem(401)]}, [grpc.StatusCode.UNAUTHENTICATED]
    service = http_service if any_client.http else grpc_service
    with pytest.raises(Unauthorised):
        any_client.call(service.address, "model", "toy", options={"api_key": "secret"})
    sent = http_service.seen[0][2] if any_client.http else grpc_service.metadata
    assert sent["authorization"] == "Bearer secret"


@pytest.mark.parametrize(
    "reply",
    [
        (200, {"Content-Type": "text/html"}, b"<html>"),
        (200, {"Content-Type": "application/json"}, b"{"),
        (200, {"Content-Type": "application/json"}, b"[" * 100_000),
        (200, {"Content-Type": "application/json"}, b"[]"),
        (200, {"Content-Type": "application/json"}, b'{"name": "toy", "card": {}}'),
        (302, {"Location": "/elsewhere"}, b""),
        (404, {"Content-Type": "application/json"}, b'{"detail": "Not Found"}'),
        (404, PROBLEM, b"not JSON"),
    ],
    ids=["html", "cut JSON", "deep JSON", "list", "empty card", "redirect", "404 of another service", "broken problem"],
)
def test_the_response_of_another_service_is_invalid(http_client: Any, http_service: Any, reply: Any) -> None:
    http_service.replies = {"/v1/models/toy": [reply]}
    with pytest.raises(InvalidResponse):
        http_client.call(http_service.address, "model", "toy")


def test_a_truncated_array_is_an_invalid_response(
    http_client: Any, http_service: Any, description: Callable[..., Any]
) -> None:
    broken = (200, NPY, encode(FIELD[np.newaxis])[:-4])
    http_service.replies = {"/v1/models/toy": [description()], "/v1/models/toy/predict": [broken]}
    with pytest.raises(InvalidResponse, match="expected 64 bytes"):
        http_client.call(http_service.address, "predict", "toy", FIELD)


class Trickle(httpx2.BaseTransport, httpx2.SyncByteStream):
    """A response without end, a byte at a time, whose head has taken all of the time limit."""

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        del request
        time.sleep(0.2)
        return httpx2.Response(200, stream=self)

    def __iter__(self) -> Iterator[bytes]:
        yield b"{"
        raise AssertionError("the time limit holds for the whole response")


def test_the_time_limit_is_that_of_the_whole_response() -> None:
    with Client("http://toy", transport=Trickle()) as client, pytest.raises(DeadlineExceeded):
        client.predict("toy", FIELD, timeout=0.1)


class Slow(httpx2.BaseTransport, httpx2.SyncByteStream):
    """A response whose head takes a while; it notes the seconds that are left for the head and for the body."""

    def __init__(self) -> None:
        self.seconds = list[float]()

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        self._times = request.extensions["timeout"]
        self.seconds.append(self._times["read"])
        time.sleep(0.05)
        return httpx2.Response(200, stream=self, headers={"content-type": "application/json"})

    def __iter__(self) -> Iterator[bytes]:
        self.seconds.append(self._times["read"])
        yield b'{"models": []}'


def test_the_time_that_the_head_of_a_response_has_taken_is_missing_for_its_body() -> None:
    slow = Slow()
    with Client("http://toy", transport=slow) as client:
        assert client.models() == []
    head, body = slow.seconds
    assert body <= head - 0.05


def test_one_bad_piece_ends_the_batch_with_its_own_fault(
    http_client: Any, http_service: Any, description: Callable[..., Any]
) -> None:
    piece = (200, NPY, encode(FIELD[np.newaxis]))
    http_service.replies = {
        "/v1/models/toy": [description(batch=1)],
        "/v1/models/toy/predict": [piece, piece, piece, problem(500)],
    }
    with pytest.raises(ServerFault, match="said by the server"):
        http_client.call(http_service.address, "predict", "toy", np.ones((50, 4, 4)))
    assert len(http_service.seen) < 20


async def test_an_application_is_called_without_sockets(description: Callable[..., Any]) -> None:
    async def toy(request: Request) -> Response:
        if request.method == "GET":
            return Response(description(batch=2)[2], media_type="application/json")
        return Response(encode(2 * decode(await request.body())), media_type="application/x-npy")

    app = Starlette(routes=[Route("/v1/models/toy{rest:path}", toy, methods=["GET", "POST"])])
    async with AsyncClient("http://application", transport=httpx2.ASGITransport(app)) as client:
        batch = np.arange(1.0, 81.0).reshape(5, 4, 4)
        np.testing.assert_array_equal(await client.predict("toy", batch), 2 * batch)


def test_a_model_that_changed_is_described_anew(http_service: Any, description: Callable[..., Any]) -> None:
    http_service.replies = {
        "/v1/models/toy": [description(maximum=3), description(maximum=8)],
        "/v1/models/toy/predict": [(200, NPY, encode(FIELD[np.newaxis]))],
    }
    with Client(f"http://{http_service.address}") as client:
        with pytest.raises(InvalidInput, match="expected 2 to 3 points"):
            client.predict("toy", FIELD)
        assert client.predict("toy", FIELD).shape == (4, 4)


def test_pauses_grow_and_end_with_the_fault_itself() -> None:
    attempts, fault = Attempts(60.0), ConnectionFailed("gone")
    pauses = [attempts.pause_after(fault) for _ in range(ATTEMPTS - 1)]
    assert pauses == sorted(pauses)
    with pytest.raises(ConnectionFailed) as caught:
        attempts.pause_after(fault)
    assert caught.value is fault


def test_pauses_grow_while_no_other_server_has_a_version() -> None:
    attempts = Attempts(600.0)
    pauses = [attempts.pause_after(OtherServer("there is no version 1")) for _ in range(50)]
    assert pauses[0] < 0.2
    assert LONGEST_PAUSE / 2 <= min(pauses[10:]) <= max(pauses) <= LONGEST_PAUSE


def test_a_service_gets_the_time_it_requests() -> None:
    assert Attempts(60.0).pause_after(Unavailable("busy", retry_after=7.0)) == 7.0


def test_nothing_is_sent_after_the_deadline() -> None:
    attempts = Attempts(1e-6)
    time.sleep(0.001)
    with pytest.raises(DeadlineExceeded):
        attempts.remaining()


def test_retry_after_is_seconds_or_a_date() -> None:
    assert retry_after("3") == 3.0
    later = retry_after(format_datetime(datetime.now(UTC) + timedelta(seconds=100), usegmt=True))
    assert later is not None
    assert 90 < later <= 100
    assert retry_after(format_datetime(datetime.now(UTC) - timedelta(days=1), usegmt=True)) == 0.0
    assert retry_after("soon") is None
    assert retry_after(None) is None
