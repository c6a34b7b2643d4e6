"""Clients that are slow on purpose: with the head of a request, between two of them, and with reading the response."""

from __future__ import annotations

import io
import json
import logging
import re
import shutil
import socket
import struct
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from pathlib import Path

import httpx2
import numpy as np
import psutil
import pytest

import serving.connection
from serving.connection import MAX_HEAD_BYTES
from serving.settings import Settings
from serving.system import StartupError
from tests.conftest import Gateway, wait_until
from tests.serving.conftest import RunGateway, npy

HEAD = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n"
PREDICT = b"POST /v1/models/blur/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-npy\r\n"
FIELDS = 1500  # of 64 x 64: more bytes than sockets hold


@pytest.fixture(scope="module")
def hasty(run_before_triton: RunGateway) -> Iterator[Gateway]:
    """Run a gateway that waits for no client longer than a second."""
    with run_before_triton(receive_seconds=1.0, request_seconds=120.0) as gateway:
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
    monkeypatch.setattr(serving.connection, "KEEP_ALIVE_SECONDS", 1)
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
        for _ in range(100):
            wire.sendall(b"x" * MAX_HEAD_BYTES)
        assert everything(wire).startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize("chunked", [False, True])
def test_a_client_that_reads_after_sending_sees_why_its_body_is_too_large(
    run_before_triton: RunGateway, chunked: bool
) -> None:
    """The gateway waits as long as by default: beside other work a second is not enough for a large body."""
    piece, limit = bytes(2**20), 16 * 2**20
    body = (piece for _ in range(32))
    headers = {"Content-Type": "application/x-npy"} | ({} if chunked else {"Content-Length": str(2 * limit)})
    with run_before_triton(max_body_bytes=limit) as gateway:
        request = urllib.request.Request(f"{gateway.url}/v1/models/blur/predict", body, headers)  # noqa: S310 - http
        with pytest.raises(urllib.error.HTTPError) as refusal:
            urllib.request.urlopen(request, timeout=60)  # noqa: S310 - as above
    with refusal.value as response:
        assert response.status == 413
        assert json.load(response)["type"] == "urn:petrov:problem:body-too-large"


@pytest.mark.parametrize(
    ("rest", "detail"),
    [
        (b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n", "Duplicate Content-Length"),
        (b"Content-Length: -5\r\n\r\n", "Invalid character in Content-Length"),
        (b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", "can't be present with Content-Length"),
        (b"Transfer-Encoding: chunked\r\n\r\n5\r\n12345\r\nx\r\n", "Invalid character in chunk size"),
    ],
)
def test_a_body_without_one_length_is_a_problem(hasty: Gateway, rest: bytes, detail: str) -> None:
    with connection(hasty) as wire:
        wire.sendall(PREDICT + rest)
        head, _, body = everything(wire).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"content-type: application/problem+json\r\n" in head
    problem = json.loads(body)
    assert problem["type"] == "urn:petrov:problem:unreadable-request"
    assert detail in problem["detail"]


def test_what_is_no_http_is_not_answered_within_a_response(gateway: Gateway) -> None:
    body = npy(np.ones((FIELDS, 64, 64), np.float32))
    with connection(gateway) as wire:
        wire.sendall(PREDICT + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        said = wire.recv(65536)
        wire.sendall(b"no request\r\n\r\n")
        said += everything(wire)
    assert said.startswith(b"HTTP/1.1 200 ")
    head, _, rest = said.partition(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head)
    assert length is not None
    assert b"HTTP/1.1" not in rest[: int(length[1])]  # a response that was whole by then may be followed by another


H2C = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n"
TLS, WEBSOCKET = (b"Connection: Upgrade\r\nUpgrade: %b\r\n" % name for name in (b"TLS/1.0", b"websocket"))


@pytest.fixture(scope="module")
def field() -> bytes:
    return npy(np.ones((16, 16), np.float32))


@pytest.mark.parametrize(
    ("codings", "status", "kind"),
    [
        (b"Transfer-Encoding: gzip, chunked\r\n", 501, "unknown-coding"),
        (b"Transfer-Encoding: GZip\r\nTransfer-Encoding: chunked\r\n", 501, "unknown-coding"),
        (b"Transfer-Encoding: x-what\r\nTransfer-Encoding: ,Chunked \r\n" + H2C, 501, "unknown-coding"),
        (b"Transfer-Encoding: gzip\r\n", 400, "unreadable-request"),
    ],
)
def test_a_transfer_coding_that_is_not_read_is_a_problem(
    hasty: Gateway, field: bytes, codings: bytes, status: int, kind: str
) -> None:
    with connection(hasty) as wire:
        wire.sendall(PREDICT + codings + b"\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(field), field))
        head, _, body = everything(wire).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert b"content-type: application/problem+json\r\n" in head
    assert json.loads(body)["type"] == f"urn:petrov:problem:{kind}"


@pytest.mark.parametrize("offer", [H2C, TLS, WEBSOCKET], ids=["h2c", "TLS", "websocket"])
@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("pieces", ["at once", "head first", "byte by byte"])
def test_the_body_of_a_request_that_offers_an_upgrade_is_read(
    hasty: Gateway, field: bytes, offer: bytes, chunked: bool, pieces: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Every second request of the four is without an offer."""
    framing, body = b"Content-Length: %d" % len(field), field
    if chunked:
        framing, body = b"Transfer-Encoding: chunked", b"%x\r\n%b\r\n0\r\n\r\n" % (len(field), field)
    head = PREDICT + framing + b"\r\n"
    offered, plain = head + offer + b"\r\n" + body, head + b"\r\n" + body
    requests = (offered + plain) * 2 + HEAD + offer + b"\r\n" + HEAD + b"Connection: close\r\n\r\n"
    sizes = {"at once": len(requests), "head first": offered.index(b"\r\n\r\n") + 4, "byte by byte": 1}
    with connection(hasty) as wire:
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for start in range(0, len(requests), sizes[pieces]):
            wire.sendall(requests[start : start + sizes[pieces]])
        said = everything(wire)
    assert said.count(b"HTTP/1.1 200 ") == 6
    assert said.count(b"\x93NUMPY") == 4
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
def test_curl_may_offer_an_upgrade(hasty: Gateway, field: bytes) -> None:
    url, kind = f"{hasty.url}/v1/models/blur/predict", "Content-Type: application/x-npy"
    command = ["curl", "--silent", "--noproxy", "*", "--http2", "--header", kind, "--data-binary", "@-", url]
    found = subprocess.run(command, input=field, stdout=subprocess.PIPE, timeout=60, check=True)
    assert np.load(io.BytesIO(found.stdout)).shape == (16, 16)


JAVA = """
import java.net.*; import java.net.http.*; import java.nio.file.*;

public class Up {
    public static void main(String[] args) throws Exception {
        var request = HttpRequest.newBuilder(URI.create(args[0])).header("Content-Type", "application/x-npy")
            .POST(HttpRequest.BodyPublishers.ofFile(Path.of(args[1]))).build();
        var client = HttpClient.newHttpClient();
        for (int i = 0; i < 2; i++)
            System.out.print(client.send(request, HttpResponse.BodyHandlers.ofByteArray()).statusCode() + " ");
    }
}
"""


@pytest.mark.skipif(shutil.which("java") is None, reason="there is no Java")
def test_the_client_of_the_jdk_offers_an_upgrade_by_default(
    run_before_triton: RunGateway, field: bytes, tmp_path: Path
) -> None:
    """Beside other work a second is not enough for its first head, so the gateway waits as long as by default."""
    (tmp_path / "Up.java").write_text(JAVA)
    (tmp_path / "field.npy").write_bytes(field)
    with run_before_triton() as gateway:
        url = f"{gateway.url}/v1/models/blur/predict"
        command = ["java", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "Up.java", url, "field.npy"]
        found = subprocess.run(command, cwd=tmp_path, stdout=subprocess.PIPE, timeout=120, check=True)
    assert found.stdout == b"200 200 "


def test_what_is_sent_after_the_response_is_read_up_to_a_limit(hasty: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving.connection, "LINGER_BYTES", 2**20)
    with connection(hasty) as wire:
        wire.sendall(PREDICT + b"Content-Length: 1000000000\r\n\r\n")
        assert everything(wire).startswith(b"HTTP/1.1 413 ")
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            wire.sendall(bytes(64 * 2**20))


def test_a_client_that_sends_nothing_after_the_response_is_not_waited_for(
    hasty: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving.connection, "IDLE_SECONDS", 0.2)
    with connection(hasty) as wire:
        wire.sendall(PREDICT + b"Content-Length: 1000000000\r\n\r\n")
        assert everything(wire).startswith(b"HTTP/1.1 413 ")
        port = wire.getsockname()[1]
        wait_until(lambda: not established(hasty, port))


def test_a_gateway_that_stops_waits_for_no_body_that_it_has_refused(run_before_triton: RunGateway) -> None:
    with run_before_triton() as gateway:
        wire = socket.create_connection((gateway.settings.host, gateway.settings.port), timeout=60)
        wire.sendall(PREDICT + b"Content-Length: 1000000000\r\n\r\n")
        assert everything(wire).startswith(b"HTTP/1.1 413 ")
    with closing(wire), pytest.raises((BrokenPipeError, ConnectionResetError)):
        wire.sendall(bytes(64 * 2**20))


def test_clients_that_leave_at_any_moment_leave_no_trace_in_the_log(
    hasty: Gateway, caplog: pytest.LogCaptureFixture
) -> None:
    def request(points: int, fields: int) -> bytes:
        file = io.BytesIO()
        np.save(file, np.ones((fields, points, points), np.float32))
        return PREDICT + b"Content-Length: %d\r\n\r\n" % len(file.getvalue()) + file.getvalue()

    small, large, random = request(16, 1), request(64, 64), np.random.default_rng(0)
    requests = [small, small * 3, HEAD + b"\r\n", large[:200_000], b"nonsense\r\n\r\n"]
    for seconds in (0.0, 0.001, 0.005, 0.02) * 2:
        with ExitStack() as stack:
            for _ in range(60):
                address = hasty.settings.host, hasty.settings.port
                wire = stack.enter_context(closing(socket.create_connection(address, timeout=60)))
                wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # its end is a reset
                wire.sendall(requests[random.integers(len(requests))])
            time.sleep(seconds)
    assert httpx2.get(f"{hasty.url}/health/live", timeout=30).status_code == 200
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_requests_may_follow_one_another_at_once(hasty: Gateway) -> None:
    with connection(hasty) as wire:
        wire.sendall((HEAD + b"\r\n") * 3 + HEAD + b"Connection: close\r\n\r\n")
        assert everything(wire).count(b"HTTP/1.1 200 ") == 4


@pytest.mark.parametrize("rest", [(HEAD + b"\r\n") * 5000, b"no request\r\n\r\n"], ids=["more requests", "no HTTP"])
def test_of_requests_sent_ahead_only_some_wait_and_these_are_answered(hasty: Gateway, rest: bytes) -> None:
    """A gateway that kept them all would need a hundred times their size, of one connection without a key."""
    with connection(hasty) as wire:
        wire.sendall((HEAD + b"\r\n") * 4 + rest)
        said = everything(wire)
    assert 4 <= said.count(b"HTTP/1.1 200 ") < 1000
    assert b"HTTP/1.1 400 " not in said


def established(gateway: Gateway, port: int | None = None) -> int:
    """Count the connections at the gateway's port, from its side: those of a client's port, or all."""
    own = [each for each in psutil.Process().net_connections("tcp") if each.laddr.port == gateway.settings.port]
    of_client = [each for each in own if each.raddr and port in {None, each.raddr.port}]
    return sum(each.status != psutil.CONN_TIME_WAIT for each in of_client)


@pytest.fixture
def patient(run_before_triton: RunGateway) -> Iterator[Gateway]:
    """Run a gateway that waits long enough for a large body, beside other work, too."""
    with run_before_triton(receive_seconds=5.0, request_seconds=120.0) as gateway:
        yield gateway


def test_a_response_that_is_not_read_is_dropped(patient: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    file, admission = io.BytesIO(), patient.service.admission
    np.save(file, np.ones((FIELDS, 64, 64), np.float32))
    before, count, held = established(patient), admission.count, [0]

    def noted(added: int, key: str) -> None:
        count(added, key)
        held.append(admission.bytes)

    monkeypatch.setattr(admission, "count", noted)  # seen here, however late this thread is
    with connection(patient) as wire:
        wire.sendall(PREDICT + b"Content-Length: %d\r\n\r\n" % len(file.getvalue()) + file.getvalue())
        wire.recv(1)
        wait_until(lambda: established(patient) <= before)
    both, body = [each for each in held if each > 2**20][-2:]  # let go last: the response, most of which is not read
    assert both > 1.9 * len(file.getvalue()) > body > 0
    wait_until(lambda: patient.service.admission.bytes == 0)


def test_a_gateway_of_a_test_shares_no_port_with_another(
    gateway: Gateway,
    free_ports: Callable[[int], list[int]],
    run_gateway: Callable[[Settings], AbstractContextManager[Gateway]],
) -> None:
    [port], there = free_ports(1), gateway.settings
    for settings, taken in ((there, there.port), (there.model_copy(update={"port": port}), there.grpc_port)):
        with pytest.raises(StartupError, match=f"port {taken} is in use"), run_gateway(settings):
            pass
