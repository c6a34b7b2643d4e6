r"""Advection with a varying speed by py-pde: initial values, speed and diffusion to the values at a later time.

.. math::
    \partial_t u = -c(x)\,\partial_x u + D\,\partial_{xx} u

on a periodic line of length one, from t = 0 to t = 0.5. py-pde's central differences on 256 points and Runge-Kutta
steps; every second point is stored. Speed and diffusion are fields that do not change, so that one compiled equation
serves all samples.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pde
from scipy.signal import resample

from benchmarks.own_data.solvers.random_fields import random_fields

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.random import Generator
    from numpy.typing import NDArray

POINTS, REFINEMENT = 128, 2
TIME, STEP = 0.5, 5e-4


def write(samples: int, folder: Path, rng: Generator) -> None:
    """Write `advection.npz` with the arrays `initial`, `speed`, `diffusion` and `final`.

    Args:
        samples: How many.
        folder: Where to.
        rng: The generator of the inputs.
    """
    initial = random_fields(samples, (POINTS,), (True,), 3, 10, rng)
    speed = np.exp(0.4 * random_fields(samples, (POINTS,), (True,), 3, 6, rng))
    diffusion = np.exp(rng.uniform(np.log(5e-4), np.log(5e-3), samples))
    final = solve(initial, speed, diffusion)
    np.savez(folder / "advection.npz", initial=initial, speed=speed, diffusion=diffusion, final=final)


def solve(
    initial: NDArray[np.float64], speed: NDArray[np.float64], diffusion: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the values at the end, `[sample, point]`.

    Args:
        initial: The values at the start, `[sample, point]`.
        speed: The speed, `[sample, point]`.
        diffusion: The diffusion, `[sample]`.
    """
    grid = pde.CartesianGrid([[0, 1]], [REFINEMENT * POINTS], periodic=True)
    equation = pde.PDE({"u": "-c * d_dx(u) + d * laplace(u)", "c": "0", "d": "0"})
    fine = [resample(each, REFINEMENT * POINTS, axis=1) for each in (initial, speed)]
    states = [
        pde.FieldCollection([pde.ScalarField(grid, u), pde.ScalarField(grid, c), pde.ScalarField(grid, d)])
        for u, c, d in zip(*fine, diffusion, strict=True)
    ]
    advance = pde.RungeKuttaSolver(equation, backend="numba").make_stepper(states[0], dt=STEP)
    for state in states:
        advance(state, 0, TIME)
    return np.stack([state[0].data[::REFINEMENT] for state in states])
