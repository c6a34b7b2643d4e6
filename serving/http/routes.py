"""The paths of the gateway; each handler names its parts and leaves the work to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST

from serving.codecs import formats as arrays
from serving.codecs import npy, safetensors
from serving.http import body
from serving.problem_details import MEDIA_TYPE
from serving.schemas import Answer, Liveness, Model, ModelList, ProblemDetails, Question, Readiness
from serving.service import Service, Serving  # noqa: TC001  FastAPI reads annotations at run time

if TYPE_CHECKING:
    from serving.inference.prediction import Predictor
    from serving.schemas import Card

PREDICT = "/v1/models/{model}/predict"
PREDICT_WITH_VERSION = "/v1/models/{model}/versions/{version}/predict"
_BINARY = {"schema": {"type": "string", "format": "binary"}}
_PREDICTION: dict[str, Any] = {
    "openapi_extra": {
        "requestBody": {
            "required": True,
            "content": {
                npy.MEDIA_TYPE: _BINARY,
                safetensors.MEDIA_TYPE: _BINARY,
                arrays.JSON: {"schema": Question.model_json_schema(ref_template="#/components/schemas/{model}")},
            },
        }
    },
    "response_model": Answer,
    "responses": {
        200: {
            "content": {npy.MEDIA_TYPE: _BINARY, safetensors.MEDIA_TYPE: _BINARY},
            "headers": {
                "Petrov-Model": {"schema": {"type": "string"}},
                "Petrov-Version": {"schema": {"type": "integer"}},
            },
        }
    },
}

router = APIRouter(
    responses={"default": {"model": ProblemDetails, "content": {MEDIA_TYPE: {}}, "description": "A problem (RFC 9457)"}}
)


@router.get("/v1/models")
async def list_models(service: Serving) -> ModelList:
    """The models that answer now."""
    return ModelList(models=tuple(service.catalogue.models()))


@router.get("/v1/models/{model}", response_model_exclude_unset=True)  # a card says what there is to say
async def describe_model(model: str, service: Serving) -> Model:
    """Card, versions and export certificate of a model."""
    return service.catalogue.model(model)


@router.post(PREDICT, **_PREDICTION)
async def predict(model: str, request: Request, service: Serving) -> Response:
    """Ask the newest version of a model for one field or a batch of them."""
    return await _answer(service.catalogue.find(model).card, service.predictor, request, service)


@router.post(PREDICT_WITH_VERSION, **_PREDICTION)
async def predict_with_version(model: str, version: int, request: Request, service: Serving) -> Response:
    """Ask one version of a model."""
    return await _answer(service.catalogue.find(model, version).card, service.predictor, request, service)


@router.get(
    "/v1/models/{model}/example",
    response_model=Question,
    responses={200: {"content": {npy.MEDIA_TYPE: _BINARY, safetensors.MEDIA_TYPE: _BINARY}}},
)
async def example(
    model: str,
    request: Request,
    service: Serving,
    seed: Annotated[int, Query(ge=0, lt=2**63)] = 0,
    grid: Annotated[int | None, Query(ge=1, description="Points per axis; the first declared size by default.")] = None,
) -> Response:
    """An input of the model's training distribution, ready to be posted to `predict`."""
    card = service.catalogue.find(model).card
    answer = arrays.answer_type(request.headers, arrays.JSON)
    inputs = await service.classics.example(card, card.grid.declared[0] if grid is None else grid, seed)
    return Response(arrays.write_question(inputs, answer), media_type=answer, headers=_origin(card))


@router.post("/v1/models/{model}/reference", **_PREDICTION)
async def reference(model: str, request: Request, service: Serving) -> Response:
    """What the classical solver answers to the question that `predict` takes; few fields, one at a time."""
    return await _answer(service.catalogue.find(model).card, service.reference, request, service)


@router.get("/health/live")
async def live() -> Liveness:
    """The process answers."""
    return Liveness()


@router.get("/health/ready", responses={503: {"model": Readiness}})
async def ready(service: Serving) -> JSONResponse:
    """Every model of the repository is loaded and warm, and we are not shutting down."""
    readiness = service.readiness()
    return JSONResponse(readiness.model_dump(exclude_none=True), 200 if readiness.ready else 503)


@router.get("/metrics", include_in_schema=False)
async def metrics(service: Serving) -> Response:
    """Prometheus text."""
    return Response(service.metrics.text(), headers={"Content-Type": CONTENT_TYPE_LATEST})


async def _answer(card: Card, predictor: Predictor, request: Request, service: Service) -> Response:
    """Read, answer, and stop when nobody listens any more."""
    question = arrays.question_type(request.headers)
    answer = arrays.answer_type(request.headers, question)
    limit = service.settings.max_body_bytes // (arrays.JSON_SHARE if question == arrays.JSON else 1)
    state = request.state
    state.version = card.version
    state.caller.check()
    with service.admission.admit() as ticket:
        content = await body.read(request, ticket, limit, service.settings.receive_seconds)
        service.metrics.request_bytes.observe(len(content))
        work = predictor.predict(card, arrays.Body(content, question, answer), state.request_id, state.caller)
        written = await body.unless_disconnected(request, work)
    return Response(written, media_type=answer, headers=_origin(card))


def _origin(card: Card) -> dict[str, str]:
    """Who answered, for answers whose body has no room for it."""
    return {"Petrov-Model": card.model, "Petrov-Version": str(card.version)}
