"""Damaged bodies in every format: the gateway's responses, and the growth of its memory.

Each body starts as a valid one; then bits are flipped, and parts are cut, appended, spliced, forged or repeated. The
response must be a success or a client error, must arrive in time, and must leave the gateway's memory unchanged.
"""

from __future__ import annotations

import base64
import gc
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import grpc
import httpx2
import numpy as np
import psutil
from tritonclient.grpc import service_pb2

Mutation = Callable[[np.random.Generator, bytes], bytes]

WARM = 10  # bodies per format; the first few allocate memory that stays
GROWTH = 50 * 2**20
SECONDS = 10.0  # for one response, on a busy machine
REPETITIONS = 100_000
JSON_BYTES = "Inference-Header-Content-Length"
NPY, JSON, SAFETENSORS = "application/x-npy", "application/json", "application/vnd.safetensors"
FIELDS = np.random.default_rng(3).uniform(3, 12, (2, 9, 8)).astype(np.float32)
ENCODED = {"shape": list(FIELDS.shape), "dtype": "float32", "base64": base64.b64encode(FIELDS.tobytes()).decode()}
WRONG_NUMBERS = (
    b"0",
    b"-1",
    b"1e9",
    b"1.5",
    b"4294967296",
    b"9" * 18,
    b"9" * 20,
    b"9" * 400,
    b"true",
    b"null",
    b'"8"',
    b"[[]]",
)
EXTREMES = (0, 1, 2**15, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1)
REPEATED = (b"[", b"{", b'{"a":', b"[[],", b"0,", b"1e308,", b'"9', b"\\u0000", b"\x00", b"\xff", b"(1,", b" ")
CLIENT_FAULTS = {grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND}


@dataclass(frozen=True)
class Valid:
    """A valid request over HTTP."""

    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Outcome:
    """The responses to the bodies of one format.

    Attributes:
        statuses: The number of responses per status.
        faults: A line per response that is neither a success nor a client error.
        grown: The growth of the gateway's memory after the first few bodies, in bytes.
    """

    statuses: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    grown: int = 0


def valid(model: str, name: str) -> dict[str, Valid]:
    """Return a valid request to a model with one input, in every format of HTTP."""
    first, second = f"/v1/models/{model}/predict", f"/v2/models/{model}/infer"
    tensor = described(name)
    head = json.dumps({"inputs": [tensor | {"parameters": {"binary_data_size": FIELDS.nbytes}}]}).encode()
    listed = json.dumps({"inputs": [tensor | {"data": FIELDS.reshape(-1).tolist()}]}).encode()
    return {
        "npy": Valid(first, {"Content-Type": NPY}, npy()),
        "lists": Valid(first, {"Content-Type": JSON}, json.dumps({"inputs": {name: FIELDS.tolist()}}).encode()),
        "base64": Valid(first, {"Content-Type": JSON}, json.dumps({"inputs": {name: ENCODED}}).encode()),
        "safetensors": Valid(first, {"Content-Type": SAFETENSORS}, safetensors(name)),
        "v2 lists": Valid(second, {}, listed),
        "v2 bytes": Valid(second, {JSON_BYTES: str(len(head))}, head + FIELDS.tobytes()),
    }


def described(name: str) -> dict[str, Any]:
    """Return the description of the fields in the Open Inference Protocol."""
    return {"name": name, "shape": list(FIELDS.shape), "datatype": "FP32"}


def npy() -> bytes:
    """Return the fields as an .npy file."""
    file = io.BytesIO()
    np.save(file, FIELDS)
    return file.getvalue()


def safetensors(name: str) -> bytes:
    """Return the fields as a safetensors file: the length of the header, the header, the values."""
    entry = {"dtype": "F32", "shape": list(FIELDS.shape), "data_offsets": [0, FIELDS.nbytes]}
    head = json.dumps({name: entry}).encode()
    return len(head).to_bytes(8, "little") + head + FIELDS.tobytes()


def message(model: str, name: str) -> bytes:
    """Return a valid message for gRPC."""
    request = service_pb2.ModelInferRequest(
        model_name=model, inputs=[described(name)], raw_input_contents=[FIELDS.tobytes()]
    )
    return bytes(request.SerializeToString())


def flipped(random: np.random.Generator, body: bytes) -> bytes:
    """Flip a few bits."""
    changed = np.frombuffer(body, np.uint8).copy()
    offsets = random.integers(len(body), size=random.integers(1, 9))
    changed[offsets] ^= (1 << random.integers(8, size=len(offsets))).astype(np.uint8)
    return changed.tobytes()


def truncated(random: np.random.Generator, body: bytes) -> bytes:
    """Cut the end."""
    return body[: random.integers(len(body))]


def lengthened(random: np.random.Generator, body: bytes) -> bytes:
    """Append the body again, or random bytes."""
    return body + (body if random.random() < 0.5 else random.bytes(int(random.integers(1, 2000))))


def renumbered(random: np.random.Generator, body: bytes) -> bytes:
    """Replace a number in the header."""
    numbers = list(re.finditer(rb"\d+", body[:400]))
    if not numbers:
        return body
    number = numbers[random.integers(len(numbers))]
    return body[: number.start()] + WRONG_NUMBERS[random.integers(len(WRONG_NUMBERS))] + body[number.end() :]


def forged(random: np.random.Generator, body: bytes) -> bytes:
    """Write an extreme integer into the first bytes."""
    offset, size = int(random.integers(min(len(body), 128))), int(random.choice([1, 2, 4, 8]))
    extreme: int = EXTREMES[random.integers(len(EXTREMES))] % 256**size
    return body[:offset] + extreme.to_bytes(size, "little") + body[offset + size :]


def spliced(random: np.random.Generator, body: bytes) -> bytes:
    """Insert a copy of a part elsewhere."""
    first, last = sorted(int(offset) for offset in random.integers(len(body) + 1, size=2))
    offset = int(random.integers(len(body) + 1))
    return body[:offset] + body[first:last] + body[offset:]


def inflated(random: np.random.Generator, body: bytes) -> bytes:
    """Insert very many repetitions of something."""
    offset = int(random.integers(len(body) + 1))
    return (
        body[:offset] + REPEATED[random.integers(len(REPEATED))] * int(random.integers(1, REPETITIONS)) + body[offset:]
    )


MUTATIONS: tuple[Mutation, ...] = (flipped, truncated, lengthened, renumbered, forged, spliced, inflated)


def bodies(seed: int, whole: bytes, count: int) -> Iterator[tuple[np.random.Generator, bytes]]:
    """Yield damaged bodies, the same ones in every run."""
    for number in range(count):
        random = np.random.default_rng([seed, number])
        body = whole
        for mutation in random.choice(len(MUTATIONS), size=random.integers(1, 4)):
            body = MUTATIONS[mutation](random, body) or b"\n"
        yield random, body


def headers_of(random: np.random.Generator, headers: dict[str, str]) -> dict[str, str]:
    """Return the headers, sometimes wrong ones."""
    choice = random.random()
    if choice < 0.05:
        return {**headers, JSON_BYTES: WRONG_NUMBERS[random.integers(len(WRONG_NUMBERS))].decode()}
    if choice < 0.1:
        return {**headers, "Content-Type": str(random.choice([NPY, JSON, SAFETENSORS]))}
    if choice < 0.12:
        return {**headers, "Content-Encoding": "gzip"}
    return headers


def over_http(client: httpx2.Client, kind: Valid, seed: int, count: int, gateway: psutil.Process) -> Outcome:
    """Send damaged bodies of one format; a response that is too late raises an exception.

    Args:
        client: A client of the gateway.
        kind: The valid request.
        seed: The seed of the damage.
        count: The number of bodies.
        gateway: The gateway's process.
    """
    outcome, before = Outcome(), 0
    for number, (random, body) in enumerate(bodies(seed, kind.body, count)):
        response = client.post(kind.path, content=body, headers=headers_of(random, kind.headers))
        outcome.statuses[str(response.status_code)] += 1
        if response.is_server_error or not (response.is_success or response.json()):
            outcome.faults.append(f"body {number}: {response.status_code} {response.text}")
        before = resident(gateway) if number == WARM else before
    outcome.grown = resident(gateway) - before
    return outcome


def over_grpc(call: Any, whole: bytes, seed: int, count: int, gateway: psutil.Process) -> Outcome:
    """Send damaged messages; a response that is too late is a fault.

    Args:
        call: The gRPC method.
        whole: The valid message.
        seed: The seed of the damage.
        count: The number of messages.
        gateway: The gateway's process.
    """
    outcome, before = Outcome(), 0
    for number, (_, body) in enumerate(bodies(seed, whole, count)):
        response = call.future(body, timeout=SECONDS)
        outcome.statuses[response.code().name] += 1
        if response.code() not in CLIENT_FAULTS:
            outcome.faults.append(f"message {number}: {response.code().name} {response.details()}")
        before = resident(gateway) if number == WARM else before
    outcome.grown = resident(gateway) - before
    return outcome


def resident(process: psutil.Process) -> int:
    """Return the resident bytes of a process, which may be this one."""
    gc.collect()
    return int(process.memory_info().rss)
