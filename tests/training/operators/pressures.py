"""Pressures for the inverse operators: example fields with and without noise, and one of other materials."""

from __future__ import annotations

import numpy as np
import torch

import physics.darcy
from physics.numerics.grid import axis
from training.operators import Operator


def pressure(points: int, seed: int) -> torch.Tensor:
    """Return the pressure `[1, points, points]` of an example permeability."""
    return torch.from_numpy(physics.darcy.example_pressure(points, seed)).float()[None]


def misfits(operator: Operator, high: float) -> tuple[float, float, float]:
    """Return the misfits of a pressure, of the same with 10 % noise, and of one of materials of 1 and `high`."""
    solution = pressure(141, 3)
    rng = np.random.default_rng(0)
    noisy = solution + 0.1 * solution.std() * torch.from_numpy(rng.standard_normal(solution.shape)).float()
    other = physics.darcy.solve(physics.darcy.permeability(np.subtract.outer(axis(141), axis(141)), 1.0, high))
    clean, rough, foreign = (
        operator.with_quality(each)[1].item() for each in (solution, noisy, torch.from_numpy(other)[None].float())
    )
    return clean, rough, foreign
