"""Conjugate gradients for Darcy's flow in single precision, stopped after a few steps.

Each step is a five-point sum and two pairs of dense products (see `physics.numerics.elliptic`). A solution need not be
more exact than the discretisation: on fields of the benchmark six steps reach its error on 141 x 141 points.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from physics.numerics import volumes
from physics.numerics.elliptic import constant_inverse
from physics.numerics.grid import WALL

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray

    Field = NDArray[np.float32]
    Map = Callable[[Field], Field]


def solve(coefficient: ArrayLike, steps: int, source: float = 1.0, wall: float = WALL) -> Field:
    """Take steps of preconditioned conjugate gradients from zero.

    Args:
        coefficient: Permeability a [rows, columns], positive.
        steps: How many.
        source: Source f.
        wall: Distance from the outermost points to the boundary, in sides of the square.

    Returns:
        The pressure u [rows, columns].

    Example:
        >>> pressure = solve(np.full((5, 5), 2.0), steps=1, source=2.0)
        >>> round(float(pressure.max()), 4)
        0.0704
    """
    a = np.asarray(coefficient, dtype=np.float32)
    apply, invert = stencil(a, wall), constant_inverse(a.shape, wall)
    residual = np.asarray(source * volumes.areas(a.shape, wall), dtype=np.float32)
    u, z = np.zeros_like(a), invert(residual)
    direction, product = z, np.vdot(residual, z)
    for _ in range(steps):
        image = apply(direction)
        length = product / np.vdot(direction, image)
        u = u + length * direction
        residual = residual - length * image
        z = invert(residual)
        product, before = np.vdot(residual, z), product
        direction = z + (product / before) * direction
    return u


def stencil(a: Field, wall: float) -> Map:
    """Return the map from u to the outflow of each rectangle, as in `physics.numerics.volumes`."""
    across, down = (each.astype(np.float32) for each in volumes.conductances(a, wall))

    def apply(u: Field) -> Field:
        flow_across = across * np.diff(u, axis=1, prepend=np.float32(0), append=np.float32(0))
        flow_down = down * np.diff(u, axis=0, prepend=np.float32(0), append=np.float32(0))
        return np.asarray(flow_across[:, :-1] - flow_across[:, 1:] + flow_down[:-1] - flow_down[1:])

    return apply
