"""What the catalogue needs of the inference servers, to find and warm what they have loaded."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from serving.catalogue.card import FRAME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from serving.catalogue.card import Card

Batch = Mapping[str, NDArray[Any]]
DTYPES: Mapping[str, type[np.float32 | np.int32]] = {"FP32": np.float32, "INT32": np.int32}


class Servers(Protocol):
    """The inference servers, as one."""

    async def loaded(self) -> frozenset[tuple[str, int]]:
        """Return every (model, version) that any server has loaded.

        Raises:
            TritonUnavailable: No server responds.
        """
        ...

    async def warm(self, model: str, version: int, inputs: Callable[[], Iterable[Batch]], seconds: float) -> None:
        """Run every input once on each server where the version is new.

        Args:
            model: Name of the model.
            version: Its version.
            inputs: Makes the inputs.
            seconds: How long one call may take.

        Raises:
            Problem: The version is warm on no server.
        """
        ...


def samples(card: Card, max_bytes: int) -> Iterator[Batch]:
    """Yield the simplest inputs of each declared grid: one sample of ones.

    Args:
        card: The model's card.
        max_bytes: The largest input of a request; grids with larger ones are left out, since none can be sent.
    """
    numbers: dict[str, NDArray[Any]] = {parameter.name: np.ones(1, np.float32) for parameter in card.parameters}
    if card.frames is not None:
        numbers[FRAME] = np.zeros((1, 1), np.int32)
    for grid in card.grid.shapes:
        shapes = {
            tensor.name: (1, *(size or 1 for size in tensor.leading), *(tensor.points or grid))
            for tensor in card.inputs
        }
        if all(4 * math.prod(shape) <= max_bytes for shape in shapes.values()):
            yield {tensor.name: np.ones(shapes[tensor.name], DTYPES[tensor.dtype]) for tensor in card.inputs} | numbers
