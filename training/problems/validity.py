"""Where figures hold: takes a recipe, gives in words what a network was trained for and what nobody has tried."""

from __future__ import annotations

from training.problems.problem import PROBLEMS
from training.recipes.recipe import Recipe

BEYOND = {
    "darcy": "other permeabilities than 3 and 12, other sources than 1, other shapes than the square",
    "darcy_inverse": "other materials than 3 and 12, other sources than 1, noise that neighbours share",
    "neuralop_darcy": "other pairs of permeabilities, coarser materials than the set's",
    "burgers": "other viscosities and other times, initial velocities much larger or rougher than those drawn",
    "poisson": "sources with finer detail than the cosines drawn, other boxes than the cube",
}


def validity(recipe: Recipe) -> dict[str, str]:
    """Give a card's limits of validity."""
    problem, data = PROBLEMS[recipe.problem], recipe.data
    grids = " and ".join(map(str, data.grids))
    levels = [f"{100 * level:g} %" for level in recipe.fit.levels if level]
    return {
        "trained": (
            f"{problem.distribution}; points per axis: {grids}; noise: {' and '.join(levels) if levels else 'none'}"
        ),
        "measured": "on test fields of the same distribution, on the grids in `errors`; other grids are interpolated",
        "not tried": BEYOND[problem.name],
    }
