"""The models of UM-Bridge: functions of vectors, each a model of the repository or a composite around one.

A message names a model and configures it: the grid, which inputs are vectors, and numbers for the others. The function
that this makes is evaluated, and differentiated by the model's derivatives.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
from fastapi import Request
from numpy.typing import NDArray
from pydantic import Field

from physics.posterior.composites import Composite, Composition, composites
from schema.card import FRAME, Card, Kind, Parameter, Tensor
from serving import checks
from serving.document import Document, validated
from serving.errors import Problem
from serving.inputs import Arrays, Prediction, offload
from serving.quality import Outside, Policy
from serving.service import Service

Vector = NDArray[Any]  # of real numbers
Shape = tuple[int, ...]

EVALUATE, GRADIENT, APPLY_JACOBIAN, APPLY_HESSIAN = FEATURES = ("Evaluate", "Gradient", "ApplyJacobian", "ApplyHessian")
PRODUCTS: dict[str, Kind] = {GRADIENT: "vjp", APPLY_JACOBIAN: "jvp"}
MOST = 1024  # members of a configuration, and of each of them


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
