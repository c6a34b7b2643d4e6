r"""The error in the energy norm of a problem on a plane.

The coefficient a of the equation is an input, as of Darcy's pressure:

.. math::
    e_a = \left(\frac{\int a\,|\nabla e|^2}{\int a\,|\nabla u|^2}\right)^{1/2}

by the quadratic form of the finite volumes on the grid,
:math:`v^T A(a) v = \sum_{faces} a_{face} (v_1 - v_2)^2\, length/distance`, with the mean of both sides' a on a face and
v = 0 on the walls (`physics.numerics.volumes`): the norm in which that method is optimal.
"""

from __future__ import annotations

import torch
from torch import Tensor

from physics.numerics import volumes
from training.metrics.measure import ErrorMeasure, Grid


def relative_energy(prediction: Tensor, truth: Tensor, grid: Grid) -> Tensor:
    """Return e_a of each sample of fields `[batch, row, column]`; it has no gradient."""
    coefficient, pairs = grid.inputs[str(grid.energy_weight)], []
    for a, p, u in zip(*(each.double().cpu().numpy() for each in (coefficient, prediction, truth)), strict=True):
        A, e, v = volumes.matrix(a, grid.wall), (p - u).ravel(), u.ravel()
        pairs.append((e @ (A @ e), v @ (A @ v)))
    error, size = torch.tensor(pairs, dtype=torch.float64).T
    return (error / size).sqrt().to(truth)


METRIC = ErrorMeasure(
    "relative_energy",
    "relative error in the energy norm",
    relative_energy,
    lambda grid: grid.energy_weight in grid.inputs,
)
