"""A model as a function of arrays with any number of batch axes, for frameworks that differentiate and vectorise.

All batch axes become one batch on the wire, so a vectorised function sends one request.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from petrov_client._client import SyncPredictor
from petrov_client._errors import InvalidInput, RequestError, Where
from petrov_client._models import ModelInfo
from petrov_client._rollout import by_name
from petrov_client._schema import FRAME

Array = npt.NDArray[Any]
Shape = tuple[int, ...]


#: Frames of a trajectory that a service differentiates.
FRAMES = 16


def second_derivative(*_: object) -> NoReturn:
    """Refuse to differentiate a derivative."""
    raise RequestError(
        "a service computes first derivatives: there are no second ones, as of create_graph=True or a hessian. "
        "A Gauss-Newton approximation needs the Jacobian alone: torch.func.jacrev or jacfwd, jax.jacrev"
    )


@dataclass(frozen=True)
class BatchedOperator:
    """A model of a service.

    Arrays follow the model's inputs, then its parameters; names say which of them are there. The batch axes of an array
    are a prefix of those of the first input, so a parameter may be one number for a whole batch.
    """

    client: SyncPredictor
    model: str
    version: int | None = None
    wanted: int | None = None  # see `frames`

    @cached_property
    def info(self) -> ModelInfo:
        """The description of the model."""
        return self.client.model(self.model)

    @property
    def frames(self) -> int | None:
        """Frames of a trajectory: by default as many as can be differentiated; None for models of fields."""
        if self.info.frames is None:
            return None
        return FRAMES if self.wanted is None else self.wanted

    def names(self, count: int, named: Sequence[str] = ()) -> tuple[str, ...]:
        """Return the names of arguments: as many as have none, in the model's order, then those of the others."""
        known = [each.name for each in self.info.arguments]
        names = (*known[:count], *named)
        if count > len(known) or len(set(names)) < len(names) or not set(names) <= set(known):
            raise InvalidInput(f'"{self.model}" takes {", ".join(known)}, each once', where=Where(self.model))
        return names

    def repeated(self, name: str, shape: Shape) -> Shape:
        """Return the shape that an argument is repeated to: a number for all frames has one for each."""
        per_frame = [each.name for each in self.info.parameters if each.axes[1:] == (FRAME,)]
        return (self.frames,) if name in per_frame and not shape and self.frames is not None else shape

    def shapes(self, names: Sequence[str], shapes: Sequence[Shape]) -> list[Shape]:
        """Return the shapes of the outputs of arguments with these names and shapes."""
        lead, sizes = self._lead(names, shapes), {} if self.frames is None else {FRAME: self.frames}
        own = {name: shape[self._batch_axes(lead, name, shape) :] for name, shape in zip(names, shapes, strict=True)}
        for tensor in self.info.inputs:
            if tensor.name in own:
                sizes |= dict(zip(tensor.axes[1:], own[tensor.name], strict=True))
        found = []
        for tensor in self.info.outputs:
            pairs = zip(tensor.axes[1:], tensor.shape[1:], strict=True)
            found.append(lead + tuple(sizes[axis] if fixed is None else fixed for axis, fixed in pairs))
        return found

    def predict(self, names: Sequence[str], arrays: Sequence[Array]) -> list[Array]:
        """Return the outputs of arrays, with their batch axes."""
        lead = self._lead(names, [array.shape for array in arrays])
        inputs = self._flat(lead, names, arrays)
        if self.frames is None:
            return self._whole(lead, self.client.predict(self.model, inputs, self.version))
        return self._whole(lead, self.client.rollout(self.model, inputs, self.frames, version=self.version))

    def vjp(self, names: Sequence[str], arrays: Sequence[Array]) -> list[Array]:
        """Return the gradient by each argument, in its shape; behind the arguments is a cotangent per output.

        A gradient is summed over the batch axes that its argument lacks.
        """
        arrays, cotangents = arrays[: len(names)], arrays[len(names) :]
        lead = self._lead(names, [array.shape for array in arrays])
        seeds = {
            tensor.name: seed.reshape((-1, *seed.shape[len(lead) :]))
            for tensor, seed in zip(self.info.outputs, cotangents, strict=True)
        }
        _, found = self.client.vjp(self.model, self._flat(lead, names, arrays), seeds, self.version)
        gradients = []
        for name, array in zip(names, arrays, strict=True):
            whole = found[name].reshape((*lead, *found[name].shape[1:]))
            own = self._batch_axes(lead, name, array.shape)
            lacking = tuple(axis for axis, size in enumerate(lead) if axis >= own or array.shape[axis] != size)
            gradients.append(np.asarray(whole.sum(axis=lacking).reshape(array.shape)))
        return gradients

    def jvp(self, names: Sequence[str], moving: Sequence[str], arrays: Sequence[Array]) -> list[Array]:
        """Return the tangents of the outputs; behind the arguments are the tangents of those with the other names."""
        arrays, tangents = arrays[: len(names)], arrays[len(names) :]
        lead = self._lead(names, [array.shape for array in arrays])
        directions = self._flat(lead, moving, tangents)
        inputs = self._flat(lead, names, arrays)
        _, found = self.client.jvp(self.model, inputs, directions, self.version, frames=self.frames)
        return self._whole(lead, found)

    def _lead(self, names: Sequence[str], shapes: Sequence[Shape]) -> Shape:
        """Return the batch axes of arrays of these shapes: those of the first field."""
        fields = {tensor.name: tensor for tensor in self.info.inputs}
        for name, shape in zip(names, shapes, strict=True):
            if name in fields:
                return shape[: len(shape) - len(fields[name].axes) + 1]
        raise InvalidInput(f'"{self.model}" needs a field, which gives the grid', where=Where(self.model))

    def _batch_axes(self, lead: Shape, name: str, shape: Shape) -> int:
        """Return how many batch axes an argument of this shape has; they are the first ones of `lead`.

        Raises:
            InvalidInput: It lacks axes of its own, or its batch axes are others.
        """
        axes = next(each.axes[1:] for each in self.info.arguments if each.name == name)
        own = len(shape) - len(axes)
        fits = 0 <= own <= len(lead) and all(a in {1, b} for a, b in zip(shape[:own], lead, strict=False))
        if not fits:
            expected = f"an array ({', '.join(axes)})" if axes else "a number"
            batch = f"none or the first of the batch axes {tuple(lead)}" if lead else "no batch axes"
            message = f"{name}: expected {expected} behind {batch} but got shape {tuple(shape)}"
            raise InvalidInput(message, where=Where(name))
        return own

    def _flat(self, lead: Shape, names: Sequence[str], arrays: Sequence[Array]) -> dict[str, Array]:
        """Return arrays by name with one batch axis instead of several, repeated along those that they lack."""
        found = {}
        for name, array in zip(names, arrays, strict=True):
            own = self._batch_axes(lead, name, array.shape)
            batch, field = array.shape[:own], array.shape[own:]
            expanded = array.reshape((*batch, *(1,) * (len(lead) - own), *field))
            found[name] = np.broadcast_to(expanded, (*lead, *field)).reshape((math.prod(lead), *field))
        return found

    def _whole(self, lead: Shape, found: Any) -> list[Array]:
        """Return results with all batch axes."""
        results = by_name(found, self.info)
        arrays = [results[tensor.name] for tensor in self.info.outputs]
        return [array.reshape((*lead, *array.shape[1:])) for array in arrays]
