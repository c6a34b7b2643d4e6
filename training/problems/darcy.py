"""Darcy flow: the pressure to a permeability of two values."""

from __future__ import annotations

import numpy as np

from physics import darcy
from schema.parts import Axis, Quantity
from schema.problem import Description, GridLimits
from training.problems.problem import Baseline, Conditions, Fields, MatlabFiles, Problem

DESCRIPTION = Description(
    name="darcy",
    title="Darcy flow: permeability to pressure",
    equation="-div(a grad u) = f on the unit square, f = 1 by default",
    boundary="u = 0 on the boundary",
    inputs=(Quantity(name="coefficient", meaning="permeability", positive=True),),
    outputs=(Quantity(name="solution", meaning="pressure"),),
    axes=(
        Axis(name="row", boundary="wall", points="strided"),
        Axis(name="column", boundary="wall", points="strided"),
    ),
    points="x_i = (1/2 + 420 i/(n-1))/421 per axis: cell centres of a 421-cell mesh, strided; walls 0.5/421 outside",
    grid=GridLimits(minimum=15, maximum=421, declared=(85, 141, 211, 421)),
    distribution=(
        "a = 12 where z >= 0 and 3 elsewhere; "
        "z is a Gaussian field with covariance (-Laplace + 9)^-2 and zero Neumann conditions"
    ),
    symmetries=("flip_row", "flip_column", "transpose"),
    untested="errors of other permeabilities than 3 and 12 and of other sources than 1; other shapes than the square",
)


SOURCE = Quantity(name="source", meaning="source of the flow", default=1.0)


def sample(seed: np.random.SeedSequence, mesh: int) -> Fields:
    """Draw a permeability on the cell centres of a mesh, and its pressure."""
    coefficient, solution = darcy.sample(seed, mesh)
    return {"coefficient": coefficient, "solution": solution}


def vary(rng: np.random.Generator, mesh: int) -> Fields:
    """Draw a smooth source on the cell centres of a mesh."""
    return {"source": darcy.smooth_source(mesh, rng)}


def solve(inputs: Fields, conditions: Conditions) -> Fields:
    """Solve by finite volumes on the permeability's grid."""
    source = inputs.get("source", 1.0)
    return {"solution": darcy.solve(inputs["coefficient"].astype(float), source, wall=conditions.wall)}


PROBLEM = Problem(
    description=DESCRIPTION,
    grid_points="x_i = (i + 1/2)/{mesh} on each axis: cell centres",
    sampler=sample,
    baseline=Baseline(
        "five-point finite volumes on the same grid, conjugate gradients preconditioned by fast diagonalisation, to a "
        "residual of 1e-10",
        solve,
    ),
    published=MatlabFiles(
        train="piececonst_r421_N1024_smooth1.mat",
        test="piececonst_r421_N1024_smooth2.mat",
        arrays={"coefficient": "coeff", "solution": "sol"},
        points="x_i = (i + 1/2)/421 on each axis: cell centres",
    ),
    optional=(SOURCE,),
    vary=vary,
    energy_weight="coefficient",
)
