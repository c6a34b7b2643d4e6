"""Tesseracts under `/tesseract/{model}`: what tesseract-torch and tesseract-jax speak, for differentiable models.

    from tesseract_core import Tesseract

    darcy = Tesseract.from_url("http://127.0.0.1:8080/tesseract/darcy")

Messages are JSON:

    apply                     {"inputs": {…}}
    vector_jacobian_product   {"inputs": {…}, "vjp_inputs": […], "vjp_outputs": […], "cotangent_vector": {…}}
    jacobian_vector_product   {"inputs": {…}, "jvp_inputs": […], "jvp_outputs": […], "tangent_vector": {…}}

An array is `{"object_type", "shape", "dtype", "data": {"buffer", "encoding"}}` with little-endian bytes in C order
(`base64`) or nested lists (`raw`) as buffer; or plain numbers. Files and GPU memory, which a buffer may name in other
servers, are not read. A response holds arrays by the names of outputs, or for a vector-Jacobian product by those of
`vjp_inputs`. Beside the outputs of `apply` is what is known about their error: one number per sample.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from schema.card import Card
from serving import checks
from serving.auth import Scope, requires
from serving.codecs import binary
from serving.compression import field
from serving.document import JSON, Document, inlined_schema, object_schema, validated
from serving.errors import Problem
from serving.protocols import over_http
from serving.protocols.over_http import DirectRoute
from serving.protocols.tesseract_bodies import (
    DTYPE,
    INPUTS,
    VECTORS,
    Abstract,
    ArrayDocument,
    Encoding,
    Shape,
    TesseractBody,
    counts_of,
    members_of,
)
from serving.service import Service, Serving

PREFIX = "/tesseract/{model}"
MEDIA_TYPES: dict[Encoding, str] = {"base64": "application/json+base64", "raw": "application/json"}
# What clients of Tesseracts may send: `run_id` names a folder of logs, of which there are none here.
_QUERY = ("run_id", "grid")
SHORT = 2**16  # bytes of a body without values


class Fault(Document):
    """One fault of a request that cannot be processed."""

    type: str
    loc: tuple[str | int, ...]
    msg: str


class Faults(Document):
    """The body of an error 422, in the form that clients of Tesseracts read; other errors are problem documents."""

    detail: tuple[Fault, ...]


# The routes.


def _route(members: Mapping[str, type], *media_types: str) -> dict[str, Any]:
    """Return the documentation of a route whose body has these members, and whose responses have these types."""
    kinds = {name: {"type": "object" if kind is dict else "array"} for name, kind in members.items()}
    content = {each: {"schema": {"type": "object"}} for each in media_types or (JSON,)}
    return over_http.described(object_schema(kinds, closed=False), {"content": content})


_ERRORS: dict[int | str, dict[str, Any]] = {
    422: {"model": Faults, "description": "What is wrong with the arrays"},
    **over_http.PROBLEMS,
}
router = APIRouter(prefix=PREFIX, tags=["Tesseract"], responses=_ERRORS, dependencies=over_http.CHECKED)
calls = APIRouter(prefix=PREFIX, tags=["Tesseract"], responses=_ERRORS, route_class=DirectRoute)


@router.get("/openapi.json")
@requires(Scope.INFER)
async def openapi(model: str, service: Serving) -> JSONResponse:
    """Return the endpoints of a model, and which of its arrays are differentiable."""
    return JSONResponse(document(_card(model, service)))


@router.get("/health")
@requires(Scope.INFER)
async def health(model: str, service: Serving) -> dict[str, str]:
    """Return 200 while the model is loaded and warm, or is loaded at its first use."""
    _card(model, service)
    return {"status": "ok"}


@calls.post("/apply", **_route(INPUTS, *MEDIA_TYPES.values()))
@requires(Scope.INFER)
async def apply(model: str, request: Request, service: Serving) -> Response:
    """Return the outputs of the newest version of a model, and what is known about their error."""
    _card(model, service)
    return await _run(await service.catalogue.newest(model), request, service, latest=True)


@calls.post("/vector_jacobian_product", **_route(VECTORS["vjp"].members, *MEDIA_TYPES.values()))
@requires(Scope.INFER)
async def vector_jacobian_product(model: str, request: Request, service: Serving) -> Response:
    """Return the gradients of the inner product of outputs and cotangents."""
    return await _run(service.catalogue.derivative(model, "vjp"), request, service)


@calls.post("/jacobian_vector_product", **_route(VECTORS["jvp"].members, *MEDIA_TYPES.values()))
@requires(Scope.INFER)
async def jacobian_vector_product(model: str, request: Request, service: Serving) -> Response:
    """Return the derivatives of outputs along tangents."""
    return await _run(service.catalogue.derivative(model, "jvp"), request, service)


@calls.post("/abstract_eval", **_route(INPUTS))
@requires(Scope.INFER)
async def abstract_eval(model: str, request: Request, service: Serving) -> Response:
    """Return shapes and types of the outputs for shapes of inputs, without computing anything."""
    card = _card(model, service)
    sent = members_of(await over_http.content(request, service, SHORT, _QUERY), INPUTS)["inputs"]
    found = results(
        card,
        {
            name: () if type(value) in {int, float} else validated(Abstract, value, f"inputs.{name[:32]}").shape
            for name, value in sent.items()
        },
        over_http.policy(request.query_params).grid,
    )
    return JSONResponse({name: {"shape": shape, "dtype": DTYPE} for name, shape in found.items()})


def _card(model: str, service: Service) -> Card:
    """Return the card of a model with derivatives."""
    card = service.catalogue.model(model).card
    if card.frames is not None:
        detail = f'"{model[:64]}" computes trajectories, and a Tesseract has no number of frames; use /v1 or /v2'
        raise Problem("not-differentiable", detail)
    if not card.differentiable:
        detail = f'"{model[:64]}" has no derivative, so it is no Tesseract; /v1 and /v2 predict with it'
        raise Problem("not-differentiable", detail)
    return card


async def _run(card: Card, request: Request, service: Service, *, latest: bool = False) -> Response:
    encoding = accepted(field(request.headers, "accept", "*/*"))
    wanted, content = await over_http.received(card, request, service, _QUERY, latest=latest)
    work = service.predictor.predict(wanted, TesseractBody(content, encoding))
    body = await over_http.unless_disconnected(request, work)
    return Response(body, media_type=MEDIA_TYPES[encoding])


def accepted(accept: str) -> Encoding:
    """Return the encoding of arrays that a header `Accept` leaves, base64 where it leaves the choice."""
    for part in accept.split(",")[:32]:
        media, *parameters = (piece.strip().lower() for piece in part.split(";"))
        wants = dict(parameter.partition("=")[::2] for parameter in parameters)
        if any(wants.get(name, "none").strip('"') != "none" for name in ("gpu_transport", "compression")):
            continue
        if media in {"*/*", "application/*", MEDIA_TYPES["base64"]}:
            return "base64"
        if media == MEDIA_TYPES["raw"]:
            return "raw"
    raise Problem("not-acceptable", f'responses are {" or ".join(MEDIA_TYPES.values())}, not "{accept[:64]}"')


def results(card: Card, sent: Mapping[str, Shape], grid: Shape | None = None) -> dict[str, Shape]:
    """Return the shapes of all outputs and of the numbers about their quality, for the shapes of what is sent.

    `grid` is what a request says of it, to a model without an input on the grid.
    """
    checks.names(sent, card.names, card.optional)
    arguments = {argument.name: argument for argument in card.arguments}
    for name, shape in sent.items():
        if len(shape) > binary.MAX_RANK or len(arguments[name].axes) - len(shape) not in {0, 1}:
            axes = ", ".join(arguments[name].axes)
            detail = f"{name}: expected axes ({axes}), with or without the batch, but got shape {list(shape[:8])}"
            raise Problem("wrong-shape", detail, array=name)
    free = [tensor for tensor in card.inputs if tensor.points is None]
    lead = next((tensor for tensor in free if tensor.name in sent), None)
    if lead is None and not card.takes_grid:
        detail = f"no input was sent, so the grid is unknown; send {' or '.join(tensor.name for tensor in free)}"
        raise Problem("wrong-input", detail, array=free[0].name)
    counts = counts_of(sent, card)
    batch = (max(counts.values()),) if (counts if lead is None else lead.name in counts) else ()
    points = checks.points_of(grid, None, card) if lead is None else lead.grid_of(sent[lead.name])
    each = checks.shapes(card, dict(zip(card.grid.axes, points, strict=True)))
    known = {name: ((output := card.interval_of(name)) and output.vector) or () for name in card.quality}
    outputs = {tensor.name: batch + each[tensor.name] for tensor in card.outputs}
    return outputs | {name: batch + vector for name, vector in known.items()}


def document(card: Card) -> dict[str, Any]:
    """Return the OpenAPI document of a model as a Tesseract: clients find endpoints and arrays in it."""
    array = inlined_schema(ArrayDocument)
    inputs, outputs = (
        {
            each.name: array
            | {"description": f"{each.meaning}, axes ({', '.join(each.axes)})", "units": each.units}
            | {"array_flags": ["DIFFERENTIABLE"]}
            for each in tensors
        }
        for tensors in (card.arguments, card.outputs)
    )
    known = {
        name: array | {"description": f"{name}, one number per sample", "array_flags": []} for name in card.quality
    }
    required = [argument.name for argument in card.arguments if argument.default is None]
    reference = "#/components/schemas/Apply_"
    schemas = {
        "Apply_InputSchema": object_schema(inputs, required),
        "Apply_OutputSchema": object_schema(outputs | known),
        "ApplyInputSchema": {
            **object_schema({"inputs": {"$ref": f"{reference}InputSchema"}}),
            # Without a shape, an array may have an axis of samples or none.
            "differentiable_arrays": {name: {"dtype": DTYPE} for name in inputs},
        },
        "ApplyOutputSchema": {
            "$ref": f"{reference}OutputSchema",
            "differentiable_arrays": {name: {"dtype": DTYPE} for name in outputs},
        },
    }
    posts = ["apply", "abstract_eval", *(VECTORS[kind].endpoint for kind in card.differentiable)]
    described = {"responses": {"200": {"description": "Arrays by name"}}}
    return {
        "openapi": "3.1.0",
        "info": {"title": card.model, "version": str(card.version), "description": card.title},
        "paths": {"/health": {"get": {"operationId": "health"} | described}}
        | {f"/{name}": {"post": {"operationId": name} | described} for name in posts},
        "components": {"schemas": schemas},
        "x-supported-output-formats": ["json+base64", "json"],
        "x-supported-gpu-transports": ["none"],
        "x-supported-compressions": ["none"],
    }
