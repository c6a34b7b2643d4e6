r"""The posterior of Karhunen-Loève coefficients given measurements at sensors. Pure: models are reached by callbacks.

With the prior :math:`\xi \sim N(0, 1)`, the input a(\xi) of a forward model F and measurements d at sensors with
independent errors of deviation sigma, the negative logarithm of the posterior density is

.. math::
    J(\xi) = \frac12 \sum_s \left(\frac{F(a(\xi))_s - d_s}{\sigma_s}\right)^2 + \frac12 |\xi|^2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from physics.posterior.prior import KarhunenLoeve, Material
    from physics.posterior.sensors import Sensors
    from physics.registry import Linear

    Fields = NDArray[np.float64]


class Forward(Protocol):
    """A model of the measured field and its derivatives, all `[batch, rows, columns]`."""

    def solve(self, inputs: Fields) -> Fields:
        """Return the outputs of inputs."""
        ...

    def pull(self, inputs: Fields, cotangents: Fields) -> tuple[Fields, Fields]:
        """Return the outputs, and the gradients of the inner products of outputs and cotangents, sample by sample."""
        ...

    def push(self, inputs: Fields, tangents: Fields) -> tuple[Fields, Fields]:
        """Return the outputs, and their derivatives along the tangents, sample by sample."""
        ...


@dataclass(frozen=True, eq=False)
class Coordinates:
    """The input of the forward model as a function of Karhunen-Loève coefficients.

    Attributes:
        basis: The modes.
        material: From the Gaussian field to the input.
        rows: Positions of the grid's rows.
        columns: Positions of the grid's columns.
    """

    basis: KarhunenLoeve
    material: Material
    rows: NDArray[np.float64]
    columns: NDArray[np.float64]

    def inputs(self, coefficients: NDArray[np.float64]) -> Fields:
        """Return inputs [batch, rows, columns] of coefficients [batch, K]."""
        return self.material.permeability(self.basis.field(coefficients, self.rows, self.columns))

    def slopes(self, coefficients: NDArray[np.float64]) -> Fields:
        """Return the derivatives of the inputs by the Gaussian field, point by point."""
        return self.material.slope(self.basis.field(coefficients, self.rows, self.columns))


@dataclass(frozen=True, eq=False)
class Posterior:
    """The posterior of the coefficients.

    Attributes:
        coordinates: The inputs.
        sensors: The sensors on the grid of the inputs.
        values: Measurements d [S].
        deviation: Their standard deviation sigma [S].
        forward: The forward model.
        batch: The most samples of one call of the forward model.
    """

    coordinates: Coordinates
    sensors: Sensors
    values: NDArray[np.float64]
    deviation: NDArray[np.float64]
    forward: Forward
    batch: int = 16

    @property
    def modes(self) -> int:
        """The number of coefficients, K."""
        return self.coordinates.basis.modes

    def residuals(self, coefficients: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return (F - d) / sigma [batch, S] of coefficients [batch, K]."""
        pieces = [
            self._scaled(self.forward.solve(self.coordinates.inputs(piece))) for piece in self._pieces(coefficients)
        ]
        return np.concatenate(pieces)

    def jacobian(self, xi: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the derivatives of the residuals [S, K] at coefficients [K], by the fewer products of two kinds."""
        if len(self.values) < self.modes:
            return self._pulled(xi, np.diag(1 / self.deviation))
        return self._pushed(xi).T / self.deviation[:, None]

    def _scaled(self, outputs: Fields) -> NDArray[np.float64]:
        return (self.sensors.observe(outputs) - self.values) / self.deviation

    def _pulled(self, xi: NDArray[np.float64], cotangents: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the products [batch, K] of cotangents [batch, S] of the measured values with the Jacobian."""
        at, found = self.coordinates, []
        inputs, slopes = at.inputs(xi[None]), at.slopes(xi[None])
        for piece in self._pieces(cotangents):
            repeated = np.repeat(inputs, len(piece), axis=0)
            _, gradients = self.forward.pull(repeated, self.sensors.adjoint(piece))
            found.append(at.basis.adjoint(gradients * slopes, at.rows, at.columns))
        return np.concatenate(found)

    def _pushed(self, xi: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the derivatives of the measured values [K, S] along each coefficient."""
        at, found = self.coordinates, []
        inputs, slopes = at.inputs(xi[None]), at.slopes(xi[None])
        for piece in self._pieces(np.eye(self.modes)):
            repeated = np.repeat(inputs, len(piece), axis=0)
            _, tangents = self.forward.push(repeated, slopes * at.basis.field(piece, at.rows, at.columns))
            found.append(self.sensors.observe(tangents))
        return np.concatenate(found)

    def _pieces(self, array: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        return [array[start : start + self.batch] for start in range(0, len(array), self.batch)]


class ClassicalModel:
    """A classical solver with its tangents and adjoints: a `Forward`.

    The factors of the last input are kept, so that its Jacobian costs substitutions only.

    Args:
        linearise: Maps an input [rows, columns] to its solution with derivatives.
        check: Called before every solve and every product; what it raises ends the work.
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
        return self._products(inputs, cotangents, lambda at, vectors: at.pull(vectors))

    def push(self, inputs: Fields, tangents: Fields) -> tuple[Fields, Fields]:
        """Return the outputs, and their derivatives along the tangents."""
        return self._products(inputs, tangents, lambda at, vectors: at.push(vectors))

    def _products(
        self, inputs: Fields, vectors: Fields, product: Callable[[Linear, Fields], Fields]
    ) -> tuple[Fields, Fields]:
        points = [self._at(field) for field in inputs]
        if len({id(at) for at in points}) == 1:  # products at one input share its factors
            return np.broadcast_to(points[0].solution, inputs.shape), product(points[0], vectors)
        products = [product(at, vector[None])[0] for at, vector in zip(points, vectors, strict=True)]
        return np.stack([at.solution for at in points]), np.stack(products)

    def _at(self, field: Fields) -> Linear:
        self._check()
        key = field.tobytes()
        if self._last is None or self._last[0] != key:
            self._last = key, self._linearise(field)
        return self._last[1]
