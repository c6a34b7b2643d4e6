"""From a Gaussian field to a permeability, with its derivative: the second half of a prior."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from physics.darcy import HIGH, LOW

if TYPE_CHECKING:
    from numpy.typing import NDArray


STEEPEST = 12.0
"""The largest logarithm of a / m: the long steps of an optimiser must not overflow."""


class Material(Protocol):
    """A permeability a(z), point by point."""

    def permeability(self, field: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return a(z) in the shape of the field z."""

    def slope(self, field: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return da/dz in the shape of the field z."""


@dataclass(frozen=True)
class LogNormal:
    r"""A smooth permeability, a = m \exp(\sigma z), between m / 160,000 and 160,000 m.

    Attributes:
        median: m, in units of the permeability.
        deviation: sigma, the standard deviation of log a.

    Raises:
        ValueError: A number is not positive and finite.

    Example:
        >>> LogNormal(median=6.0).permeability(np.zeros(2))
        array([6., 6.])
    """

    median: float = float(np.sqrt(LOW * HIGH))
    deviation: float = 0.35

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

    Attributes:
        low: l, the permeability where z is negative.
        high: h, the permeability where z is positive.
        width: w, half the width of the step, in units of z.

    Raises:
        ValueError: A number is not positive and finite, or `low` is not below `high`.

    Example:
        >>> TwoMaterials().permeability(np.array([-1.0, 0.0, 1.0])).round(2)
        array([ 3. ,  7.5, 12. ])
    """

    low: float = LOW
    high: float = HIGH
    width: float = 0.1

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
