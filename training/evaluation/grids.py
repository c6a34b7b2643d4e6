"""The grids that a model is measured on."""

from __future__ import annotations

from training.data import grids
from training.problems.description import Description
from training.recipes.recipe import DataConfig

Sides = tuple[int, ...]


def measured_grids(description: Description, data: DataConfig) -> list[Sides]:
    """Return the trained and declared grids that the stored mesh can be strided to, and on a plane an oblong one."""
    sides = sorted({*data.grids, *description.grid.declared}.intersection(grids(description, data.mesh)))
    axes = len(description.axes)
    middle = len(sides) // 2
    oblong = [tuple(sides[middle - 1 : middle + 1])] if axes == 2 and len(sides) > 1 else []
    return [*((n,) * axes for n in sides), *oblong]
