r"""Burgers' equation on a periodic interval: the velocity at a later time.

.. math::
    u_t + (u^2/2)_x = \nu u_{xx}

The discretisation is Fourier in space and ETDRK4 in time; see `physics.numerics.etdrk4`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import fft

from physics.numerics import etdrk4, fields

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray

    Spectrum = NDArray[np.complex128]

POINTS = 8192
"""Points of the benchmark's fields."""

VISCOSITY = 0.01
"""The papers print 0.1, with which the wave has decayed at t = 1; 0.01 gives the sawtooth that they plot."""

# Relative L2 to a step of 1/4000 on all of 8192 points, on fields of the benchmark's distribution: below 1e-9 with both
# choices (a step of 1/100 has an error of up to 6e-7; 512, 1024 and 2048 points have the same 1e-10 at a step of
# 1/1000, since this viscosity damps all higher frequencies).
STEP = 0.002
RESOLUTION = 1024


def solve(
    initial: ArrayLike,
    time: float = 1.0,
    viscosity: float = VISCOSITY,
    step: float = STEP,
    length: float = 1.0,
    resolution: int = RESOLUTION,
) -> NDArray[np.float64]:
    """Integrate u_t + (u^2/2)_x = nu u_xx, periodic, from 0 to `time`.

    Args:
        initial: Velocity [points] or [batch, points] at x_i = i length/points. Between the points it is their
            trigonometric interpolant.
        time: Final time.
        viscosity: nu, in length^2 / time.
        step: Largest time step; the steps taken are equal.
        length: Period.
        resolution: Fewest points to integrate on. A finer `initial` is cut to its lower frequencies (the higher ones
            decay at once), a coarser one is interpolated. The result is interpolated back in the same way.

    Returns:
        The velocity at `time`, in the shape of `initial`.

    Raises:
        ValueError: The rank is wrong, there are fewer than two points, or a number is not finite or not positive.
        FloatingPointError: The integration overflowed; a smaller step helps.

    Example:
        >>> final = solve(np.sin(2 * np.pi * np.arange(8) / 8), time=0.1)
        >>> round(float(final.max()), 3)
        0.937
    """
    u = np.asarray(initial, dtype=np.float64)
    check(u, time, viscosity, step, length)
    points = u.shape[-1]
    # A multiple of a coarse grid contains its points, so the result is strided back.
    working = resolution if points >= resolution else points * -(-resolution // points)
    k = 2 * np.pi / length * np.arange(working // 2 + 1)
    values, advect = transport(k, working)
    spectrum, decay = fft.rfft(interpolate(u, working)), np.asarray(-viscosity * k**2, dtype=np.float64)
    [final] = etdrk4.frames(spectrum, advect, decay, time, step, 1, values)
    return interpolate(final, points) if points >= working else np.ascontiguousarray(final[..., :: working // points])


def transport(
    k: NDArray[np.float64], points: int
) -> tuple[Callable[[Spectrum], NDArray[np.float64]], Callable[[Spectrum], Spectrum]]:
    """Return the maps of spectra of u [..., wave number k] to u on so many points, and to the spectra of -(u^2/2)_x."""
    # The square holds frequencies up to twice the highest: those above two thirds of it would fold onto lower ones.
    derivative = np.where(np.arange(k.shape[-1]) < points / 3, -0.5j * k, 0.0)

    def values(v: Spectrum) -> NDArray[np.float64]:
        return np.asarray(fft.irfft(v, points))

    def advect(v: Spectrum) -> Spectrum:
        return np.asarray(derivative * fft.rfft(np.square(values(v))))

    return values, advect


def interpolate(values: NDArray[np.float64], points: int) -> NDArray[np.float64]:
    """Interpolate periodic `values` [..., n] trigonometrically to [..., points]; fewer points lose frequencies."""
    given = values.shape[-1]
    if points == given:
        return values
    kept = min(points, given)
    spectrum = fft.rfft(values)[..., : kept // 2 + 1] * (points / given)
    if kept % 2 == 0:
        # The highest frequency of an even grid stands for a pair: a finer grid resolves both, a coarser grid neither.
        spectrum[..., -1] *= 0.5 if points > given else 0.0
    return np.asarray(fft.irfft(spectrum, points))


def sample(
    rng: int | np.random.SeedSequence | np.random.Generator, points: int = POINTS, viscosity: float = VISCOSITY
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Draw an initial velocity of the benchmark's distribution and integrate it to t = 1.

    Args:
        rng: A seed or a generator.
        points: Points of the grid.
        viscosity: nu, in length^2 / time.

    Returns:
        The initial and the final velocity, [points] each.

    Example:
        >>> initial, final = sample(0, points=16)
        >>> initial.shape, final.shape
        ((16,), (16,))
    """
    initial = fields.periodic_field(points, np.random.default_rng(rng))
    return initial, solve(initial, viscosity=viscosity)


def example(points: int, seed: int) -> NDArray[np.float64]:
    """Draw an initial velocity [points] of the benchmark's distribution: that of `sample(seed)`, on any grid."""
    return fields.periodic_field(points, np.random.default_rng(seed))


def check(u: NDArray[np.float64], time: float, viscosity: float, step: float = STEP, length: float = 1.0) -> None:
    """Check the arguments of a solver; see `solve`.

    Raises:
        ValueError: The rank is wrong, there are fewer than two points, or a number is not finite or not positive.
    """
    if u.ndim not in {1, 2} or u.shape[-1] < 2:
        raise ValueError(f'expected (point) or (batch, point), at least 2 points, but got {u.shape} for "initial"')
    etdrk4.check(u, time=time, viscosity=viscosity, step=step, length=length)
