r"""Potential flow around bodies that are given as surface meshes, by flat panels, and random bodies to solve it for.

A body that moves with the unit velocity :math:`e` through fluid at rest moves it by the gradient of a potential,

.. math::
    \Delta \varphi = 0, \qquad \partial_n \varphi = e \cdot n, \qquad \varphi \to 0,

with the normal n into the fluid. Green's formula on the surface S, with :math:`G = 1 / (4 \pi r)`,

.. math::
    \tfrac12 \varphi(x) - \int_S \varphi\, \partial_{n'} G \,dS' = -\int_S G\, (e \cdot n') \,dS',

is collocated at the middle of every triangle, on which the potential is constant. The integrals over triangles are
exact: that of the double layer is a solid angle (van Oosterom and Strackee, IEEE Trans. Biomed. Eng. 30, 1983), that of
the single layer follows from it and logarithms of the edges. The added mass is of second order in the size of the
triangles, the potential of order 1.7 and the pressure of order 1.1 in the root mean square over the points. At the
twelve points of `sphere` at which five triangles meet instead of six, the pressure does not converge: there it stays
0.08 off.

The fluid that streams past the body at rest has the velocity :math:`\nabla (\varphi - e \cdot x)` and, by Bernoulli's
equation, the pressure coefficient :math:`c_p = 1 - |\nabla (\varphi - e \cdot x)|^2`. There is no drag in a potential
flow. What a shape changes is the mass of fluid that it has to accelerate, the added mass
:math:`m = -\int_S \varphi\, (e \cdot n)\, dS`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Points = NDArray[np.float64]
Triangles = NDArray[np.int64]
TINY = 1e-14  # beside the square of a length: what keeps logarithms finite on the line of an edge
GOLDEN = (1 + math.sqrt(5)) / 2


@dataclass(frozen=True)
class Flow:
    """The flow past a body along the first axis, in units of its speed and of the density.

    Attributes:
        potential: Of the body's own motion along the axis `[point]`.
        pressure: The coefficient of the pressure where the body is at rest `[point]`.
        added_mass: Of the fluid that the body moves.
    """

    potential: NDArray[np.float64]
    pressure: NDArray[np.float64]
    added_mass: float


def solve(points: Points, triangles: Triangles) -> Flow:
    """Solve for the flow past a closed surface, whose triangles run counterclockwise as seen from the fluid."""
    normals, areas = faces(points, triangles)
    single, double = layers(points, triangles, normals)
    flux = normals[:, 0]
    of_faces = np.linalg.solve(0.5 * np.eye(len(areas)) - double, -single @ flux)
    around = weights(len(points), triangles, areas)
    potential = around @ of_faces
    slopes = gradients(points, triangles, normals, areas, potential - points[:, 0])
    velocity = around @ slopes
    normal = around @ normals
    normal /= np.linalg.norm(normal, axis=1, keepdims=True)
    velocity -= (velocity * normal).sum(axis=1, keepdims=True) * normal
    return Flow(potential, 1 - np.square(velocity).sum(axis=1), -float((of_faces * flux * areas).sum()))


def faces(points: Points, triangles: Triangles) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return unit normals `[triangle, 3]` and areas `[triangle]`."""
    a, b, c = (points[triangles[:, corner]] for corner in range(3))
    across = np.cross(b - a, c - a)
    twice = np.linalg.norm(across, axis=1)
    return across / twice[:, None], twice / 2


def layers(
    points: Points, triangles: Triangles, normals: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the integrals of G and of its normal derivative over every triangle, seen from the middle of each.

    Both are `[seen from, over]`.
    """
    corners = [points[triangles[:, corner]] for corner in range(3)]
    middles = (corners[0] + corners[1] + corners[2]) / 3
    rays = [corner[None] - middles[:, None] for corner in corners]
    lengths = [np.linalg.norm(ray, axis=2) for ray in rays]
    height = (rays[0] * normals).sum(axis=2)  # of the triangle's plane above the middle, along its normal
    np.fill_diagonal(height, 0)
    a, b, c = rays
    volume = (a * np.cross(b, c)).sum(axis=2)
    spread = math.prod(lengths)
    for first, second, third in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
        spread = spread + (rays[first] * rays[second]).sum(axis=2) * lengths[third]
    angle = 2 * np.arctan2(volume, spread)
    np.fill_diagonal(angle, 0)  # a flat triangle sees itself edge on
    found = -np.abs(height * angle)
    np.fill_diagonal(found, 0)
    for first, second in ((0, 1), (1, 2), (2, 0)):
        edge = corners[second] - corners[first]
        length = np.linalg.norm(edge, axis=1)
        out = np.cross(edge / length[:, None], normals)  # in the plane, away from the triangle
        reach = (rays[first] * out).sum(axis=2)
        both = lengths[first] + lengths[second]
        found += reach * np.log((both + length) / np.maximum(both - length, TINY * length))
    return found / (4 * math.pi), -angle / (4 * math.pi)


def weights(count: int, triangles: Triangles, areas: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the shares of the triangles around each point in its mean, by area: `[point, triangle]`."""
    found = np.zeros((count, len(triangles)))
    found[triangles, np.arange(len(triangles))[:, None]] = areas[:, None]
    return np.asarray(found / found.sum(axis=1, keepdims=True))


def gradients(
    points: Points,
    triangles: Triangles,
    normals: NDArray[np.float64],
    areas: NDArray[np.float64],
    values: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return the gradients along the surface `[triangle, 3]` of values at the points, linear on every triangle."""
    a, b, c = (points[triangles[:, corner]] for corner in range(3))
    edges = (c - b, a - c, b - a)  # each opposite to a corner
    turned = (np.cross(normals, edge) * values[triangles[:, corner], None] for corner, edge in enumerate(edges))
    return np.asarray(sum(turned) / (2 * areas[:, None]))


def sphere(frequency: int) -> tuple[Points, Triangles]:
    """Return the unit sphere as an icosahedron, the edges of whose faces are divided so often: 10 f^2 + 2 points."""
    short = [(0, sign, far * GOLDEN) for sign in (-1, 1) for far in (-1, 1)]
    corners = np.array([np.roll(each, turn) for turn in range(3) for each in short])
    near = np.linalg.norm(corners[:, None] - corners, axis=2) < 2.1
    sides = [
        (i, j, k)
        for i in range(12)
        for j in range(i + 1, 12)
        for k in range(j + 1, 12)
        if near[i, j] and near[j, k] and near[i, k]
    ]
    places: list[NDArray[np.float64]] = []
    cells: list[tuple[int, int, int]] = []
    for i, j, k in sides:
        a, b, c = corners[[i, j, k]]
        if np.linalg.det([a, b, c]) < 0:
            b, c = c, b
        start = {(u, v): len(places) + at for at, (u, v) in enumerate(_inside(frequency))}
        places += [(u * b + v * c + (frequency - u - v) * a) / frequency for u, v in _inside(frequency)]
        for u, v in _inside(frequency - 1):
            cells.append((start[u, v], start[u + 1, v], start[u, v + 1]))
            if u + v < frequency - 1:
                cells.append((start[u + 1, v], start[u + 1, v + 1], start[u, v + 1]))
    every = np.array(places)
    every /= np.linalg.norm(every, axis=1, keepdims=True)
    _, first, to = np.unique(every.round(9), axis=0, return_index=True, return_inverse=True)
    return every[first], to.ravel()[np.array(cells)]


def _inside(frequency: int) -> list[tuple[int, int]]:
    return [(u, v) for u in range(frequency + 1) for v in range(frequency + 1 - u)]


def body(rng: np.random.Generator, frequency: int) -> tuple[Points, Triangles]:
    """Draw an ellipsoid with half axes of 0.5 to 1.5 and a few smooth bumps and hollows."""
    points, triangles = sphere(frequency)
    size = np.ones(len(points))
    for _ in range(4):
        towards = rng.standard_normal(3)
        towards /= np.linalg.norm(towards)
        size += rng.uniform(-0.2, 0.25) * np.exp(rng.uniform(2, 5) * (points @ towards - 1))
    return points * size[:, None] * rng.uniform(0.5, 1.5, 3), triangles
