r"""Smooth random fields on regular grids.

A field is white noise whose modes of wave number k are multiplied by

.. math::
    (4\pi^2 k^2 + \tau^2)^{-\alpha/2},

Fourier modes on periodic axes and cosines on the others, without the mean and scaled to a standard deviation of one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import fft

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.random import Generator
    from numpy.typing import NDArray


def random_fields(
    count: int, sides: Sequence[int], periodic: Sequence[bool], alpha: float, tau: float, rng: Generator
) -> NDArray[np.float64]:
    """Draw random fields.

    Args:
        count: How many.
        sides: Points per axis.
        periodic: Per axis whether the field is periodic.
        alpha: The decay of the spectrum.
        tau: The inverse length below which the spectrum decays.
        rng: The generator.

    Returns:
        Fields `[count, *sides]` of mean zero and standard deviation one.
    """
    noise: NDArray[Any] = rng.standard_normal((count, *sides))
    spectrum = amplitudes(sides, periodic, alpha, tau)
    for axis, closed in enumerate(periodic, start=1):
        noise = fft.fft(noise, axis=axis) if closed else fft.dct(noise, axis=axis, norm="ortho")
    noise = noise * spectrum
    for axis, closed in enumerate(periodic, start=1):
        noise = fft.ifft(noise, axis=axis) if closed else fft.idct(noise, axis=axis, norm="ortho")
    fields, axes = np.real(noise), tuple(range(1, noise.ndim))
    centred = fields - fields.mean(axis=axes, keepdims=True)
    return np.asarray(centred / centred.std(axis=axes, keepdims=True))


def amplitudes(sides: Sequence[int], periodic: Sequence[bool], alpha: float, tau: float) -> NDArray[np.float64]:
    """Return the factor of every mode, `[*sides]`; see the formula of the module."""
    squares: NDArray[np.float64] = np.zeros(tuple(sides))
    for axis, (side, closed) in enumerate(zip(sides, periodic, strict=True)):
        number = np.abs(fft.fftfreq(side, 1 / side)) if closed else np.arange(side) / 2
        squares = squares + np.square(number).reshape([-1 if other == axis else 1 for other in range(len(sides))])
    return (4 * np.pi**2 * squares + tau**2) ** (-alpha / 2)
