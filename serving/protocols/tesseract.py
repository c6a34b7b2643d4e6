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

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from numpy.typing import NDArray
from pydantic import Field
from pydantic.types import FailFast

from schema.card import Card, Kind
from serving import checks
from serving.auth import Scope, requires
from serving.codecs import binary, json_arrays
from serving.codecs.binary import Buffer
from serving.codecs.json_text import parsed, written
from serving.document import JSON, Document, inlined_schema, object_schema, validated
from serving.errors import Problem
from serving.inputs import TEXT_GROWTH
from serving.protocols import over_http
from serving.protocols.over_http import DirectRoute
from serving.quality import Quality
from serving.service import Service, Serving

Shape = tuple[int, ...]

PREFIX = "/tesseract/{model}"
Encoding = Literal["base64", "raw"]
MEDIA_TYPES: dict[Encoding, str] = {"base64": "application/json+base64", "raw": "application/json"}
DTYPE = "float32"
# What clients of Tesseracts may send: `run_id` names a folder of logs, of which there are none here.
_QUERY = ("run_id", "grid")
SHORT = 2**16  # bytes of a body without values
Sizes = Annotated[tuple[Annotated[int, Field(ge=0, lt=2**31)], ...], Field(max_length=16), FailFast()]


class Vector(NamedTuple):
    """The vector of a product in a request: the member of the body that holds it, and the two that list names.

    The tensors of `member` are called `role`, and listed in `named`; those of the results are called `results`, and
    listed in `wanted`.
    """

    endpoint: str
    member: str
    role: Literal["cotangents", "tangents"]
    named: str
    wanted: str
    results: Literal["gradients", "tangents"]

    @property
    def members(self) -> dict[str, type]:
        return {"inputs": dict, self.named: list, self.wanted: list, self.member: dict}


VECTORS: dict[Kind, Vector] = {
    "vjp": Vector(
        "vector_jacobian_product", "cotangent_vector", "cotangents", "vjp_outputs", "vjp_inputs", "gradients"
    ),
    "jvp": Vector("jacobian_vector_product", "tangent_vector", "tangents", "jvp_inputs", "jvp_outputs", "tangents"),
}


class Data(Document):
    """The values of an array."""

    buffer: Any
    encoding: Encoding
    compression: None = None


class Abstract(Document):
    """An array without values."""

    shape: Sizes
    dtype: str


class ArrayDocument(Abstract):
    """One array."""

    object_type: Literal["array"] = "array"
    data: Data


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


_INPUTS: dict[str, type] = {"inputs": dict}
_ERRORS: dict[int | str, dict[str, Any]] = {
    422: {"model": Faults, "description": "What is wrong with the arrays"},
    **over_http.PROBLEMS,
}
router = APIRouter(prefix=PREFIX, responses=_ERRORS)
calls = APIRouter(prefix=PREFIX, responses=_ERRORS, route_class=DirectRoute)


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


@calls.post("/apply", **_route(_INPUTS, *MEDIA_TYPES.values()))
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


@calls.post("/abstract_eval", **_route(_INPUTS))
@requires(Scope.INFER)
async def abstract_eval(model: str, request: Request, service: Serving) -> Response:
    """Return shapes and types of the outputs for shapes of inputs, without computing anything."""
    card = _card(model, service)
    sent = _members(await over_http.content(request, service, SHORT, _QUERY), _INPUTS)["inputs"]
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
    encoding = accepted(request.headers.get("accept", "*/*"))
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


# Bodies.


def _members(content: Buffer, types: Mapping[str, type]) -> dict[str, Any]:
    found = parsed(content)
    if not isinstance(found, dict) or found.keys() != types.keys():
        raise Problem("unreadable-body", f"expected a JSON object with {', '.join(types)}")
    for name, kind in types.items():
        if not isinstance(found[name], kind):
            expected = "an object" if kind is dict else "a list of names"
            raise Problem("unreadable-body", f"{name}: expected {expected}")
    return found


class TesseractBody:
    """A request to a Tesseract, and the writer of its response in an encoding: an `Exchange` of `serving.inputs`."""

    frames: int | None = None  # models of trajectories are no Tesseracts
    grid: tuple[int, ...] | None = None  # that of the query
    seconds: float | None = None
    growth = TEXT_GROWTH

    def __init__(self, content: Buffer, encoding: Encoding) -> None:
        self.size, self._content, self._encoding = len(content), content, encoding
        self._vector: Vector | None = None
        self._sent: dict[str, NDArray[Any]] = {}
        self._wanted: list[str] = []

    def read(self, card: Card, max_bytes: int) -> dict[str, NDArray[Any]]:
        product = card.product
        self._vector = vector = VECTORS[product.kind] if product and product.kind != "refined" else None
        found = _members(self._content, vector.members if vector else _INPUTS)
        arrays = dict(found["inputs"])
        if vector is not None:
            self._wanted = self._requested(found, vector, card)
            arrays |= {f"{vector.role}.{name}": value for name, value in found[vector.member].items()}
        checks.names(arrays, card.names, card.optional)
        sent = {name: decode(value, name, max_bytes) for name, value in arrays.items()}
        # Their shapes and types alone are needed for the response.
        self._sent = {name: np.broadcast_to(np.zeros((), each.dtype), each.shape) for name, each in sent.items()}
        return broadcast(sent, card, max_bytes)

    def _requested(self, members: dict[str, Any], vector: Vector, card: Card) -> list[str]:
        """Return the results that a request wants, once its lists of names are right."""
        listed, sent, wanted = members[vector.named], members[vector.member], members[vector.wanted]
        if not sent:
            detail = f"{vector.member} is empty; expected the arrays of {vector.named}"
            raise Problem("wrong-input", detail, array=vector.member)
        if len(listed) != len(sent) or not all(isinstance(name, str) and name in sent for name in listed):
            detail = f"{vector.named} and the names of {vector.member} differ; expected the same"
            raise Problem("wrong-input", detail, array=vector.member)
        prefix = f"{vector.results}."
        known = [each.name.removeprefix(prefix) for each in card.outputs if each.name.startswith(prefix)]
        if not wanted:
            detail = f"{vector.wanted} is empty; expected some of {', '.join(known)}"
            raise Problem("wrong-input", detail, array=known[0])
        for name in wanted:
            if name not in known:
                shown = str(name)[:64]
                detail = f'{vector.wanted}: expected some of {", ".join(known)} but got "{shown}"'
                raise Problem("wrong-input", detail, array=shown)
        return list(dict.fromkeys(wanted))

    def write(self, card: Card, outputs: Mapping[str, NDArray[np.float32]], quality: Quality) -> bytes | memoryview:
        """Return the body of the response; a gradient has shape and type of the input that was sent."""
        shown: dict[str, NDArray[Any]] = {}
        if self._vector is None:
            first = card.outputs[0]
            single = outputs[first.name].ndim < len(first.axes)
            known = {name: np.asarray(each[0]) if single else each for name, each in quality.numbers.items()}
            shown = {**outputs, **known}
        else:
            shown = {name: outputs[f"{self._vector.results}.{name}"] for name in self._wanted}
            if self._vector.results == "gradients":
                shown |= {name: fitted(shown[name], self._sent[name]) for name in shown.keys() & self._sent.keys()}
        return written({name: encode(array, self._encoding) for name, array in shown.items()})


def decode(value: Any, name: str, max_bytes: int) -> NDArray[Any]:
    """Return the array of a document, of nested lists or of a number, a value of parsed JSON."""
    if not isinstance(value, dict):
        return json_arrays.nested(value, name)
    found = validated(ArrayDocument, value, name)
    buffer = found.data.buffer
    if found.data.encoding == "raw":
        json_arrays.check_dtype(found.dtype, name)
        array = json_arrays.nested(buffer, name)
        if array.shape != found.shape:
            detail = f"{name} has shape {array.shape}, but its document says {found.shape[:8]}"
            raise Problem("wrong-shape", detail, array=name)
        return array
    path = f"{name}.data.buffer"
    if not isinstance(buffer, str):
        raise Problem("unreadable-body", f"{path}: expected a string in base64")
    return json_arrays.from_base64(buffer, found.dtype, found.shape, name, path, max_bytes)


def encode(array: NDArray[Any], encoding: Encoding) -> dict[str, Any]:
    """Return the document of an array; a value that is not finite is null in nested lists."""
    if encoding == "raw":
        buffer: Any = np.ascontiguousarray(array) if array.ndim else array.item()
    else:
        buffer = json_arrays.base64_text(array)
    about = {"object_type": "array", "shape": array.shape, "dtype": array.dtype.name}
    return about | {"data": {"buffer": buffer, "encoding": encoding}}


def broadcast(arrays: Mapping[str, NDArray[Any]], card: Card, max_bytes: int) -> dict[str, NDArray[Any]]:
    """Repeat batches of one sample, as views, so that all batches have as many samples, where all are on one grid.

    `vmap_method="expand_dims"` of tesseract-jax sends what is not mapped as a batch of one.
    """
    free = [tensor for tensor in card.inputs if tensor.points is None and tensor.name in arrays]
    counts = _counts({name: array.shape for name, array in arrays.items()}, card)
    count = max(counts.values(), default=1)
    found = dict(arrays)
    if len({tensor.grid_of(arrays[tensor.name].shape) for tensor in free}) > 1 or set(counts.values()) - {1, count}:
        return found  # the checks that follow name the fault, before anything is repeated
    for name, own in counts.items():
        if own < count:
            shape = (count, *arrays[name].shape[1:])
            if 4 * math.prod(shape) > max_bytes:
                raise Problem("body-too-large", f"{name}: {count} samples would take more than {max_bytes} bytes")
            found[name] = np.broadcast_to(arrays[name], shape)
    return found


def _counts(sent: Mapping[str, Shape], card: Card) -> dict[str, int]:
    """Return the number of samples of each array that has an axis of them, by name."""
    ranks = {argument.name: len(argument.axes) for argument in card.arguments}
    return {name: shape[0] for name, shape in sent.items() if len(shape) == ranks[name]}


def fitted(gradient: NDArray[Any], sent: NDArray[Any]) -> NDArray[Any]:
    """Return the gradient by an array in the array's own shape, summed over what it was repeated to.

    That by float64 is float64, as automatic differentiation expects.
    """
    whole = gradient.sum(axis=0) if gradient.size != sent.size else gradient
    return whole.reshape(sent.shape).astype(np.float64 if sent.dtype == np.float64 else np.float32, copy=False)


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
    counts = _counts(sent, card)
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
