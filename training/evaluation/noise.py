"""What an instrument adds: takes samples and a level, gives measured inputs, and the unit of the levels."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from training.data import deviation, strides
from training.data.noise import measured
from training.data.store import Array
from training.evaluation.grids import Sides
from training.problems.problem import Problem
from training.recipes.recipe import DataConfig


def noisy(inputs: Array, noise: float, unit: Array) -> Array:
    """Give inputs `[sample, *grid]` with noise of a level, in `unit`s `[*grid]`: the same draw at every call."""
    if not noise:
        return inputs
    return measured(inputs, unit, (noise,), np.random.default_rng(0))


def noise_units(problem: Problem, data: DataConfig, path: Path, sides: list[Sides]) -> list[Array]:
    """Give the training inputs' deviation at each point of every grid, from the samples' file."""
    fine = deviation(path, data.train, problem)
    steps = (strides(problem, data.mesh, points) for points in sides)
    return [fine[tuple(slice(None, None, step) for step in along)] for along in steps]
