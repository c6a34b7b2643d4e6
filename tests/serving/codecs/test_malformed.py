"""Bodies that were damaged on the way, or written to do harm, in every format, through the real application."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import grpc
import httpx2
import psutil
import pytest

from serving.document import JSON
from serving.errors import Problem
from serving.protocols.open_inference import RestExchange
from serving.protocols.v1 import Body
from tests.conftest import Gateway
from tests.serving.codecs import malformed
from tests.serving.codecs.malformed import GROWTH, SECONDS
from tests.toy_fields import taking

CARD = taking("coefficient")
COUNTS = [30, pytest.param(600, marks=pytest.mark.deep)]  # of each format
V1, V2 = "/v1/models/blur/predict", "/v2/models/blur/infer"
HTTP = malformed.valid("blur", "coefficient")
N = 20_000
TENSOR = b'{"name": "coefficient", "datatype": "FP32", "shape": [1], "data": [1.0]}'
COSTLY: dict[str, tuple[str, bytes]] = {
    "v1 lists": (V1, b'{"inputs": {"coefficient": [' + b"[]," * N + b"[]]}}"),
    "v1 names": (V1, b'{"inputs": {' + b",".join(b'"%d": 1' % i for i in range(N)) + b"}}"),
    "v1 keys": (V1, b'{"inputs": {"coefficient": {' + b",".join(b'"%d": 1' % i for i in range(N)) + b"}}}"),
    "v1 sizes": (V1, b'{"inputs": {"coefficient": {"dtype": "float32", "shape": [' + b'"x",' * N + b'"x"]}}}'),
    "v2 tensors": (V2, b'{"inputs": [' + b"[]," * N + b"[]]}"),
    "v2 good tensors": (V2, b'{"inputs": [' + b",".join([TENSOR] * N) + b"]}"),
    "v2 sizes": (V2, b'{"inputs": [' + TENSOR.replace(b"[1]", b"[" + b'"x",' * N + b"1]") + b"]}"),
    "v2 data": (V2, b'{"inputs": [' + TENSOR.replace(b"[1.0]", b"[" + b"[]," * N + b"[]]") + b"]}"),
    "v2 keys": (V2, b"{" + b",".join(b'"%d": 1' % i for i in range(N)) + b"}"),
}


@pytest.mark.parametrize("kind", COSTLY)
def test_json_costs_no_more_than_its_values(kind: str) -> None:
    path, body = COSTLY[kind]
    exchange = RestExchange(bytearray(body), None) if path == V2 else Body(bytearray(body), JSON, JSON)
    tracemalloc.start()
    try:
        with suppress(Problem):  # or it is an array, and no model takes it
            exchange.read(CARD, 2**20)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 50 * len(body)  # an empty list of two bytes takes 56 by itself


@pytest.fixture(scope="module")
def client(gateway: Gateway) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=gateway.url, timeout=SECONDS) as client:
        yield client


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("kind", HTTP)
def test_nothing_malformed_is_our_fault_over_http(client: httpx2.Client, kind: str, count: int) -> None:
    good = HTTP[kind]
    assert client.post(good.path, content=good.body, headers=good.headers).status_code == 200
    outcome = malformed.over_http(client, good, list(HTTP).index(kind), count, psutil.Process())
    assert outcome.faults == []
    assert outcome.statuses["400"]
    assert outcome.grown < GROWTH
    assert client.post(good.path, content=good.body, headers=good.headers).status_code == 200


@pytest.mark.parametrize("count", COUNTS)
def test_nothing_malformed_is_our_fault_over_grpc(gateway: Gateway, count: int) -> None:
    message = malformed.message("blur", "coefficient")
    with grpc.insecure_channel(f"127.0.0.1:{gateway.settings.grpc_port}") as channel:
        call: Any = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        outcome = malformed.over_grpc(call, message, len(HTTP), count, psutil.Process())
        assert outcome.faults == []
        assert outcome.statuses["INVALID_ARGUMENT"]
        assert outcome.grown < GROWTH
        assert call(message, timeout=SECONDS)
