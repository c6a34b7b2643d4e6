r"""The forced two-dimensional Navier-Stokes equations on the periodic unit square, for the vorticity.

.. math::
    \omega_t + u \cdot \nabla\omega = \nu \Delta\omega + f, \qquad
    u = (\psi_y, -\psi_x), \quad -\Delta\psi = \omega, \qquad
    f = 0.1\,(\sin 2\pi(x + y) + \cos 2\pi(x + y))

This is the benchmark of the Fourier neural operator (Li et al., ICLR 2021, arXiv 2010.08895). The discretisation is
Fourier in space and ETDRK4 in time; see `physics.numerics.etdrk4`. The mean of the vorticity is conserved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import fft

from physics.numerics import etdrk4
from physics.registry import Classical

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray

    Field = NDArray[np.float64]
    Spectrum = NDArray[np.complex128]

POINTS = 64
VISCOSITY = 1e-3
VISCOSITIES = (1e-4, 1e-3)
"""The least and the largest viscosity of the training distribution."""
FORCE = 0.1
"""The amplitude of the source of vorticity."""
STEP = 0.04
COURANT = 1.5
"""Largest product of a step, a speed and a kept wave number of a single trajectory: errors of 1e-5 to 4e-3."""
SMALLEST_STEP = STEP / 128
"""A trajectory of 20 frames takes half a minute with it."""
TAU, ALPHA = 7.0, 2.5


def forcing(points: int) -> Field:
    """Return the benchmark's source of vorticity `[points, points]` at x_i = i / points."""
    x = 2 * np.pi * np.arange(points) / points
    phase = x[:, None] + x
    return np.asarray(FORCE * (np.sin(phase) + np.cos(phase)))


def solve(
    initial: ArrayLike,
    frames: int,
    interval: float = 1.0,
    viscosity: ArrayLike = VISCOSITY,
    step: float | None = STEP,
    source: Callable[[int], Field] = forcing,
) -> Field:
    """Integrate the equation and return the frames that follow.

    Args:
        initial: Vorticity `[batch, n, n]` at x_i = i / n.
        frames: How many frames.
        interval: Time between two frames.
        viscosity: nu, or one for each sample `[batch]`.
        step: Largest time step; the steps taken are equal. None for `STEP`, or less if the initial velocity is fast.
        source: Maps a number of points to f on that grid.

    Returns:
        `[batch, frame, n, n]`.

    Raises:
        ValueError: A shape is wrong, there are fewer than four points, or a number is not finite or not positive.
        FloatingPointError: The integration overflowed; a smaller step helps.
        ArithmeticError: The initial velocity needs steps below `SMALLEST_STEP`, and none is given.

    Example:
        >>> solve(np.zeros((1, 8, 8)), frames=2).shape
        (1, 2, 8, 8)
    """
    omega, nu = np.asarray(initial, dtype=np.float64), np.atleast_1d(np.asarray(viscosity, dtype=np.float64))
    square = omega.ndim == 3 and omega.shape[-1] == omega.shape[-2] >= 4
    if not square or nu.shape not in {(1,), (len(omega),)}:
        raise ValueError(f"expected (batch, n, n), n >= 4, and viscosities, got {omega.shape} and {nu.shape}")
    points = omega.shape[-1]
    step = resolving(omega) if step is None else step
    etdrk4.check(omega, viscosity=nu, frames=frames, interval=interval, step=step)
    squares = sum(np.square(each) for each in wave_numbers(points))
    decay, advect = -nu[:, None, None] * squares, advection(points, source)

    def values(v: Spectrum) -> Field:
        return np.asarray(fft.irfft2(v, (points, points)))

    return np.stack(etdrk4.frames(fft.rfft2(omega), advect, decay, interval, step, frames, values), axis=1)


def wave_numbers(points: int) -> tuple[Field, Field]:
    """Return 2 pi k of both axes of the half spectrum, `[points, 1]` and `[1, points // 2 + 1]`."""
    both, half = fft.fftfreq(points, 1 / points)[:, None], np.arange(points // 2 + 1, dtype=np.float64)[None]
    return np.asarray(2 * np.pi * both), np.asarray(2 * np.pi * half, dtype=np.float64)


def inverse_squares(kx: Field, ky: Field) -> Field:
    """Return 1 / |k|^2, which maps the spectrum of vorticity to that of the stream function; 0 for the mean."""
    squares = kx**2 + ky**2
    return np.divide(1.0, squares, out=np.zeros_like(squares), where=squares > 0)


def advection(points: int, source: Callable[[int], Field]) -> Callable[[Spectrum], Spectrum]:
    """Return the map of the vorticity's spectrum to that of f - u grad omega."""
    kx, ky = wave_numbers(points)
    inverse = inverse_squares(kx, ky)
    # A product holds twice the wave numbers: those above two thirds of the highest would fold onto lower ones.
    third = 2 * np.pi * points / 3
    kept = (np.abs(kx) < third) & (np.abs(ky) < third)
    force = fft.rfft2(source(points))
    shape = (points, points)

    def advect(v: Spectrum) -> Spectrum:
        stream = v * inverse
        parts = np.stack([1j * ky * stream, 1j * kx * v, -1j * kx * stream, 1j * ky * v])
        speed_x, slope_x, speed_y, slope_y = fft.irfft2(parts, shape)
        return np.asarray(force - kept * fft.rfft2(speed_x * slope_x + speed_y * slope_y))

    return advect


def initial_vorticity(rng: np.random.Generator, count: int, points: int = POINTS) -> Field:
    r"""Draw initial vorticity of the benchmark's distribution.

    .. math::
        \omega_0 \sim N(0, \tau^{2\alpha - 2} (-\Delta + \tau^2)^{-\alpha}), \qquad \tau = 7,\ \alpha = 5/2

    Args:
        rng: The generator.
        count: Samples.
        points: Points per axis, even.

    Returns:
        `[count, points, points]`.
    """
    kx, ky = wave_numbers(points)
    deviation = TAU ** (ALPHA - 1) * (kx**2 + ky**2 + TAU**2) ** (-ALPHA / 2)
    deviation[0, 0] = 0.0
    white = fft.rfft2(rng.standard_normal((count, points, points)))
    return np.asarray(fft.irfft2(white * deviation * points, (points, points)))


def sample(
    rng: int | np.random.SeedSequence | np.random.Generator,
    count: int,
    frames: int = 20,
    interval: float = 1.0,
    viscosities: tuple[float, float] = VISCOSITIES,
    points: int = POINTS,
    resolution: int = POINTS,
) -> tuple[Field, Field]:
    """Draw trajectories from random vorticity.

    Args:
        rng: A seed or a generator.
        count: Trajectories.
        frames: Frames after the first.
        interval: Time between two frames.
        viscosities: The logarithm of the viscosity is uniform between those of these.
        points: Points per axis of the result.
        resolution: Points per axis of the integration, a multiple of `points`.

    Returns:
        Trajectories `[sample, 1 + frames, points, points]` and their viscosities `[sample]`.

    Raises:
        ValueError: The resolution is no multiple of the points.
    """
    if resolution % points:
        raise ValueError(f"expected a resolution that is a multiple of {points} points but got {resolution}")
    start, nu = draw(rng, count, viscosities, resolution)
    stride = resolution // points
    return follow(start, nu, frames, interval)[..., ::stride, ::stride], nu


def draw(
    rng: int | np.random.SeedSequence | np.random.Generator,
    count: int,
    viscosities: tuple[float, float] = VISCOSITIES,
    resolution: int = POINTS,
) -> tuple[Field, Field]:
    """Draw vorticity `[sample, resolution, resolution]` and viscosities `[sample]`; see `sample`."""
    generator = np.random.default_rng(rng)
    least, most = viscosities
    nu = least * (most / least) ** generator.random(count)
    return initial_vorticity(generator, count, resolution), nu


def follow(start: Field, viscosity: Field, frames: int, interval: float) -> Field:
    """Return trajectories `[sample, 1 + frames, n, n]` from their first frames."""
    return np.concatenate([start[:, None], solve(start, frames, interval, viscosity)], axis=1)


def trajectory(initial: ArrayLike, frames: int, interval: float, viscosity: ArrayLike = VISCOSITY) -> Field:
    """Return the frames `[frame, n, n]` that follow one state, by steps that resolve its velocity; see `solve`."""
    return np.asarray(solve(np.asarray(initial)[None], frames, interval, viscosity, step=None)[0])


def resolving(omega: Field) -> float:
    """Return the largest step for the velocity of vorticity `[batch, n, n]`.

    Raises:
        ArithmeticError: It is below `SMALLEST_STEP`.
    """
    kx, ky = wave_numbers(omega.shape[-1])
    stream = fft.rfft2(omega) * inverse_squares(kx, ky)
    speed = max(float(np.abs(fft.irfft2(1j * k * stream, omega.shape[1:])).max()) for k in (kx, ky))
    step = COURANT / max(speed * 2 * np.pi * omega.shape[-1] / 3, COURANT / STEP)
    if step < SMALLEST_STEP:
        raise ArithmeticError(f"a speed of {speed:.2g} needs steps of {step:.1e}; expected {SMALLEST_STEP:.1e} or more")
    return float(step)


CLASSICAL = Classical(
    "navier_stokes", None, trajectory, largest=100 * POINTS**2, slow=True, exact=False, trajectories=True
)
