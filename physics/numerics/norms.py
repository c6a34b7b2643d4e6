"""Distances between fields."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray


def relative_l2(found: ArrayLike, truth: ArrayLike) -> NDArray[np.float64]:
    r"""Compute the relative L2 distance of every sample.

    .. math::
        e_b = \frac{\lVert u_b - v_b \rVert_2}{\lVert v_b \rVert_2}

    Args:
        found: Fields u [batch, *grid].
        truth: Fields v [batch, *grid] in the same units.

    Returns:
        The distances [batch], without a unit.

    Raises:
        ValueError: The shapes differ.

    Example:
        >>> relative_l2([[3.0, 0.0], [1.0, 1.0]], [[3.0, 4.0], [1.0, 1.0]])
        array([0.8, 0. ])
    """
    u, v = (np.asarray(fields, dtype=np.float64) for fields in (found, truth))
    if u.shape != v.shape:
        raise ValueError(f"expected fields of one shape but got {u.shape} and {v.shape}")
    axes = tuple(range(1, u.ndim))
    return np.asarray(np.sqrt(np.square(u - v).sum(axes) / np.square(v).sum(axes)))
