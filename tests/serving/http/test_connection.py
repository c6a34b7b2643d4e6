"""Clients that are slow on purpose: with the head of a request, between two of them, and with reading the response."""

from __future__ import annotations

import io
import socket
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

import httpx2
import numpy as np
import psutil
import pytest

import serving.http.connection
from serving.http.connection import MAX_HEAD_BYTES
from tests.conftest import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from serving.settings import Settings
    from serving.triton.server import TritonServer
    from tests.conftest import Gateway

HEAD = b"GET /health/live HTTP/1.1\r\nHost: petrov\r\n"
PREDICT = b"POST /v1/models/blur/predict HTTP/1.1\r\nHost: petrov\r\nContent-Type: application/x-npy\r\n"
FIELDS = 1500  # of 64 x 64: more bytes than sockets hold


@pytest.fixture(scope="module")
def hasty(
    triton: TritonServer,
    make_settings: Callable[..., Settings],
    run_gateway: Callable[[Settings], AbstractContextManager[Gateway]],
) -> Iterator[Gateway]:
    """Run a gateway that waits for no client longer than a second."""
    settings = make_settings(
        triton.settings.repository, triton=triton.settings.triton_addresses, receive_seconds=1.0, request_seconds=120.0
    )
    with run_gateway(settings) as gateway:
        yield gateway


@contextmanager
def connection(gateway: Gateway) -> Iterator[socket.socket]:
    with closing(socket.create_connection((gateway.settings.host, gateway.settings.port), timeout=60)) as wire:
        yield wire
    assert httpx2.get(f"{gateway.url}/health/live", timeout=30).status_code == 200  # whatever a client did


def everything(wire: socket.socket) -> bytes:
    """All that comes until the gateway hangs up."""
    said = b""
    while chunk := wire.recv(65536):
        said += chunk
    return said


@pytest.mark.parametrize("start", [b"G", HEAD], ids=["a letter", "no end"])
def test_a_head_that_does_not_end_is_cut_off(hasty: Gateway, start: bytes) -> None:
    with connection(hasty) as wire:
        wire.sendall(start)
        assert everything(wire).startswith(b"HTTP/1.1 408 ")


def test_a_connection_without_a_request_is_closed(hasty: Gateway) -> None:
    with connection(hasty) as wire:
        assert everything(wire) == b""


def test_drops_between_requests_keep_no_connection_open(hasty: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving.http.connection, "KEEP_ALIVE_SECONDS", 1)
    with connection(hasty) as wire:
        wire.sendall(HEAD + b"\r\n")
        assert wire.recv(65536).startswith(b"HTTP/1.1 200 ")
        wire.sendall(b"\r\n")  # skipped by the parser: no request has begun
        assert b"HTTP/1.1" not in everything(wire)


def test_a_head_drop_by_drop_is_cut_off(hasty: Gateway) -> None:
    """However alive the client seems: the time is that of the whole head."""
    said = b""
    with connection(hasty) as wire:
        wire.sendall(HEAD + b"X-Slow: ")
        wire.settimeout(0.2)
        while not said:
            try:
                said = wire.recv(65536)
            except TimeoutError:
                wire.sendall(b"x")
    assert said.startswith(b"HTTP/1.1 408 ")


def test_a_head_without_end_is_refused(hasty: Gateway) -> None:
    with connection(hasty) as wire:
        wire.sendall(HEAD + b"Cookie: ")
        with pytest.raises((BrokenPipeError, ConnectionResetError)):  # noqa: PT012 - whichever of them notices
            for _ in range(100):
                wire.sendall(b"x" * MAX_HEAD_BYTES)
            everything(wire)


def test_requests_may_follow_one_another_at_once(hasty: Gateway) -> None:
    with connection(hasty) as wire:
        wire.sendall((HEAD + b"\r\n") * 3 + HEAD + b"Connection: close\r\n\r\n")
        assert everything(wire).count(b"HTTP/1.1 200 ") == 4


def test_a_response_that_is_not_read_is_dropped(hasty: Gateway) -> None:
    process = psutil.Process()

    def connections() -> int:
        """Count the connections at the gateway's port, from its side."""
        port = hasty.settings.port
        return sum(each.laddr.port == port and each.status == "ESTABLISHED" for each in process.net_connections("tcp"))

    file = io.BytesIO()
    np.save(file, np.ones((FIELDS, 64, 64), np.float32))
    before = connections()
    with connection(hasty) as wire:
        wire.sendall(PREDICT + b"Content-Length: %d\r\n\r\n" % len(file.getvalue()) + file.getvalue())
        wire.recv(1)
        wait_until(lambda: connections() <= before)
