"""A model as a function of arrays with any number of batch axes, for frameworks that differentiate and vectorise.

All batch axes become one batch on the wire, so a vectorised function sends one request.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from petrov_client._errors import InvalidInput, Where
from petrov_client._models import FRAME
from petrov_client._rollout import by_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from petrov_client._client import SyncPredictor
    from petrov_client._models import ModelInfo, TensorInfo

    Array = npt.NDArray[Any]
    Shape = tuple[int, ...]


#: Frames of a trajectory that a service differentiates.
FRAMES = 16


@dataclass(frozen=True)
class BatchedOperator:
    """A model of a service.

    Arrays follow the model's inputs, then its parameters; names say which of them are there. The batch axes of an array
    are a prefix of those of the first input, so a parameter may be one number for a whole batch.

    Attributes:
        client: A synchronous client.
        model: The model's name.
        version: A version of the model; the newest if None.
        wanted: Frames of a trajectory; see `frames`.
    """

    client: SyncPredictor
    model: str
    version: int | None = None
    wanted: int | None = None

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
        """Return the names of arguments, those without a name first.

        Args:
            count: How many have no name.
            named: The names of the others.

        Raises:
            InvalidInput: A name is unknown or given twice, or there are too many arguments.
        """
        known = [each.name for each in self.info.arguments]
        names = (*known[:count], *named)
        if count > len(known) or len(set(names)) < len(names) or not set(names) <= set(known):
            raise InvalidInput(f'"{self.model}" takes {", ".join(known)}, each once', where=Where(self.model))
        return names

    def lead(self, names: Sequence[str], shapes: Sequence[Shape]) -> Shape:
        """Return the batch axes of arrays of these shapes: those of the first field."""
        fields = {tensor.name: tensor for tensor in self.info.inputs}
        for name, shape in zip(names, shapes, strict=True):
            if name in fields:
                return shape[: len(shape) - len(fields[name].axes) + 1]
        raise InvalidInput(f'"{self.model}" needs a field, which gives the grid', where=Where(self.model))

    def shapes(self, names: Sequence[str], shapes: Sequence[Shape]) -> list[Shape]:
        """Return the shapes of the outputs.

        Args:
            names: The names of the arguments.
            shapes: Their shapes.
        """
        lead, sizes = self.lead(names, shapes), {} if self.frames is None else {FRAME: self.frames}
        for tensor in self.info.inputs:
            if tensor.name in names:
                shape = shapes[list(names).index(tensor.name)][len(lead) :]
                sizes |= dict(zip(tensor.axes[1:], shape, strict=True))
        return [lead + sample(tensor, sizes) for tensor in self.info.outputs]

    def predict(self, names: Sequence[str], arrays: Sequence[Array]) -> list[Array]:
        """Return the outputs of arrays, with their batch axes."""
        lead = self.lead(names, [array.shape for array in arrays])
        inputs = self._flat(lead, names, arrays)
        if self.frames is None:
            return self._whole(lead, self.client.predict(self.model, inputs, self.version))
        return self._whole(lead, self.client.rollout(self.model, inputs, self.frames, version=self.version))

    def vjp(self, names: Sequence[str], arrays: Sequence[Array], cotangents: Sequence[Array]) -> list[Array]:
        """Return the gradient by each of the arrays, in its shape.

        Args:
            names: The names of the arguments.
            arrays: The arguments.
            cotangents: One per output, in its shape.
        """
        lead = self.lead(names, [array.shape for array in arrays])
        seeds = {
            tensor.name: seed.reshape(-1, *seed.shape[len(lead) :])
            for tensor, seed in zip(self.info.outputs, cotangents, strict=True)
        }
        _, found = self.client.vjp(self.model, self._flat(lead, names, arrays), seeds, self.version)
        return [collected(found[name], lead, array.shape) for name, array in zip(names, arrays, strict=True)]

    def jvp(self, names: Sequence[str], arrays: Sequence[Array], tangents: Mapping[str, Array]) -> list[Array]:
        """Return the tangents of the outputs.

        Args:
            names: The names of the arguments.
            arrays: The arguments.
            tangents: By the names of some of the arguments, in their shapes.
        """
        lead = self.lead(names, [array.shape for array in arrays])
        directions = self._flat(lead, list(tangents), list(tangents.values()))
        inputs = self._flat(lead, names, arrays)
        _, found = self.client.jvp(self.model, inputs, directions, self.version, frames=self.frames)
        return self._whole(lead, found)

    def _flat(self, lead: Shape, names: Sequence[str], arrays: Sequence[Array]) -> dict[str, Array]:
        """Return arrays by name with one batch axis."""
        ranks = {each.name: len(each.axes) - 1 for each in self.info.inputs}
        return {name: flat(lead, array, ranks.get(name, 0)) for name, array in zip(names, arrays, strict=True)}

    def _whole(self, lead: Shape, found: Any) -> list[Array]:
        """Return results with all batch axes."""
        results = by_name(found, self.info)
        arrays = [results[tensor.name] for tensor in self.info.outputs]
        return [array.reshape(*lead, *array.shape[1:]) for array in arrays]


def flat(lead: Shape, array: Array, rank: int) -> Array:
    """Return an array with one batch axis instead of several, repeated along those that it lacks.

    Args:
        lead: All batch axes.
        array: The array.
        rank: The number of its other axes.
    """
    own = array.ndim - rank
    expanded = array.reshape(*array.shape[:own], *(1,) * (len(lead) - own), *array.shape[own:])
    return np.broadcast_to(expanded, (*lead, *array.shape[own:])).reshape(math.prod(lead), *array.shape[own:])


def collected(gradient: Array, lead: Shape, shape: Shape) -> Array:
    """Return a gradient in the shape of its argument, summed over the batch axes that the argument lacks.

    Args:
        gradient: The gradient, with one batch axis.
        lead: All batch axes.
        shape: The shape of the argument.
    """
    whole = gradient.reshape(*lead, *gradient.shape[1:])
    own = len(shape) - (gradient.ndim - 1)
    return np.asarray(whole.sum(axis=tuple(range(own, len(lead)))).reshape(shape))


def sample(tensor: TensorInfo, sizes: Mapping[str, int]) -> Shape:
    """Return the shape of one field of an output."""
    pairs = zip(tensor.axes[1:], tensor.shape[1:], strict=True)
    return tuple(sizes[axis] if fixed is None else fixed for axis, fixed in pairs)
