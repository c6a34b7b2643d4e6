r"""Plates with a hole of any shape under tension: samples on meshes, by quadratic finite elements (scikit-fem).

.. math::
    -\nabla\cdot\sigma = 0, \qquad \sigma = 2\mu\,\varepsilon(u) + \lambda\,\mathrm{tr}\,\varepsilon(u)\,I, \qquad
    \sigma n = T n \text{ on the sides}, \qquad \sigma n = 0 \text{ on } r(\theta) = R \exp \sum_k a_k \cos k\theta
    + b_k \sin k\theta

The plate is the square [-1/2, 1/2]^2 in plane stress, pulled along x by a traction of 1. Without forces on the hole the
stress does not depend on the elastic constants (Michell 1899), so it is known for every material. It is linear in the
load: the stress under tension along y is that of the plate turned by a right angle, and under both their sum.

The elements are isoparametric with nine nodes, in rings around the hole. A sample holds the corners of the elements:
about a thousand points, denser at the hole, and the three components of the stress.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import meshio
import numpy as np
import skfem
from numpy.typing import NDArray
from scipy.sparse import csc_matrix
from scipy.sparse.linalg import splu
from skfem.helpers import ddot, dot, eye, sym_grad, trace

Array = NDArray[np.float64]
Stress = Callable[[Array], Array]  # of points [2, ...]: [2, 2, ...]

SIDE = 1.0
WAVES = 5  # the highest wave number of a hole; the lowest is 2, so that holes are about the middle
SIZES = 0.10, 0.25  # of R
ROUGHNESS = 0.25  # the deviation of coefficient k is this times k**-1.5
GAP = 0.1  # least distance between the hole and the sides, along rays
AROUND, RINGS = (56, 64, 72), (14, 18)  # elements around the hole, multiples of eight; least and most rings
YOUNG, POISSON = 1.0, 0.3
ORDER = 5  # of the quadrature, three points per axis


@dataclass(frozen=True)
class Hole:
    """A hole by its radius R and the coefficients a_k and b_k `[wave]` of k = 2, 3 and so on, in the formula above."""

    size: float
    cosines: Array
    sines: Array

    def radius(self, angle: Array) -> Array:
        """Return the distance of the edge from the middle of the plate."""
        k = np.arange(2, 2 + len(self.cosines))
        turned = angle[..., None] * k
        return np.asarray(self.size * np.exp(np.cos(turned) @ self.cosines + np.sin(turned) @ self.sines))


@dataclass(frozen=True)
class Plate:
    """A sample: nodes `points` `[point, 2]`, `cells` `[cell, 4]`, and `stress` `[point, 3]`: xx, yy and xy."""

    points: Array
    cells: NDArray[np.int64]
    stress: Array


def sample(rng: np.random.Generator) -> Plate:
    """Draw a hole and a mesh, and solve.

    Example:
        >>> plate = sample(np.random.default_rng(0))
        >>> plate.points.shape, plate.cells.shape, plate.stress.shape
        ((1224, 2), (1152, 4), (1224, 3))
    """
    hole = draw(rng)
    mesh = mesh_of(hole, int(rng.choice(AROUND)), int(rng.integers(RINGS[0], RINGS[1] + 1)))
    return Plate(corners_of(mesh), mesh.t.T.astype(np.int64), stress_of(mesh))


def write(folder: Path, count: int, seed: int) -> Iterator[Path]:
    """Write samples as `0000.vtu` and so on; those of one seed are the first of any greater number of them."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        plate = sample(np.random.default_rng([seed, number]))
        points = np.column_stack([plate.points, np.zeros(len(plate.points))])
        path = folder / f"{number:04}.vtu"
        meshio.Mesh(points, {"quad": plate.cells}, {"stress": plate.stress}).write(path)
        yield path


def draw(rng: np.random.Generator) -> Hole:
    """Draw a hole that keeps its distance from the sides."""
    deviation = ROUGHNESS * np.arange(2.0, 1 + WAVES) ** -1.5
    angle = np.linspace(0, 2 * np.pi, 256, endpoint=False)
    while True:
        hole = Hole(rng.uniform(*SIZES), rng.normal(0, deviation), rng.normal(0, deviation))
        if (side(angle) - hole.radius(angle)).min() > GAP:
            return hole


def side(angle: Array) -> Array:
    """Return the distance of the plate's sides from its middle."""
    return np.asarray(SIDE / 2 / np.maximum(np.abs(np.cos(angle)), np.abs(np.sin(angle))))


def mesh_of(hole: Hole, around: int, rings: int) -> skfem.MeshQuad2:
    """Return elements in rings around a hole, whose radii grow by a constant factor along every ray.

    The corner of ring i, 0 at the hole, on ray j is number `i * around + j`.

    Args:
        hole: The hole.
        around: How many elements a ring has, a multiple of eight, for the corners of the plate.
        rings: How many rings there are.
    """
    if around % 8:
        raise ValueError(f"expected a multiple of 8 elements around the hole but got {around}")
    ring, ray = (each.ravel() for each in np.meshgrid(np.arange(rings), np.arange(around), indexing="ij"))
    after = (ray + 1) % around
    corners = np.stack(
        [ring * around + ray, (ring + 1) * around + ray, (ring + 1) * around + after, ring * around + after]
    )
    plain = skfem.MeshQuad(np.zeros((2, (rings + 1) * around)), corners, validate=False)
    element = skfem.ElementQuad2()
    outward, turned = element.doflocs.T[:, :, None]  # of the nine nodes in their element
    angle, part = 2 * np.pi * (ray + turned) / around, (ring + outward) / rings
    distance = hole.radius(angle) ** (1 - part) * side(angle) ** part
    nodes = skfem.Dofs(plain, element)
    places = np.zeros((2, nodes.N))
    places[:, nodes.element_dofs] = distance * np.cos(angle), distance * np.sin(angle)
    return skfem.MeshQuad2(places, corners)


def corners_of(mesh: skfem.MeshQuad2) -> Array:
    """Return the corners of the elements, `[point, 2]`."""
    return np.asarray(mesh.p[:, : mesh.t.max() + 1].T)


def tension(points: Array) -> Array:
    """Return the stress of a whole plate under the load, at points `[2, ...]`: 1 along x."""
    found = np.zeros((2, *points.shape))
    found[0, 0] = 1
    return found


def stress_of(mesh: skfem.MeshQuad2, outside: Stress = tension) -> Array:
    """Return the stress `[point, 3]` at the corners of the elements: the mean of the elements that meet there.

    Args:
        mesh: The plate; its hole is free of forces.
        outside: The stress whose tractions act on the sides.
    """
    displacement, basis = displacement_of(mesh, outside)
    corners = skfem.ElementQuad1().doflocs.T
    at_corners = skfem.CellBasis(mesh, basis.elem, quadrature=(corners, np.ones(4)))
    found = hooke(sym_grad(at_corners.interpolate(displacement)))
    parts = np.stack([found[0, 0], found[1, 1], found[0, 1]])  # [3, element, corner]
    count = np.bincount(mesh.t.T.ravel())
    return np.stack([np.bincount(mesh.t.T.ravel(), each.ravel()) / count for each in parts], axis=1)


def displacement_of(mesh: skfem.MeshQuad2, outside: Stress = tension) -> tuple[Array, skfem.CellBasis]:
    """Return the displacements that hold the tractions in balance, and their basis.

    Three displacements are set to 0, which stops rigid motions; since the load is balanced, no force acts there.
    """
    basis = skfem.CellBasis(mesh, skfem.ElementVector(skfem.ElementQuad2()), intorder=ORDER)
    stiffness, load = stiffness_of(basis), load_of(mesh, basis, outside)
    held = np.append(basis.nodal_dofs[:, 0], basis.nodal_dofs[1, mesh.t[1, 0]])  # two nodes on the x axis
    free = np.setdiff1d(np.arange(basis.N), held)
    found = np.zeros(basis.N)
    factors = splu(
        stiffness[free][:, free], permc_spec="MMD_AT_PLUS_A", options={"SymmetricMode": True}
    )  # positive definite
    found[free] = factors.solve(load[free])
    return found, basis


def stiffness_of(basis: skfem.CellBasis) -> csc_matrix:
    """Return the forces of displacements, `[degree of freedom, degree of freedom]`."""
    return skfem.BilinearForm(work).assemble(basis).tocsc()


def load_of(mesh: skfem.MeshQuad2, basis: skfem.CellBasis, outside: Stress = tension) -> Array:
    """Return the forces of the tractions on the sides, by degree of freedom."""
    sides = mesh.facets_satisfying(lambda x: np.isclose(np.abs(x).max(axis=0), SIDE / 2), boundaries_only=True)
    edge = skfem.FacetBasis(mesh, basis.elem, facets=sides)
    traction = skfem.LinearForm(lambda v, w: dot(np.einsum("ij...,j...->i...", outside(np.asarray(w.x)), w.n), v))
    return np.asarray(traction.assemble(edge))


def hooke(strain: Array) -> Array:
    """Return the stress of a strain `[2, 2, ...]` in plane stress."""
    shear = YOUNG / (2 * (1 + POISSON))
    return np.asarray(2 * shear * strain + eye(YOUNG * POISSON / (1 - POISSON**2) * trace(strain), 2))


def work(u: Array, v: Array, _: object) -> Array:
    """Return the work of the stress of u on the strain of v, at points of the elements."""
    return np.asarray(ddot(hooke(sym_grad(u)), sym_grad(v)))
