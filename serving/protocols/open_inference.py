"""The Open Inference Protocol: what its two transports share, and REST (`/v2`); `serving.protocols.grpc` is the other.

A request of REST is JSON, with tensors in it or as bytes after it:

    {"inputs": [{"name", "shape", "datatype", "parameters": {"binary_data_size": 4}, "data": […]}], "outputs": …}<bytes>

Where bytes follow, the header `Inference-Header-Content-Length` says where the JSON ends, in both directions. What the
protocol offers beyond inference (repository control, shared memory, traces, logs, statistics) stays with Triton: routes
are listed one by one. Protocol: https://github.com/kserve/open-inference-protocol; binary tensors: Triton's
`extension_binary_data`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Annotated, Any, NamedTuple

import numpy as np
from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, FailFast, Field

from schema.card import Card
from serving import cells
from serving.auth import OPEN, Scope, requires
from serving.codecs import binary, json_arrays
from serving.codecs.binary import Buffer
from serving.codecs.json_text import PIECE, parsed, written
from serving.document import JSON, JSON_BYTES, Document, validated
from serving.errors import Problem
from serving.inputs import TEXT_GROWTH, offload
from serving.protocols import over_http
from serving.protocols.metadata import FLOAT32, ModelConfig, ModelMetadata, ServerMetadata, configure, describe, unknown
from serving.protocols.over_http import DirectRoute, Version
from serving.quality import Policy, Quality
from serving.service import Serving

PREFIX = "/v2"
BYTES = "application/octet-stream"
DATATYPES: Mapping[str, np.dtype[Any]] = {
    FLOAT32: np.dtype("<f4"),
    "FP64": np.dtype("<f8"),
    **{f"INT{8 * size}": np.dtype(f"<i{size}") for size in (1, 2, 4, 8)},
    **{f"UINT{8 * size}": np.dtype(f"<u{size}") for size in (1, 2, 4, 8)},
}
#: Parameters of a request that clients of the protocol send of their own accord, and that change no response here.
WITHOUT_EFFECT = {
    "binary_data_output",
    "content_type",
    "priority",
    "sequence_end",
    "sequence_id",
    "sequence_start",
    "triton_enable_empty_final_response",
}
#: Those of an input and of an output; over gRPC they change nothing, either.
OF_INPUTS, OF_OUTPUTS = frozenset({"binary_data_size", "content_type"}), frozenset({"binary_data", "content_type"})
#: What Triton's own clients may ask for, and why it is refused.
NOT_OFFERED = {
    "shared_memory_region": "shared memory is not offered here; send the data themselves",
    "classification": "the outputs have no classes; send no parameter classification",
}


class Sent(NamedTuple):
    """A tensor of a request, with its data as bytes or as lists of numbers, in a member that error messages name."""

    name: str
    datatype: str
    shape: Sequence[int]
    data: Buffer | list[Any] | None
    member: str

    def array(self, max_bytes: int) -> NDArray[Any]:
        """Return the values in their shape, which is checked before its sizes are multiplied."""
        name, shape = self.name, self.shape
        if self.datatype not in DATATYPES:
            detail = f'{name}: datatype "{self.datatype[:32]}" is not read; send {" or ".join(DATATYPES)}'
            raise Problem("wrong-dtype", detail, array=name[:64])
        dtype = DATATYPES[self.datatype]
        if isinstance(self.data, bytes | bytearray | memoryview):
            return binary.view(self.data, dtype, shape, name, max_bytes, self.member)
        values = json_arrays.nested(self.data, name)
        if values.size * 4 > max_bytes:
            detail = f"{name}: {values.size} numbers take more than {max_bytes} bytes as float32"
            raise Problem("body-too-large", detail)
        if values.size != binary.count(shape, name):
            detail = f"{name}: {self.member} has {values.size} numbers, not those of shape {str(list(shape))[:256]}"
            raise Problem("wrong-shape", detail, array=name)
        if dtype.kind == "f":
            values = json_arrays.as_floats(values)
        elif not _are_whole(values.reshape(-1), np.iinfo(dtype)):
            detail = f"{name}: {self.member} has numbers that are no {self.datatype}"
            raise Problem("wrong-dtype", detail, array=name)
        return binary.shaped(values, shape, name)


def _are_whole(values: NDArray[Any], limits: np.iinfo[Any]) -> bool:
    pieces = (values[start : start + PIECE] for start in range(0, len(values), PIECE))
    return all(((limits.min <= each) & (each <= limits.max) & (each == np.rint(each))).all() for each in pieces)


def read(
    inputs: Sequence[Any], outputs: Sequence[Any], sent: Iterable[Sent], card: Card, max_bytes: int
) -> dict[str, NDArray[Any]]:
    """Return the arrays of a request that has the inputs of the model and names none but its outputs, each once.

    Inputs and outputs have `name` and `parameters`, as either transport has them; `sent` are the inputs with their
    data, which is looked at once the names are right.
    """
    names, requested = [each.name for each in inputs], [each.name for each in outputs]
    cells.check_names(names, card)
    if repeated := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise Problem("wrong-input", f'the input "{repeated[0]}" is sent twice', array=repeated[0])
    for name in requested:
        if name not in card.result_names:
            known = ", ".join(card.result_names)
            raise Problem("invalid-parameter", f'there is no output "{name[:64]}"; the model has {known}')
    if len(set(requested)) < len(requested):
        raise Problem("invalid-parameter", "an output is requested twice")
    _check_parameters(inputs, OF_INPUTS)
    _check_parameters(outputs, OF_OUTPUTS)
    return {each.name: each.array(max_bytes) for each in sent}


def _check_parameters(tensors: Sequence[Any], known: Collection[str]) -> None:
    """Refuse parameters of tensors that are not offered, or that have no meaning."""
    for tensor in tensors:
        for parameter, reason in NOT_OFFERED.items():
            if parameter in tensor.parameters:
                raise Problem("invalid-parameter", f"{tensor.name[:64]}: {reason}")
        for parameter in tensor.parameters:
            if parameter not in known:
                listed = ", ".join(sorted(known))
                detail = f'{tensor.name[:64]}: there is no parameter "{parameter[:32]}"; there are {listed}'
                raise Problem("unknown-parameter", detail)


def results(
    card: Card, outputs: Mapping[str, NDArray[np.float32]], quality: Quality, requested: Sequence[Any]
) -> tuple[dict[str, NDArray[np.float32]], dict[str, str]]:
    """Return the requested outputs, or all of them if none is named, and the parameters of the response.

    What is known about the outputs is `[B, 1]` by name, `[B, frame]` of trajectories, and NaN where it is requested and
    not known, as of a classical solution; what computed them, and the samples that failed, are parameters.
    """
    found: dict[str, NDArray[np.float32]] = {
        **outputs,
        **{name: array.reshape(len(array), -1) for name, array in quality.numbers.items()},
    }
    if missing := {each.name for each in requested} - found.keys():
        found |= unknown(card, missing, outputs, len(quality.by))
    shown = {name: np.ascontiguousarray(found[name], "<f4") for name in [each.name for each in requested] or found}
    parameters: dict[str, str] = {"solved_by": quality.solved_by} if quality.known else {}
    if quality.failed is not None:
        parameters["failed"] = ",".join(map(str, np.flatnonzero(quality.failed)))
    return shown, parameters


def policy(parameters: Mapping[str, Any], query: Mapping[str, str]) -> Policy:
    """Return the policy that the parameters of a request and a query describe, each of which one of them has.

    A parameter that has no meaning is refused (`unknown-parameter`), as one of a query is: it would do nothing.
    """
    texts = dict(query)
    for name, value in parameters.items():
        if name in over_http.POLICY:
            if name in query:
                raise Problem("invalid-parameter", f"{name}: expected one value but got several")
            texts[name] = str(value) if isinstance(value, str | bool | int | float) else "null, a list or an object"
        elif name != "timeout" and name not in WITHOUT_EFFECT:
            known = ", ".join(sorted(over_http.POLICY | {"timeout"}))
            raise Problem("unknown-parameter", f'parameters: there is no "{name[:32]}"; there are {known}')
    return over_http.policy(texts)


def seconds(timeout: object) -> float | None:
    """Return the time that the parameter `timeout` of a request leaves, in microseconds as in Triton; 0 is none."""
    if type(timeout) is not int or timeout < 0:
        detail = f"timeout: expected a whole number of microseconds but got {str(timeout)[:32]}"
        raise Problem("invalid-parameter", detail)
    return timeout / 1e6 if timeout else None


# REST: the body of `infer`.

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
        self.seconds = seconds(request.parameters.get("timeout", 0))
        return read(request.inputs, request.outputs, self._sent(), card, max_bytes)

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
        request, (shown, parameters) = self.request, results(card, outputs, quality, self.request.outputs)
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
        wanted = replace(wanted, policy=policy(sent.parameters, request.query_params))
    return await over_http.unless_disconnected(request, service.predictor.predict(wanted, exchange))
