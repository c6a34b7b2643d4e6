"""Bodies that were damaged on the way, or written to do harm, in every format, through the real application.

Each body starts as a good one and is flipped, cut, stretched, spliced, forged or blown up. Whatever becomes of it, the
answer is a good one or the caller's fault, it comes at once, and memory stays where it was. `make test` sends a few
hundred; many more:

    MALFORMED_BODIES=10000 .venv/bin/python -m pytest tests/serving/test_malformed.py
"""

from __future__ import annotations

import base64
import gc
import json
import os
import re
import tracemalloc
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import grpc
import httpx2
import numpy as np
import psutil
import pytest
from tritonclient.grpc import service_pb2

from serving import arrays, npy, safetensors
from serving.open_inference.rest_exchange import RestExchange
from serving.problem_details import Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conftest import Gateway

    Mutation = Callable[[np.random.Generator, bytes], bytes]

COUNT = int(os.environ.get("MALFORMED_BODIES", "420"))
WARM = 10  # the first few allocate what stays
GROWTH = 50 * 2**20
SECONDS = 10.0  # of one answer, on a busy machine
BLOWN = 100_000
V1, V2 = "/v1/models/blur/predict", "/v2/models/blur/infer"
JSON_BYTES = "Inference-Header-Content-Length"
FIELDS = np.random.default_rng(3).uniform(3, 12, (2, 9, 8)).astype(np.float32)
DESCRIBED = {"name": "coefficient", "shape": list(FIELDS.shape), "datatype": "FP32"}
CODED = {"shape": list(FIELDS.shape), "dtype": "float32", "base64": base64.b64encode(FIELDS.tobytes()).decode()}
BINARY = json.dumps({"inputs": [DESCRIBED | {"parameters": {"binary_data_size": FIELDS.nbytes}}]}).encode()
HTTP = {
    "npy": (V1, {"Content-Type": npy.MEDIA_TYPE}, npy.write(FIELDS)),
    "lists": (
        V1,
        {"Content-Type": "application/json"},
        json.dumps({"inputs": {"coefficient": FIELDS.tolist()}}).encode(),
    ),
    "base64": (V1, {"Content-Type": "application/json"}, json.dumps({"inputs": {"coefficient": CODED}}).encode()),
    "safetensors": (V1, {"Content-Type": safetensors.MEDIA_TYPE}, safetensors.write({"coefficient": FIELDS}, {})),
    "v2 lists": (V2, {}, json.dumps({"inputs": [DESCRIBED | {"data": FIELDS.reshape(-1).tolist()}]}).encode()),
    "v2 bytes": (V2, {JSON_BYTES: str(len(BINARY))}, BINARY + FIELDS.tobytes()),
}
MESSAGE = service_pb2.ModelInferRequest(
    model_name="blur", inputs=[DESCRIBED], raw_input_contents=[FIELDS.tobytes()]
).SerializeToString()
LIES = (b"0", b"-1", b"1e9", b"1.5", b"4294967296", b"9" * 18, b"9" * 20, b"9" * 400, b"true", b"null", b'"8"', b"[[]]")
EXTREMES = (0, 1, 2**15, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1)
BOMBS = (b"[", b"{", b'{"a":', b"[[],", b"0,", b"1e308,", b'"9', b"\\u0000", b"\x00", b"\xff", b"(1,", b" ")


def flipped(random: np.random.Generator, body: bytes) -> bytes:
    changed = np.frombuffer(body, np.uint8).copy()
    places = random.integers(len(body), size=random.integers(1, 9))
    changed[places] ^= (1 << random.integers(8, size=len(places))).astype(np.uint8)
    return changed.tobytes()


def truncated(random: np.random.Generator, body: bytes) -> bytes:
    return body[: random.integers(len(body))]


def lengthened(random: np.random.Generator, body: bytes) -> bytes:
    return body + (body if random.random() < 0.5 else random.bytes(int(random.integers(1, 2000))))


def lying(random: np.random.Generator, body: bytes) -> bytes:
    numbers = list(re.finditer(rb"\d+", body[:400]))
    if not numbers:
        return body
    number = numbers[random.integers(len(numbers))]
    return body[: number.start()] + LIES[random.integers(len(LIES))] + body[number.end() :]


def forged(random: np.random.Generator, body: bytes) -> bytes:
    place, size = int(random.integers(min(len(body), 128))), int(random.choice([1, 2, 4, 8]))
    extreme = EXTREMES[random.integers(len(EXTREMES))] % 256**size
    return body[:place] + extreme.to_bytes(size, "little") + body[place + size :]


def spliced(random: np.random.Generator, body: bytes) -> bytes:
    first, last = sorted(int(place) for place in random.integers(len(body) + 1, size=2))
    place = int(random.integers(len(body) + 1))
    return body[:place] + body[first:last] + body[place:]


def blown(random: np.random.Generator, body: bytes) -> bytes:
    place = int(random.integers(len(body) + 1))
    return body[:place] + BOMBS[random.integers(len(BOMBS))] * int(random.integers(1, BLOWN)) + body[place:]


MUTATIONS: tuple[Mutation, ...] = (flipped, truncated, lengthened, lying, forged, spliced, blown)


def bodies(seed: int, good: bytes) -> Iterator[tuple[np.random.Generator, bytes]]:
    """An equal share of all bodies; the same ones every time."""
    for number in range(max(2 * WARM, COUNT // (len(HTTP) + 1))):
        random = np.random.default_rng([seed, number])
        body = good
        for mutation in random.choice(len(MUTATIONS), size=random.integers(1, 4)):
            body = MUTATIONS[mutation](random, body) or b"\n"
        yield random, body


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
    exchange = (
        RestExchange(bytearray(body), None, ["solution"])
        if path == V2
        else arrays.Body(bytearray(body), arrays.JSON, arrays.JSON)
    )
    tracemalloc.start()
    try:
        with suppress(Refused):  # or it is an array, and no model takes it
            exchange.read(["coefficient"], 2**20)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 50 * len(body)  # an empty list of two bytes takes 56 by itself


def resident() -> int:
    """Bytes of this process, in which the gateway runs too."""
    gc.collect()
    return int(psutil.Process().memory_info().rss)


@pytest.fixture(scope="module")
def client(gateway: Gateway) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=gateway.url, timeout=SECONDS) as client:
        yield client


@pytest.mark.parametrize("kind", HTTP)
def test_nothing_malformed_is_our_fault_over_http(client: httpx2.Client, kind: str) -> None:
    path, headers, good = HTTP[kind]
    assert client.post(path, content=good, headers=headers).status_code == 200
    before, statuses = 0, set[int]()
    for number, (random, body) in enumerate(bodies(list(HTTP).index(kind), good)):
        response = client.post(path, content=body, headers=sent(random, headers))
        assert response.status_code < 500, (number, response.text)
        assert response.json() if response.status_code != 200 else response.content
        statuses.add(response.status_code)
        before = resident() if number == WARM else before
    assert 400 in statuses
    assert resident() - before < GROWTH
    assert client.post(path, content=good, headers=headers).status_code == 200


def sent(random: np.random.Generator, headers: dict[str, str]) -> dict[str, str]:
    """The headers, some of them wrong as well."""
    choice = random.random()
    if choice < 0.05:
        return {**headers, JSON_BYTES: LIES[random.integers(len(LIES))].decode()}
    if choice < 0.1:
        return {**headers, "Content-Type": arrays.MEDIA_TYPES[random.integers(len(arrays.MEDIA_TYPES))]}
    if choice < 0.12:
        return {**headers, "Content-Encoding": "gzip"}
    return headers


def test_nothing_malformed_is_our_fault_over_grpc(gateway: Gateway) -> None:
    ours = {grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND}
    with grpc.insecure_channel(f"127.0.0.1:{gateway.settings.grpc_port}") as channel:
        call: Any = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        before, codes = 0, set[grpc.StatusCode]()
        for number, (_, body) in enumerate(bodies(len(HTTP), MESSAGE)):
            answer = call.future(body, timeout=SECONDS)
            assert answer.code() in ours, (number, answer.details())
            codes.add(answer.code())
            before = resident() if number == WARM else before
        assert grpc.StatusCode.INVALID_ARGUMENT in codes
        assert resident() - before < GROWTH
        assert call(MESSAGE, timeout=SECONDS)
