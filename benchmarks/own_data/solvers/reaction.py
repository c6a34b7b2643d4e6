r"""Reaction and diffusion by py-pde: an initial concentration to the one at a later time, on a periodic square.

.. math::
    \partial_t c = D\,\Delta c + c - c^3

on [0, 10]^2 with D = 0.3, from t = 0 to t = 2, on 32 x 32 points.
py-pde's central differences and explicit Euler steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pde

from benchmarks.own_data.solvers.random_fields import random_fields

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.random import Generator

SIDE, LENGTH = 32, 10.0
DIFFUSION, TIME, STEP = 0.3, 2.0, 0.005


def write(samples: int, folder: Path, rng: Generator) -> None:
    """Write `reaction.npz` with the arrays `x` and `y`.

    Args:
        samples: How many.
        folder: Where to.
        rng: The generator of the inputs.
    """
    grid = pde.CartesianGrid([[0, LENGTH]] * 2, [SIDE] * 2, periodic=True)
    equation = pde.PDE({"c": f"{DIFFUSION} * laplace(c) + c - c**3"})
    initial = 0.5 * random_fields(samples, (SIDE, SIDE), (True, True), 2.5, 6, rng)
    solver = pde.EulerSolver(equation, backend="numba")
    advance = solver.make_stepper(pde.ScalarField(grid, initial[0]), dt=STEP)
    final = np.empty_like(initial)
    for start, end in zip(initial, final, strict=True):
        state = pde.ScalarField(grid, start)
        advance(state, 0, TIME)
        end[:] = state.data
    np.savez(folder / "reaction.npz", x=initial, y=final)
