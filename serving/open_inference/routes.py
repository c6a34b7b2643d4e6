"""The routes of `/v2`, one by one; nothing else that Triton offers there exists here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic.json_schema import SkipJsonSchema

from serving.auth.guard import OPEN
from serving.auth.keys import Scope
from serving.codecs import json_arrays, negotiation
from serving.document import inlined_schema
from serving.errors import Problem
from serving.http import body, policies
from serving.http.authorisation import requires
from serving.http.direct_route import DirectRoute
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
from serving.predict import Prediction
from serving.service import Service, Serving  # noqa: TC001  FastAPI reads annotations at run time

if TYPE_CHECKING:
    from starlette.datastructures import Headers

    from serving.catalogue.card import Card
    from serving.predict import Successor

PREFIX = "/v2"
JSON_BYTES = "Inference-Header-Content-Length"
BYTES = "application/octet-stream"
_BINARY = {"schema": {"type": "string", "format": "binary"}}
Version = int | SkipJsonSchema[None]  # the default is no value of the path


_INFERENCE: dict[str, Any] = {
    "openapi_extra": {
        "parameters": [
            *policies.PARAMETERS,
            {
                "name": JSON_BYTES,
                "in": "header",
                "description": "Where the JSON ends, if the bytes of tensors follow it.",
                "schema": {"type": "integer", "minimum": 0},
            },
        ],
        "requestBody": {
            "required": True,
            "content": {json_arrays.MEDIA_TYPE: {"schema": inlined_schema(InferenceRequest)}, BYTES: _BINARY},
        },
    },
    "response_model": InferenceResponse,
    "responses": {
        200: {"content": {BYTES: _BINARY}, "headers": {JSON_BYTES: {"schema": {"type": "integer"}}}},
    },
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
    card = service.catalogue.find(model, version).card
    return metadata.describe(card, service.catalogue.model(model).versions)


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
    return metadata.configure(service.catalogue.find(model, version).card)


@inferences.post("/models/{model}/infer", **_INFERENCE)
@inferences.post("/models/{model}/versions/{version}/infer", **_INFERENCE)
@requires(Scope.INFER)
async def infer(model: str, request: Request, service: Serving, version: Version = None) -> Response:
    """Predict for a batch of samples; the checks, limits and deadlines are those of `/v1`."""
    if version is not None:
        return await _infer(service.catalogue.find(model, version).card, request, service)
    return await _infer((await service.catalogue.newest(model)).card, request, service, service.catalogue.successor)


async def _infer(card: Card, request: Request, service: Service, successor: Successor | None = None) -> Response:
    negotiation.check_uncompressed(request.headers)
    policy = policies.policy(request.query_params)
    json_bytes, limit = _limits(request.headers, service.settings.max_body_bytes)
    state = request.state
    state.version = card.version
    state.caller.check()
    with service.admission.admit() as ticket:
        content = await body.read(request, ticket, limit, service.settings.receive_seconds)
        service.metrics.request_bytes.observe(len(content))
        exchange = RestExchange(content, json_bytes, card.result_names)
        work = service.predictor.predict(
            Prediction(card, state.request_id, state.caller, policy, successor=successor), exchange
        )
        reply = await body.unless_disconnected(request, work)
    if reply.json_bytes is None:
        return Response(reply.body, media_type=json_arrays.MEDIA_TYPE)
    return Response(reply.body, media_type=BYTES, headers={JSON_BYTES: str(reply.json_bytes)})


def _limits(headers: Headers, max_bytes: int) -> tuple[int | None, int]:
    """Return where the JSON ends, None for the body's end, and the size of the largest body."""
    largest = max_bytes // json_arrays.MEMORY_FACTOR
    announced = headers.get(JSON_BYTES)
    if announced is None:
        return None, largest
    if not (announced.isascii() and announced.isdigit()):
        raise Problem("unreadable-body", f'{JSON_BYTES} is "{announced[:32]}"; expected a number of bytes')
    if len(announced) > 18 or int(announced) > largest:
        raise Problem("body-too-large", f"{JSON_BYTES} is {announced[:32]}; the limit is {largest} bytes")
    return int(announced), max_bytes
