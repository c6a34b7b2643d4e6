r"""ETDRK4: a fourth-order step for stiff equations with a diagonal linear part.

.. math::
    \hat v_t = L \hat v + N(\hat v)

The linear part is integrated exactly and the other with four stages (Cox & Matthews 2002). The coefficients are contour
integrals (Kassam & Trefethen 2005, SIAM J. Sci. Comput. 26, 1214).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Spectrum = NDArray[np.complex128]


class Coefficients(NamedTuple):
    """The factors of ETDRK4 for one step, one number per frequency."""

    whole: NDArray[np.float64]
    half: NDArray[np.float64]
    stage: NDArray[np.float64]
    first: NDArray[np.float64]
    middle: NDArray[np.float64]
    last: NDArray[np.float64]


def coefficients(step: float, linear: NDArray[np.float64], nodes: int = 32) -> Coefficients:
    """Compute the coefficients of ETDRK4 for v' = L v + N(v) with a real diagonal L.

    The formulas cancel where h L is near zero; their mean over a circle around h L does not.

    Args:
        step: Time step h.
        linear: The diagonal L of any shape, in 1 / time.
        nodes: Points on the upper half of the circle.

    Returns:
        The coefficients, each in the shape of `linear`.
    """
    z = step * linear[..., None] + np.exp(1j * np.pi * (np.arange(nodes) + 0.5) / nodes)
    e = np.exp(z)

    def mean(values: NDArray[np.complex128]) -> NDArray[np.float64]:
        return np.asarray(step * values.mean(axis=-1).real)

    return Coefficients(
        whole=np.exp(step * linear),
        half=np.exp(step * linear / 2),
        stage=mean((np.exp(z / 2) - 1) / z),
        first=mean((-4 - z + e * (4 - 3 * z + z**2)) / z**3),
        middle=mean((2 + z + e * (z - 2)) / z**3),
        last=mean((-4 - 3 * z - z**2 + e * (4 - z)) / z**3),
    )


def march(v: Spectrum, nonlinear: Callable[[Spectrum], Spectrum], factors: Coefficients, steps: int) -> Spectrum:
    """Take equal steps.

    Args:
        v: The spectrum, of any shape.
        nonlinear: Maps a spectrum to N of it.
        factors: Of the step, in a shape that broadcasts with the spectrum.
        steps: How many.

    Returns:
        The spectrum after the steps.

    Example:
        >>> decay = coefficients(0.1, np.array([-2.0]))
        >>> end = march(np.array([1.0 + 0j]), lambda v: 0 * v, decay, 10)
        >>> round(float(end[0].real), 6) == round(float(np.exp(-2.0)), 6)
        True
    """
    for _ in range(steps):
        v = advance(v, nonlinear, factors)
    return v


def advance(v: Spectrum, nonlinear: Callable[[Spectrum], Spectrum], factors: Coefficients) -> Spectrum:
    """Take one step; see `march`."""
    of_v = nonlinear(v)
    a = v * factors.half + of_v * factors.stage
    of_a = nonlinear(a)
    of_b = nonlinear(v * factors.half + of_a * factors.stage)
    of_c = nonlinear(a * factors.half + (2 * of_b - of_v) * factors.stage)
    return v * factors.whole + of_v * factors.first + 2 * (of_a + of_b) * factors.middle + of_c * factors.last
