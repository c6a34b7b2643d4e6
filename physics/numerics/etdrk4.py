r"""ETDRK4: a fourth-order step for stiff equations with a diagonal linear part, and frames of its solutions.

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

    from numpy.typing import ArrayLike, NDArray

    Spectrum = NDArray[np.complex128]


def check(initial: NDArray[np.float64], **numbers: ArrayLike) -> None:
    """Check what an equation is integrated from.

    Args:
        initial: The values, of any shape.
        numbers: Numbers, or arrays of them, that have to be positive, by name.

    Raises:
        ValueError: A value is not finite, or a number is not finite or not positive.
    """
    if not np.isfinite(initial).all():
        raise ValueError(f"initial{np.argwhere(~np.isfinite(initial))[0].tolist()} is not finite")
    for name, value in numbers.items():
        each = np.asarray(value, dtype=np.float64)
        if not (np.isfinite(each).all() and (each > 0).all()):
            expected = "positive numbers" if each.ndim else "a positive number"
            raise ValueError(f"expected {expected} but got {each} for {name}")


def frames(
    v: Spectrum,
    nonlinear: Callable[[Spectrum], Spectrum],
    linear: NDArray[np.float64],
    interval: float,
    step: float,
    count: int,
    values: Callable[[Spectrum], NDArray[np.float64]],
) -> list[NDArray[np.float64]]:
    """Integrate v' = L v + N(v), and return the frames that follow.

    Args:
        v: The spectrum, of any shape.
        nonlinear: Maps a spectrum to N of it.
        linear: The diagonal L, in 1 / time, in a shape that broadcasts with the spectrum.
        interval: Time between two frames.
        step: Largest time step; the steps taken are equal.
        count: How many frames.
        values: Maps a spectrum to the values on the grid.

    Raises:
        FloatingPointError: The integration overflowed; a smaller step helps.
    """
    steps = max(1, int(np.ceil(interval / step - 1e-9)))
    factors, found = coefficients(interval / steps, linear), []
    for _ in range(count):
        v = march(v, nonlinear, factors, steps)
        found.append(values(v))
    if not all(np.isfinite(each).all() for each in found):
        raise FloatingPointError(f"the solution overflowed with a step of {interval / steps:.3g}; try a smaller one")
    return found


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
        of_v = nonlinear(v)
        a = v * factors.half + of_v * factors.stage
        of_a = nonlinear(a)
        of_b = nonlinear(v * factors.half + of_a * factors.stage)
        of_c = nonlinear(a * factors.half + (2 * of_b - of_v) * factors.stage)
        v = v * factors.whole + of_v * factors.first + 2 * (of_a + of_b) * factors.middle + of_c * factors.last
    return v
