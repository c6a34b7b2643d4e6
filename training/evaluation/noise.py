"""Noise on the inputs that models are measured with, and the unit of its levels."""

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
    """Add noise, the same draw at every call.

    Args:
        inputs: `[sample, *grid]`.
        noise: Its level, relative to `unit`.
        unit: Standard deviation of the inputs `[*grid]`.

    Returns:
        Noisy inputs `[sample, *grid]`.
    """
    if not noise:
        return inputs
    return measured(inputs, unit, (noise,), np.random.default_rng(0))


def noise_units(problem: Problem, data: DataConfig, path: Path, sides: list[Sides]) -> list[Array]:
    """Compute the training inputs' standard deviation at each point of every grid.

    Args:
        problem: Whose inputs.
        data: The training data.
        path: The samples' file.
        sides: The grids.

    Returns:
        `[*grid]` per grid.
    """
    fine = deviation(path, data.train, problem)
    steps = (strides(problem.description, data.mesh, points) for points in sides)
    return [fine[tuple(slice(None, None, step) for step in along)] for along in steps]
