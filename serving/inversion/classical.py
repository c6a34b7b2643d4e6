"""The classical solver of a problem as the forward model of a posterior."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from physics.sensing import Linear

    Fields = NDArray[np.float64]


class ClassicalModel:
    """A classical solver with its tangents and adjoints: a `Forward` of `serving.inversion.posterior`.

    The factors of the last input are kept, so that its Jacobian costs substitutions only.

    Args:
        linearise: Maps an input [rows, columns] to its solution with derivatives.
        check: Called before every factorisation; what it raises ends the work.
    """

    def __init__(self, linearise: Callable[[Fields], Linear], check: Callable[[], None] = lambda: None) -> None:
        self._linearise = linearise
        self._check = check
        self._last: tuple[bytes, Linear] | None = None

    def solve(self, inputs: Fields) -> Fields:
        """Return the outputs of inputs, `[batch, rows, columns]`."""
        return np.stack([self._at(field).solution for field in inputs])

    def pull(self, inputs: Fields, cotangents: Fields) -> tuple[Fields, Fields]:
        """Return the outputs, and the gradients of the inner products of outputs and cotangents."""
        pairs = [(self._at(field), vector) for field, vector in zip(inputs, cotangents, strict=True)]
        if len({id(at) for at, _ in pairs}) == 1:  # products at one input share its factors
            return np.broadcast_to(pairs[0][0].solution, inputs.shape), pairs[0][0].pull(cotangents)
        return np.stack([at.solution for at, _ in pairs]), np.stack([at.pull(vector[None])[0] for at, vector in pairs])

    def push(self, inputs: Fields, tangents: Fields) -> tuple[Fields, Fields]:
        """Return the outputs, and their derivatives along the tangents."""
        pairs = [(self._at(field), vector) for field, vector in zip(inputs, tangents, strict=True)]
        if len({id(at) for at, _ in pairs}) == 1:
            return np.broadcast_to(pairs[0][0].solution, inputs.shape), pairs[0][0].push(tangents)
        return np.stack([at.solution for at, _ in pairs]), np.stack([at.push(vector[None])[0] for at, vector in pairs])

    def _at(self, field: Fields) -> Linear:
        key = field.tobytes()
        if self._last is None or self._last[0] != key:
            self._check()
            self._last = key, self._linearise(field)
        return self._last[1]
