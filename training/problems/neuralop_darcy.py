"""Darcy flow in the set of the neuraloperator library: the pressure to a material of two kinds on coarse grids."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from physics import darcy
from training.problems.darcy import DESCRIPTION as DARCY
from training.problems.problem import Attributes, Baseline, Conditions, Fields, Problem
from training.problems.schema import Axis, Description, GridLimits, Quantity
from training.published.neuralop import NeuralopWheel

POINTS = "x_i = (512 i/n + 1/2)/512 per axis: cell centres of a 512-cell mesh, strided; none at the far wall"
CELLS = 256
"""Cells per axis of the mesh that the classical method solves on."""

DESCRIPTION = Description(
    name="neuralop_darcy",
    title="Darcy flow in the set of the neuraloperator library: material to pressure",
    equation="-div(a grad u) = f on the unit square; f/a = 50 where the material is 0, 2.78 where it is 1",
    boundary=DARCY.boundary,
    inputs=(Quantity(name="material", meaning="0 or 1: which of two permeabilities, 18 times apart"),),
    outputs=DARCY.outputs,
    axes=(
        Axis(name="row", boundary="wall", points="left"),
        Axis(name="column", boundary="wall", points="left"),
    ),
    points=POINTS,
    grid=GridLimits(minimum=8, maximum=64, declared=(16, 32)),
    distribution="the 1000 training fields of 16 x 16 points in the wheel of neuraloperator 0.3.0",
    symmetries=DARCY.symmetries,
    untested="other pairs of permeabilities, coarser materials than the set's",
)


def solve(inputs: Fields, conditions: Conditions) -> Fields:
    """Solve on a finer mesh whose cells have the material of the nearest grid point."""
    del conditions
    return {"solution": solve_material(inputs["material"])}


def solve_material(material: NDArray[Any], cells: int = CELLS) -> NDArray[np.float64]:
    """Compute the pressure of a material.

    Args:
        material: 0 and 1 `[row, column]` at the points i/n + 1/1024.
        cells: Cells per axis of the finer mesh.

    Returns:
        The pressure `[row, column]` at the same points.
    """
    centres = (np.arange(cells) + 0.5) / cells
    points = [np.arange(side) / side + 0.5 / 512 for side in material.shape]
    nearest = np.ix_(*(np.abs(centres[:, None] - along).argmin(axis=1) for along in points))
    solution = darcy.solve(np.where(material[nearest] > 0, 1 / 2.78, 1 / 50), wall=0.5 / cells)
    down, across = (np.stack([np.interp(along, centres, unit) for unit in np.eye(cells)], axis=1) for along in points)
    return np.asarray(down @ solution @ across.T)


def attributes(mesh: int) -> Attributes:
    """Return the positions of the stored points, in words."""
    del mesh
    return {"points": POINTS}


PROBLEM = Problem(
    description=DESCRIPTION,
    baseline=Baseline("five-point finite volumes on 256 x 256 cells, each of its nearest grid point's material", solve),
    attributes=attributes,
    published=NeuralopWheel("material", "solution", POINTS),
)
