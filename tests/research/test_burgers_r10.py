"""Burgers' equation at the viscosity that the papers print."""

from __future__ import annotations

import numpy as np

from physics import burgers
from training import recipes
from training.problems.problem import PROBLEMS, Conditions

PROBLEM = PROBLEMS["burgers_r10"]


def test_a_sample_is_the_spectral_solution_at_a_viscosity_of_a_tenth() -> None:
    sample = PROBLEM.sample(np.random.SeedSequence(1), 256)
    truth = burgers.solve(sample["initial"], viscosity=0.1, step=1e-3)
    scale = np.abs(truth).max()
    np.testing.assert_allclose(sample["final"], truth, atol=1e-7 * scale)
    solved = PROBLEM.solve({"initial": sample["initial"]}, Conditions(256))["final"]
    np.testing.assert_allclose(solved, truth, atol=1e-7 * scale)
    assert "nu = 0.1," in PROBLEM.description.equation


def test_the_published_recipe_takes_it_by_name() -> None:
    recipe = recipes.read(recipes.find("burgers-paper"), ['problem="burgers_r10"', "data.grids=[512]"])
    assert recipe.problem == "burgers_r10"
