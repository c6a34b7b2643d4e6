"""Darcy flow inverted: the permeability, averaged over blocks, to a measured pressure."""

from __future__ import annotations

from physics import inversion
from schema.parts import Parameter, Quantity
from training.problems import darcy
from training.problems.problem import Baseline, Conditions, Fields, Problem

OUTPUT_GRID = (36, 36)

DESCRIPTION = darcy.DESCRIPTION.model_copy(
    update={
        "name": "darcy_inverse",
        "title": "Darcy flow inverted: measured pressure to permeability",
        "equation": "-div(a grad u) = 1 on the unit square",
        "inputs": darcy.DESCRIPTION.outputs,
        "outputs": (Quantity(name="coefficient", meaning="permeability averaged over blocks", positive=True),),
        "points": (
            f"{darcy.DESCRIPTION.points}; the output's block j of 36 covers the cells 12j-4 to 12j+7 of the 421 on "
            "each axis, as far as they are inside"
        ),
        "distribution": f"{darcy.DESCRIPTION.distribution}; u is the pressure to it",
        "output_grid": OUTPUT_GRID,
        "untested": (
            "other materials than 3 and 12, or for equivariant operators than these times one number; other sources "
            "than 1, noise that neighbours share"
        ),
    }
)

NOISE = Parameter(
    name="noise",
    meaning="standard deviation of the pressure's noise, its root mean square over the points; -1: not known",
    default=-1.0,
    minimum=-1.0,
)


def solve(inputs: Fields, conditions: Conditions) -> Fields:
    """Invert by total variation on the pressure's grid; the noise's deviation is known."""
    found = inversion.invert(inputs["solution"], noise=conditions.noise, points=OUTPUT_GRID, wall=conditions.wall)
    return {"coefficient": found}


PROBLEM = Problem(
    description=DESCRIPTION,
    baseline=Baseline(
        "total variation on the same grid, given the noise's deviation; adjoint gradients, L-BFGS-B",
        solve,
        slow=True,
        noise=True,
    ),
    samples_of=darcy.PROBLEM,
    optional=(NOISE,),
)
