r"""Functions of a few numbers around a served model: coefficients to observations, or to a log density.

.. math::
    y = \mathrm{outputs}(x, \mathrm{model}(\mathrm{inputs}(x)))

A service of the model can serve them, too, with derivatives by the products of the model's Jacobian. `COMPOSITES` holds
them: Darcy's flow from Karhunen-Loève coefficients to pressures at sensors, and to a log density.

The permeability is log-normal, a = m exp(sigma z), with the 32 modes of largest variance of `physics.posterior.prior`.
The sensors are 8 x 8, at the centres of equal squares. The log density is that of the posterior for measurements d with
independent normal errors of standard deviation eta, up to a constant:

.. math::
    \log p(\xi \mid d) = -\tfrac12 |\xi|^2 - \tfrac1{2 \eta^2} |s(\xi) - d|^2 .
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from typing import TYPE_CHECKING, Protocol

import numpy as np

from physics import darcy
from physics.numerics.grid import axis
from physics.posterior.prior import KarhunenLoeve, LogNormal
from physics.posterior.sensors import Sensors, lattice

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

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


BASIS = KarhunenLoeve(modes=32)
MATERIAL = LogNormal()
SIDE = 8
"""Sensors along an axis."""

NOISE = 0.01
"""Standard deviation of the simulated errors, in parts of the largest pressure."""

TRUTH, FINE = 2026, 141
"""Seed of the simulated measurements, and the points per axis that they are computed with."""


@dataclass(frozen=True)
class Pressures:
    """Coefficients to pressures at the sensors, on one grid.

    Attributes:
        grid: Points per axis.

    Example:
        >>> pressures = Pressures((15, 15))
        >>> permeability = pressures.inputs(np.zeros(32))
        >>> bool(np.allclose(permeability, MATERIAL.median))
        True
        >>> pressures.outputs(np.zeros(32), np.ones((15, 15))).shape
        (64,)
    """

    grid: tuple[int, int]

    @cached_property
    def _axes(self) -> tuple[Array, Array]:
        rows, columns = self.grid
        return axis(rows), axis(columns)

    @cached_property
    def _sensors(self) -> Sensors:
        return Sensors(lattice(SIDE), *self._axes)

    def inputs(self, x: Array) -> Array:
        """Return the permeability [height, width] for coefficients [32]."""
        return MATERIAL.permeability(self._field(x))

    def pull_inputs(self, x: Array, gradient: Array) -> Array:
        """Return the gradient by the coefficients [32] for that by the permeability [height, width]."""
        return np.asarray(BASIS.adjoint((MATERIAL.slope(self._field(x)) * gradient)[None], *self._axes)[0])

    def push_inputs(self, x: Array, tangent: Array) -> Array:
        """Return the tangent of the permeability [height, width] for that of the coefficients [32]."""
        return MATERIAL.slope(self._field(x)) * self._field(tangent)

    def outputs(self, x: Array, output: Array) -> Array:
        """Return the pressures at the sensors [64] for the pressure [height, width]."""
        del x
        return np.asarray(self._sensors.observe(output[None])[0])

    def pull_outputs(self, x: Array, output: Array | None, sensitivity: Array) -> tuple[Array, Array]:
        """Return the gradients by coefficients and pressure for that by the pressures at the sensors [64]."""
        del output
        return np.zeros_like(x), self._sensors.adjoint(sensitivity[None])[0]

    def push_outputs(self, x: Array, output: Array, tangents: tuple[Array, Array]) -> Array:
        """Return the tangent of the pressures at the sensors [64]."""
        del x, output
        return np.asarray(self._sensors.observe(tangents[1][None])[0])

    def _field(self, x: Array) -> Array:
        return np.asarray(BASIS.field(x[None], *self._axes)[0])


@dataclass(frozen=True)
class Posterior(Pressures):
    """Coefficients to the log density of the posterior, on one grid.

    Attributes:
        data: The measurements d, in units of the pressure.
        noise: The standard deviation eta of their errors.
    """

    data: tuple[float, ...]
    noise: float

    def outputs(self, x: Array, output: Array) -> Array:
        """Return the log density [1] for coefficients [32] and pressure [height, width]."""
        misfit = self._misfit(x, output)
        return np.array([-0.5 * (x @ x + misfit @ misfit)])

    def pull_outputs(self, x: Array, output: Array | None, sensitivity: Array) -> tuple[Array, Array]:
        """Return the gradients by coefficients and pressure for that by the log density [1].

        Raises:
            ValueError: There is no pressure; the log density is not linear in it.
        """
        if output is None:
            raise ValueError("expected the pressure")
        weights = -sensitivity[0] * self._misfit(x, output) / self.noise
        return -sensitivity[0] * x, super().pull_outputs(x, output, weights)[1]

    def push_outputs(self, x: Array, output: Array, tangents: tuple[Array, Array]) -> Array:
        """Return the tangent of the log density [1]."""
        along = super().push_outputs(x, output, tangents) / self.noise
        return np.array([-(x @ tangents[0]) - self._misfit(x, output) @ along])

    def _misfit(self, x: Array, output: Array) -> Array:
        """Return the distances to the measurements [64], in standard deviations."""
        return np.asarray((super().outputs(x, output) - np.array(self.data)) / self.noise)


@cache
def simulated() -> tuple[tuple[float, ...], float]:
    """Return measurements of a known permeability, and the standard deviation of their errors.

    The truth is a draw of the prior, solved classically on a grid that no sampler uses by default.
    """
    rng = np.random.default_rng(TRUTH)
    pressures, x = Pressures((FINE, FINE)), BASIS.sample(1, rng)[0]
    exact = pressures.outputs(x, darcy.solve(pressures.inputs(x)))
    noise = float(NOISE * exact.max())
    return tuple((exact + noise * rng.standard_normal(exact.size)).tolist()), noise


@lru_cache(maxsize=16)
def pressures(grid: tuple[int, int]) -> Pressures:
    """Return the pressures at the sensors on a grid."""
    return Pressures(grid)


def posterior(grid: tuple[int, int], data: Sequence[float] | None = None, noise: float | None = None) -> Posterior:
    """Return the posterior on a grid.

    Args:
        grid: Points per axis.
        data: The measurements [64]; simulated ones by default.
        noise: The standard deviation of their errors; by default that of the simulated ones.

    Raises:
        ValueError: There are not 64 finite measurements, or the deviation is not positive.
    """
    values, deviation = simulated()
    if data is not None:
        values = tuple(float(value) for value in data)
    if len(values) != SIDE**2 or not np.isfinite(values).all():
        raise ValueError(f"data: expected {SIDE**2} finite numbers but got {len(values)}")
    deviation = deviation if noise is None else float(noise)
    if not (np.isfinite(deviation) and deviation > 0):
        raise ValueError(f"noise: expected a positive number but got {deviation}")
    return Posterior(grid, values, deviation)


@cache
def composites() -> Mapping[str, Composite]:
    """Return every composite, by name.

    Example:
        >>> sorted(composites())
        ['darcy_kl', 'darcy_posterior']
    """
    return {composite.name: composite for composite in COMPOSITES}


COMPOSITES = (
    Composite(
        name="darcy_kl",
        title=f"{BASIS.modes} Karhunen-Loève coefficients of the log-permeability to pressures at {SIDE**2} sensors",
        model="darcy",
        input="coefficient",
        output="solution",
        sizes=(BASIS.modes, SIDE**2),
        on=pressures,
        linear=True,
    ),
    Composite(
        name="darcy_posterior",
        title=f"{BASIS.modes} Karhunen-Loève coefficients of the log-permeability to the log density of the posterior",
        model="darcy",
        input="coefficient",
        output="solution",
        sizes=(BASIS.modes, 1),
        on=posterior,
        options={
            "data": Option("measured pressures at the sensors", SIDE**2),
            "noise": Option("standard deviation of their errors"),
        },
    ),
)
