"""UM-Bridge 1.0 under `/umbridge`: models for uncertainty quantification, which are functions of vectors.

    POST /Evaluate       {"name", "config", "input": [[…], …]}                     the output vectors
    POST /Gradient       {… "outWrt", "inWrt", "sens": […]}                        sens^T J
    POST /ApplyJacobian  {… "outWrt", "inWrt", "vec": […]}                         J vec

A model is one of the repository, where a field is a vector in C order, or a composite of `physics`: a few numbers in, a
few out, and a served model in the middle. A call has one sample; calls of many clients run together
as one batch, as those of all other routes do. A request is checked in the order that the protocol's conformity suite
expects: the model, what it supports, then configuration and vectors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from fastapi import APIRouter, Request, Response

from serving.auth import Scope, requires
from serving.codecs import json_arrays
from serving.codecs.binary import Buffer
from serving.codecs.json_text import LongList, parsed, written
from serving.document import JSON, object_schema
from serving.errors import Problem
from serving.inputs import offload
from serving.protocols import over_http
from serving.protocols.over_http import DirectRoute
from serving.protocols.umbridge_models import (
    APPLY_HESSIAN,
    APPLY_JACOBIAN,
    EVALUATE,
    FEATURES,
    GRADIENT,
    Vector,
    configured,
    features,
    find,
    names,
)
from serving.service import Service, Serving

PREFIX = "/umbridge"
SHORT = 2**18  # bytes of a body without vectors

_VECTOR, _SIZES = {"type": "array", "items": {"type": "number"}}, {"type": "array", "items": {"type": "integer"}}
_VECTORS, _INDEX = {"type": "array", "items": _VECTOR}, {"type": "integer", "minimum": 0}
_NAMED = {"name": {"type": "string"}, "config": {"type": "object"}}
_INFO = object_schema({"protocolVersion": {"type": "number"}, "models": {"type": "array", "items": {"type": "string"}}})
_SUPPORT = object_schema({"support": object_schema({feature: {"type": "boolean"} for feature in FEATURES})})
_PRODUCT: dict[str, Any] = {"input": _VECTORS, "outWrt": _INDEX, "inWrt": _INDEX}
_SECOND: dict[str, Any] = {
    "input": _VECTORS,
    "outWrt": _INDEX,
    "inWrt1": _INDEX,
    "inWrt2": _INDEX,
    "sens": _VECTOR,
    "vec": _VECTOR,
}
#: Members of a message for a feature, beside name and configuration.
MEMBERS: dict[str, tuple[str, ...]] = {
    EVALUATE: ("input",),
    GRADIENT: (*_PRODUCT, "sens"),
    APPLY_JACOBIAN: (*_PRODUCT, "vec"),
}
_FAULT = object_schema({"error": object_schema({"type": {"type": "string"}, "message": {"type": "string"}})})
_ERRORS: dict[int | str, dict[str, Any]] = {
    "default": {"content": {JSON: {"schema": _FAULT}}, "description": "What is wrong"}
}
calls = APIRouter(prefix=PREFIX, tags=["UM-Bridge"], responses=_ERRORS, route_class=DirectRoute)


def _route(result: dict[str, Any], **members: dict[str, Any]) -> dict[str, Any]:
    """Return the documentation of a route: its result, and the members of its body beside name and configuration."""
    body = object_schema(_NAMED | members, ["name", *members])
    return over_http.described(body, {"content": {JSON: {"schema": result}}})


@calls.get("/Info", responses={200: {"content": {JSON: {"schema": _INFO}}}})
@requires(Scope.INFER)
async def info(request: Request, service: Serving) -> Response:
    """Return the version of the protocol and the names of the models."""
    over_http.check_names_of_query(request.query_params)
    return _json({"protocolVersion": 1.0, "models": names(service)})


@calls.post("/ModelInfo", **_route(_SUPPORT))
@requires(Scope.INFER)
async def model_info(request: Request, service: Serving) -> Response:
    """Return what a model supports."""
    members = await _short(request, service)
    request.state.model = served = find(service, members)[0]
    _check_names(members)
    supported = features(service, served)
    return _json({"support": {feature: feature in supported for feature in FEATURES}})


@calls.post("/InputSizes", **_route(object_schema({"inputSizes": _SIZES})))
@requires(Scope.INFER)
async def input_sizes(request: Request, service: Serving) -> Response:
    """Return the sizes of the input vectors for a configuration."""
    return _json({"inputSizes": (await _sizes(request, service))[0]})


@calls.post("/OutputSizes", **_route(object_schema({"outputSizes": _SIZES})))
@requires(Scope.INFER)
async def output_sizes(request: Request, service: Serving) -> Response:
    """Return the sizes of the output vectors for a configuration."""
    return _json({"outputSizes": (await _sizes(request, service))[1]})


@calls.post("/Evaluate", **_route(object_schema({"output": _VECTORS}), input=_VECTORS))
@requires(Scope.INFER)
async def evaluate(request: Request, service: Serving) -> Response:
    """Return the output vectors."""
    return await _compute(request, service, EVALUATE)


@calls.post("/Gradient", **_route(object_schema({"output": _VECTOR}), **_PRODUCT, sens=_VECTOR))
@requires(Scope.INFER)
async def gradient(request: Request, service: Serving) -> Response:
    """Return `sens` times the Jacobian of the output `outWrt` by the input `inWrt`."""
    return await _compute(request, service, GRADIENT)


@calls.post("/ApplyJacobian", **_route(object_schema({"output": _VECTOR}), **_PRODUCT, vec=_VECTOR))
@requires(Scope.INFER)
async def apply_jacobian(request: Request, service: Serving) -> Response:
    """Return the Jacobian of the output `outWrt` by the input `inWrt`, times `vec`."""
    return await _compute(request, service, APPLY_JACOBIAN)


@calls.post("/ApplyHessian", **_route(object_schema({"output": _VECTOR}), **_SECOND))
@requires(Scope.INFER)
async def apply_hessian(request: Request, service: Serving) -> Response:
    """Say that no model has second derivatives."""
    request.state.model = find(service, await _short(request, service))[0]
    raise Problem("not-differentiable", f"no model supports {APPLY_HESSIAN}")


async def _short(request: Request, service: Service) -> dict[str, Any]:
    content = await over_http.content(request, service, min(SHORT, service.settings.max_json_bytes))
    return await offload(len(content), _members, content)


async def _sizes(request: Request, service: Service) -> tuple[list[int], list[int]]:
    members = await _short(request, service)
    found = await configured(request, service, members, EVALUATE)
    _check_names(members)
    return found.sizes


async def _compute(request: Request, service: Service, feature: str) -> Response:
    content = await over_http.content(request, service, service.settings.max_json_bytes)
    size = len(content)
    members = await offload(size, _members, content)
    function = await configured(request, service, members, feature)
    _check_names(members, *MEMBERS[feature])
    sizes, outputs = function.sizes
    output = by = 0
    if feature != EVALUATE:
        output, by = _index(members, "outWrt", len(outputs)), _index(members, "inWrt", len(sizes))

    def read() -> tuple[list[Vector], Vector]:
        inputs, vector = _inputs(members, sizes), np.zeros(0)
        if feature == GRADIENT:
            vector = _vector(members.get("sens"), "sens", outputs[output])
        elif feature == APPLY_JACOBIAN:
            vector = _vector(members.get("vec"), "vec", sizes[by])
        members.clear()  # of the text, nothing is needed any more
        return inputs, vector

    inputs, vector = await offload(size, read)
    del content

    async def work() -> Any:
        if feature == EVALUATE:
            return await function.evaluate(inputs)
        if feature == GRADIENT:
            return await function.gradient(output, by, inputs, vector)
        return (await function.linearise(output, by, inputs, vector))[1]

    found: Any = await over_http.unless_disconnected(request, work())
    vectors: list[Vector] = found if isinstance(found, list) else [found]

    def write() -> Response:
        if not all(np.isfinite(each).all() for each in vectors):
            raise Problem("non-finite-output", f'a result of "{request.state.model}" is not finite', array="input")
        return _json({"output": found})

    return await offload(sum(each.nbytes for each in vectors), write)


def _members(content: Buffer) -> dict[str, Any]:
    """Return the members of a message, whatever its Content-Type says; an empty body has none."""
    document = parsed(content) if content else {}
    if not isinstance(document, dict):
        raise Problem("unreadable-body", "expected a JSON object")
    return document


def _check_names(members: Mapping[str, Any], *others: str) -> None:
    """Refuse members that a message does not have beside some: a misspelled one, such as `Config`, would do nothing."""
    if unknown := sorted(members.keys() - {*_NAMED, *others}):
        known = ", ".join((*_NAMED, *others))
        raise Problem("unreadable-body", f'the message has no member "{unknown[0][:32]}"; there are {known}')


def _index(members: Mapping[str, Any], name: str, count: int) -> int:
    index = members.get(name)
    if type(index) is not int or not 0 <= index < count:
        raise Problem("unreadable-body", f"{name}: expected an index from 0 to {count - 1}")
    return index


def _inputs(members: Mapping[str, Any], sizes: Sequence[int]) -> list[Vector]:
    found = members.get("input")
    if isinstance(found, LongList):
        found = found.items(len(sizes) + 1)
    if not isinstance(found, list):
        raise Problem("unreadable-body", "input: expected a list of lists of numbers")
    if len(found) != len(sizes):
        shown = "more" if len(found) > len(sizes) else len(found)
        raise Problem("wrong-shape", f"input has {shown} vectors; expected {len(sizes)}", array="input")
    return [_vector(each, f"input[{index}]", sizes[index]) for index, each in enumerate(found)]


def _vector(value: Any, name: str, size: int) -> Vector:
    if not isinstance(value, list | LongList):
        raise Problem("unreadable-body", f"{name}: expected a list of {size} numbers")
    if isinstance(value, list) and len(value) != size:
        raise Problem("wrong-shape", f"{name} has {len(value)} numbers; expected {size}", array=name)
    found = json_arrays.nested(value, name)
    if found.ndim != 1:
        raise Problem("wrong-shape", f"{name}: expected a list of numbers, not of lists", array=name)
    if len(found) != size:
        raise Problem("wrong-shape", f"{name} has {len(found)} numbers; expected {size}", array=name)
    return json_arrays.as_floats(found)


def _json(document: Any) -> Response:
    return Response(written(document), media_type=JSON)
