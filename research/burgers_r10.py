"""Burgers' equation at the viscosity that the papers print, 0.1, at which waves have nearly decayed at t = 1.

The published file is named `burgers_data_R10`. `training.problems.burgers` has a tenth of this viscosity.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from physics import burgers as equation
from physics import cole_hopf
from physics.numerics import fields
from training.problems import burgers
from training.problems.problem import Baseline, Conditions, Fields

VISCOSITY = 0.1

SAMPLED = 256
"""Points of the closed form of a sample: within 4e-8 of the spectral solver, below the rounding of stored fields."""

DESCRIPTION = burgers.DESCRIPTION.model_copy(
    update={"name": "burgers_r10", "equation": f"u_t + u u_x = nu u_xx, nu = {VISCOSITY}, up to t = 1"}
)


def sample(seed: np.random.SeedSequence, mesh: int) -> Fields:
    """Draw an initial velocity, and evaluate the closed form at t = 1."""
    initial = fields.periodic_field(mesh, np.random.default_rng(seed))
    return {"initial": initial, "final": cole_hopf.solve(initial, viscosity=VISCOSITY, resolution=SAMPLED)}


def solve(inputs: Fields, conditions: Conditions) -> Fields:
    """March the initial velocity to t = 1 on its own grid."""
    del conditions
    return {"final": equation.solve(inputs["initial"].astype(float), viscosity=VISCOSITY)}


PROBLEM = replace(
    burgers.PROBLEM,
    description=DESCRIPTION,
    sampler=sample,
    baseline=Baseline("ETDRK4 spectral integration on the same grid", solve),
)
