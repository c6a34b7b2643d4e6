"""A program that decodes and encodes a body of each format as the gateway does; it prints JSON, a line per format.

A line has the name, the growth of the peak of resident memory and the most that was counted (`serving.limits`), in
bytes, and the bytes of the body. It is a program of its own since tests beside it would take memory, too.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from safetensors.numpy import save
from starlette.requests import Request
from tritonclient.grpc import service_pb2

from schema.card import Card, Parameter
from schema.problem import Frames
from serving import system
from serving.codecs.binary import NPY, SAFETENSORS, Buffer, write_npy
from serving.document import JSON
from serving.inputs import Exchange, Prediction
from serving.limits import ANYONE, Ticket
from serving.predict import respond
from serving.protocols import messages, over_http
from serving.protocols.open_inference import RestExchange
from serving.protocols.tesseract_bodies import TesseractBody
from serving.protocols.v1 import Body
from serving.quality import ANY, Policy, Quality
from serving.service import Service
from serving.settings import Settings
from serving.triton import Triton
from tests.toy_fields import taking

FIELD = (64, 64)
SAMPLES, OF_JSON = 1024, 128  # 16 MiB in float32; 4 MiB of lists
Make = Callable[[Buffer], Exchange[Any]]


class Counted(Ticket):
    """A ticket that keeps the most that it held."""

    most = 0

    def add(self, count: int) -> None:
        super().add(count)
        self.most = max(self.most, self.held)


def formats() -> Iterator[tuple[str, bytes, int | None, Make]]:
    """Yield name, body, bytes of its JSON (None: all of them), and the exchange."""
    fields = np.random.default_rng(0).random((SAMPLES, *FIELD), np.float32) + 1
    few, whole = fields[:OF_JSON], np.full((4 * OF_JSON, *FIELD), 6)

    def listed(document: Any) -> bytes:
        return orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)

    def body(media: str) -> Make:
        return lambda content: Body(content, media, media)

    last = whole.astype(object)
    last[-1, -1, -1] = 6.5
    coded = {"dtype": "float32", "shape": fields.shape}
    text = base64.b64encode(fields.tobytes()).decode()
    array = {**coded, "object_type": "array", "data": {"buffer": text, "encoding": "base64"}}
    one = base64.b64encode(fields[:1].tobytes()).decode()
    single = {**array, "shape": [1, *FIELD], "data": {"buffer": one, "encoding": "base64"}}
    tensor = {"name": "a", "datatype": "FP32"}
    flat = {**tensor, "shape": whole.shape, "data": whole.reshape(-1)}
    described = {**tensor, "shape": list(fields.shape), "parameters": {"binary_data_size": fields.nbytes}}
    head = listed({"inputs": [described], "parameters": {"binary_data_output": True}})
    message = service_pb2.ModelInferRequest(model_name="m", raw_input_contents=[fields.tobytes()])
    message.inputs.add(name="a", datatype="FP32", shape=fields.shape)
    yield "JSON, decimals", listed({"inputs": {"a": few}}), None, body(JSON)
    yield "JSON, digits", listed({"inputs": {"a": whole}}), None, body(JSON)
    yield "JSON, digits and a decimal", listed({"inputs": {"a": last.tolist()}}), None, body(JSON)
    yield "JSON, base64", listed({"inputs": {"a": {**coded, "base64": text}}}), None, body(JSON)
    yield ".npy", bytes(write_npy(fields)), 0, body(NPY)
    yield ".npy, float64", bytes(write_npy(fields.astype(np.float64))), 0, body(NPY)
    yield ".npy, bool", bytes(write_npy(np.ones((SAMPLES, *FIELD), np.bool_))), 0, body(NPY)
    yield "safetensors", save({"a": fields}), 0, body(SAFETENSORS)
    yield "/v2, JSON", listed({"inputs": [flat]}), None, lambda content: RestExchange(content, None)
    yield "/v2, binary", head + fields.tobytes(), len(head), lambda content: RestExchange(content, len(head))
    yield "gRPC", message.SerializeToString(), 0, lambda content: exchange_of(bytes(content))
    yield "Tesseract, base64", listed({"inputs": {"a": array}}), None, lambda each: TesseractBody(each, "base64")
    repeated = {"inputs": {"a": single, "factor": [1.0] * SAMPLES}}
    yield "Tesseract, one sample for many", listed(repeated), None, lambda each: TesseractBody(each, "base64")
    yield "Tesseract, lists", listed({"inputs": {"a": few}}), None, lambda each: TesseractBody(each, "raw")


def left_out(card: Card) -> Iterator[tuple[str, bytes, Make, Card, Policy]]:
    """Yield small bodies, of models whose defaults are large: name, body, exchange, card, and what is wanted."""
    field = card.inputs[0]
    framed = {"axes": ("batch", "frame", *field.axes[1:]), "shape": (None, None, None, None)}
    forcing = field.model_copy(update={"name": "forcing", "default": 1.0, **framed})
    output = card.outputs[0].model_copy(update=framed)
    frames = Frames(states=("a",), trained=4, maximum=4000, step=1.0)
    moving = changed(card, inputs=(field, forcing), outputs=(output,), frames=frames)
    number = {"axes": ("batch",), "shape": (None,), "positive": False, "default": 0.0}
    cotangents = (
        field.model_copy(update={"name": "cotangents.total", **number}),
        field.model_copy(update={"name": "cotangents.b", "positive": False, "default": 0.0}),
    )
    asked = changed(card, inputs=cotangents, grid=card.grid.model_copy(update={"maximum": 2048}))

    def make(content: Buffer) -> Body:
        return Body(content, SAFETENSORS, SAFETENSORS)

    yield "a forcing", save({"a": np.ones((4, *FIELD), np.float32)}), make, moving, Policy(frames=1000)
    yield "a cotangent", save({"cotangents.total": np.ones(1, np.float32)}), make, asked, Policy(grid=(2048, 2048))


def changed(card: Card, **parts: Any) -> Card:
    """Return the card with other parts, and what follows from them."""
    return Card.model_validate(card.model_copy(update=parts).model_dump())


def exchange_of(content: bytes) -> messages.GrpcExchange:
    return messages.GrpcExchange(*messages.request_of(content), len(content))


async def measure(
    service: Service, card: Card, content: bytes, of_json: int | None, make: Make, policy: Policy = ANY
) -> tuple[int, int]:
    """Return the growth of the peak of resident memory, and the most that was counted."""
    ticket = Counted(service.admission)
    position = 0

    async def receive() -> dict[str, Any]:
        nonlocal position
        part = content[position : position + 2**18]
        position += len(part)
        return {"type": "http.request", "body": part, "more_body": position < len(content)}

    headers = [(b"content-length", str(len(content)).encode())]
    state = {"ticket": ticket, "caller": ANYONE}
    request = Request({"type": "http", "headers": headers, "query_string": b"", "state": state}, receive)
    system.return_freed_memory()
    before = resident("VmRSS", reset=True)
    body = await over_http.content(request, service, 2**26, json=of_json)
    exchange = make(body)
    wanted = Prediction(card, "", ANYONE, policy, ticket=ticket)
    inputs = await service.predictor.reader.read(wanted, exchange, 2**26, streamed=card.frames is not None)
    outputs = {tensor.name: inputs.arrays[card.names[0]].copy() for tensor in card.outputs}
    written, _ = respond(wanted, inputs, exchange, outputs, Quality({}, np.zeros(inputs.samples, np.int8)))
    growth = resident("VmHWM") - before
    assert written is not None
    ticket.end()
    return growth, ticket.most


def resident(name: str, *, reset: bool = False) -> int:
    """Return resident memory, `VmRSS`, or its peak, `VmHWM`, which a reset sets to what is resident now."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


async def main(repository: Path) -> None:
    settings = Settings.model_validate({"repository": repository, "max_body_bytes": 2**26})
    service = Service(settings, Triton("127.0.0.1:1", 1), "0")
    card = taking("a")
    factor = Parameter(name="factor", meaning="a factor", units="1", default=1.0)
    output = card.inputs[0].model_copy(update={"name": "b"})
    card = card.model_copy(update={"outputs": (output,), "parameters": (factor,)})
    for name, content, of_json, make in formats():
        growth, counted = await measure(service, card, content, of_json, make)
        sys.stdout.write(json.dumps([name, growth, counted, len(content)]) + "\n")
    service.predictor.classical.solves(card)  # imports the solvers
    for name, content, make, own, policy in left_out(card):
        growth, _ = await measure(service, own, content, 0, make, policy)
        # The calls and outputs, which are counted, too, are not made here.
        sys.stdout.write(json.dumps([f"without {name}", growth, len(content), len(content)]) + "\n")


if __name__ == "__main__":
    system.keep_freed_memory()
    asyncio.run(main(Path(sys.argv[1])))
