"""The routes of UM-Bridge 1.0 under `/umbridge`.

A client sends one sample a call, mostly on a connection of its own. Calls of many clients run together as one batch, as
those of all other routes do. A request is checked in the order that the protocol's conformity suite expects: the model,
what it supports, then configuration and vectors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
from fastapi import APIRouter, Request, Response

from serving.auth.keys import Scope
from serving.codecs import json_arrays, negotiation
from serving.document import Document
from serving.errors import Problem
from serving.http import body
from serving.http.authorisation import requires
from serving.http.direct_route import DirectRoute
from serving.predict import offload
from serving.service import Service, Serving  # noqa: TC001  FastAPI reads annotations at run time
from serving.umbridge import models
from serving.umbridge.message import Message, parse
from serving.umbridge.model import APPLY_HESSIAN, APPLY_JACOBIAN, EVALUATE, GRADIENT, Call

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from serving.umbridge.model import Function, Model, Vector

    Result = Sequence[Vector] | Vector
    Compute = Callable[[Function, Message, Call], Coroutine[None, None, Result]]

PREFIX = "/umbridge"
VERSION = 1.0


class Info(Document):
    """`GET /Info`."""

    protocolVersion: float = VERSION  # noqa: N815 - the protocol's name
    models: tuple[str, ...]


class Support(Document):
    """What a model supports."""

    Evaluate: bool
    Gradient: bool
    ApplyJacobian: bool
    ApplyHessian: bool


class ModelInfo(Document):
    """`POST /ModelInfo`."""

    support: Support


class InputSizes(Document):
    """`POST /InputSizes`."""

    inputSizes: tuple[int, ...]  # noqa: N815 - as above


class OutputSizes(Document):
    """`POST /OutputSizes`."""

    outputSizes: tuple[int, ...]  # noqa: N815 - as above


class Evaluation(Document):
    """`POST /Evaluate`."""

    output: tuple[tuple[float, ...], ...]


class Product(Document):
    """`POST /Gradient` and `POST /ApplyJacobian`."""

    output: tuple[float, ...]


class Fault(Document):
    """What is wrong."""

    type: str
    message: str


class FaultMessage(Document):
    """The body of every error."""

    error: Fault


def _described(response: type[Document], **members: dict[str, Any]) -> dict[str, Any]:
    """Return the documentation of a route whose body has a name, a configuration and these members."""
    properties = {"name": {"type": "string"}, "config": {"type": "object"}} | members
    schema = {"type": "object", "properties": properties, "required": ["name", *members]}
    content = {json_arrays.MEDIA_TYPE: {"schema": schema}}
    return {"openapi_extra": {"requestBody": {"required": True, "content": content}}, "response_model": response}


_INDEX = {"type": "integer", "minimum": 0}
_NUMBERS = {"type": "array", "items": {"type": "number"}}
_INPUT = {"type": "array", "items": _NUMBERS}
_GRADIENT = _described(Product, input=_INPUT, outWrt=_INDEX, inWrt=_INDEX, sens=_NUMBERS)
_JACOBIAN = _described(Product, input=_INPUT, outWrt=_INDEX, inWrt=_INDEX, vec=_NUMBERS)
_ERRORS: dict[int | str, dict[str, Any]] = {"default": {"model": FaultMessage, "description": "What is wrong"}}
router = APIRouter(prefix=PREFIX, responses=_ERRORS)
calls = APIRouter(prefix=PREFIX, responses=_ERRORS, route_class=DirectRoute)


@router.get("/Info")
@requires(Scope.INFER)
async def info(service: Serving) -> Info:
    """Return the version of the protocol and the names of the models."""
    return Info(models=tuple(models.names(service)))


@calls.post("/ModelInfo", **_described(ModelInfo))
@requires(Scope.INFER)
async def model_info(request: Request, service: Serving) -> Response:
    """Return what a model supports."""
    features = (await _model(request, service))[0].features
    support = {feature: feature in features for feature in Support.model_fields}
    return _json({"support": support})


@calls.post("/InputSizes", **_described(InputSizes))
@requires(Scope.INFER)
async def input_sizes(request: Request, service: Serving) -> Response:
    """Return the sizes of the input vectors for a configuration."""
    model, message = await _model(request, service)
    return _json({"inputSizes": (await model.configured(message.config, EVALUATE)).input_sizes})


@calls.post("/OutputSizes", **_described(OutputSizes))
@requires(Scope.INFER)
async def output_sizes(request: Request, service: Serving) -> Response:
    """Return the sizes of the output vectors for a configuration."""
    model, message = await _model(request, service)
    return _json({"outputSizes": (await model.configured(message.config, EVALUATE)).output_sizes})


@calls.post("/Evaluate", **_described(Evaluation, input=_INPUT))
@requires(Scope.INFER)
async def evaluate(request: Request, service: Serving) -> Response:
    """Return the output vectors."""

    async def compute(function: Function, message: Message, call: Call) -> Sequence[Vector]:
        return await function.evaluate(await _inputs(function, message), call)

    return await _compute(request, service, EVALUATE, compute)


@calls.post("/Gradient", **_GRADIENT)
@requires(Scope.INFER)
async def gradient(request: Request, service: Serving) -> Response:
    """Return `sens` times the Jacobian of the output `outWrt` by the input `inWrt`."""

    async def compute(function: Function, message: Message, call: Call) -> Vector:
        output, by = _indices(function, message)
        inputs = await _inputs(function, message)
        sensitivity = message.vector("sens", function.output_sizes[output])
        return await function.gradient(output, by, inputs, sensitivity, call)

    return await _compute(request, service, GRADIENT, compute)


@calls.post("/ApplyJacobian", **_JACOBIAN)
@requires(Scope.INFER)
async def apply_jacobian(request: Request, service: Serving) -> Response:
    """Return the Jacobian of the output `outWrt` by the input `inWrt`, times `vec`."""

    async def compute(function: Function, message: Message, call: Call) -> Vector:
        output, by = _indices(function, message)
        inputs = await _inputs(function, message)
        direction = message.vector("vec", function.input_sizes[by])
        return await function.apply_jacobian(output, by, inputs, direction, call)

    return await _compute(request, service, APPLY_JACOBIAN, compute)


@calls.post("/ApplyHessian", **_described(Product))
@requires(Scope.INFER)
async def apply_hessian(request: Request, service: Serving) -> Response:
    """Say that no model has second derivatives."""
    await _model(request, service)
    raise Problem("not-differentiable", f"no model supports {APPLY_HESSIAN}")


def _indices(function: Function, message: Message) -> tuple[int, int]:
    """Return the indices of the output and of the input of a product."""
    output = message.index("outWrt", len(function.output_sizes))
    return output, message.index("inWrt", len(function.input_sizes))


async def _inputs(function: Function, message: Message) -> list[Vector]:
    """Return the input vectors, converted in a worker thread if they are large."""
    return await offload(message.size, message.inputs, function.input_sizes)


async def _model(request: Request, service: Service) -> tuple[Model, Message]:
    """Return the model that a short request names."""
    request.state.caller.check()
    with service.admission.admit() as ticket:
        limit = service.settings.max_body_bytes // json_arrays.MEMORY_FACTOR
        content = await body.read(request, ticket, limit, service.settings.receive_seconds)
        message = parse(content)
        model = models.find(service, message.name)
    request.state.model = model.served
    return model, message


async def _compute(request: Request, service: Service, feature: str, compute: Compute) -> Response:
    """Read the body, check it, compute, and stop when the client disconnects.

    Args:
        request: The request.
        service: The parts of the gateway.
        feature: What is computed.
        compute: Computes it.
    """
    negotiation.check_uncompressed(request.headers)
    state, settings = request.state, service.settings
    state.caller.check()
    with service.admission.admit() as ticket:
        limit = settings.max_body_bytes // json_arrays.MEMORY_FACTOR
        content = await body.read(request, ticket, limit, settings.receive_seconds)
        service.metrics.request_bytes.observe(len(content))
        message = await offload(len(content), parse, content)
        model = models.find(service, message.name)
        state.model = model.served
        if feature not in model.features:
            raise Problem("not-differentiable", f'"{message.name}" does not support {feature}')
        function = await model.configured(message.config, feature)
        work = compute(function, message, Call(state.request_id, state.caller))
        found = await body.unless_disconnected(request, work)
    return await offload(sum(vector.nbytes for vector in _vectors(found)), _written, found, model)


def _written(found: Result, model: Model) -> Response:
    """Return the response with what was computed, if JSON can hold it."""
    if all(np.isfinite(vector).all() for vector in _vectors(found)):
        return _json({"output": found})
    raise Problem("non-finite-output", f'a result of "{model.served}" is not finite', array="input")


def _vectors(found: Result) -> Sequence[Vector]:
    """Return the vectors of a result, which is one vector or several."""
    return [found] if isinstance(found, np.ndarray) else found


def _json(document: dict[str, Any]) -> Response:
    return Response(orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY), media_type=json_arrays.MEDIA_TYPE)
