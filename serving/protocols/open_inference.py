"""The Open Inference Protocol over HTTP (`/v2`), for any client of Triton; `serving.protocols.grpc` is its other half.

A request is JSON, with tensors in it or as bytes after it:

    {"inputs": [{"name", "shape", "datatype", "parameters": {"binary_data_size": 4}, "data": […]}], "outputs": …}<bytes>

Where bytes follow, the header `Inference-Header-Content-Length` says where the JSON ends, in both directions. What the
protocol offers beyond inference (repository control, shared memory, traces, logs, statistics) stays with Triton: routes
are listed one by one. Protocol: https://github.com/kserve/open-inference-protocol; binary tensors: Triton's
`extension_binary_data`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
import orjson
from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, FailFast, Field, ValidationError
from pydantic.json_schema import SkipJsonSchema

from serving.auth import OPEN, Scope, requires
from serving.catalogue.card import FRAME
from serving.codecs import binary, formats, json_arrays
from serving.codecs.names import check_names
from serving.document import Document, inlined_schema
from serving.errors import Problem
from serving.predict import Prediction
from serving.protocols import over_http
from serving.protocols.over_http import DirectRoute
from serving.service import Service, Serving  # noqa: TC001  FastAPI reads annotations at run time

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from numpy.typing import NDArray
    from starlette.datastructures import Headers

    from serving.catalogue.card import Card, Tensor
    from serving.catalogue.card import Parameter as Number
    from serving.predict import Successor
    from serving.quality import Quality
    from serving.settings import Settings

PREFIX = "/v2"
JSON_BYTES = "Inference-Header-Content-Length"
BYTES = "application/octet-stream"
SERVER, EXTENSIONS = "petrov", ("binary_tensor_data", "model_configuration")
ANY = -1  # a size that the request decides
FLOAT32 = "FP32"
DATATYPES: Mapping[str, np.dtype[Any]] = {
    FLOAT32: np.dtype("<f4"),
    "FP64": np.dtype("<f8"),
    **{f"INT{8 * size}": np.dtype(f"<i{size}") for size in (1, 2, 4, 8)},
    **{f"UINT{8 * size}": np.dtype(f"<u{size}") for size in (1, 2, 4, 8)},
}
MOST_TENSORS = 64  # more tensors than any model has
Size = Annotated[int, Field(strict=True, ge=0, lt=2**63)]
Name = Annotated[str, Field(max_length=256)]
Version = int | SkipJsonSchema[None]  # the default is no value of the path
_BOUNDED = (Field(max_length=MOST_TENSORS), FailFast())  # pydantic would describe a million errors one by one

# The rules for tensors, over HTTP and gRPC.


def dtype(datatype: str, name: str) -> np.dtype[Any]:
    """Return the NumPy type of a datatype.

    Raises:
        Problem: wrong-dtype: The datatype is none of `DATATYPES`.
    """
    if datatype not in DATATYPES:
        detail = f'{name}: datatype "{datatype[:32]}" is not read; send {" or ".join(DATATYPES)}'
        raise Problem("wrong-dtype", detail, array=name[:64])
    return DATATYPES[datatype]


def check(inputs: Iterable[Any], outputs: Iterable[Any], card: Card) -> None:
    """Check that a request has the inputs of the model, and names none but its outputs, each once.

    Args:
        inputs: With their `name` and `parameters`.
        outputs: Likewise.
        card: Of the model.

    Raises:
        Problem: wrong-input: An input is missing, unknown or sent twice.
        Problem: invalid-parameter: An output is unknown or named twice, or a parameter would need Triton's own ports or
            another kind of model.
    """
    sent, requested = [tensor.name for tensor in inputs], [tensor.name for tensor in outputs]
    check_names(sent, card.names, card.optional)
    if repeated := [name for name in card.names if sent.count(name) > 1]:
        raise Problem("wrong-input", f'the input "{repeated[0]}" is sent twice', array=repeated[0])
    for name in requested:
        if name not in card.result_names:
            known = ", ".join(card.result_names)
            raise Problem("invalid-parameter", f'there is no output "{name[:64]}"; the model has {known}')
    if len(set(requested)) < len(requested):
        raise Problem("invalid-parameter", "an output is requested twice")
    for tensor in (*inputs, *outputs):
        if "shared_memory_region" in tensor.parameters:
            detail = "shared memory is not offered here; send the data themselves"
            raise Problem("invalid-parameter", f"{tensor.name[:64]}: {detail}")
        if "classification" in tensor.parameters:
            detail = "the outputs have no classes; send no parameter classification"
            raise Problem("invalid-parameter", f"{tensor.name[:64]}: {detail}")


def check_count(count: int, shape: Sequence[int], name: str, member: str, max_bytes: int) -> None:
    """Check that a list has as many numbers as a shape, and not too many.

    Args:
        count: How many there are.
        shape: The shape that the sender claims.
        name: Name of the tensor.
        member: The member that holds them, for error messages.
        max_bytes: The most bytes that they may take as float32.

    Raises:
        Problem: wrong-shape: The shape does not hold as many.
        Problem: body-too-large: There are too many.
    """
    if count * 4 > max_bytes:
        raise Problem("body-too-large", f"{name}: {count} numbers take more than {max_bytes} bytes as float32")
    if count != binary.count(shape, name):
        detail = f"{name}: {member} has {count} numbers, not those of shape {str(list(shape))[:256]}"
        raise Problem("wrong-shape", detail, array=name)


def results(outputs: Mapping[str, NDArray[np.float32]], quality: Quality) -> dict[str, NDArray[np.float32]]:
    """Return the outputs, and `[B, 1]` for each number that is known about them, `[B, frame]` of trajectories."""
    return {**outputs, **{name: array.reshape(len(array), -1) for name, array in quality.numbers.items()}}


def about(quality: Quality) -> dict[str, str]:
    """Return the parameters of a response: what computed the outputs, and the samples that failed."""
    failed = {} if quality.failed is None else {"failed": ",".join(map(str, np.flatnonzero(quality.failed)))}
    return {"solved_by": quality.solved_by, **failed} if quality.known else {}


# The documents about server and models. Each is the JSON of `/v2` and has the fields of the gRPC message.


class ServerMetadata(Document):
    """`GET /v2`."""

    name: str = SERVER
    version: str
    extensions: tuple[str, ...] = EXTENSIONS


class ServerLive(Document):
    """`GET /v2/health/live`."""

    live: bool = True


class ServerReady(Document):
    """`GET /v2/health/ready`: 200 when `ready`, else 503."""

    ready: bool


class ModelReady(Document):
    """`GET /v2/models/{model}/ready`: 200, or the error that says why it is not."""

    name: str
    ready: bool = True


class TensorMetadata(Document):
    """One input, parameter or output; the first axis is the batch.

    `parameters` says what the protocol has no key for: axes, units, meaning, and the default of an input that may be
    left out.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    parameters: dict[str, Any] = Field(examples=[{"axes": ["batch"], "units": "m/s", "default": 0.0}])


class ModelMetadata(Document):
    """`GET /v2/models/{model}`."""

    name: str
    versions: tuple[str, ...]
    platform: str
    inputs: tuple[TensorMetadata, ...]
    outputs: tuple[TensorMetadata, ...]


class TensorConfig(Document):
    """One input or output; the batch is not among `dims`."""

    name: str
    data_type: str
    dims: tuple[int, ...]


class Parameter(Document):
    """A value of the configuration; all of them are strings, as in Triton."""

    string_value: str


class ModelConfig(Document):
    """`GET /v2/models/{model}/config`: the part of Triton's configuration that clients use.

    The parameter `signature` is the part of the card that describes inputs, parameters, outputs and grids, as JSON; the
    parameter `vocabulary` of a model of sequences is its vocabulary.
    """

    name: str
    platform: str
    max_batch_size: int
    input: tuple[TensorConfig, ...]
    output: tuple[TensorConfig, ...]
    parameters: dict[str, Parameter]


class ErrorMessage(Document):
    """The body of every error under `/v2`."""

    error: str


def describe(card: Card, versions: Iterable[int]) -> ModelMetadata:
    """Return the metadata of a version, with all versions of the model that are served."""
    # What is known about outputs is one number per sample, or one per frame of a trajectory.
    size, axis = (ANY, FRAME) if card.frames else (1, "value")
    known = [
        TensorMetadata(name=name, datatype=FLOAT32, shape=(ANY, size), parameters={"axes": ("batch", axis)})
        for name in card.known
    ]
    return ModelMetadata(
        name=card.model,
        versions=tuple(str(version) for version in versions),
        platform=card.format,
        inputs=tuple(_metadata(argument) for argument in card.arguments),
        outputs=(*(_metadata(tensor) for tensor in card.outputs), *known),
    )


def configure(card: Card) -> ModelConfig:
    """Return the configuration of a version; its batch bounds one call of the model, not a request."""
    known = [TensorConfig(name=name, data_type="TYPE_FP32", dims=(ANY if card.frames else 1,)) for name in card.known]
    described = {"title", "inputs", "parameters", "outputs", "grid", "frames"}
    signature = card.model_dump(mode="json", include=described) | {"quality": card.known}
    parameters = {"signature": Parameter(string_value=json.dumps(signature))}
    if card.vocabulary is not None:
        parameters["vocabulary"] = Parameter(string_value=card.vocabulary.model_dump_json())
    return ModelConfig(
        name=card.model,
        platform=card.format,
        max_batch_size=card.limits.batch,
        input=tuple(_config(argument) for argument in card.arguments),
        output=(*(_config(tensor) for tensor in card.outputs), *known),
        parameters=parameters,
    )


def _metadata(tensor: Tensor | Number) -> TensorMetadata:
    described = tensor.model_dump(mode="json", exclude={"name", "dtype", "shape"}, exclude_defaults=True)
    return TensorMetadata(
        name=tensor.name, datatype=tensor.dtype, shape=_sizes(tensor), parameters={"axes": tensor.axes, **described}
    )


def _config(tensor: Tensor | Number) -> TensorConfig:
    return TensorConfig(name=tensor.name, data_type=f"TYPE_{tensor.dtype}", dims=_sizes(tensor)[1:])


def _sizes(tensor: Tensor | Number) -> tuple[int, ...]:
    return tuple(ANY if points is None else points for points in tensor.sizes)


# The body of `infer`.


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
        default={}, description="`binary_data_output`, and `frames` for models of trajectories."
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


class Reply(NamedTuple):
    """The body of a response, and where its JSON ends if bytes follow."""

    body: bytes
    json_bytes: int | None


class RestExchange:
    """A request of `/v2` and the writer of its response: an `Exchange` of `serving.predict`.

    Args:
        content: The request's body.
        json_bytes: Where its JSON ends; None for all of it.
        card: Of the model.

    Attributes:
        frames: How many frames of a trajectory its parameters ask for; None where the query may say it.
    """

    def __init__(self, content: bytearray, json_bytes: int | None, card: Card) -> None:
        self.size, self._content, self._card = len(content), content, card
        self._json_bytes = len(content) if json_bytes is None else json_bytes
        self.frames: int | None = None

    def read(self, _: Sequence[str], max_bytes: int, __: Collection[str] = ()) -> dict[str, NDArray[Any]]:
        """Return the arrays of the body; those in bytes follow one another without a gap."""
        self._request = request = _parsed(self._content, self._json_bytes)
        self.frames = _frames(request.parameters.get("frames"))
        check(request.inputs, request.outputs, self._card)
        tail, position = memoryview(self._content)[self._json_bytes :], 0
        found: dict[str, NDArray[Any]] = {}
        for tensor in request.inputs:
            name, kind = tensor.name, dtype(tensor.datatype, tensor.name)
            if "binary_data_size" not in tensor.parameters:
                values = json_arrays.nested(tensor.data, name)
                check_count(values.size, tensor.shape, name, "data", max_bytes)
                values = values if kind.kind in "iu" else values.astype(np.float64, copy=False)
                found[name] = binary.shaped(values, tensor.shape, name)
                continue
            size, left = tensor.parameters["binary_data_size"], len(tail) - position
            if type(size) is not int or not 0 <= size <= left:
                detail = f"{name}: binary_data_size is {str(size)[:32]}, but {left} bytes follow the JSON"
                raise Problem("unreadable-body", detail)
            data = tail[position : position + size]
            found[name] = binary.view(data, kind, tensor.shape, name, max_bytes, "binary_data_size")
            position += size
        if position != len(tail):
            raise Problem("unreadable-body", f"{len(tail) - position} bytes follow the last tensor")
        return found

    def write(self, model: str, version: int, outputs: Mapping[str, NDArray[np.float32]], quality: Quality) -> Reply:
        """Return the response with the requested outputs, or all of them if none is named."""
        request, found = self._request, results(outputs, quality)
        default = request.parameters.get("binary_data_output") is True
        requested = {output.name: output.parameters.get("binary_data", default) is True for output in request.outputs}
        written: list[dict[str, Any]] = []
        tail: list[bytes] = []
        for name, as_bytes in (requested or dict.fromkeys(found, default)).items():
            array = np.ascontiguousarray(found[name], "<f4")
            if as_bytes:
                tail.append(array.tobytes())
            coded = {"parameters": {"binary_data_size": array.nbytes}} if as_bytes else {"data": array.reshape(-1)}
            written.append({"name": name, "datatype": FLOAT32, "shape": array.shape, **coded})
        document: dict[str, Any] = {"id": request.id} if request.id else {}
        document |= {"model_name": model, "model_version": str(version), "outputs": written}
        if known := about(quality):
            document["parameters"] = known
        text = orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)
        return Reply(b"".join((text, *tail)), len(text) if tail else None)


def _parsed(content: bytearray, json_bytes: int) -> InferenceRequest:
    if json_bytes > len(content):
        detail = f"{JSON_BYTES} is {json_bytes}, but the body has {len(content)} bytes"
        raise Problem("unreadable-body", detail)
    try:
        return InferenceRequest.model_validate(orjson.loads(memoryview(content)[:json_bytes]))
    except orjson.JSONDecodeError as error:
        detail = f"not JSON: {error.msg} at line {error.lineno} column {error.colno}"
        raise Problem("unreadable-body", detail) from error
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        location = ".".join(str(key)[:32] for key in first["loc"]) or "the JSON body"
        raise Problem("unreadable-body", f"{location}: {first['msg']}") from error


def _frames(value: Any) -> int | None:
    """Return the parameter `frames`."""
    if value is None or (type(value) is int and value > 0):
        return value
    raise Problem("invalid-parameter", f"frames: expected a whole number from 1 but got {str(value)[:32]}")


_BINARY = {"schema": {"type": "string", "format": "binary"}}
_END = {
    "name": JSON_BYTES,
    "in": "header",
    "description": "Where the JSON ends, if the bytes of tensors follow it.",
    "schema": {"type": "integer", "minimum": 0},
}
_JSON_BODY = {"schema": inlined_schema(InferenceRequest)}
_INFERENCE: dict[str, Any] = {
    "openapi_extra": {
        "parameters": [*over_http.QUERY, _END],
        "requestBody": {"required": True, "content": {json_arrays.MEDIA_TYPE: _JSON_BODY, BYTES: _BINARY}},
    },
    "response_model": InferenceResponse,
    "responses": {200: {"content": {BYTES: _BINARY}, "headers": {JSON_BYTES: {"schema": {"type": "integer"}}}}},
}
_ERRORS: dict[int | str, dict[str, Any]] = {
    "default": {"model": ErrorMessage, "description": "What is wrong, in a sentence"}
}
router = APIRouter(prefix=PREFIX, responses=_ERRORS)
inferences = APIRouter(prefix=PREFIX, responses=_ERRORS, route_class=DirectRoute)


@router.get("")
@requires(Scope.INFER)
async def server_metadata(service: Serving) -> ServerMetadata:
    """Return name, version and extensions of the server."""
    return ServerMetadata(version=service.version)


@router.get("/health/live")
@requires(OPEN)
async def server_live() -> ServerLive:
    """Return 200 while the process runs."""
    return ServerLive()


@router.get("/health/ready", responses={503: {"model": ServerReady}})
@requires(OPEN)
async def server_ready(service: Serving) -> JSONResponse:
    """Return 200 while every model of the repository is loaded and warm, and the gateway is not shutting down."""
    ready = service.catalogue.readiness().ready
    return JSONResponse(ServerReady(ready=ready).model_dump(), 200 if ready else 503)


@router.get("/models/{model}")
@router.get("/models/{model}/versions/{version}")
@requires(Scope.INFER)
async def model_metadata(model: str, service: Serving, version: Version = None) -> ModelMetadata:
    """Return inputs and outputs of a model."""
    return describe(service.catalogue.find(model, version).card, service.catalogue.model(model).versions)


@router.get("/models/{model}/ready")
@router.get("/models/{model}/versions/{version}/ready")
@requires(Scope.INFER)
async def model_ready(model: str, service: Serving, version: Version = None) -> ModelReady:
    """Return 200 while the model is loaded and warm."""
    return ModelReady(name=service.catalogue.find(model, version).card.model)


@router.get("/models/{model}/config")
@router.get("/models/{model}/versions/{version}/config")
@requires(Scope.INFER)
async def model_config(model: str, service: Serving, version: Version = None) -> ModelConfig:
    """Return batch size, inputs and outputs as Triton's configuration has them."""
    return configure(service.catalogue.find(model, version).card)


@inferences.post("/models/{model}/infer", **_INFERENCE)
@inferences.post("/models/{model}/versions/{version}/infer", **_INFERENCE)
@requires(Scope.INFER)
async def infer(model: str, request: Request, service: Serving, version: Version = None) -> Response:
    """Predict for a batch of samples; the checks, limits and deadlines are those of `/v1`."""
    if version is not None:
        return await _infer(service.catalogue.find(model, version).card, request, service)
    return await _infer((await service.catalogue.newest(model)).card, request, service, service.catalogue.successor)


async def _infer(card: Card, request: Request, service: Service, successor: Successor | None = None) -> Response:
    formats.check_uncompressed(request.headers)
    policy = over_http.policy_of_query(request.query_params)
    json_bytes, limit = _limits(request.headers, service.settings)
    state = request.state
    state.version = card.version
    content = await over_http.content(request, service, limit, json=json_bytes)
    exchange = RestExchange(content, json_bytes, card)
    wanted = Prediction(card, state.request_id, state.caller, policy, successor=successor)
    reply = await over_http.predicted(request, service, wanted, exchange)
    if reply.json_bytes is None:
        return Response(reply.body, media_type=json_arrays.MEDIA_TYPE)
    return Response(reply.body, media_type=BYTES, headers={JSON_BYTES: str(reply.json_bytes)})


def _limits(headers: Headers, settings: Settings) -> tuple[int | None, int]:
    """Return where the JSON ends, None for the body's end, and the size of the largest body."""
    largest = settings.max_json_bytes
    announced = headers.get(JSON_BYTES)
    if announced is None:
        return None, largest
    if not (announced.isascii() and announced.isdigit()):
        raise Problem("unreadable-body", f'{JSON_BYTES} is "{announced[:32]}"; expected a number of bytes')
    if len(announced) > 18 or int(announced) > largest:
        raise Problem("body-too-large", f"{JSON_BYTES} is {announced[:32]}; the limit is {largest} bytes")
    return int(announced), settings.max_body_bytes
