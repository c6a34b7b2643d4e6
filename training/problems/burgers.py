"""Burgers' equation: the velocity at t = 1 to the initial velocity."""

from __future__ import annotations

import numpy as np

from physics import burgers
from schema.parts import Axis, Parameter, Quantity
from schema.problem import Description, GridLimits
from training.problems.problem import Baseline, Conditions, Fields, MatlabFiles, Problem

DESCRIPTION = Description(
    name="burgers",
    title="Burgers' equation: initial velocity to velocity at t = 1",
    equation="u_t + u u_x = nu u_xx, nu = 0.01, up to t = 1",
    boundary="periodic on [0, 1)",
    inputs=(Quantity(name="initial", meaning="velocity at t = 0"),),
    outputs=(Quantity(name="final", meaning="velocity at t = 1"),),
    axes=(Axis(name="point", boundary="periodic", points="left"),),
    points="x_i = i/n",
    grid=GridLimits(minimum=64, maximum=8192, declared=(512, 1024, 2048, 8192)),
    distribution="a Gaussian field with covariance 625 (-Laplace + 25)^-2, periodic, zero mean",
    symmetries=("shift_point", "reflect_point"),
    untested="other viscosities and other times, initial velocities much larger or rougher than those drawn",
)

PARAMETERS = (
    Parameter(name="viscosity", meaning="viscosity nu", default=burgers.VISCOSITY, minimum=0.003, maximum=0.03),
    Parameter(name="time", meaning="time t of the final velocity", default=1.0, minimum=0.1, maximum=2.0),
)

#: The same problem for operators that take viscosity and time.
FLOW = DESCRIPTION.model_copy(
    update={
        "title": "Burgers' equation: initial velocity, viscosity and time to velocity",
        "equation": "u_t + u u_x = nu u_xx",
        "parameters": PARAMETERS,
        "outputs": (Quantity(name="final", meaning="velocity at the time t"),),
        "untested": "initial velocities with fronts much steeper than those drawn",
    }
)


def sample(seed: np.random.SeedSequence, mesh: int) -> Fields:
    """Draw an initial velocity, and march it to t = 1."""
    initial, final = burgers.sample(seed, mesh)
    return {"initial": initial, "final": final}


def solve(inputs: Fields, conditions: Conditions) -> Fields:
    """March the initial velocity to t = 1 on its own grid."""
    del conditions
    return {"final": burgers.solve(inputs["initial"].astype(float))}


PROBLEM = Problem(
    description=DESCRIPTION,
    grid_points="x_i = i/{mesh}",
    constants=(("viscosity", burgers.VISCOSITY),),
    sampler=sample,
    baseline=Baseline("ETDRK4 spectral integration on the same grid", solve),
    published=MatlabFiles(
        train="burgers_data_R10.mat",
        test="burgers_data_R10.mat",
        arrays={"initial": "a", "final": "u"},
        points="x_i = i/8192",
    ),
)
