"""A composite of `physics` as a model of UM-Bridge: a few numbers in, a few out, and a served model in the middle."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from serving.errors import Problem
from serving.predict import offload
from serving.umbridge.field_model import FieldModel

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from physics.posterior.composite import Composite, Composition
    from serving.service import Service
    from serving.umbridge.field_model import FieldFunction
    from serving.umbridge.model import Call, Vector

FIELD_OPTIONS = frozenset({"grid", "version"})


@dataclass(frozen=True)
class CompositeModel:
    """A composite.

    Attributes:
        composite: What it computes before and after the served model.
        service: The parts of the gateway.
    """

    composite: Composite
    service: Service

    @property
    def served(self) -> str:
        """The model of the repository."""
        return self.composite.model

    @property
    def features(self) -> frozenset[str]:
        """Evaluations, and derivatives where the served model has them."""
        return self._model.features

    async def configured(self, config: Mapping[str, Any], feature: str) -> CompositeFunction:
        """Return the function for a configuration: grid and version of the served model, and the composite's options.

        Raises:
            Problem: invalid-parameter: The configuration is none of the composite.
            Problem: As `FieldModel.configured`.
        """
        composite = self.composite
        options = {name: _option(composite, name, config[name]) for name in config if name not in FIELD_OPTIONS}
        own = {name: config[name] for name in config if name in FIELD_OPTIONS}
        model = await self._model.configured(own | {"inputs": [composite.input]}, feature)
        try:
            # A composite may have to solve once, for measurements that are simulated.
            made = await asyncio.to_thread(composite.on, model.layout.grid, **options)
        except ValueError as error:
            raise Problem("invalid-parameter", f"config.{error}") from error
        return CompositeFunction(composite, made, model)

    @property
    def _model(self) -> FieldModel:
        return FieldModel(self.composite.model, self.service)


@dataclass(frozen=True)
class CompositeFunction:
    """A composite with one configuration.

    Attributes:
        composite: What it is.
        composition: What it computes on the grid.
        model: The served model on the grid.
    """

    composite: Composite
    composition: Composition
    model: FieldFunction

    @property
    def input_sizes(self) -> Sequence[int]:
        """The size of the only input vector."""
        return [self.composite.sizes[0]]

    @property
    def output_sizes(self) -> Sequence[int]:
        """The size of the only output vector."""
        return [self.composite.sizes[1]]

    async def evaluate(self, inputs: Sequence[Vector], call: Call) -> list[Vector]:
        """Return the output vector."""
        [x] = _double(inputs)
        return [await self._run(self.composition.outputs, x, await self._output(x, call))]

    async def gradient(self, output: int, by: int, inputs: Sequence[Vector], sensitivity: Vector, call: Call) -> Vector:
        """Return the gradient by the input vector: one call of the model's vector-Jacobian product.

        Where the composite is not linear in the model's output, that output is computed first.
        """
        del output, by  # there is one of each
        x, weights = _double([*inputs, sensitivity])
        value = None if self.composite.linear else await self._output(x, call)
        own, cotangent = await self._run(self.composition.pull_outputs, x, value, weights)
        field = await self._run(self.composition.inputs, x)
        gradient = await self.model.gradient(self._index, 0, [_flat(field)], _flat(cotangent), call)
        pulled = await self._run(self.composition.pull_inputs, x, gradient.reshape(field.shape))
        return np.asarray(own + pulled)

    async def apply_jacobian(
        self, output: int, by: int, inputs: Sequence[Vector], direction: Vector, call: Call
    ) -> Vector:
        """Return the derivative along a direction: one call of the model's Jacobian-vector product."""
        del output, by
        x, along = _double([*inputs, direction])
        field = await self._run(self.composition.inputs, x)
        tangent = await self._run(self.composition.push_inputs, x, along)
        value, moved = await self.model.linearise(self._index, 0, [_flat(field)], _flat(tangent), call)
        shaped = (value.reshape(self._shape), moved.reshape(self._shape))
        result: Vector = await self._run(self.composition.push_outputs, x, shaped[0], (along, shaped[1]))
        return result

    async def _output(self, x: Vector, call: Call) -> Vector:
        """Return the model's output [*grid]."""
        field = await self._run(self.composition.inputs, x)
        found = await self.model.evaluate([_flat(field)], call)
        return np.asarray(found[self._index], np.float64).reshape(self._shape)

    async def _run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function on fields, in a worker thread if they are large."""
        return await offload(8 * math.prod(self._shape), function, *args)

    @property
    def _index(self) -> int:
        """The output that the composite reads."""
        return [tensor.name for tensor in self.model.layout.card.outputs].index(self.composite.output)

    @property
    def _shape(self) -> tuple[int, ...]:
        return self.model.layout.grid


def _option(composite: Composite, name: str, value: Any) -> Any:
    """Return the value of an option: a number, or a list of as many as the composite declares."""
    if name not in composite.options:
        known = ", ".join(sorted({*FIELD_OPTIONS, *composite.options}))
        raise Problem("invalid-parameter", f'config: there is no "{name[:64]}"; there are {known}')
    count = composite.options[name].count
    values = [value] if count is None else value
    numbers = isinstance(values, list) and all(type(each) in {int, float} for each in values)
    if not numbers or len(values) != (count or 1):
        raise Problem(
            "invalid-parameter",
            f"config.{name}: expected {'a number' if count is None else f'a list of {count} numbers'}",
        )
    return value


def _double(vectors: Sequence[Vector]) -> list[Vector]:
    return [np.asarray(vector, np.float64) for vector in vectors]


def _flat(field: Vector) -> Vector:
    return field.reshape(-1)
