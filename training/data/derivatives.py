r"""The gradient of a field on its finest mesh, which a weighted loss compares predicted gradients with.

Central differences with the mesh width h = 1/n for n points an axis, as the published code does
(Cao, NeurIPS 2021: h = 1/421 and 1/8192):

.. math::
    u'_i = \frac{u_{i+1} - u_{i-1}}{2h}.

A field is extended by zero beyond a plane's edges. A line is extended by its last point but one and its second: it
treats the first and the last sample as one and the same point. Both spoil the outermost values; the losses leave them
out.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]


def gradient(field: Array) -> Array:
    """Compute u' `[point]` of a line `[point]`, or both derivatives `[row, column, 2]` of a plane, along rows first.

    Raises:
        ValueError: the field has more axes.
    """
    if field.ndim > 2:
        raise ValueError(f"gradients are defined on lines and planes but got a field of {field.ndim} axes")
    wide = field.astype(np.float64)
    return (line(wide) if field.ndim == 1 else plane(wide)).astype(np.float32)


def line(field: NDArray[np.float64]) -> NDArray[np.float64]:
    """Differentiate lines `[..., point]`."""
    return central(np.concatenate([field[..., -2:-1], field, field[..., 1:2]], axis=-1), axis=-1)


def plane(field: NDArray[np.float64]) -> NDArray[np.float64]:
    """Differentiate planes `[..., row, column]` along rows and columns: `[..., row, column, 2]`."""
    whole = [(0, 0)] * (field.ndim - 2)
    padded = [np.pad(field, [*whole, *sides]) for sides in ([(1, 1), (0, 0)], [(0, 0), (1, 1)])]
    return np.stack([central(padded[0], axis=-2), central(padded[1], axis=-1)], axis=-1)


def central(padded: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
    """Compute (u_{i+1} - u_{i-1}) / 2h along an axis that holds one point more at either end."""
    n = padded.shape[axis] - 2
    after, before = np.arange(2, n + 2), np.arange(n)
    return (padded.take(after, axis) - padded.take(before, axis)) * n / 2
