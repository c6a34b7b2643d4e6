r"""The closed form of Burgers' equation on a periodic interval (Cole 1951, Hopf 1950).

.. math::
    u(x, t) = \sum_y w_{xy}\, \frac{x - y}{t}, \qquad
    w_{xy} = \operatorname{softmax}_y\left(-\frac{1}{2\nu}\left[\int_0^y u_0 + \frac{(x - y)^2}{2t}\right]\right).

The sum is the trapezoidal rule of the exact integral over y, over three periods around x or more, in a frame that moves
with the mean velocity. It is one head of softmax attention: queries and keys are positions, values are velocities.

Of a weak wave the exponentials are near 1, and most of the sum cancels. There it is evaluated without what cancels,

.. math::
    u(x, t) = \frac{\sum_y g_{xy}\, e_y\, (x - y)/t}{1 + \sum_y g_{xy}\, e_y}, \qquad
    g_{xy} = \operatorname{softmax}_y\left(-\frac{(x - y)^2}{4\nu t}\right), \qquad
    e_y = \exp\left(-\frac{1}{2\nu}\int_0^y u_0\right) - 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import fft
from scipy.special import softmax

from physics import burgers
from physics.burgers import VISCOSITY, interpolate
from physics.registry import Classical

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

NEGLECTED = 1e-8
"""The largest weight of a key beyond the periods that are summed, relative to the largest weight of all."""

WEAK = 1e-3  # the largest exponent of the integral of the velocity, of either sign, of a weak wave

BLOCK = 256  # points whose sums are evaluated at one time; it bounds the memory

TOLERANCE = 1e-6  # relative L2 difference of two resolutions at which the finer one is taken as converged

FAINT = 1e-4
"""The size of a solution, relative to the initial velocity, below which the difference is relative to that size."""

RESOLUTIONS = (256, 512, 1024, 2048)  # the resolutions that are tried; the last one takes about a fifth of a second


def solve(
    initial: ArrayLike,
    time: float = 1.0,
    viscosity: float = VISCOSITY,
    length: float = 1.0,
    resolution: int = 256,
    dtype: type[np.floating[Any]] = np.float64,
) -> NDArray[np.floating[Any]]:
    """Evaluate the closed form.

    Args:
        initial: Velocity [points] at x_i = i length/points.
        time: Final time.
        viscosity: nu, in length^2 / time.
        length: Period.
        resolution: Fewest points of the sum in one period. The result is interpolated to a finer grid of `initial`, and
            strided to a coarser one.
        dtype: Precision of the sum.

    Returns:
        The velocity at `time` [points].

    Raises:
        ValueError: There are several fields or fewer than two points, or a number is not finite or not positive.

    Example:
        >>> final = solve(np.sin(2 * np.pi * np.arange(8) / 8), time=0.1)
        >>> round(float(final.max()), 3)
        0.937
    """
    u = np.asarray(initial, dtype=np.float64)
    if u.ndim != 1:
        raise ValueError(f'expected one field (point) but got {u.shape} for "initial"')
    burgers.check(u, time=time, viscosity=viscosity, length=length)
    working = resolution if u.size >= resolution else u.size * -(-resolution // u.size)
    coarse = interpolate(u, working)
    if viscosity * time > length**2:  # the longest wave has decayed to exp(-4 pi^2), below rounding
        return np.full(u.size, coarse.mean())
    x = length * np.arange(working) / working
    reach = images(viscosity * time / length**2)
    shift = length * np.arange(-reach, reach + 1)[:, None]
    mean = coarse.mean()  # a frame that moves with the mean velocity sees none
    moved = np.mod(x - mean * time, length)
    potential = np.tile(antiderivative(coarse - mean, length), 2 * reach + 1).astype(dtype)
    keys = (x + shift).ravel().astype(dtype)
    weak = bool(np.abs(potential).max() <= WEAK * 2 * viscosity)

    def displacements(queries: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
        distance = np.subtract.outer(queries, keys)
        if weak:
            weights = softmax(-(distance**2) / dtype(4 * viscosity * time), axis=1)
            weights *= np.expm1(-potential / dtype(2 * viscosity))
            return np.asarray((weights * distance).sum(axis=1) / (1 + weights.sum(axis=1)))
        weights = softmax(-(potential + distance**2 / dtype(2 * time)) / dtype(2 * viscosity), axis=1)
        return np.asarray((weights * distance).sum(axis=1))

    parts = np.split(moved.astype(dtype), range(BLOCK, working, BLOCK))
    final = np.asarray(mean + np.concatenate([*map(displacements, parts)]) / dtype(time), dtype=np.float64)
    return interpolate(final, u.size) if u.size >= working else final[:: working // u.size]


def images(spread: float) -> int:
    """Return how many periods on either side of a point have to be summed for nu t in periods^2, at least 1.

    The largest weight belongs to a key within half a period, because the potential is periodic. So the weight of a key
    at the distance d is at most exp((1/4 - d^2) / 4 nu t) of it.

    Example:
        >>> images(0.01), images(0.06)
        (1, 3)
    """
    return max(1, int(np.ceil(np.sqrt(0.25 - 4 * spread * np.log(NEGLECTED)))))


def converged(initial: ArrayLike, time: float = 1.0, viscosity: float = VISCOSITY) -> NDArray[np.float64]:
    """Evaluate the closed form at doubled resolutions until it no longer changes.

    Args:
        initial: Velocity [points] of period 1.
        time: Final time.
        viscosity: nu, in length^2 / time.

    Returns:
        The velocity at `time` [points].

    Raises:
        ValueError: The rank is wrong, there are fewer than two points, or a number is not finite or not positive.
        ArithmeticError: The finest resolution does not resolve it, as for fronts far thinner than its spacing.

    Example:
        >>> final = converged(1e3 * np.sin(2 * np.pi * np.arange(8) / 8))
        >>> bool(np.isfinite(final).all())
        True
    """
    u = np.asarray(initial, dtype=np.float64)
    burgers.check(u, time, viscosity)
    coarse = solve(u, time, viscosity, resolution=RESOLUTIONS[0])
    for resolution in RESOLUTIONS[1:]:
        fine = solve(u, time, viscosity, resolution=resolution)
        change = np.linalg.norm(fine - coarse)
        if change <= TOLERANCE * max(np.linalg.norm(fine), FAINT * np.linalg.norm(u)):
            return np.asarray(fine, dtype=np.float64)
        coarse = fine
    raise ArithmeticError(
        f"{RESOLUTIONS[-1]} points do not resolve the solution: it still changes by {change / np.linalg.norm(fine):.1e}"
    )


def antiderivative(values: NDArray[np.float64], length: float) -> NDArray[np.float64]:
    """Integrate periodic values of mean 0 from 0 to each point, by their Fourier series."""
    k = 2 * np.pi / length * np.arange(values.size // 2 + 1)
    spectrum = fft.rfft(values)
    spectrum[1:] /= 1j * k[1:]
    if values.size % 2 == 0:
        spectrum[-1] = 0.0  # the sine of the highest frequency vanishes at every point
    found = fft.irfft(spectrum, values.size)
    return np.asarray(found - found[0])


CLASSICAL = Classical("burgers", burgers.example, converged, others=("burgers_flow",))
