"""Burgers' equation: the velocity at any time of a range to the initial velocity, at any viscosity of a range."""

from __future__ import annotations

import numpy as np

from physics import cole_hopf
from physics.numerics import fields
from training.problems import burgers
from training.problems.problem import Baseline, Conditions, Fields, Problem

DESCRIPTION = burgers.FLOW.model_copy(update={"name": "burgers_flow"})
VISCOSITIES, TIMES = ((each.minimum or 0.0, each.maximum or 0.0) for each in burgers.PARAMETERS)

SAMPLED = 256
"""Points of the closed form of a sample: a relative error of 7e-7 in the mean of 1,000, of 2.6e-4 for the worst."""

SOLVED = 512
"""Points of the baseline: a relative error of 3e-11 for the worst of 60, given the velocity between the points."""


def sample(seed: np.random.SeedSequence, mesh: int) -> Fields:
    """Draw an initial velocity, a viscosity, uniformly on a logarithmic scale, and a time, and solve."""
    rng = np.random.default_rng(seed)
    initial = fields.periodic_field(mesh, rng)
    viscosity = np.exp(rng.uniform(*np.log(VISCOSITIES)))
    time = rng.uniform(*TIMES)
    final = cole_hopf.solve(initial, time=time, viscosity=viscosity, resolution=SAMPLED)
    return {"initial": initial, "viscosity": np.asarray(viscosity), "time": np.asarray(time), "final": final}


def solve(inputs: Fields, conditions: Conditions) -> Fields:
    """Evaluate the closed form for an initial velocity on its own grid."""
    del conditions
    initial, viscosity, time = (inputs[name] for name in ("initial", "viscosity", "time"))
    return {
        "final": cole_hopf.solve(initial.astype(float), time=float(time), viscosity=float(viscosity), resolution=SOLVED)
    }


PROBLEM = Problem(
    description=DESCRIPTION,
    grid_points="x_i = i/{mesh}",
    sampler=sample,
    baseline=Baseline(f"closed form (Cole, Hopf) summed over {SOLVED} points", solve),
)
