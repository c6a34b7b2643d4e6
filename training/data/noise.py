r"""Noise on fields, as an instrument would add it.

.. math::
    \tilde u_i = u_i + \epsilon\, \sigma_i\, \xi_i, \qquad \xi_i \sim N(0, 1),

with :math:`\sigma_i` the deviation at grid point `i` over the training fields, so that a level :math:`\epsilon` means
the same at every point (Cao, NeurIPS 2021, adds :math:`\epsilon \xi` to inputs standardised by point).
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Real = TypeVar("Real", bound=np.floating[Any])


def add_noise(
    fields: NDArray[Real], levels: NDArray[Real], deviation: NDArray[Real], normals: NDArray[Real]
) -> NDArray[Real]:
    """Add noise to fields.

    Args:
        fields: `[sample, *grid]` in physical units.
        levels: of each sample, `[sample]`, relative to the deviation.
        deviation: `[*grid]`, in the fields' units.
        normals: standard normal numbers `[sample, *grid]`.
    """
    return fields + levels.reshape(-1, *(1,) * deviation.ndim) * deviation * normals


def measured(
    fields: NDArray[Real], deviation: NDArray[Real], levels: tuple[float, ...], rng: np.random.Generator
) -> NDArray[Real]:
    """Return fields `[sample, *grid]` with fresh noise, each of a level drawn from `levels`.

    Args:
        fields: `[sample, *grid]` in physical units.
        deviation: `[*grid]`, in the fields' units.
        levels: Levels to draw from, relative to the deviation.
        rng: Generator of levels and noise.
    """
    drawn = rng.choice(np.asarray(levels, dtype=fields.dtype), len(fields))
    return add_noise(fields, drawn, deviation, rng.standard_normal(fields.shape, dtype=np.float32).astype(fields.dtype))
