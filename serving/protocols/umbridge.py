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

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any
from urllib.parse import urlsplit

import numpy as np
from fastapi import APIRouter, Request, Response
from numpy.typing import NDArray
from pydantic import Field

from physics.posterior.composites import Composite, Composition, composites
from schema.card import FRAME, Card, Kind, Parameter, Tensor
from serving import checks
from serving.auth import Scope, requires
from serving.codecs import json_arrays
from serving.codecs.binary import Buffer
from serving.codecs.json_text import LongList, parsed, written
from serving.document import JSON, Document, object_schema, validated
from serving.errors import Problem
from serving.inputs import Arrays, Prediction, offload
from serving.protocols import over_http
from serving.protocols.over_http import DirectRoute
from serving.quality import Outside, Policy
from serving.service import Service, Serving

Vector = NDArray[Any]  # of real numbers
Shape = tuple[int, ...]

PREFIX = "/umbridge"
EVALUATE, GRADIENT, APPLY_JACOBIAN, APPLY_HESSIAN = FEATURES = ("Evaluate", "Gradient", "ApplyJacobian", "ApplyHessian")
PRODUCTS: dict[str, Kind] = {GRADIENT: "vjp", APPLY_JACOBIAN: "jvp"}
SHORT = 2**18  # bytes of a body without vectors
MOST = 1024  # members of a configuration, and of each of them

# The routes.

_VECTOR, _SIZES = {"type": "array", "items": {"type": "number"}}, {"type": "array", "items": {"type": "integer"}}
_VECTORS, _INDEX = {"type": "array", "items": _VECTOR}, {"type": "integer", "minimum": 0}
_NAMED = {"name": {"type": "string"}, "config": {"type": "object"}}
_INFO = object_schema({"protocolVersion": {"type": "number"}, "models": {"type": "array", "items": {"type": "string"}}})
_SUPPORT = object_schema({"support": object_schema({feature: {"type": "boolean"} for feature in FEATURES})})
_PRODUCT: dict[str, Any] = {"input": _VECTORS, "outWrt": _INDEX, "inWrt": _INDEX}
_FAULT = object_schema({"error": object_schema({"type": {"type": "string"}, "message": {"type": "string"}})})
_ERRORS: dict[int | str, dict[str, Any]] = {
    "default": {"content": {JSON: {"schema": _FAULT}}, "description": "What is wrong"}
}
calls = APIRouter(prefix=PREFIX, responses=_ERRORS, route_class=DirectRoute)


def _route(result: dict[str, Any], **members: dict[str, Any]) -> dict[str, Any]:
    """Return the documentation of a route: its result, and the members of its body beside name and configuration."""
    body = object_schema(_NAMED | members, ["name", *members], closed=False)
    return over_http.described(body, {"content": {JSON: {"schema": result}}})


@calls.get("/Info", responses={200: {"content": {JSON: {"schema": _INFO}}}})
@requires(Scope.INFER)
async def info(request: Request, service: Serving) -> Response:  # noqa: ARG001 - as direct routes are called
    """Return the version of the protocol and the names of the models."""
    return _json({"protocolVersion": 1.0, "models": names(service)})


@calls.post("/ModelInfo", **_route(_SUPPORT))
@requires(Scope.INFER)
async def model_info(request: Request, service: Serving) -> Response:
    """Return what a model supports."""
    request.state.model = served = find(service, await _short(request, service))[0]
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


@calls.post("/ApplyHessian", **_route(object_schema({"output": _VECTOR})))
@requires(Scope.INFER)
async def apply_hessian(request: Request, service: Serving) -> Response:
    """Say that no model has second derivatives."""
    request.state.model = find(service, await _short(request, service))[0]
    raise Problem("not-differentiable", f"no model supports {APPLY_HESSIAN}")


def _check_origin(request: Request) -> None:
    """Refuse what a page of another origin sends without the browser asking first: any type of body but JSON."""
    headers = request.headers
    origin, media_type = headers.get("origin"), headers.get("content-type", "").partition(";")[0].strip().lower()
    if origin is not None and media_type != JSON and urlsplit(origin).netloc != headers.get("host"):
        raise Problem("forbidden", f"a page of another origin has to send {JSON}")


async def _short(request: Request, service: Service) -> dict[str, Any]:
    _check_origin(request)
    content = await over_http.content(request, service, min(SHORT, service.settings.max_json_bytes))
    return await offload(len(content), _members, content)


async def _sizes(request: Request, service: Service) -> tuple[list[int], list[int]]:
    return (await configured(request, service, await _short(request, service), EVALUATE)).sizes


async def _compute(request: Request, service: Service, feature: str) -> Response:
    _check_origin(request)
    content = await over_http.content(request, service, service.settings.max_json_bytes)
    size = len(content)
    members = await offload(size, _members, content)
    function = await configured(request, service, members, feature)
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


# Their models.


def names(service: Service) -> list[str]:
    """Return the names of all models."""
    catalogue = service.catalogue
    fields = {model.name for model in catalogue.models() if fits(catalogue.find(model.name))}
    return sorted(fields | {each.name for each in composites().values() if _possible(each, service)})


def find(service: Service, members: Mapping[str, Any]) -> tuple[str, Composite | None]:
    """Return the model of the repository that a message needs, and the composite around it that it names, if it does.

    A model of the repository comes before a composite of its name.
    """
    name, catalogue = members.get("name"), service.catalogue
    if not isinstance(name, str):
        raise Problem("unknown-model", 'expected the name of a model as "name"; GET Info lists the models')
    if not catalogue.knows(name):
        composite = composites().get(name)
        if composite is not None and _possible(composite, service):
            return composite.model, composite
    elif fits(catalogue.find(name)):
        return name, None
    raise Problem("unknown-model", f'there is no model "{name[:64]}"; there are {", ".join(names(service))}')


def _possible(composite: Composite, service: Service) -> bool:
    """Return whether the model of a composite is served, with the input that it sets and the output that it reads."""
    if composite.model not in service.catalogue.served():
        return False
    card = service.catalogue.find(composite.model)
    others = {name for name in card.names if name not in card.optional} - {composite.input}
    return composite.input in card.names and not others and composite.output in {each.name for each in card.outputs}


def fits(card: Card) -> bool:
    """Return whether a model is one of UM-Bridge: it has real inputs, and outputs whose size follows from theirs."""
    try:
        checks.shapes(card, dict.fromkeys((*card.grid.axes, FRAME), 1))
    except Problem:
        return False
    return card.vocabulary is None and card.product is None


def features(service: Service, served: str) -> frozenset[str]:
    """Return what a model of the repository supports."""
    found = service.catalogue.model(served).card.differentiable
    return frozenset({EVALUATE, *(feature for feature, kind in PRODUCTS.items() if kind in found)})


# Their configurations.

Points = Annotated[int, Field(strict=True, ge=1, lt=2**31)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Several = Field(min_length=1, max_length=64, fail_fast=True)
COMPOSITE_OPTIONS = frozenset({"grid", "version"})  # beside a composite's own


class Config(Document):
    """The member `config` of a request for a field model."""

    grid: Points | Annotated[tuple[Points, ...], Several] | None = None  # per axis; by default `Grid.usual`
    inputs: Annotated[tuple[str, ...], Several] | None = (
        None  # those that are vectors; by default all without a default
    )
    parameters: Annotated[dict[str, Number], Field(max_length=64)] = Field(default={})  # others, constant fields too
    version: Points | None = None  # by default the newest
    frames: Points | None = None  # by default as many as a training trajectory has, and no more than derivatives
    tolerance: Annotated[Number, Field(gt=0)] | None = None  # this and the next for evaluations, as in `predict`
    outside: Outside = "answer"

    @property
    def policy(self) -> Policy:
        return Policy(self.tolerance, self.outside, frames=self.frames)


async def configured(
    request: Request, service: Service, members: Mapping[str, Any], feature: str
) -> FieldModel | CompositeModel:
    """Return the function that a message names, with its configuration, for a feature."""
    served, composite = find(service, members)
    request.state.model = served
    if feature not in features(service, served):
        raise Problem("not-differentiable", f'"{members["name"]}" does not support {feature}')
    config = members.get("config", {})
    if not isinstance(config, dict):
        raise Problem("unreadable-body", "config: expected an object")
    if len(config) > MOST or any(isinstance(each, list | dict) and len(each) > MOST for each in config.values()):
        raise Problem("invalid-parameter", f"config: expected at most {MOST} members, and in each of them")
    if composite is None:
        return await _field(request, service, served, config, feature)
    options = {name: _option(composite, name, config[name]) for name in config if name not in COMPOSITE_OPTIONS}
    own = {name: config[name] for name in config if name in COMPOSITE_OPTIONS} | {"inputs": [composite.input]}
    field = await _field(request, service, served, own, feature)
    try:
        # A composite may have to solve once, for measurements that are simulated.
        made = await asyncio.to_thread(composite.on, field.grid, **options)
    except ValueError as error:
        raise Problem("invalid-parameter", f"config.{error}") from error
    return CompositeModel(composite, made, field)


def _option(composite: Composite, name: str, value: Any) -> Any:
    """Return the value of an option: a number, or a list of as many as the composite declares."""
    if name not in composite.options:
        known = ", ".join(sorted({*COMPOSITE_OPTIONS, *composite.options}))
        raise Problem("invalid-parameter", f'config: there is no "{name[:64]}"; there are {known}')
    count = composite.options[name].count
    values = [value] if count is None else value
    if not (
        isinstance(values, list) and len(values) == (count or 1) and all(type(each) in {int, float} for each in values)
    ):
        expected = "a number" if count is None else f"a list of {count} numbers"
        raise Problem("invalid-parameter", f"config.{name}: expected {expected}")
    return value


async def _field(request: Request, service: Service, name: str, members: Mapping[str, Any], feature: str) -> FieldModel:
    """Return a model of the repository with a configuration, for a feature."""
    config = validated(Config, members, "config", "invalid-parameter")
    catalogue = service.catalogue
    if feature in PRODUCTS:
        product = catalogue.derivative(name, PRODUCTS[feature], config.version)
        card = catalogue.find(name, product.version)
    else:
        card = product = await catalogue.newest(name, config.version)
    if card.frames is not None and config.frames is None:
        # Values and derivatives have the same sizes by default, and derivatives have fewer frames.
        kinds = catalogue.model(name).card.differentiable
        cards = [card, *(catalogue.derivative(name, kind, config.version) for kind in kinds)]
        config = config.model_copy(update={"frames": min(each.frames.trained for each in cards if each.frames)})
    grid, frames = _grid(card, config), config.policy.count(card)
    points = dict(zip(card.grid.axes, grid, strict=True)) | ({} if frames is None else {FRAME: frames})
    found = FieldModel(
        request, service, card, product, config, grid, _arguments(card, config), checks.shapes(card, points)
    )
    inputs, outputs = found.sizes
    largest = max(*inputs, *outputs, math.prod(grid))
    if 4 * largest > service.settings.max_body_bytes:
        raise Problem("body-too-large", f"config: a field of {largest} numbers takes more than a request may")
    return found


def _grid(card: Card, config: Config) -> Shape:
    """Return the points per axis of a configuration, by default those of a request without a grid."""
    limits = card.grid
    if config.grid is None:
        return limits.usual
    points = (config.grid,) * len(limits.axes) if isinstance(config.grid, int) else config.grid
    if len(points) != len(limits.axes):
        detail = f"config.grid: expected one number, or one for each of {', '.join(limits.axes)}"
        raise Problem("invalid-parameter", detail)
    checks.within(points, card, "config.grid")
    return points


def _arguments(card: Card, config: Config) -> tuple[Tensor | Parameter, ...]:
    """Return the inputs and parameters that are vectors: those of the configuration, or all without a default."""
    known, fixed = {argument.name: argument for argument in card.arguments}, config.parameters
    default = tuple(name for name in known if name not in card.optional and name not in fixed)
    chosen = default if config.inputs is None else config.inputs
    detail = ""
    if unknown := [name for name in (*chosen, *fixed) if name not in known]:
        detail = f': "{unknown[0][:64]}" is no input of the model; there are {", ".join(known)}'
    elif len({*chosen, *fixed}) != len(chosen) + len(fixed):
        detail = ": expected every input once, in inputs or in parameters"
    elif missing := [name for name in known if name not in {*chosen, *fixed, *card.optional}]:
        detail = f": expected {missing[0]} in inputs, or a number for it in parameters"
    elif not chosen:
        detail = ": expected at least one input that is a vector"
    if detail:
        raise Problem("invalid-parameter", f"config{detail}")
    return tuple(known[name] for name in chosen)


# What they compute.


@dataclass(frozen=True)
class FieldModel:
    """A model of the repository on a grid, and its derivatives; the caller of the request pays.

    The `product` is the card of the derivative, that of the model for evaluations; `arguments` are the inputs and
    parameters that are vectors; `shapes` those of one sample of every input, parameter and output, by name.
    """

    request: Request
    service: Service
    card: Card
    product: Card
    config: Config
    grid: Shape
    arguments: tuple[Tensor | Parameter, ...]
    shapes: Mapping[str, Shape]

    @property
    def sizes(self) -> tuple[list[int], list[int]]:
        """The size of each input vector, of which a parameter has one number, and of each output vector."""
        inputs = [math.prod(self.shapes[argument.name]) for argument in self.arguments]
        return inputs, [math.prod(self.shapes[tensor.name]) for tensor in self.card.outputs]

    async def evaluate(self, inputs: Sequence[Vector]) -> list[Vector]:
        found = await self._run(self.card, inputs, {})
        return [found[tensor.name].reshape(-1) for tensor in self.card.outputs]

    async def gradient(self, output: int, by: int, inputs: Sequence[Vector], sensitivity: Vector) -> Vector:
        """Return the transpose of the Jacobian of one output by one input, times the sensitivity of the output."""
        name = self.card.outputs[output].name
        found = await self._run(self.product, inputs, {f"cotangents.{name}": sensitivity.reshape(self.shapes[name])})
        return found[f"gradients.{self.arguments[by].name}"].reshape(-1)

    async def linearise(
        self, output: int, by: int, inputs: Sequence[Vector], direction: Vector
    ) -> tuple[Vector, Vector]:
        """Return one output, and its derivative along a direction of one input."""
        name, argument = self.card.outputs[output].name, self.arguments[by].name
        found = await self._run(
            self.product, inputs, {f"tangents.{argument}": direction.reshape(self.shapes[argument])}
        )
        return found[name].reshape(-1), found[f"tangents.{name}"].reshape(-1)

    async def _run(self, card: Card, inputs: Sequence[Vector], vector: Mapping[str, Vector]) -> Mapping[str, Vector]:
        """Run the model, or its product with a vector, on one sample; what has a default may be missing."""
        sent = {name: np.full(self.shapes[name], value) for name, value in self.config.parameters.items()}
        for argument, values in zip(self.arguments, inputs, strict=True):
            sent[argument.name] = values.reshape(self.shapes[argument.name])
        state, policy = self.request.state, self.config.policy
        # A product has fewer frames by default.
        policy = replace(policy, frames=policy.count(self.card), grid=self.grid if self.card.takes_grid else None)
        latest = not vector and self.config.version is None
        wanted = Prediction(card, state.request_id, state.caller, policy, latest=latest, ticket=state.ticket)
        return await self.service.predictor.predict(wanted, Arrays(sent | dict(vector)))


@dataclass(frozen=True)
class CompositeModel:
    """A composite on a grid: numbers to the model's input, and its output to numbers, with their derivatives."""

    composite: Composite
    made: Composition
    field: FieldModel

    @property
    def sizes(self) -> tuple[list[int], list[int]]:
        return [self.composite.sizes[0]], [self.composite.sizes[1]]

    async def evaluate(self, inputs: Sequence[Vector]) -> list[Vector]:
        return [await self._run(self.made.outputs, inputs[0], await self._output(inputs[0]))]

    async def gradient(self, _: int, __: int, inputs: Sequence[Vector], sensitivity: Vector) -> Vector:
        """Return the gradient by the input vector: one call of the model's vector-Jacobian product.

        Where the composite is not linear in the model's output, that output is computed first.
        """
        [x] = inputs
        value = None if self.composite.linear else await self._output(x)
        own, cotangent = await self._run(self.made.pull_outputs, x, value, sensitivity)
        field = await self._run(self.made.inputs, x)
        gradient = await self.field.gradient(self._index, 0, [field.reshape(-1)], cotangent.reshape(-1))
        return np.asarray(own + await self._run(self.made.pull_inputs, x, gradient.reshape(field.shape)))

    async def linearise(self, _: int, __: int, inputs: Sequence[Vector], direction: Vector) -> tuple[Vector, Vector]:
        """Return the model's output, and the composite's derivative: one call of the Jacobian-vector product."""
        [x], grid = inputs, self.field.grid
        field = await self._run(self.made.inputs, x)
        tangent = await self._run(self.made.push_inputs, x, direction)
        value, moved = await self.field.linearise(self._index, 0, [field.reshape(-1)], tangent.reshape(-1))
        tangents = direction, moved.reshape(grid)
        return value, np.asarray(await self._run(self.made.push_outputs, x, value.reshape(grid), tangents))

    async def _output(self, x: Vector) -> Vector:
        field = await self._run(self.made.inputs, x)
        found = await self.field.evaluate([field.reshape(-1)])
        return np.asarray(found[self._index], np.float64).reshape(self.field.grid)

    async def _run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function on fields, in a worker thread if they are large."""
        return await offload(8 * math.prod(self.field.grid), function, *args)

    @property
    def _index(self) -> int:
        return [tensor.name for tensor in self.field.card.outputs].index(self.composite.output)
