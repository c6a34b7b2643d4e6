r"""The Kuramoto-Sivashinsky equation on a periodic interval: flame fronts and falling films; chaotic on long intervals.

.. math::
    u_t + (u^2/2)_x + u_{xx} + u_{xxxx} = 0, \qquad 0 \le x < L

The discretisation is Fourier in space and ETDRK4 in time; see `physics.numerics.etdrk4`. The mean of u is conserved,
and u(x - c) and -u(-x) are solutions where u is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import fft

from physics.burgers import transport
from physics.numerics import etdrk4
from physics.registry import Classical

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

LENGTH = 22.0
POINTS = 128
LENGTHS = (18.0, 36.0)
"""The least and the largest period of the training distribution."""
TRANSIENT = 200.0
"""Time after which a solution from small waves is on the attractor."""

# Relative L2 after 10 units of time to a step of 1/320, with L = 22 on 128 points: 2e-7; 3e-6 with twice the step.
STEP = 0.025
COURANT = 1.5
"""Largest product of a step, a speed and a wave number that is not damped at once, of a single trajectory."""
SMALLEST_STEP = STEP / 16
"""A trajectory of 40 frames takes about a minute with it."""
INITIAL_WAVES = 5


def solve(
    initial: ArrayLike, frames: int, interval: float = 2.0, length: ArrayLike = LENGTH, step: float | None = STEP
) -> NDArray[np.float64]:
    """Integrate the equation and return the frames that follow.

    Args:
        initial: u `[batch, point]` at x_i = i L / points.
        frames: How many frames.
        interval: Time between two frames.
        length: The period L, or one for each sample `[batch]`.
        step: Largest time step; the steps taken are equal. None for `STEP`, or less if the initial u is large.

    Returns:
        `[batch, frame, point]`.

    Raises:
        ValueError: A shape is wrong, there are fewer than two points, or a number is not finite or not positive.
        FloatingPointError: The integration overflowed; a smaller step helps.
        ArithmeticError: The initial u needs steps below `SMALLEST_STEP`, and none is given.

    Example:
        >>> x = 2 * np.pi * np.arange(16) / 16
        >>> solve(np.cos(x)[None], frames=3, interval=1.0, length=10.0).shape
        (1, 3, 16)
    """
    u, period = np.asarray(initial, dtype=np.float64), np.atleast_1d(np.asarray(length, dtype=np.float64))
    if u.ndim != 2 or u.shape[-1] < 2 or period.shape not in {(1,), (len(u),)}:
        raise ValueError(f"expected (batch, point), at least 2 points, and lengths, got {u.shape} and {period.shape}")
    etdrk4.check(u, length=period, frames=frames, interval=interval, step=STEP if step is None else step)
    step = resolving(u, float(period.min())) if step is None else step
    points = u.shape[-1]
    k = 2 * np.pi / period[:, None] * np.arange(points // 2 + 1)
    values, advect = transport(k, points)
    return np.stack(etdrk4.frames(fft.rfft(u), advect, k**2 - k**4, interval, step, frames, values), axis=1)


def sample(
    rng: int | np.random.SeedSequence | np.random.Generator,
    count: int,
    frames: int = 40,
    interval: float = 2.0,
    lengths: tuple[float, float] = LENGTHS,
    points: int = POINTS,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Draw trajectories on the attractor.

    Args:
        rng: A seed or a generator.
        count: Trajectories.
        frames: Frames after the first.
        interval: Time between two frames.
        lengths: The period is uniform between these.
        points: Points of the grid.

    Returns:
        Trajectories `[sample, 1 + frames, point]` and their periods `[sample]`.
    """
    start, length = draw(rng, count, lengths, points)
    return follow(start, length, frames, interval), length


def draw(
    rng: int | np.random.SeedSequence | np.random.Generator,
    count: int,
    lengths: tuple[float, float] = LENGTHS,
    points: int = POINTS,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Draw the waves that trajectories begin with, `[sample, point]`, and their periods `[sample]`; see `sample`."""
    generator = np.random.default_rng(rng)
    length = generator.uniform(*lengths, count)
    wave, x = np.arange(1, INITIAL_WAVES + 1)[:, None], 2 * np.pi * np.arange(points) / points
    even, odd = generator.standard_normal((2, count, INITIAL_WAVES))
    return even @ np.cos(wave * x) + odd @ np.sin(wave * x), length


def follow(
    start: NDArray[np.float64], length: NDArray[np.float64], frames: int, interval: float
) -> NDArray[np.float64]:
    """Return trajectories `[sample, 1 + frames, point]` on the attractor that waves lead to."""
    settled = solve(start, 1, TRANSIENT, length)
    return np.concatenate([settled, solve(settled[:, 0], frames, interval, length)], axis=1)


def trajectory(initial: ArrayLike, frames: int, interval: float, length: ArrayLike = LENGTH) -> NDArray[np.float64]:
    """Return the frames `[frame, point]` that follow one state, by steps that resolve its speed; see `solve`."""
    return np.asarray(solve(np.asarray(initial)[None], frames, interval, length, step=None)[0])


def resolving(u: NDArray[np.float64], length: float) -> float:
    """Return the largest step for u `[batch, point]` of a period.

    Raises:
        ArithmeticError: It is below `SMALLEST_STEP`.
    """
    speed = float(np.abs(u).max(initial=0.0))
    # A wave of number k moves at k times the speed, and is damped at k^4: faster, above the cubic root of the speed.
    wave = min(2 * np.pi / length * u.shape[-1] / 3, float(np.cbrt(speed)))
    step = COURANT / max(speed * wave, COURANT / STEP)
    if step < SMALLEST_STEP:
        raise ArithmeticError(f"a speed of {speed:.2g} needs steps of {step:.1e}; expected {SMALLEST_STEP:.1e} or more")
    return float(step)


CLASSICAL = Classical(
    "kuramoto_sivashinsky", None, trajectory, largest=1000 * POINTS, slow=True, exact=False, trajectories=True
)
