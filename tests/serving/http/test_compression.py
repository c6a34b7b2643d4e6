"""Compressed bodies, in both directions: what they become is what counts."""

from __future__ import annotations

import gzip
import json
import logging
import resource
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import numpy as np
import pytest
import tritonclient.http
from backports import zstd
from starlette.types import Message, Receive, Scope, Send
from tritonclient.utils import InferenceServerException

import petrov_client
from serving.compression import MOST_PARTS, Compression
from serving.limits import Admission, Ticket
from tests import toy_rollouts
from tests.conftest import Gateway, wait_until
from tests.serving.conftest import RunGateway, npy
from tests.serving.http.test_gateway import JSON, NPY, loaded

DEFLATE: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "zstd": zstd.compress}
LIMIT = 4 * 2**20
PATH = "/v1/models/blur/predict"
FIELD = np.full((2, 64, 64), 3.0, np.float32)


@pytest.fixture(scope="module")
def gateway(run_before_triton: RunGateway) -> Iterator[Gateway]:
    """Run a gateway that reads and writes both; afterwards no request holds memory."""
    limits = {"max_body_bytes": LIMIT, "max_bytes_in_flight": 32 * 2**20}
    with run_before_triton(compression="gzip, zstd", **limits) as running:
        yield running
        wait_until(lambda: running.service.admission.bytes == 0)


@pytest.mark.parametrize("encoding", DEFLATE)
@pytest.mark.parametrize("kind", [NPY, JSON])
def test_a_compressed_body_is_read_and_the_response_is_compressed(
    http: httpx2.Client, blur: Callable[[np.ndarray], np.ndarray], encoding: str, kind: dict[str, str]
) -> None:
    body = npy(FIELD) if kind is NPY else json.dumps({"inputs": {"coefficient": FIELD.tolist()}}).encode()
    headers = {**kind, "Accept": NPY["Content-Type"], "Content-Encoding": encoding, "Accept-Encoding": encoding}
    response = http.post(PATH, content=DEFLATE[encoding](body), headers=headers)
    np.testing.assert_allclose(loaded(response), blur(FIELD), rtol=1e-5)
    assert response.headers["content-encoding"] == encoding
    assert int(response.headers["content-length"]) < FIELD.nbytes / 4
    assert response.headers["vary"] == "Accept-Encoding"


@pytest.mark.parametrize("encoding", DEFLATE)
def test_a_body_of_several_streams_is_one(http: httpx2.Client, encoding: str) -> None:
    body = npy(FIELD)
    pieces = b"".join(DEFLATE[encoding](body[start : start + 999]) for start in range(0, len(body), 999))
    headers = {**NPY, "Content-Encoding": encoding}
    assert loaded(http.post(PATH, content=pieces, headers=headers)).shape == FIELD.shape
    one_by_one = (pieces[index : index + 1] for index in range(len(pieces)))
    assert loaded(http.post(PATH, content=one_by_one, headers=headers)).shape == FIELD.shape


@pytest.mark.parametrize("encoding", DEFLATE)
def test_a_body_that_grows_beyond_the_limit_is_refused_before_it_has_grown(http: httpx2.Client, encoding: str) -> None:
    """A gibibyte of zeros, in less than the limit itself."""
    bomb = DEFLATE[encoding](bytes(2**24)) * 64
    assert len(bomb) < LIMIT
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    response = http.post(PATH, content=bomb, headers={**NPY, "Content-Encoding": encoding})
    assert (response.status_code, response.json()["type"]) == (413, "urn:petrov:problem:body-too-large")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 128 * 2**10  # kibibytes


@pytest.mark.parametrize("encoding", DEFLATE)
def test_a_compressed_body_counts_as_what_it_becomes(gateway: Gateway, http: httpx2.Client, encoding: str) -> None:
    admission, body = gateway.service.admission, DEFLATE[encoding](npy(np.ones((1, 900, 900), np.float32)))
    assert len(body) < 2**14
    others = admission.max_bytes - 7 * 2**20  # are left, for the body of 3 MiB and as much of a window
    admission.count(others, "")
    try:
        refused = http.post(PATH, content=body, headers={**NPY, "Content-Encoding": encoding})
        assert refused.json()["type"].endswith("grid-out-of-limits")
        admission.count(5 * 2**20, "")
        refused = http.post(PATH, content=body, headers={**NPY, "Content-Encoding": encoding})
        assert (refused.status_code, refused.json()["type"]) == (503, "urn:petrov:problem:overloaded")
        admission.count(-5 * 2**20, "")
    finally:
        admission.count(-others, "")


def _wide(body: bytes) -> bytes:
    return zstd.compress(body * 9, options={zstd.CompressionParameter.window_log: 26})


def _parts(compress: Callable[[bytes], bytes]) -> bytes:
    return compress(b"") * MOST_PARTS + compress(npy(FIELD))


@pytest.mark.parametrize(
    ("encoding", "body", "status", "kind"),
    [
        ("gzip", gzip.compress(npy(FIELD))[:-9], 400, "unreadable-body"),
        ("zstd", zstd.compress(npy(FIELD))[:-9], 400, "unreadable-body"),
        ("gzip", npy(FIELD), 400, "unreadable-body"),
        ("zstd", npy(FIELD), 400, "unreadable-body"),
        ("gzip", gzip.compress(npy(FIELD)) + b"more", 400, "unreadable-body"),
        ("gzip", b"", 400, "unreadable-body"),
        pytest.param("gzip", _parts(gzip.compress), 400, "unreadable-body", id="many parts of gzip"),
        pytest.param("zstd", _parts(zstd.compress), 400, "unreadable-body", id="many parts of zstd"),
        ("zstd", _wide(npy(FIELD)) * 2, 400, "unreadable-body"),
        ("br", npy(FIELD), 415, "unsupported-media-type"),
        ("gzip, zstd", npy(FIELD), 415, "unsupported-media-type"),
    ],
)
def test_what_is_not_so_compressed_is_refused(
    http: httpx2.Client, encoding: str, body: bytes, status: int, kind: str
) -> None:
    response = http.post(PATH, content=body, headers={**NPY, "Content-Encoding": encoding})
    assert (response.status_code, response.json()["type"]) == (status, f"urn:petrov:problem:{kind}")
    assert response.headers.get("accept-encoding") == ("gzip, zstd, identity" if status == 415 else None)


@pytest.mark.parametrize(
    ("accepted", "encoding"),
    [
        ("gzip, deflate, br, zstd", "zstd"),
        ("gzip, deflate, br", "gzip"),
        ("zstd;q=0.5, gzip", "gzip"),
        ("*", "zstd"),
        ("zstd;q=0, *;q=0.1", "gzip"),
        ("gzip;q=0", None),
        ("identity", None),
        ("br", None),
    ],
)
def test_the_client_chooses(http: httpx2.Client, accepted: str, encoding: str | None) -> None:
    for path in ("/metrics", "/v1/models", "/playground/app.js"):
        response = http.get(path, headers={"Accept-Encoding": accepted})
        assert response.headers.get("content-encoding") == encoding
        assert response.headers["vary"] == "Accept-Encoding"
        assert len(response.text) > 1000
    assert "content-encoding" not in http.get("/health/live", headers={"Accept-Encoding": accepted}).headers


def test_the_frames_of_a_rollout_are_compressed(gateway: Gateway, http: httpx2.Client) -> None:
    first = np.ones((1, 8), np.float32)
    with petrov_client.Client(gateway.url) as plain, petrov_client.Client(gateway.url, compression="zstd") as client:
        expected = list(plain.rollout_stream(toy_rollouts.NAME, first, frames=5))
        np.testing.assert_array_equal(list(client.rollout_stream(toy_rollouts.NAME, first, frames=5)), expected)
    headers = {**NPY, "Accept-Encoding": "zstd"}
    path = f"/v1/models/{toy_rollouts.NAME}/rollout?frames=5"
    with http.stream("POST", path, content=npy(first), headers=headers) as response:
        assert response.headers["content-encoding"] == "zstd"
        assert response.read().count(b"Petrov-Frame: ") == len(expected)


@pytest.mark.parametrize("encoding", DEFLATE)
async def test_a_compressor_is_counted_until_the_last_piece(encoding: str) -> None:
    ticket = Ticket(Admission(1, LIMIT))
    held = list[int]()

    async def respond(_: Scope, __: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200})
        for last in (False, False, True):
            await send({"type": "http.response.body", "body": bytes(2**18), "more_body": not last})

    async def send(_: Message) -> None:
        held.append(ticket.held)

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    headers = [(b"accept-encoding", encoding.encode())]
    scope = {"type": "http", "headers": headers, "state": {"ticket": ticket}}
    await Compression(respond, [encoding])(scope, receive, send)
    head, first, second, last = held
    assert head == first == second >= 2**18
    assert last == 0


def test_tritons_own_client_compresses(gateway: Gateway) -> None:
    value = tritonclient.http.InferInput("coefficient", FIELD.shape, "FP32")
    value.set_data_from_numpy(FIELD)
    with tritonclient.http.InferenceServerClient(gateway.url.removeprefix("http://")) as client:
        plain = client.infer("blur", [value]).as_numpy("solution")
        gzipped = client.infer(
            "blur", [value], request_compression_algorithm="gzip", response_compression_algorithm="gzip"
        )
        with pytest.raises(InferenceServerException, match="deflate"):
            client.infer("blur", [value], request_compression_algorithm="deflate")
    np.testing.assert_array_equal(gzipped.as_numpy("solution"), plain)


@pytest.mark.parametrize("encoding", DEFLATE)
async def test_the_client_compresses_when_told_to(
    gateway: Gateway, encoding: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "petrov.access")
    with petrov_client.Client(gateway.url) as client:
        expected = client.predict("blur", FIELD)
    with petrov_client.Client(gateway.url, compression=encoding) as client:
        np.testing.assert_array_equal(client.predict("blur", FIELD), expected)
    async with petrov_client.AsyncClient(gateway.url, compression=encoding) as client:
        np.testing.assert_array_equal(await client.predict("blur", FIELD), expected)

    def sizes() -> list[int]:
        fields = [vars(record)["fields"] for record in caplog.records if "/predict " in record.getMessage()]
        return [each["bytes_in"] + each["bytes_out"] for each in fields]

    wait_until(lambda: len(sizes()) == 3)  # a request is logged behind its response
    plain, *compressed = sizes()
    assert plain > 2 * FIELD.nbytes
    assert max(compressed) < plain / 4


def test_an_encoding_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match='expected compression "gzip" or "zstd" but got "br"'):
        petrov_client.Client(compression="br")  # type: ignore[arg-type]
