"""The eigenvectors of an axis are computed from its number of points alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from physics.numerics import volumes
from physics.numerics.grid import WALL
from training.nn.elliptic.certified_gradients import SPECTRUM
from training.nn.elliptic.fast_diagonalisation import axis


def stiffness(points: int, wall: float) -> torch.Tensor:
    inverse = 1 / volumes.distances(points, wall)
    beside = np.diag(inverse[1:-1], 1)
    return torch.from_numpy(np.diag(inverse[1:] + inverse[:-1]) - beside - beside.T)


@pytest.mark.parametrize("points", [15, 16, 29, 85, 141, 211, 300, 418, 419, 420, 421])
@pytest.mark.parametrize("equal_cells", [True, False])
def test_the_preconditioner_inverts_the_finite_volumes(points: int, equal_cells: bool) -> None:
    wall = 0.5 / points if equal_cells else WALL
    found = axis(torch.arange(points), wall, torch.float32)
    scaled = found.vectors.double() / found.eigenvalues.double().sqrt()
    spectrum = torch.linalg.eigvalsh(scaled.T @ stiffness(points, wall) @ scaled)
    assert (spectrum - 1).abs().max() < SPECTRUM


@pytest.mark.parametrize("points", [15, 85, 421])
def test_widths_distances_and_eigenvectors_are_those_of_the_physics(points: int) -> None:
    found = axis(torch.arange(points), WALL, torch.float64)
    torch.testing.assert_close(found.widths, torch.from_numpy(volumes.widths(points, WALL)))
    torch.testing.assert_close(found.distances, torch.from_numpy(volumes.distances(points, WALL)))
    products = found.vectors.T @ (found.widths[:, None] * found.vectors)
    torch.testing.assert_close(products, torch.eye(points, dtype=torch.float64), rtol=0, atol=1e-6)
