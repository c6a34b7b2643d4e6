"""The paths of `/v2`, one by one; whatever else Triton has under it is not here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic.json_schema import SkipJsonSchema

from serving.codecs import formats as arrays
from serving.http import body
from serving.open_inference import metadata
from serving.open_inference.metadata import (
    ErrorMessage,
    ModelConfig,
    ModelMetadata,
    ModelReady,
    ServerLive,
    ServerMetadata,
    ServerReady,
)
from serving.open_inference.rest_exchange import InferenceRequest, InferenceResponse, RestExchange
from serving.problem_details import BodyTooLarge, UnreadableBody
from serving.service import Service, Serving  # noqa: TC001  FastAPI reads annotations at run time

if TYPE_CHECKING:
    from starlette.datastructures import Headers

    from serving.schemas import Card

PREFIX = "/v2"
JSON_BYTES = "Inference-Header-Content-Length"
BYTES = "application/octet-stream"
_BINARY = {"schema": {"type": "string", "format": "binary"}}
Version = int | SkipJsonSchema[None]  # none is no number in the path, and not the word "null"


def _inlined(schema: Any, definitions: dict[str, Any]) -> Any:
    """A JSON schema without references, which would not point into the document that it is put in."""
    if isinstance(schema, list):
        return [_inlined(item, definitions) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _inlined(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    return {key: _inlined(value, definitions) for key, value in schema.items() if key != "$defs"}


_SCHEMA = InferenceRequest.model_json_schema()
_INFERENCE: dict[str, Any] = {
    "openapi_extra": {
        "parameters": [
            {
                "name": JSON_BYTES,
                "in": "header",
                "description": "Where the JSON ends, if the bytes of tensors follow it.",
                "schema": {"type": "integer", "minimum": 0},
            }
        ],
        "requestBody": {
            "required": True,
            "content": {arrays.JSON: {"schema": _inlined(_SCHEMA, _SCHEMA["$defs"])}, BYTES: _BINARY},
        },
    },
    "response_model": InferenceResponse,
    "responses": {
        200: {"content": {BYTES: _BINARY}, "headers": {JSON_BYTES: {"schema": {"type": "integer"}}}},
    },
}

router = APIRouter(
    prefix=PREFIX, responses={"default": {"model": ErrorMessage, "description": "What is wrong, in a sentence"}}
)


@router.get("")
async def server_metadata(service: Serving) -> ServerMetadata:
    """Name, version and extensions of the server."""
    return ServerMetadata(version=service.version)


@router.get("/health/live")
async def server_live() -> ServerLive:
    """The process answers."""
    return ServerLive()


@router.get("/health/ready", responses={503: {"model": ServerReady}})
async def server_ready(service: Serving) -> JSONResponse:
    """Every model of the repository is loaded and warm, and we are not shutting down."""
    ready = service.catalogue.readiness().ready
    return JSONResponse(ServerReady(ready=ready).model_dump(), 200 if ready else 503)


@router.get("/models/{model}")
@router.get("/models/{model}/versions/{version}")
async def model_metadata(model: str, service: Serving, version: Version = None) -> ModelMetadata:
    """Inputs and outputs of a model."""
    card = service.catalogue.find(model, version).card
    return metadata.describe(card, service.catalogue.model(model).versions)


@router.get("/models/{model}/ready")
@router.get("/models/{model}/versions/{version}/ready")
async def model_ready(model: str, service: Serving, version: Version = None) -> ModelReady:
    """The model is loaded and warm."""
    return ModelReady(name=service.catalogue.find(model, version).card.model)


@router.get("/models/{model}/config")
@router.get("/models/{model}/versions/{version}/config")
async def model_config(model: str, service: Serving, version: Version = None) -> ModelConfig:
    """The batch, the inputs and the outputs as Triton's configuration has them."""
    return metadata.configure(service.catalogue.find(model, version).card)


@router.post("/models/{model}/infer", **_INFERENCE)
@router.post("/models/{model}/versions/{version}/infer", **_INFERENCE)
async def infer(model: str, request: Request, service: Serving, version: Version = None) -> Response:
    """Ask a model for a batch of fields; the checks, limits and deadlines are those of `/v1`."""
    return await _answer(service.catalogue.find(model, version).card, request, service)


async def _answer(card: Card, request: Request, service: Service) -> Response:
    arrays.check_uncompressed(request.headers)
    json_bytes, limit = _limits(request.headers, service.settings.max_body_bytes)
    state = request.state
    state.version = card.version
    state.caller.check()
    with service.admission.admit() as ticket:
        content = await body.read(request, ticket, limit, service.settings.receive_seconds)
        service.metrics.request_bytes.observe(len(content))
        exchange = RestExchange(content, json_bytes, [tensor.name for tensor in card.outputs])
        work = service.predictor.predict(card, exchange, state.request_id, state.caller)
        reply = await body.unless_disconnected(request, work)
    if reply.json_bytes is None:
        return Response(reply.body, media_type=arrays.JSON)
    return Response(reply.body, media_type=BYTES, headers={JSON_BYTES: str(reply.json_bytes)})


def _limits(headers: Headers, max_bytes: int) -> tuple[int | None, int]:
    """Where the JSON ends, None at the body's end, and the most that the body may have."""
    most = max_bytes // arrays.JSON_SHARE
    said = headers.get(JSON_BYTES)
    if said is None:
        return None, most
    if not (said.isascii() and said.isdigit()):
        raise UnreadableBody(f'{JSON_BYTES} is "{said[:32]}"; expected a number of bytes')
    if len(said) > 18 or int(said) > most:
        raise BodyTooLarge(f"{JSON_BYTES} is {said[:32]}; the limit is {most} bytes")
    return int(said), max_bytes
