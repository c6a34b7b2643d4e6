"""Functions of a few numbers around a served model: coefficients to observations, or to a log density.

    y = outputs(x, model(inputs(x)))

A module declares them as `COMPOSITES`. A service of the model can serve them, too, with derivatives by the products of
the model's Jacobian.
"""

from __future__ import annotations

import pkgutil
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from physics import posterior

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]


class Composition(Protocol):
    """A composite on one grid. Each function has its derivative in both directions."""

    def inputs(self, x: Array) -> Array:
        """Return the model's input [*grid] for x [n]."""
        ...

    def pull_inputs(self, x: Array, gradient: Array) -> Array:
        """Return the gradient by x [n] for that by the model's input [*grid]."""
        ...

    def push_inputs(self, x: Array, tangent: Array) -> Array:
        """Return the tangent of the model's input [*grid] for that of x [n]."""
        ...

    def outputs(self, x: Array, output: Array) -> Array:
        """Return y [m] for x [n] and the model's output [*grid]."""
        ...

    def pull_outputs(self, x: Array, output: Array | None, sensitivity: Array) -> tuple[Array, Array]:
        """Return the gradients by x [n] and by the model's output [*grid] for that by y [m].

        `output` is None where the composite is linear in it.
        """
        ...

    def push_outputs(self, x: Array, output: Array, tangents: tuple[Array, Array]) -> Array:
        """Return the tangent of y [m] for those of x [n] and of the model's output [*grid]."""
        ...


@dataclass(frozen=True)
class Option:
    """What can be chosen of a composite.

    Attributes:
        meaning: What it is.
        count: How many numbers it is a list of; None for a number.
    """

    meaning: str
    count: int | None = None


@dataclass(frozen=True)
class Composite:
    """A function of a few numbers around a model.

    Attributes:
        name: Its name on the wire.
        title: What it computes, in a line.
        model: The served model in the middle.
        input: The model's input that it sets.
        output: The model's output that it reads.
        sizes: How many numbers it takes, and how many it returns.
        on: Maps the points per axis, and options by keyword, to the composition on that grid. It raises ValueError for
            an option that is no valid one.
        options: The options, by name.
        linear: Whether y is linear in the model's output and independent of x beside it, so that derivatives need no
            output.
    """

    name: str
    title: str
    model: str
    input: str
    output: str
    sizes: tuple[int, int]
    on: Callable[..., Composition]
    options: Mapping[str, Option] = field(default_factory=dict)
    linear: bool = False


@cache
def composites() -> Mapping[str, Composite]:
    """Return every composite that a module of this folder declares as `COMPOSITES`, by name.

    Example:
        >>> sorted(composites())
        ['darcy_kl', 'darcy_posterior']
    """
    found = pkgutil.iter_modules(posterior.__path__, f"{posterior.__name__}.")
    modules = (import_module(each.name) for each in found)
    declared: list[Composite] = [each for module in modules for each in vars(module).get("COMPOSITES", ())]
    return MappingProxyType({composite.name: composite for composite in declared})
