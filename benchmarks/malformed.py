"""Takes a gateway, throws damaged bodies at it in every format, and gives what it said and what it cost in memory.

Each body starts as a good one and is flipped, cut, stretched, spliced, forged or blown up. Whatever becomes of it, the
answer is a good one or the caller's fault, it comes at once, and memory stays where it was.

    .venv/bin/python -m benchmarks.malformed --bodies 10000
"""

from __future__ import annotations

import base64
import gc
import io
import json
import re
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import grpc
import httpx2
import numpy as np
import psutil
import typer
from rich.console import Console
from rich.table import Table
from tritonclient.grpc import service_pb2

from benchmarks import identity
from benchmarks.service import Addresses, running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Mutation = Callable[[np.random.Generator, bytes], bytes]

WARM = 10  # bodies of a format; the first few allocate what stays
GROWTH = 50 * 2**20
SECONDS = 10.0  # of one answer, on a busy machine
BLOWN = 100_000
MEBIBYTE = 2**20
JSON_BYTES = "Inference-Header-Content-Length"
NPY, JSON, SAFETENSORS = "application/x-npy", "application/json", "application/vnd.safetensors"
FIELDS = np.random.default_rng(3).uniform(3, 12, (2, 9, 8)).astype(np.float32)
CODED = {"shape": list(FIELDS.shape), "dtype": "float32", "base64": base64.b64encode(FIELDS.tobytes()).decode()}
LIES = (b"0", b"-1", b"1e9", b"1.5", b"4294967296", b"9" * 18, b"9" * 20, b"9" * 400, b"true", b"null", b'"8"', b"[[]]")
EXTREMES = (0, 1, 2**15, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1)
BOMBS = (b"[", b"{", b'{"a":', b"[[],", b"0,", b"1e308,", b'"9', b"\\u0000", b"\x00", b"\xff", b"(1,", b" ")
OURS = {grpc.StatusCode.OK, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND}
GRPC = "gRPC"
HEADER = ("format", "bodies", "answers", "slowest, ms", "memory, MiB")


@dataclass(frozen=True)
class Good:
    """A good question over HTTP."""

    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Outcome:
    """What became of the bodies of one format.

    Attributes:
        answers: How often each status came.
        faults: A line for every answer that was not the caller's fault.
        slowest: Seconds.
        grown: Bytes that the gateway's process holds more than after the first few.
    """

    answers: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    slowest: float = 0.0
    grown: int = 0


def good(model: str, name: str) -> dict[str, Good]:
    """Give a good question to a model of one input, in every format of HTTP."""
    first, second = f"/v1/models/{model}/predict", f"/v2/models/{model}/infer"
    tensor = described(name)
    head = json.dumps({"inputs": [tensor | {"parameters": {"binary_data_size": FIELDS.nbytes}}]}).encode()
    listed = json.dumps({"inputs": [tensor | {"data": FIELDS.reshape(-1).tolist()}]}).encode()
    return {
        "npy": Good(first, {"Content-Type": NPY}, npy()),
        "lists": Good(first, {"Content-Type": JSON}, json.dumps({"inputs": {name: FIELDS.tolist()}}).encode()),
        "base64": Good(first, {"Content-Type": JSON}, json.dumps({"inputs": {name: CODED}}).encode()),
        "safetensors": Good(first, {"Content-Type": SAFETENSORS}, safetensors(name)),
        "v2 lists": Good(second, {}, listed),
        "v2 bytes": Good(second, {JSON_BYTES: str(len(head))}, head + FIELDS.tobytes()),
    }


def described(name: str) -> dict[str, Any]:
    """Give the fields as the Open Inference Protocol describes them."""
    return {"name": name, "shape": list(FIELDS.shape), "datatype": "FP32"}


def npy() -> bytes:
    """Give the fields as an .npy file."""
    file = io.BytesIO()
    np.save(file, FIELDS)
    return file.getvalue()


def safetensors(name: str) -> bytes:
    """Give the fields as a safetensors file: the header's length, the header, the numbers."""
    entry = {"dtype": "F32", "shape": list(FIELDS.shape), "data_offsets": [0, FIELDS.nbytes]}
    head = json.dumps({name: entry}).encode()
    return len(head).to_bytes(8, "little") + head + FIELDS.tobytes()


def message(model: str, name: str) -> bytes:
    """Give a good question over gRPC."""
    request = service_pb2.ModelInferRequest(
        model_name=model, inputs=[described(name)], raw_input_contents=[FIELDS.tobytes()]
    )
    return bytes(request.SerializeToString())


def flipped(random: np.random.Generator, body: bytes) -> bytes:
    """Give a body with a few bits that were others."""
    changed = np.frombuffer(body, np.uint8).copy()
    places = random.integers(len(body), size=random.integers(1, 9))
    changed[places] ^= (1 << random.integers(8, size=len(places))).astype(np.uint8)
    return changed.tobytes()


def truncated(random: np.random.Generator, body: bytes) -> bytes:
    """Give a body that ends early."""
    return body[: random.integers(len(body))]


def lengthened(random: np.random.Generator, body: bytes) -> bytes:
    """Give a body that does not end where it should."""
    return body + (body if random.random() < 0.5 else random.bytes(int(random.integers(1, 2000))))


def lying(random: np.random.Generator, body: bytes) -> bytes:
    """Give a body with another number in its head."""
    numbers = list(re.finditer(rb"\d+", body[:400]))
    if not numbers:
        return body
    number = numbers[random.integers(len(numbers))]
    return body[: number.start()] + LIES[random.integers(len(LIES))] + body[number.end() :]


def forged(random: np.random.Generator, body: bytes) -> bytes:
    """Give a body with an extreme integer in its first bytes."""
    place, size = int(random.integers(min(len(body), 128))), int(random.choice([1, 2, 4, 8]))
    extreme = EXTREMES[random.integers(len(EXTREMES))] % 256**size
    return body[:place] + extreme.to_bytes(size, "little") + body[place + size :]


def spliced(random: np.random.Generator, body: bytes) -> bytes:
    """Give a body with a part of it once more, elsewhere."""
    first, last = sorted(int(place) for place in random.integers(len(body) + 1, size=2))
    place = int(random.integers(len(body) + 1))
    return body[:place] + body[first:last] + body[place:]


def blown(random: np.random.Generator, body: bytes) -> bytes:
    """Give a body with very many of something in it."""
    place = int(random.integers(len(body) + 1))
    return body[:place] + BOMBS[random.integers(len(BOMBS))] * int(random.integers(1, BLOWN)) + body[place:]


MUTATIONS: tuple[Mutation, ...] = (flipped, truncated, lengthened, lying, forged, spliced, blown)


def bodies(seed: int, whole: bytes, count: int) -> Iterator[tuple[np.random.Generator, bytes]]:
    """Give so many damaged bodies; the same ones every time."""
    for number in range(count):
        random = np.random.default_rng([seed, number])
        body = whole
        for mutation in random.choice(len(MUTATIONS), size=random.integers(1, 4)):
            body = MUTATIONS[mutation](random, body) or b"\n"
        yield random, body


def headers_of(random: np.random.Generator, headers: dict[str, str]) -> dict[str, str]:
    """Give the headers, some of them wrong as well."""
    choice = random.random()
    if choice < 0.05:
        return {**headers, JSON_BYTES: LIES[random.integers(len(LIES))].decode()}
    if choice < 0.1:
        return {**headers, "Content-Type": str(random.choice([NPY, JSON, SAFETENSORS]))}
    if choice < 0.12:
        return {**headers, "Content-Encoding": "gzip"}
    return headers


def over_http(client: httpx2.Client, kind: Good, seed: int, count: int, gateway: psutil.Process) -> Outcome:
    """Send damaged bodies of one format; an answer that does not come in time raises."""
    outcome, before = Outcome(), 0
    for number, (random, body) in enumerate(bodies(seed, kind.body, count)):
        start = time.perf_counter()
        answer = client.post(kind.path, content=body, headers=headers_of(random, kind.headers))
        outcome.slowest = max(outcome.slowest, time.perf_counter() - start)
        outcome.answers[str(answer.status_code)] += 1
        if answer.is_server_error or not (answer.is_success or answer.json()):
            outcome.faults.append(f"body {number}: {answer.status_code} {answer.text}")
        before = resident(gateway) if number == WARM else before
    outcome.grown = resident(gateway) - before
    return outcome


def over_grpc(call: Any, whole: bytes, seed: int, count: int, gateway: psutil.Process) -> Outcome:
    """Send damaged messages; one that is not answered in time is a fault."""
    outcome, before = Outcome(), 0
    for number, (_, body) in enumerate(bodies(seed, whole, count)):
        start = time.perf_counter()
        answer = call.future(body, timeout=SECONDS)
        outcome.answers[answer.code().name] += 1
        outcome.slowest = max(outcome.slowest, time.perf_counter() - start)
        if answer.code() not in OURS:
            outcome.faults.append(f"message {number}: {answer.code().name} {answer.details()}")
        before = resident(gateway) if number == WARM else before
    outcome.grown = resident(gateway) - before
    return outcome


def resident(process: psutil.Process) -> int:
    """Give the bytes that a process holds, which may be this one."""
    gc.collect()
    return int(process.memory_info().rss)


def outcomes(service: Addresses, count: int, gateway: psutil.Process) -> Iterator[tuple[str, Outcome]]:
    """Give what became of `count` bodies, by their formats."""
    kinds = good(identity.MODEL, identity.QUESTION)
    share = -(-count // (len(kinds) + 1))
    with httpx2.Client(base_url=service.gateway, timeout=SECONDS) as client:
        for seed, (name, kind) in enumerate(kinds.items()):
            yield name, over_http(client, kind, seed, share, gateway)
    with grpc.insecure_channel(service.gateway_grpc) as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        whole = message(identity.MODEL, identity.QUESTION)
        yield GRPC, over_grpc(call, whole, len(kinds), share, gateway)


def main(bodies: Annotated[int, typer.Option(help="How many.", min=100)] = 10_000) -> None:
    """Throw bodies at a gateway; the exit status is 1 after a fault, or when its memory has grown beyond 50 MiB."""
    table = Table(*HEADER, title=f"{bodies} malformed bodies")
    with tempfile.TemporaryDirectory() as folder, running(identity.write(Path(folder))) as service:
        [gateway] = psutil.Process().children()
        found = dict(outcomes(service, bodies, gateway))
    for name, each in found.items():
        answers = ", ".join(f"{count} x {status}" for status, count in sorted(each.answers.items()))
        figures = (str(each.answers.total()), answers, f"{1e3 * each.slowest:.0f}", f"{each.grown / MEBIBYTE:+.1f}")
        table.add_row(name, *figures)
    console = Console()
    console.print(table)
    for line in (fault for each in found.values() for fault in each.faults):
        console.print(line, markup=False)
    grown = sum(each.grown for each in found.values())
    console.print(f"memory: {grown / MEBIBYTE:+.1f} MiB in all")
    raise typer.Exit(1 if grown > GROWTH or any(each.faults for each in found.values()) else 0)


if __name__ == "__main__":
    typer.run(main)
