r"""Poisson's equation on star-shaped domains of any size, by linear finite elements: samples on unequal meshes.

.. math::
    -\Delta u = f \text{ inside}, \qquad u = 0 \text{ on } r(\theta) = R \exp \sum_k a_k \cos(k\theta + \phi_k)

The domain is the image of a disc with rings of nodes, six more on every ring, so that a finer mesh has more points. It
is made for examples and tests of data on meshes: every sample has a mesh, a size and a number of points of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import eigh
from scipy.sparse import coo_matrix, csr_matrix
from scipy.sparse.linalg import spsolve
from scipy.spatial import Delaunay

if TYPE_CHECKING:
    from numpy.typing import NDArray

WAVES = 5  # of the boundary


@dataclass(frozen=True)
class Star:
    """A sample: nodes `points` `[point, 2]`, `triangles` `[triangle, 3]`, and f and u `[point]` at the nodes."""

    points: NDArray[np.float64]
    triangles: NDArray[np.int64]
    source: NDArray[np.float64]
    solution: NDArray[np.float64]


def sample(rng: np.random.Generator, rings: tuple[int, int] = (9, 27)) -> Star:
    """Draw a domain, a mesh of so many rings, n of which have 3n(n + 1) + 1 nodes, and a source, and solve.

    Example:
        >>> star = sample(np.random.default_rng(0), rings=(4, 4))
        >>> star.points.shape, star.triangles.shape
        ((61, 2), (96, 3))
    """
    points, triangles, radius = mesh(rng, rings)
    centre, width = rng.uniform(-0.7, 0.7, (3, 2)), rng.uniform(0.2, 0.6, 3)
    squares = ((points[:, None] - centre) ** 2).sum(axis=2)
    source = 1 + np.exp(-squares / (2 * width**2)) @ rng.normal(0, 4, 3)
    return Star(points, triangles, source, solve(points, triangles, source, radius > 1 - 1e-9))


def mesh(
    rng: np.random.Generator, rings: tuple[int, int]
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]:
    """Draw a domain with a mesh of so many rings: nodes, triangles, and how far out each node is, 1 on the edge.

    Example:
        >>> points, triangles, radius = mesh(np.random.default_rng(0), rings=(4, 4))
        >>> points.shape, triangles.shape, (radius > 1 - 1e-9).sum()
        ((61, 2), (96, 3), np.int64(24))
    """
    count = int(rng.integers(rings[0], rings[1] + 1))
    radius = np.concatenate([[0.0], *(np.full(6 * ring, ring / count) for ring in range(1, count + 1))])
    angle = np.concatenate([[0.0], *(2 * np.pi * np.arange(6 * ring) / (6 * ring) for ring in range(1, count + 1))])
    k = np.arange(2, 2 + WAVES)
    amplitude, phase = rng.normal(0, 0.35, WAVES) / k, rng.uniform(0, 2 * np.pi, WAVES)
    size = rng.uniform(0.6, 1.4)
    edge = size * np.exp(np.cos(angle[:, None] * k + phase) @ amplitude)
    disc = radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    points, triangles = edge[:, None] * disc, Delaunay(disc).simplices.astype(np.int64)
    return points, triangles, radius


def solve(
    points: NDArray[np.float64], triangles: NDArray[np.int64], source: NDArray[np.float64], fixed: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Return the nodal values `[point]` of the linear finite elements' solution, 0 at the fixed nodes."""
    A, M = assembled(points, triangles)
    free = np.flatnonzero(~fixed)
    found = np.zeros(len(points))
    found[free] = spsolve(A[free][:, free], (M @ source)[free])
    return found


def cool(
    points: NDArray[np.float64],
    triangles: NDArray[np.int64],
    start: NDArray[np.float64],
    fixed: NDArray[np.bool_],
    times: NDArray[np.float64],
) -> NDArray[np.float64]:
    r"""Return the temperatures `[time, point]` after a start `[point]`, 0 at the fixed nodes.

    They solve :math:`M \dot u + A u = 0` of linear finite elements exactly in time: every mode decays at its own rate.
    """
    A, M = (each.toarray() for each in assembled(points, triangles))
    free = np.flatnonzero(~fixed)
    rates, modes = eigh(A[np.ix_(free, free)], M[np.ix_(free, free)])  # modes.T @ M @ modes = 1
    shares = modes.T @ M[np.ix_(free, free)] @ start[free]
    found = np.zeros((len(times), len(points)))
    found[:, free] = (np.exp(-np.multiply.outer(times, rates)) * shares) @ modes.T
    return found


def assembled(points: NDArray[np.float64], triangles: NDArray[np.int64]) -> tuple[csr_matrix, csr_matrix]:
    """Return the stiffness and the mass matrix of linear finite elements."""
    corners = points[triangles]
    sides = np.roll(corners, -1, axis=1) - np.roll(corners, 1, axis=1)  # opposite to each corner
    one, two = sides[:, 0], sides[:, 1]
    area = 0.5 * np.abs(one[:, 0] * two[:, 1] - one[:, 1] * two[:, 0])
    stiffness = np.einsum("eix,ejx->eij", sides, sides) / (4 * area[:, None, None])
    mass = (np.ones((3, 3)) + np.eye(3)) / 12 * area[:, None, None]
    rows, columns = np.repeat(triangles, 3, axis=1).ravel(), np.tile(triangles, 3).ravel()
    shape = (len(points), len(points))
    A, M = (coo_matrix((each.ravel(), (rows, columns)), shape=shape).tocsr() for each in (stiffness, mass))
    return A, M
