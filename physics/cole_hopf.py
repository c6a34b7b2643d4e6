r"""The closed form of Burgers' equation on a periodic interval (Cole 1951, Hopf 1950).

.. math::
    u(x, t) = \sum_y w_{xy}\, \frac{x - y}{t}, \qquad
    w_{xy} = \operatorname{softmax}_y\left(-\frac{1}{2\nu}\left[\int_0^y u_0 + \frac{(x - y)^2}{2t}\right]\right).

The sum is the trapezoidal rule of the exact integral over y, over three periods around x, in a frame that moves with
the mean velocity. It is one head of softmax attention: queries and keys are positions, values are velocities.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import fft
from scipy.special import softmax

from physics.burgers import VISCOSITY, interpolate

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

PERIODS = 3


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

    Example:
        >>> final = solve(np.sin(2 * np.pi * np.arange(8) / 8), time=0.1)
        >>> round(float(final.max()), 3)
        0.937
    """
    u = np.asarray(initial, dtype=np.float64)
    working = resolution if u.size >= resolution else u.size * -(-resolution // u.size)
    coarse = interpolate(u, working)
    x = length * np.arange(working) / working
    shift = length * (np.arange(PERIODS) - PERIODS // 2)[:, None]
    mean = coarse.mean()  # a frame that moves with the mean velocity sees none
    moved = np.mod(x - mean * time, length)
    potential = np.tile(antiderivative(coarse - mean, length), PERIODS).astype(dtype)
    distance = np.subtract.outer(moved.astype(dtype), (x + shift).ravel().astype(dtype))
    weights = softmax(-(potential + distance**2 / dtype(2 * time)) / dtype(2 * viscosity), axis=1)
    velocity = (weights * distance).sum(axis=1) / dtype(time)
    final = np.asarray(mean + velocity, dtype=np.float64)
    return interpolate(final, u.size) if u.size >= working else final[:: working // u.size]


def antiderivative(values: NDArray[np.float64], length: float) -> NDArray[np.float64]:
    """Integrate periodic values of mean 0 from 0 to each point, by their Fourier series."""
    k = 2 * np.pi / length * np.arange(values.size // 2 + 1)
    spectrum = fft.rfft(values)
    spectrum[1:] /= 1j * k[1:]
    if values.size % 2 == 0:
        spectrum[-1] = 0.0  # the sine of the highest frequency vanishes at every point
    found = fft.irfft(spectrum, values.size)
    return np.asarray(found - found[0])
