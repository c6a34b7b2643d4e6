"""Families of permeabilities, most of them unlike the benchmark's: what a model meets outside its training set.

Every field is a function of the position, so one draw can be evaluated on any grid.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from physics.darcy import HIGH, LOW
from physics.numerics import fields
from physics.numerics.grid import CELLS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    Field = NDArray[np.float64]
    Family = Callable[[np.random.Generator, Field], Field]

THIN = 0.02  # half the width of a thin inclusion, in units of the field's standard deviation


def gaussian(rng: np.random.Generator, points: Field) -> Field:
    """Draw the benchmark's Gaussian field at the points [n] of both axes, with deviation 1."""
    coefficients = fields.neumann_coefficients(CELLS, rng)
    return fields.cosine_series(coefficients * CELLS / np.linalg.norm(coefficients), points, points)


def two_materials(low: float, high: float, rng: np.random.Generator, points: Field) -> Field:
    """Draw a field of two values with the benchmark's interfaces."""
    return np.where(gaussian(rng, points) >= 0, high, low)


def three_materials(rng: np.random.Generator, points: Field) -> Field:
    """Draw a field of 3, 6 and 12."""
    z = gaussian(rng, points)
    return np.where(z < -0.5, LOW, np.where(z < 0.5, np.sqrt(LOW * HIGH), HIGH))


def constant(value: float, rng: np.random.Generator, points: Field) -> Field:
    """Return a field of one value."""
    del rng
    return np.full((len(points), len(points)), value)


def log_normal(deviation: float, rng: np.random.Generator, points: Field) -> Field:
    """Draw a smooth field: the exponential of a Gaussian one of the 8 lowest cosines per axis."""
    coefficients = fields.neumann_coefficients(8, rng)
    z = fields.cosine_series(coefficients * 8 / np.linalg.norm(coefficients), points, points)
    return np.asarray(np.sqrt(LOW * HIGH) * np.exp(deviation * z))


def thin_inclusions(rng: np.random.Generator, points: Field) -> Field:
    """Draw thin channels of 12 in 3, along the zero lines of a Gaussian field."""
    return np.where(np.abs(gaussian(rng, points)) < THIN, HIGH, LOW)


def checkerboard(rng: np.random.Generator, points: Field) -> Field:
    """Draw a checkerboard of 3 and 12 with 4 to 12 squares along each axis."""
    squares = np.floor(points * rng.integers(4, 13)).astype(int)
    return np.where((squares[:, None] + squares) % 2 == 0, HIGH, LOW)


def ramp(rng: np.random.Generator, points: Field) -> Field:
    """Draw a field that rises or falls linearly between 3 and 12 along one direction."""
    angle = rng.uniform(0, 2 * np.pi)
    t = np.cos(angle) * (points[:, None] - 0.5) + np.sin(angle) * (points - 0.5)
    return np.asarray(LOW + (HIGH - LOW) * (0.5 + t / np.sqrt(2)))


FAMILIES: Mapping[str, Family] = {
    "3 / 12, as trained": partial(two_materials, LOW, HIGH),
    "30 / 120": partial(two_materials, 10 * LOW, 10 * HIGH),
    "constant 6": partial(constant, 6.0),
    "constant 1": partial(constant, 1.0),
    "smooth log-normal": partial(log_normal, 0.35),
    "rough log-normal, contrast about 1000": partial(log_normal, 1.2),
    "linear ramp": ramp,
    "three materials 3 / 6 / 12": three_materials,
    "thin inclusions": thin_inclusions,
    "checkerboard": checkerboard,
    "contrast 2": partial(two_materials, LOW, 2 * LOW),
    "contrast 10": partial(two_materials, LOW, 10 * LOW),
    "contrast 100": partial(two_materials, LOW, 100 * LOW),
    "contrast 1000": partial(two_materials, LOW, 1000 * LOW),
    "contrast 10000": partial(two_materials, LOW, 10000 * LOW),
}
"""The families by name, as functions of a generator and the positions of the points on both axes."""
