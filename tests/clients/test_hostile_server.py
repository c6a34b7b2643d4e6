"""A server that is broken or malicious costs a client neither its memory nor its time, and writes on no terminal."""

from __future__ import annotations

import contextlib
import gzip
import json
import socket
import threading
import traceback
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from petrov_client import ConnectionFailed, DeadlineExceeded, InvalidResponse, PetrovError
from petrov_client._codecs import encode_npy, encode_safetensors
from petrov_client._untrusted import DEEPEST, MOST_CONTAINERS, parsed, printable
from tests.clients.conftest import AnyClient, HttpService

FIELD = np.ones((4, 4), np.float32)
STATE = np.ones(16, np.float32)
#: Set the title of the window, erase the screen, move the cursor (as one character of C1), turn the text around.
ESCAPES = "\x1b]0;title\x07\x1b[2J\x9b1A\u202e\r\n"
JSON = {"Content-Type": "application/json"}
NPY, SAFETENSORS = "application/x-npy", "application/vnd.safetensors"
UNKNOWN_TYPE = b'{"u":{"dtype":"\x7f\xc2\x9b1A","shape":[],"data_offsets":[0,0]}}'
PROBLEM = {"Content-Type": "application/problem+json"}


def is_clean(text: str) -> bool:
    return printable(text.replace("\n", "")) == text.replace("\n", "")


def test_texts_keep_their_letters_and_lose_what_moves_a_terminal() -> None:
    assert printable("Größe λ, 温度 °C") == "Größe λ, 温度 °C"
    assert printable("a\x1b[31mb\nc\td\x9be\u202ef\ud800g") == "a\ufffd[31mb c d\ufffde\ufffdf\ufffdg"


@pytest.mark.parametrize(
    ("content", "accepted"),
    [
        (b"[" + b"[]," * MOST_CONTAINERS + b"[]]", False),
        (b"[" + b'"ab",' * 3_000_000 + b"1]", False),
        (b"[" * DEEPEST + b"]" * DEEPEST, True),
        (b"[" * (DEEPEST + 1) + b"]" * (DEEPEST + 1), False),
        (b"9" * 5000, False),
        (b" " * 2**25, False),
    ],
    ids=["containers", "values", "depth", "more depth", "digits", "bytes"],
)
def test_a_document_takes_bounded_memory(content: bytes, *, accepted: bool) -> None:
    tracemalloc.start()
    try:
        with contextlib.nullcontext() if accepted else pytest.raises(ValueError, match=r"expected|limit"):
            parsed(content)
        assert tracemalloc.get_traced_memory()[1] < 64 * 2**20
    finally:
        tracemalloc.stop()


def hostile_description(description: Callable[..., Any]) -> Any:
    """Return the description of a model whose every text has escapes."""

    def written(content: Any) -> Any:
        if isinstance(content, dict):
            return {name: written(each) for name, each in content.items()}
        if isinstance(content, list):
            return [written(each) for each in content]
        return content + ESCAPES if isinstance(content, str) and content not in {"FP32", "toy"} else content

    status, headers, body = description()
    return status, headers, json.dumps(written(json.loads(body))).encode()


def test_the_command_prints_no_escapes_of_a_card(
    petrov: Any, http_service: HttpService, description: Callable[..., Any]
) -> None:
    listed = json.dumps({"models": [{"name": "toy"}]}).encode()
    http_service.replies = {
        "/v1/models/toy": [hostile_description(description)],
        "/v1/models": [(200, JSON, listed)],
    }
    for arguments in (("models",), ("model", "toy"), ("models", "--json"), ("model", "toy", "--json")):
        done = petrov(*arguments, "--url", f"http://{http_service.address}")
        assert done.returncode == 0
        assert "title" in done.stdout
        assert is_clean(done.stdout + done.stderr)


CARDS: dict[str, Any] = {
    "outputs": [],
    "inputs": [{"name": "u", "meaning": "", "units": "", "positive": False, "dtype": "FP32", "axes": [], "shape": []}],
    "frames": {"step": 1, "history": 0, "states": ["coefficient"], "trained": 4, "maximum": 9},
    "product": {"kind": "vjp"},
    "limits": {"batch": float("inf")},
    "errors": [[]],
}


@pytest.mark.parametrize("key", CARDS)
def test_a_card_of_wrong_types_is_an_invalid_response(
    petrov: Any, http_service: HttpService, description: Callable[..., Any], tmp_path: Path, key: str
) -> None:
    document = json.loads(description()[2])
    document["card"][key] = CARDS[key]
    npy = (200, {"Content-Type": NPY}, encode_npy(FIELD[None]))
    http_service.replies = {
        "/v1/models/toy": [(200, JSON, json.dumps(document).encode())],
        "/v1/models/toy/predict": [npy],
    }
    np.save(tmp_path / "in.npy", FIELD)
    command = ("model", "toy") if key == "errors" else ("predict", "toy", tmp_path / "in.npy", tmp_path / "out.npy")
    done = petrov(*command, "--url", f"http://{http_service.address}")
    assert done.returncode == 5
    assert "is not readable" in done.stderr


def test_an_error_and_its_traceback_have_no_escapes(http_client: AnyClient, http_service: HttpService) -> None:
    detail = {"detail": f"no{ESCAPES}", "where": {"array": ESCAPES, "index": [[1]]}}
    replies = [
        (422, PROBLEM, json.dumps(detail).encode()),
        (200, {"Content-Type": "text/\x1b[31mhtml"}, b"\x1b[2J"),
        (200, JSON, b'{"name": "\x1b[2J"'),
        (200, {**JSON, "X-Request-Id": "petrov-client-\x1b[2J"}, b""),
    ]
    for reply in replies:
        http_service.replies = {"/v1/models/toy": [reply]}
        with pytest.raises(PetrovError) as caught:
            http_client.call(http_service.address, "model", "toy")
        assert is_clean("".join(traceback.format_exception(caught.value)) + str(caught.value.problem))


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (NPY, b"\x93NUMPY\x01\x00\x10\x00{'descr': \x1b[2J\n "),
        (SAFETENSORS, len(UNKNOWN_TYPE).to_bytes(8, "little") + UNKNOWN_TYPE),
        (SAFETENSORS, encode_safetensors({ESCAPES: FIELD[None]})),
    ],
    ids=["npy", "type of safetensors", "name of safetensors"],
)
def test_an_array_that_is_not_readable_shows_no_escapes(
    http_client: AnyClient, http_service: HttpService, description: Callable[..., Any], kind: str, body: bytes
) -> None:
    path = "/v1/models/toy/predict"
    http_service.replies = {"/v1/models/toy": [description()], path: [(200, {"Content-Type": kind}, body)]}
    with pytest.raises(InvalidResponse) as caught:
        http_client.call(http_service.address, "predict", "toy", FIELD, quality="safetensors" in kind)
    assert is_clean("".join(traceback.format_exception(caught.value)))


@dataclass
class RawService:
    """A server that sends bytes for a path, as they are, until the client is gone."""

    address: str = ""
    replies: dict[str, Callable[[], Iterator[bytes]]] = field(default_factory=dict)

    def serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError), connection.makefile("rb") as received:
            while line := received.readline():
                length = 0
                while (header := received.readline().lower()) not in {b"\r\n", b""}:
                    if header.startswith(b"content-length:"):
                        length = int(header.partition(b":")[2])
                received.read(length)
                for piece in self.replies[line.split()[1].decode().partition("?")[0]]():
                    connection.sendall(piece)


@pytest.fixture
def raw_service() -> Iterator[RawService]:
    service, threads = RawService(), list[threading.Thread]()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    threads.append(threading.Thread(target=service.serve, args=(server.accept()[0],)))
                    threads[-1].start()

        accepting = threading.Thread(target=accept)
        accepting.start()
        service.address = "{}:{}".format(*server.getsockname())
        yield service
        server.shutdown(socket.SHUT_RDWR)
        for thread in (accepting, *threads):
            thread.join()


def head(kind: str, *more: str, status: str = "200 OK") -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", f"Content-Type: {kind}", *more, "", ""]).encode()


def described(reply: Any) -> Callable[[], Iterator[bytes]]:
    """Return the plain reply of a service."""
    return lambda: iter([head("application/json", f"Content-Length: {len(reply[2])}") + reply[2]])


def endless(first: bytes, again: bytes) -> Callable[[], Iterator[bytes]]:
    def pieces() -> Iterator[bytes]:
        yield first
        while True:
            yield again

    return pieces


def chunk(content: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(content), content)


CHUNKED = "Transfer-Encoding: chunked"


@pytest.mark.parametrize(
    ("path", "reply"),
    [
        ("/v1/models/toy", endless(head("application/json", CHUNKED), chunk(b" " * 2**20))),
        ("/v1/models/toy/predict", endless(head(NPY, CHUNKED), chunk(b"\0" * 2**18))),
        ("/v1/models/toy/predict", endless(head(NPY), b"\0" * 2**18)),  # until the connection ends
        (
            "/v1/models/toy/predict",
            endless(head("application/problem+json", CHUNKED, status="500 No"), chunk(b" " * 2**18)),
        ),
    ],
    ids=["JSON", "array", "without a length", "problem"],
)
def test_an_endless_response_is_left(
    http_client: AnyClient, raw_service: RawService, description: Callable[..., Any], path: str, reply: Any
) -> None:
    raw_service.replies = {"/v1/models/toy": described(description()), path: reply}
    tracemalloc.start()
    try:
        with pytest.raises(InvalidResponse, match="expected a response of at most"):
            http_client.call(raw_service.address, "predict", "toy", FIELD)
        assert tracemalloc.get_traced_memory()[1] < 40 * 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("declared", "fault"), [(1000, ConnectionFailed), (10, InvalidResponse)])
def test_a_wrong_length_is_no_response(
    http_client: AnyClient, raw_service: RawService, description: Callable[..., Any], declared: int, fault: type
) -> None:
    body = encode_npy(FIELD[None])

    def reply() -> Iterator[bytes]:
        yield head(NPY, f"Content-Length: {declared}") + body
        raise OSError  # end the connection

    raw_service.replies = {"/v1/models/toy": described(description()), "/v1/models/toy/predict": reply}
    with pytest.raises(fault):
        http_client.call(raw_service.address, "predict", "toy", FIELD)


def test_a_compressed_response_is_refused_and_not_inflated(http_client: AnyClient, http_service: HttpService) -> None:
    bomb = gzip.compress(b" " * 2**25)
    http_service.replies = {"/v1/models/toy": [(200, {**JSON, "Content-Encoding": "gzip"}, bomb)]}
    with pytest.raises(InvalidResponse, match='without compression but got one with "gzip"'):
        http_client.call(http_service.address, "model", "toy")
    with pytest.raises(InvalidResponse, match="expected a response of at most 16777216 bytes"):
        http_client.call(http_service.address, "model", "toy", options={"compression": "gzip"})


def test_a_redirect_carries_no_key_elsewhere(http_client: AnyClient, http_service: HttpService) -> None:
    elsewhere = f"http://localhost:{http_service.address.partition(':')[2]}/other"
    http_service.replies = {"/v1/models/toy": [(307, {"Location": elsewhere}, b"")]}
    with pytest.raises(InvalidResponse, match=r"a redirect \(307\), which is not followed"):
        http_client.call(http_service.address, "model", "toy", options={"api_key": "secret"})
    assert [path for _, path, _ in http_service.seen] == ["/v1/models/toy"]


def test_a_head_without_end_has_the_time_limit_of_its_request(raw_service: RawService) -> None:
    raw_service.replies = {"/v1/models/toy": endless(b"", b"HTTP/1.1 103 Early Hints\r\n\r\n")}
    with pytest.raises(DeadlineExceeded):
        AnyClient("AsyncClient").call(raw_service.address, "predict", "toy", FIELD, timeout=0.3)


def growing(description: Callable[..., Any]) -> Any:
    """Return the description of a model of trajectories."""
    document = json.loads(description(maximum=16)[2])
    axes = ["batch", "row"]
    document["card"]["inputs"][0] |= {"name": "u", "axes": axes}
    document["card"]["outputs"][0] |= {"axes": ["batch", "frame", "row"]}
    document["card"]["grid"]["axes"] = axes[1:]
    document["card"]["frames"] = {"step": 1, "history": 1, "states": ["u"], "trained": 4, "maximum": 1000}
    return 200, JSON, json.dumps(document).encode()


def part(body: bytes, kind: str = NPY) -> bytes:
    return b"--b\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n%b\r\n" % (kind.encode(), len(body), body)


FRAME = part(encode_npy(STATE[None]))
PARTS = head("multipart/mixed; boundary=b", CHUNKED)


@pytest.mark.parametrize(
    "again",
    [chunk(FRAME), chunk(b"--b--" + b"\0" * 2**16), chunk(b"--b\r\n" + b"\0" * 2**16)],
    ids=["more frames", "an end without end", "a head without end"],
)
def test_a_rollout_keeps_what_was_requested_and_no_more(
    http_client: AnyClient, raw_service: RawService, description: Callable[..., Any], again: bytes
) -> None:
    pieces = endless(PARTS + chunk(FRAME) + chunk(FRAME), again)
    raw_service.replies = {"/v1/models/toy": described(growing(description)), "/v1/models/toy/rollout": pieces}
    tracemalloc.start()
    try:
        if again == chunk(FRAME):
            with pytest.raises(InvalidResponse, match="expected 2 frames but got more"):
                http_client.call(raw_service.address, "rollout", "toy", STATE, 2)
        else:
            assert http_client.call(raw_service.address, "rollout", "toy", STATE, 2).shape == (2, 16)
        assert tracemalloc.get_traced_memory()[1] < 16 * 2**20
    finally:
        tracemalloc.stop()


def test_a_part_is_as_large_as_a_frame(
    http_client: AnyClient, raw_service: RawService, description: Callable[..., Any]
) -> None:
    large = b"--b\r\nContent-Type: application/x-npy\r\nContent-Length: %d\r\n\r\n" % 2**24
    pieces = endless(PARTS + chunk(large), chunk(b"\0" * 2**16))
    raw_service.replies = {"/v1/models/toy": described(growing(description)), "/v1/models/toy/rollout": pieces}
    with pytest.raises(InvalidResponse, match='expected the size of a part, at most 1048640 bytes, but got "16777216"'):
        http_client.call(raw_service.address, "rollout", "toy", STATE, 2)


def test_every_frame_has_the_time_limit(
    http_client: AnyClient, raw_service: RawService, description: Callable[..., Any]
) -> None:
    gone = threading.Event()

    def trickle() -> Iterator[bytes]:
        yield PARTS + chunk(FRAME)
        while not gone.wait(0.02):
            yield chunk(FRAME[:1])

    raw_service.replies = {"/v1/models/toy": described(growing(description)), "/v1/models/toy/rollout": trickle}
    try:
        with pytest.raises(DeadlineExceeded, match=r"did not arrive within [12]\.?\d* s"):
            http_client.call(raw_service.address, "rollout", "toy", STATE, 2, timeout=2)
    finally:
        gone.set()
