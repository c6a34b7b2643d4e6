"""Where to measure: takes a problem and what was trained on, gives the grids."""

from __future__ import annotations

from training.data import grids
from training.problems.problem import Problem
from training.recipes.recipe import DataConfig

Sides = tuple[int, ...]


def measured_grids(problem: Problem, data: DataConfig) -> list[Sides]:
    """Give the trained and the declared grids that the stored mesh can be strided to, and on a plane an oblong one."""
    sides = sorted({*data.grids, *problem.grid.declared}.intersection(grids(problem, data.mesh)))
    axes = len(problem.axes)
    middle = len(sides) // 2
    oblong = [tuple(sides[middle - 1 : middle + 1])] if axes == 2 and len(sides) > 1 else []
    return [*((n,) * axes for n in sides), *oblong]
