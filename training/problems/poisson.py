"""Poisson's equation in space: the potential to a source."""

from __future__ import annotations

import numpy as np

from physics import poisson
from schema.parts import Axis, Quantity
from schema.problem import Description, GridLimits
from training.nn.elliptic.poisson_distance import poisson_bound
from training.problems.problem import Baseline, Conditions, Fields, Problem

DESCRIPTION = Description(
    name="poisson",
    title="Poisson's equation: source to potential in space",
    equation="-Laplace u = f on the unit cube",
    boundary="u = 0 on the boundary",
    inputs=(Quantity(name="source", meaning="source"),),
    outputs=(Quantity(name="potential", meaning="potential"),),
    axes=tuple(Axis(name=name, boundary="wall", points="nodes") for name in ("depth", "row", "column")),
    points="x_i = i/(n-1) per axis, walls included",
    grid=GridLimits(minimum=8, maximum=33, declared=(9, 17, 33)),
    distribution=(
        "the 8 lowest cosines per axis of a Gaussian field with covariance 100 (-Laplace + 9)^-2 "
        "and zero Neumann conditions"
    ),
    symmetries=("flip_depth", "flip_row", "flip_column", "transpose"),
    untested="sources with finer detail than the cosines drawn, other boxes than the cube",
)


def sample(seed: np.random.SeedSequence, mesh: int) -> Fields:
    """Draw a source, and solve for its potential on a finer mesh."""
    source, potential = poisson.sample(seed, mesh)
    return {"source": source, "potential": potential}


def solve(inputs: Fields, conditions: Conditions) -> Fields:
    """Solve by seven-point differences on the source's grid."""
    del conditions
    return {"potential": poisson.solve(inputs["source"])}


PROBLEM = Problem(
    description=DESCRIPTION,
    grid_points="x_i = i/{intervals} on each axis, walls included",
    sampler=sample,
    baseline=Baseline("seven-point differences on the same grid, fast diagonalisation by sine transforms", solve),
    certificate=poisson_bound,
)
