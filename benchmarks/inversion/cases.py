"""Simulated cases: a permeability of the prior on 421 x 421 cells, its pressure at sensors, and noise."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from physics import darcy
from physics.numerics.grid import CELLS, axis
from physics.posterior.karhunen_loeve import KarhunenLoeve
from physics.posterior.materials import LogNormal, TwoMaterials
from physics.posterior.sensors import Sensors, lattice

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from physics.posterior.materials import Material

POINTS = 85
"""Of the grid on which both methods invert."""

SIDE = 8
"""Sensors along each axis."""

NOISE = 0.01
"""Standard deviation of the measurements' errors, relative to the root mean square of the pressure at the sensors."""

MODES = 2048
"""Of the true fields: far more than are estimated."""

SHARP = 1e-6
"""Width of the step between the true materials."""


@dataclass(frozen=True)
class Prior:
    """A prior, and what draws the true permeabilities.

    Attributes:
        name: Its name in the tables.
        material: What the inversions assume.
        truth: What the permeabilities are.
        slack: An interval that misses the truth by less than this still covers it: the assumed step between two
            materials reaches neither of them.
    """

    name: str
    material: Material
    truth: Material
    slack: float = 0.0


PRIORS = (
    Prior("smooth (log-normal)", LogNormal(), LogNormal()),
    Prior("two materials", TwoMaterials(), TwoMaterials(width=SHARP), slack=0.09),
)


@dataclass(frozen=True)
class Case:
    """A true permeability with measurements.

    Attributes:
        prior: The prior.
        seed: Of the permeability and the noise.
    """

    prior: Prior
    seed: int

    @cached_property
    def fine(self) -> NDArray[np.float64]:
        """The permeability on 421 x 421 cells."""
        basis, points = KarhunenLoeve(MODES), axis(CELLS)
        field = basis.field(basis.sample(1, np.random.default_rng([self.seed, 0])), points, points)
        [permeability] = self.prior.truth.permeability(field)
        return np.asarray(permeability)

    @property
    def truth(self) -> NDArray[np.float64]:
        """The permeability [POINTS, POINTS] on the grid of the inversion."""
        return np.asarray(darcy.restrict(self.fine, POINTS), dtype=np.float64)

    @cached_property
    def measurements(self) -> tuple[NDArray[np.float64], float]:
        """The measured pressures at the sensors, and the standard deviation of their errors."""
        points = axis(CELLS)
        clean = Sensors(lattice(SIDE), points, points).observe(darcy.solve(self.fine)[None])[0]
        deviation = NOISE * float(np.sqrt(np.square(clean).mean()))
        return clean + deviation * np.random.default_rng([self.seed, 1]).standard_normal(len(clean)), deviation
