"""The routes of `/tesseract/{model}`: every differentiable model as a Tesseract of its own.

from tesseract_core import Tesseract

darcy = Tesseract.from_url("http://127.0.0.1:8080/tesseract/darcy")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic import Field, ValidationError

from serving.auth.keys import Scope
from serving.codecs import negotiation
from serving.codecs.json_arrays import MEMORY_FACTOR
from serving.document import Document
from serving.errors import MEDIA_TYPE, Problem, ProblemDetails
from serving.http import body
from serving.http.authorisation import requires
from serving.http.direct_route import DirectRoute
from serving.predict import Prediction
from serving.service import Service, Serving  # noqa: TC001  FastAPI reads annotations at run time
from serving.tesseract import schema, signature
from serving.tesseract.exchange import TesseractBody

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from serving.catalogue.card import Card
    from serving.tesseract.arrays import Encoding

PREFIX = "/tesseract/{model}"
MEDIA_TYPES: dict[Encoding, str] = {"base64": "application/json+base64", "raw": "application/json"}
_MAX_RANGES = 32
_ABSTRACT_BYTES = 2**16  # of a body without values


class Fault(Document):
    """One fault of a request that cannot be processed."""

    type: str
    loc: tuple[str | int, ...]
    msg: str


class Faults(Document):
    """The body of an error 422, in the form that clients of Tesseracts read; other errors are problem documents."""

    detail: tuple[Fault, ...]


class Abstract(Document):
    """An array without values."""

    shape: Annotated[tuple[Annotated[int, Field(ge=0, lt=2**31)], ...], Field(max_length=16)]
    dtype: str


class AbstractInputs(Document):
    """The body of `abstract_eval`."""

    inputs: dict[str, Abstract | float]


def _described(members: dict[str, str], *media_types: str) -> dict[str, Any]:
    """Return the documentation of a route whose body has these members, and whose responses have these types."""
    properties = {name: {"type": kind} for name, kind in members.items()}
    content = {"type": "object", "properties": properties, "required": list(members)}
    return {
        "openapi_extra": {"requestBody": {"required": True, "content": {"application/json": {"schema": content}}}},
        "responses": {200: {"content": {kind: {"schema": {"type": "object"}} for kind in media_types}}},
    }


_ERRORS: dict[int | str, dict[str, Any]] = {
    422: {"model": Faults, "description": "What is wrong with the arrays"},
    "default": {"model": ProblemDetails, "content": {MEDIA_TYPE: {}}, "description": "A problem (RFC 9457)"},
}
_VJP = {"inputs": "object", "vjp_inputs": "array", "vjp_outputs": "array", "cotangent_vector": "object"}
_JVP = {"inputs": "object", "jvp_inputs": "array", "jvp_outputs": "array", "tangent_vector": "object"}
router = APIRouter(prefix=PREFIX, responses=_ERRORS)
calls = APIRouter(prefix=PREFIX, responses=_ERRORS, route_class=DirectRoute)


@router.get("/openapi.json")
@requires(Scope.INFER)
async def openapi(model: str, service: Serving) -> JSONResponse:
    """Return the endpoints of a model, and which of its arrays are differentiable."""
    card = _card(model, service)
    return JSONResponse(schema.document(card, card.differentiable))


@router.get("/health")
@requires(Scope.INFER)
async def health(model: str, service: Serving) -> dict[str, str]:
    """Return 200 while the model is loaded and warm."""
    _card(model, service)
    return {"status": "ok"}


@calls.post("/apply", **_described({"inputs": "object"}, *MEDIA_TYPES.values()))
@requires(Scope.INFER)
async def apply(model: str, request: Request, service: Serving) -> Response:
    """Return the outputs of the newest version of a model, and what is known about their error."""
    _card(model, service)
    card, successor = (await service.catalogue.newest(model)).card, service.catalogue.successor
    return await _run(card, request, service, successor)


@calls.post("/vector_jacobian_product", **_described(_VJP, *MEDIA_TYPES.values()))
@requires(Scope.INFER)
async def vector_jacobian_product(model: str, request: Request, service: Serving) -> Response:
    """Return the gradients of the inner product of outputs and cotangents."""
    return await _run(service.catalogue.derivative(model, "vjp").card, request, service)


@calls.post("/jacobian_vector_product", **_described(_JVP, *MEDIA_TYPES.values()))
@requires(Scope.INFER)
async def jacobian_vector_product(model: str, request: Request, service: Serving) -> Response:
    """Return the derivatives of outputs along tangents."""
    return await _run(service.catalogue.derivative(model, "jvp").card, request, service)


@calls.post("/abstract_eval", **_described({"inputs": "object"}, MEDIA_TYPES["raw"]))
@requires(Scope.INFER)
async def abstract_eval(model: str, request: Request, service: Serving) -> Response:
    """Return shapes and types of the outputs for shapes of inputs, without computing anything."""
    card = _card(model, service)
    with service.admission.admit() as ticket:
        content = await body.read(request, ticket, _ABSTRACT_BYTES, service.settings.receive_seconds)
    try:
        sent = AbstractInputs.model_validate_json(bytes(content)).inputs
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        location = ".".join(str(key)[:32] for key in first["loc"]) or "the JSON body"
        raise Problem("unreadable-body", f"{location}: {first['msg']}") from error
    shapes = {name: value.shape if isinstance(value, Abstract) else () for name, value in sent.items()}
    found = signature.results(card, shapes)
    return JSONResponse({name: {"shape": shape, "dtype": schema.DTYPE} for name, shape in found.items()})


def _card(model: str, service: Service) -> Card:
    """Return the card of a model with derivatives.

    Raises:
        Problem: not-differentiable: The model has none, or is one of trajectories: the protocol has no number of
            frames.
        Problem: As `Catalogue.find`.
    """
    card = service.catalogue.model(model).card
    if card.frames is not None:
        raise Problem(
            "not-differentiable",
            f'"{model[:64]}" computes trajectories, and a Tesseract has no number of frames; use /v1 or /v2',
        )
    if not card.differentiable:
        raise Problem(
            "not-differentiable",
            f'"{model[:64]}" has no derivative, so it is no Tesseract; /v1 and /v2 predict with it',
        )
    return card


async def _run(
    card: Card, request: Request, service: Service, successor: Callable[[Card, float], Awaitable[Card]] | None = None
) -> Response:
    """Read the body, run the model, and stop when the client disconnects.

    Args:
        card: Of the model or the product to run.
        request: The request.
        service: The parts of the gateway.
        successor: Finds the version that is served instead of one that is gone.
    """
    negotiation.check_uncompressed(request.headers)
    encoding = accepted(request.headers.get("accept", "*/*"))
    settings, state = service.settings, request.state
    state.version = card.version
    state.caller.check()
    with service.admission.admit() as ticket:
        content = await body.read(request, ticket, settings.max_body_bytes // MEMORY_FACTOR, settings.receive_seconds)
        service.metrics.request_bytes.observe(len(content))
        exchange = TesseractBody(content, card, encoding)
        work = service.predictor.predict(
            Prediction(card, state.request_id, state.caller, successor=successor), exchange
        )
        written = await body.unless_disconnected(request, work)
    return Response(written, media_type=MEDIA_TYPES[encoding])


def accepted(accept: str) -> Encoding:
    """Return the encoding of arrays that a header `Accept` leaves, base64 where it leaves the choice.

    Raises:
        Problem: not-acceptable: It wants files, GPU memory or compressed buffers.
    """
    for part in accept.split(",")[:_MAX_RANGES]:
        media, *parameters = (piece.strip().lower() for piece in part.split(";"))
        wants = dict(parameter.partition("=")[::2] for parameter in parameters)
        if any(wants.get(name, "none").strip('"') != "none" for name in ("gpu_transport", "compression")):
            continue
        if media in {"*/*", "application/*", MEDIA_TYPES["base64"]}:
            return "base64"
        if media == MEDIA_TYPES["raw"]:
            return "raw"
    raise Problem("not-acceptable", f'responses are {" or ".join(MEDIA_TYPES.values())}, not "{accept[:64]}"')
