"""The Open Inference Protocol over REST (`/v2`); `serving.protocols.inference` is what it shares with gRPC.

A request is JSON, with tensors in it or as bytes after it:

    {"inputs": [{"name", "shape", "datatype", "parameters": {"binary_data_size": 4}, "data": […]}], "outputs": …}<bytes>

Where bytes follow, the header `Inference-Header-Content-Length` says where the JSON ends, in both directions. What the
protocol offers beyond inference (repository control, shared memory, traces, logs, statistics) stays with Triton: routes
are listed one by one. Protocol: https://github.com/kserve/open-inference-protocol; binary tensors: Triton's
`extension_binary_data`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, FailFast, Field

from schema.card import Card
from serving.auth import OPEN, Scope, requires
from serving.codecs import binary
from serving.codecs.binary import Buffer
from serving.codecs.json_text import parsed, written
from serving.document import JSON, JSON_BYTES, Document, validated
from serving.errors import Problem
from serving.inputs import TEXT_GROWTH, offload
from serving.protocols import inference, over_http
from serving.protocols.inference import Sent
from serving.protocols.metadata import FLOAT32, ModelConfig, ModelMetadata, ServerMetadata, configure, describe
from serving.protocols.over_http import DirectRoute, Version
from serving.quality import Quality
from serving.service import Serving

PREFIX = "/v2"
BYTES = "application/octet-stream"

Size = Annotated[int, Field(strict=True, ge=0, lt=2**63)]
Name = Annotated[str, Field(max_length=256)]
# More tensors than any model has, of fewer axes than that; pydantic would describe a million errors one by one.
_BOUNDED = (Field(max_length=64), FailFast())


class _Part(BaseModel):
    """A document of the protocol; keys that the gateway does not use are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class RequestedOutput(_Part):
    """An output that is wanted; the parameter `binary_data` says whether as bytes."""

    name: Name
    parameters: dict[str, Any] = {}


class InputTensor(RequestedOutput):
    """An input: its data as a flat or nested list, or `binary_data_size` bytes after the JSON."""

    shape: Annotated[tuple[Size, ...], *_BOUNDED]
    datatype: Name = Field(examples=[FLOAT32])
    data: Any = Field(default=None, description="Numbers, in row-major order.")


class InferenceRequest(_Part):
    """`POST /v2/models/{model}/infer`."""

    id: Annotated[str, Field(max_length=1024)] = ""
    parameters: dict[str, Any] = Field(
        default={},
        description="What the query has, such as `frames` for models of trajectories, as well as `binary_data_output`, "
        "and `timeout` in microseconds.",
    )
    inputs: Annotated[tuple[InputTensor, ...], Field(min_length=1), *_BOUNDED]
    outputs: Annotated[tuple[RequestedOutput, ...], *_BOUNDED] = ()


class OutputTensor(_Part):
    """An output, encoded as requested: `data`, or `binary_data_size` bytes after the JSON."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    parameters: dict[str, int] | None = None
    data: list[float | None] | None = None


class InferenceResponse(_Part):
    """The response in JSON."""

    id: str | None = None
    model_name: str
    model_version: str
    parameters: dict[str, str] | None = Field(
        default=None, description="`solved_by`: network, refined, solver or mixed; `failed`: indices."
    )
    outputs: tuple[OutputTensor, ...]


class RestExchange:
    """A body of `/v2`, JSON up to `json_bytes`, and the writer of its response: an `Exchange` for `serving.inputs`."""

    frames: int | None = None  # a parameter of the request says it, and the grid
    grid: tuple[int, ...] | None = None

    def __init__(self, content: Buffer, json_bytes: int | None) -> None:
        self._content = content
        self._json_bytes = len(content) if json_bytes is None else json_bytes
        self.size = len(content) + (self._json_bytes if self._json_bytes < len(content) else 0)  # is copied
        self.growth = TEXT_GROWTH
        self.seconds: float | None = None

    @cached_property
    def request(self) -> InferenceRequest:
        """What the JSON says, which takes time to parse."""
        content, end = self._content, self._json_bytes
        if end > len(content):
            raise Problem("unreadable-body", f"{JSON_BYTES} is {end}, but the body has {len(content)} bytes")
        return validated(InferenceRequest, parsed(content, end))

    def read(self, card: Card, max_bytes: int) -> dict[str, NDArray[Any]]:
        request = self.request
        self._default = _flag(request.parameters, "binary_data_output", default=False)
        self._chosen = {
            each.name: _flag(each.parameters, "binary_data", default=self._default) for each in request.outputs
        }
        self.growth = 1.0 if all(self._chosen.values() if self._chosen else [self._default]) else TEXT_GROWTH
        self.seconds = inference.seconds(request.parameters.get("timeout", 0))
        return inference.read(request.inputs, request.outputs, self._sent(), card, max_bytes)

    def _sent(self) -> Iterator[Sent]:
        """Yield the inputs; those in bytes follow one another without a gap."""
        tail, position = memoryview(self._content)[self._json_bytes :], 0
        for tensor in self.request.inputs:
            data, member = tensor.data, "data"
            if "binary_data_size" in tensor.parameters:
                if data is not None:
                    raise Problem("unreadable-body", f"{tensor.name}: data beside binary_data_size")
                size, left, member = tensor.parameters["binary_data_size"], len(tail) - position, "binary_data_size"
                if type(size) is not int or not 0 <= size <= left:
                    detail = f"{tensor.name}: binary_data_size is {str(size)[:32]}, but {left} bytes follow the JSON"
                    raise Problem("unreadable-body", detail)
                data = tail[position : position + size]
                position += size
            yield Sent(tensor.name, tensor.datatype, tensor.shape, data, member)
        if position != len(tail):
            raise Problem("unreadable-body", f"{len(tail) - position} bytes follow the last tensor")

    def write(self, card: Card, outputs: Mapping[str, NDArray[np.float32]], quality: Quality) -> Response:
        request, (shown, parameters) = self.request, inference.results(card, outputs, quality, self.request.outputs)
        described: list[dict[str, Any]] = []
        tail: list[Buffer] = []
        for name, array in shown.items():
            as_bytes = self._chosen.get(name, self._default)
            if as_bytes:
                tail.append(array.reshape(-1).view(np.uint8).data)
            coded = {"parameters": {"binary_data_size": array.nbytes}} if as_bytes else {"data": array.reshape(-1)}
            described.append({"name": name, "datatype": FLOAT32, "shape": array.shape, **coded})
        document: dict[str, Any] = {"id": request.id} if request.id else {}
        document |= {"model_name": card.model, "model_version": str(card.version), "outputs": described}
        if parameters:
            document["parameters"] = parameters
        text = written(document)
        if not tail:
            return Response(text, media_type=JSON)
        return Response(binary.joined(text, *tail), media_type=BYTES, headers={JSON_BYTES: str(len(text))})


def _flag(parameters: Mapping[str, Any], name: str, *, default: bool) -> bool:
    value = parameters.get(name, default)
    if type(value) is not bool:
        raise Problem("invalid-parameter", f"{name}: expected true or false but got {str(value)[:32]}")
    return value


class ErrorMessage(Document):
    """The body of every error under `/v2`."""

    error: str


_END = {
    "name": JSON_BYTES,
    "in": "header",
    "description": "Where the JSON ends, if the bytes of tensors follow it.",
    "schema": {"type": "integer", "minimum": 0},
}
_INFERENCE = over_http.described(
    *(InferenceRequest, InferenceResponse, BYTES),
    parameters=[*over_http.QUERY, _END],
    headers={JSON_BYTES: {"schema": {"type": "integer"}}},
)
_ERRORS: dict[int | str, dict[str, Any]] = {
    "default": {"model": ErrorMessage, "description": "What is wrong, in a sentence"}
}
router = APIRouter(prefix=PREFIX, tags=["Open Inference Protocol"], responses=_ERRORS, dependencies=over_http.CHECKED)
calls = APIRouter(prefix=PREFIX, tags=["Open Inference Protocol"], responses=_ERRORS, route_class=DirectRoute)


@router.get("")
@requires(Scope.INFER)
async def server_metadata(service: Serving) -> ServerMetadata:
    """Return name, version and extensions of the server."""
    return ServerMetadata(version=service.version)


@router.get("/health/live")
@requires(OPEN)
async def server_live() -> dict[str, bool]:
    """Return 200 while the process runs."""
    return {"live": True}


@router.get("/health/ready", response_model=dict[str, bool], responses={503: {"model": dict[str, bool]}})
@requires(OPEN)
async def server_ready(service: Serving) -> JSONResponse:
    """Return 200 while every model is loaded and warm, or is loaded at its first use, until the gateway shuts down."""
    ready = service.catalogue.readiness().ready
    return JSONResponse({"ready": ready}, 200 if ready else 503)


@router.get("/models/{model}")
@router.get("/models/{model}/versions/{version}")
@requires(Scope.INFER)
async def model_metadata(model: str, service: Serving, version: Version = None) -> ModelMetadata:
    """Return inputs and outputs of a model."""
    return describe(service.catalogue.find(model, version), service.catalogue.model(model).versions)


@router.get("/models/{model}/ready")
@router.get("/models/{model}/versions/{version}/ready")
@requires(Scope.INFER)
async def model_ready(model: str, service: Serving, version: Version = None) -> dict[str, str | bool]:
    """Return 200 while the model is loaded and warm, or is loaded at its first use."""
    return {"name": service.catalogue.find(model, version).model, "ready": True}


@router.get("/models/{model}/config")
@router.get("/models/{model}/versions/{version}/config")
@requires(Scope.INFER)
async def model_config(model: str, service: Serving, version: Version = None) -> ModelConfig:
    """Return batch size, inputs and outputs as Triton's configuration has them."""
    return configure(service.catalogue.find(model, version))


@calls.post("/models/{model}/infer", **_INFERENCE)
@calls.post("/models/{model}/versions/{version}/infer", **_INFERENCE)
@requires(Scope.INFER)
async def infer(model: str, request: Request, service: Serving, version: Version = None) -> Response:
    """Predict for a batch of samples; the checks, limits and deadlines are those of `/v1`."""
    card = await service.catalogue.newest(model, version)
    json_bytes, limit = None, service.settings.max_json_bytes
    if (announced := request.headers.get(JSON_BYTES)) is not None:
        if not (announced.isascii() and announced.isdigit()):
            raise Problem("unreadable-body", f'{JSON_BYTES} is "{announced[:32]}"; expected a number of bytes')
        if len(announced) > 18 or int(announced) > limit:
            raise Problem("body-too-large", f"{JSON_BYTES} is {announced[:32]}; the limit is {limit} bytes")
        json_bytes = int(announced)
    wanted, content = await over_http.received(card, request, service, latest=version is None, json=json_bytes)
    exchange = RestExchange(content, json_bytes)
    sent = await offload(len(content), lambda: exchange.request)
    if sent.parameters:
        wanted = replace(wanted, policy=inference.policy(sent.parameters, request.query_params))
    return await over_http.unless_disconnected(request, service.predictor.predict(wanted, exchange))
