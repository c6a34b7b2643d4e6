r"""Priors of a permeability: a Gaussian field in a few numbers, and the material that it stands for.

The field has the covariance of `physics.numerics.fields.neumann_field`, scaled to a mean variance of 1 over the square,

.. math::
    z(y, x) = \sum_k s_k \xi_k \phi_k(y, x), \qquad s_k^2 \propto (\pi^2 |k|^2 + \tau^2)^{-\alpha}, \qquad
    \xi_k \sim N(0, 1),

with the cosines :math:`\phi_k(y, x) = c_{k_1} c_{k_2} \cos(\pi k_1 y) \cos(\pi k_2 x)`, orthonormal on the unit square.
The modes are those of largest variance. The constant mode has none, as in the published generator.

On a tensor grid a field is C_y Z C_x^T with the cosines C of each axis: two small matrix products per sample.

A material maps the field to a permeability point by point, with its derivative.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Protocol

import numpy as np

from physics.darcy import HIGH, LOW
from physics.numerics.fields import cosines, neumann_deviations
from physics.numerics.grid import CELLS

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

MODES = 64  # the modes that inversions use unless they say otherwise: 99 % of the variance


@dataclass(frozen=True)
class KarhunenLoeve:
    """The modes of largest variance of the benchmark's Gaussian field.

    Raises:
        ValueError: `modes` is not between 1 and 421^2 - 1, the modes of the benchmark's mesh.

    Example:
        >>> basis = KarhunenLoeve(modes=32)
        >>> basis.frequencies[:3]
        array([[0, 1],
               [1, 0],
               [1, 1]])
        >>> field = basis.field(np.ones((1, 32)), np.linspace(0, 1, 5), np.linspace(0, 1, 7))
        >>> field.shape
        (1, 5, 7)
    """

    modes: int = MODES  # how many modes, K
    alpha: float = 2.0  # power of the covariance
    tau: float = 3.0  # inverse length scale

    def __post_init__(self) -> None:
        if not 1 <= self.modes < CELLS**2:
            raise ValueError(f"expected 1 to {CELLS**2 - 1} modes but got {self.modes}")

    @property
    def frequencies(self) -> NDArray[np.int64]:
        """The half waves of each mode along rows and columns [K, 2], in order of falling variance."""
        return _spectrum(self.alpha, self.tau)[0][: self.modes]

    @property
    def deviations(self) -> NDArray[np.float64]:
        """The standard deviation s_k of each mode [K]."""
        return _spectrum(self.alpha, self.tau)[1][: self.modes]

    @cached_property
    def variance_share(self) -> float:
        """The part of the field's variance that the modes hold, averaged over the square."""
        return float(np.square(self.deviations).sum())

    def sample(self, samples: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """Draw coefficients [samples, K] of the prior: independent, standard normal."""
        return rng.standard_normal((samples, self.modes))

    def field(self, coefficients: ArrayLike, rows: ArrayLike, columns: ArrayLike) -> NDArray[np.float64]:
        """Evaluate fields z [batch, height, width] of coefficients [batch, K] at positions in the unit interval.

        Raises:
            ValueError: There are not K coefficients per sample.
        """
        xi = np.asarray(coefficients, dtype=np.float64)
        if xi.ndim != 2 or xi.shape[1] != self.modes:
            raise ValueError(f"expected coefficients of shape (batch, {self.modes}) but got {xi.shape}")
        k, down, across = self.frequencies, self._cosines(rows), self._cosines(columns)
        table = np.zeros((len(xi), down.shape[1], across.shape[1]))
        table[:, k[:, 0], k[:, 1]] = self.deviations * xi
        return np.asarray(down @ table @ across.T)

    def adjoint(self, gradients: ArrayLike, rows: ArrayLike, columns: ArrayLike) -> NDArray[np.float64]:
        """Apply the transpose of `field`: derivatives by z [batch, height, width] become those by xi [batch, K]."""
        k, down, across = self.frequencies, self._cosines(rows), self._cosines(columns)
        table = down.T @ np.asarray(gradients, dtype=np.float64) @ across
        return np.asarray(self.deviations * table[:, k[:, 0], k[:, 1]])

    def _cosines(self, positions: ArrayLike) -> NDArray[np.float64]:
        """Return the orthonormal cosines [points, waves] of one axis."""
        return cosines(positions, int(self.frequencies.max()) + 1)


@lru_cache(maxsize=16)
def _spectrum(alpha: float, tau: float) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return all modes of the benchmark's mesh and their deviations, scaled to a variance of 1 in total."""
    deviations = neumann_deviations(CELLS, alpha, tau)
    deviations[0, 0] = 0.0
    deviations /= np.linalg.norm(deviations)
    # Equal modes, such as (1, 2) and (2, 1), keep the order of their frequencies on every machine.
    order = np.argsort(-deviations.round(12), axis=None, kind="stable")
    frequencies = np.stack(np.unravel_index(order, deviations.shape), axis=1).astype(np.int64)
    return frequencies, deviations.ravel()[order]


STEEPEST = 12.0  # the largest logarithm of a / m: the long steps of an optimiser must not overflow


class Material(Protocol):
    """A permeability a(z), point by point."""

    def permeability(self, field: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return a(z) in the shape of the field z."""

    def slope(self, field: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return da/dz in the shape of the field z."""


@dataclass(frozen=True)
class LogNormal:
    r"""A smooth permeability, a = m \exp(\sigma z), between m / 160,000 and 160,000 m.

    Raises:
        ValueError: A number is not positive and finite.

    Example:
        >>> LogNormal(median=6.0).permeability(np.zeros(2))
        array([6., 6.])
    """

    median: float = float(np.sqrt(LOW * HIGH))  # m, in units of the permeability
    deviation: float = 0.35  # sigma, the standard deviation of log a

    def __post_init__(self) -> None:
        _positive(median=self.median, deviation=self.deviation)

    def permeability(self, field: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return a(z) in the shape of the field z."""
        return np.asarray(self.median * np.exp(np.clip(self.deviation * field, -STEEPEST, STEEPEST)))

    def slope(self, field: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return da/dz in the shape of the field z."""
        inside = np.abs(self.deviation * field) < STEEPEST
        return self.deviation * self.permeability(field) * inside


@dataclass(frozen=True)
class TwoMaterials:
    r"""Two materials on both sides of the zero level of z, with a smooth step between them.

    .. math::
        a = l + (h - l) \frac{1 + \tanh(z / w)}{2}

    Raises:
        ValueError: A number is not positive and finite, or `low` is not below `high`.

    Example:
        >>> TwoMaterials().permeability(np.array([-1.0, 0.0, 1.0])).round(2)
        array([ 3. ,  7.5, 12. ])
    """

    low: float = LOW  # l, the permeability where z is negative
    high: float = HIGH  # h, the permeability where z is positive
    width: float = 0.1  # w, half the width of the step, in units of z

    def __post_init__(self) -> None:
        _positive(low=self.low, high=self.high, width=self.width)
        if not self.low < self.high:
            raise ValueError(f"expected low < high but got low = {self.low} and high = {self.high}")

    def permeability(self, field: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return a(z) in the shape of the field z."""
        return np.asarray(self.low + (self.high - self.low) * (1 + np.tanh(field / self.width)) / 2)

    def slope(self, field: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return da/dz in the shape of the field z."""
        return np.asarray((self.high - self.low) * (1 - np.tanh(field / self.width) ** 2) / (2 * self.width))


def _positive(**numbers: float) -> None:
    for name, number in numbers.items():
        if not (np.isfinite(number) and number > 0):
            raise ValueError(f"expected a positive number but got {number} for {name}")
