r"""The trajectories of the comparison on meshes: heat, advection-diffusion and a flow, by finite elements of ours.

.. math::
    \text{heat: } & \dot u = \Delta u + f, \qquad u = 0 \text{ on the edge} \\
    \text{drift: } & \dot u + w \cdot \nabla u = \kappa \Delta u, \qquad \partial_n u = 0, \quad w \cdot n = 0 \\
    \text{cavity: } & \dot v + v \cdot \nabla v = \nu \Delta v - \nabla p, \qquad \nabla \cdot v = 0

Heat and drift are on star-shaped domains (`physics.stars`) with linear elements; heat is exact in time, drift by the
trapezoidal rule. Its wind is the curl of a stream function that is 0 on the edge, so no heat leaves. The flow is in a
square with a round obstacle, below a lid that slides at a speed of its own: Taylor-Hood elements of scikit-fem,
convection by the second method of Adams and Bashforth, the rest by the trapezoidal rule; velocities at the corners of
the triangles are kept.

`python -m benchmarks.mesh_solvers NAME FOLDER` writes `NAME.npz`: `xy`, `n`, `triangles`, `boundary`, `distance`, the
trajectories `[sample, frame, point, (component)]`, and steady fields and numbers; padding is 0, of triangles -1.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import bmat, coo_matrix, csr_matrix
from scipy.sparse.linalg import splu
from scipy.spatial import Delaunay

from physics.numerics.cells import distance
from physics.stars import assembled, cool, mesh, solve

Array = NDArray[Any]
Sample = dict[str, Array]

FRAMES, SAMPLES = 50, 260
RINGS = (9, 12)  # 271 to 469 points of a star
STEPS = {"heat": 0.005, "drift": 0.04, "cavity": 0.1}  # between two frames
SUBSTEPS = {"drift": 4, "cavity": 12}
AHEAD = 5  # steps of the flow before its first frame
SIDE = 21  # points on a wall of the cavity


# Heat


def heat(rng: np.random.Generator) -> Sample:
    """Draw a star, a source of heat and a first temperature, and solve."""
    points, triangles, radius = mesh(rng, RINGS)
    source, start = bumps(points, rng), bumps(points, rng) * (1 - radius**4)
    edge = radius > 1 - 1e-9
    last: Array = solve(points, triangles, 10 * source, edge)
    times: Array = STEPS["heat"] * np.arange(FRAMES + 1)
    found = last + cool(points, triangles, start - last, edge, times)
    return {"xy": points, "triangles": triangles, "edge": edge, "source": 10 * source, "heat": found}


def bumps(points: Array, rng: np.random.Generator) -> Array:
    """Draw a sum of three Gaussians."""
    centre, width = rng.uniform(-0.7, 0.7, (3, 2)), rng.uniform(0.2, 0.5, 3)
    squares = ((points[:, None] - centre) ** 2).sum(axis=2)
    return np.asarray(np.exp(-squares / (2 * width**2)) @ rng.normal(0, 1, 3))


# Drift


def drift(rng: np.random.Generator) -> Sample:
    """Draw a star, a wind, the diffusion and a first field, and solve."""
    points, triangles, radius = mesh(rng, RINGS)
    stream = (1 - radius**2) * (rng.choice([-1, 1]) * 0.5 + 0.5 * bumps(points, rng))
    kappa, start = float(rng.uniform(0.01, 0.04)), bumps(points, rng)
    found = drifted(points, triangles, stream, kappa, start, STEPS["drift"], FRAMES)
    sample = {"xy": points, "triangles": triangles, "edge": radius > 1 - 1e-9, "dye": found}
    return sample | {"wind": at_nodes(points, triangles, stream), "kappa": np.asarray(kappa)}


def slopes(points: Array, triangles: Array) -> tuple[Array, Array]:
    """Return the gradients `[triangle, corner, 2]` of the linear elements, and the areas."""
    corners = points[triangles]
    sides = np.roll(corners, -1, axis=1) - np.roll(corners, 1, axis=1)  # opposite to each corner
    double = sides[:, 0, 0] * sides[:, 1, 1] - sides[:, 0, 1] * sides[:, 1, 0]
    normals = np.stack([sides[:, :, 1], -sides[:, :, 0]], axis=2)
    return normals / double[:, None, None], np.abs(double) / 2


def winds(points: Array, triangles: Array, stream: Array) -> Array:
    """Return the curl `[triangle, 2]` of a stream function."""
    slope = (slopes(points, triangles)[0] * stream[triangles][:, :, None]).sum(axis=1)
    return np.stack([slope[:, 1], -slope[:, 0]], axis=1)


def at_nodes(points: Array, triangles: Array, stream: Array) -> Array:
    """Return the curl of a stream function at the nodes, the mean of the triangles around each by their areas."""
    area, found, total = slopes(points, triangles)[1], np.zeros_like(points), np.zeros(len(points))
    for corner in range(3):
        np.add.at(found, triangles[:, corner], winds(points, triangles, stream) * area[:, None])
        np.add.at(total, triangles[:, corner], area)
    return np.asarray(found / total[:, None])


def drifted(
    points: Array, triangles: Array, stream: Array, kappa: float, start: Array, step: float, frames: int
) -> Array:
    """Return the fields `[frame, point]` that follow a start, which is the first frame."""
    A, M = assembled(points, triangles)
    slope, area = slopes(points, triangles)
    along = np.einsum("ed,ecd->ec", winds(points, triangles, stream), slope) * area[:, None] / 3
    rows, columns = np.repeat(triangles, 3, axis=1).ravel(), np.tile(triangles, 3).ravel()
    values = np.broadcast_to(along[:, None, :], (len(along), 3, 3)).ravel()
    K = kappa * A + coo_matrix((values, (rows, columns)), shape=A.shape).tocsr()
    half = step / SUBSTEPS["drift"] / 2
    implicit, explicit, found = splu((M + half * K).tocsc()), M - half * K, [start]
    for _ in range(frames):
        following = found[-1]
        for _ in range(SUBSTEPS["drift"]):
            following = implicit.solve(explicit @ following)
        found.append(following)
    return np.stack(found)


# Flow


def cavity(rng: np.random.Generator) -> Sample:
    """Draw an obstacle, the speed of the lid, the viscosity and a first flow, and solve."""
    centre, radius = rng.uniform(0.35, 0.65, 2), float(rng.uniform(0.08, 0.16))
    points, triangles = with_hole(centre, radius, rng)
    lid, viscosity = float(rng.uniform(0.5, 1.25)), float(rng.uniform(0.002, 0.006))
    substeps = SUBSTEPS["cavity"]
    flow = Flow(points, triangles, viscosity, STEPS["cavity"] / substeps)
    x, y = flow.places
    middle, width, turn = rng.uniform(0.2, 0.8, (3, 2)), rng.uniform(0.1, 0.2, 3), rng.normal(0, 0.12, 3)
    start = np.zeros((2, len(x)))
    for (a, b), size, much in zip(middle, width, turn, strict=True):  # vortices; the first step makes them fit
        bump = much / size * np.exp(-((x - a) ** 2 + (y - b) ** 2) / (2 * size**2))
        start += bump * np.stack([b - y, x - a]) / size
    wall = np.where(y > 1 - 1e-9, lid * 16 * x**2 * (1 - x) ** 2, 0)
    found = flow.run(start, lambda _: np.stack([wall, 0 * wall]), substeps, FRAMES)
    while not np.isfinite(found).all():  # faster than the steps can follow
        substeps *= 2
        flow = Flow(points, triangles, viscosity, STEPS["cavity"] / substeps)
        found = flow.run(start, lambda _: np.stack([wall, 0 * wall]), substeps, FRAMES)
    edge = np.isin(np.arange(len(points)), flow.edge)
    sample = {"xy": points, "triangles": triangles, "edge": edge, "velocity": found}
    return sample | {"lid": np.asarray(lid), "viscosity": np.asarray(viscosity)}


def with_hole(centre: Array, radius: float, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return points and triangles of the unit square without a disc."""
    width = 1 / (SIDE - 1)
    ends = np.linspace(0, 1, SIDE)
    grid = np.stack(np.meshgrid(ends, ends, indexing="ij"), axis=2).reshape(-1, 2)
    inner: Array = np.asarray(((grid > 0) & (grid < 1)).all(axis=1))
    grid = grid + inner[:, None] * rng.uniform(-0.2 * width, 0.2 * width, grid.shape)
    grid = grid[np.linalg.norm(grid - centre, axis=1) > radius + 0.6 * width]
    count = int(2 * np.pi * radius / width)
    angle = 2 * np.pi * np.arange(count) / count
    points = np.concatenate([grid, centre + radius * np.stack([np.cos(angle), np.sin(angle)], axis=1)])
    triangles = Delaunay(points).simplices
    triangles = triangles[~(triangles >= len(grid)).all(axis=1)]  # not those inside of the disc
    thick = slopes(points, triangles)[1] > 1e-3 * width**2  # on the walls three points may be on a line
    return points, triangles[thick].astype(np.int64)


class Flow:
    """An incompressible flow at rest on its edge but for what slides there, by Taylor-Hood elements.

    Args:
        points: Corners of the triangles `[point, 2]`.
        triangles: `[triangle, 3]`.
        viscosity: Over the density.
        step: Of time.

    Attributes:
        places: Of the velocity's nodes, x and y.
        edge: Corners on the edge.
    """

    def __init__(self, points: Array, triangles: Array, viscosity: float, step: float) -> None:
        import skfem  # noqa: PLC0415 -- only the environment of this project has it
        from skfem.helpers import dot, grad  # noqa: PLC0415

        logging.getLogger("skfem").setLevel(logging.ERROR)
        net = skfem.MeshTri(points.T.copy(), triangles.T.copy())
        fine = skfem.Basis(net, skfem.ElementTriP2(), intorder=5)
        coarse = skfem.Basis(net, skfem.ElementTriP1(), intorder=5)
        mass = skfem.BilinearForm(lambda u, v, _: u * v).assemble(fine)
        stiffness = skfem.BilinearForm(lambda u, v, _: dot(grad(u), grad(v))).assemble(fine)
        pressed = [skfem.BilinearForm(lambda u, v, _, k=k: grad(u)[k] * v).assemble(fine, coarse) for k in (0, 1)]
        self.step, self.places = step, np.asarray(fine.doflocs)
        self.edge, self.fixed = net.boundary_nodes(), fine.get_dofs().all()
        self.corners = np.asarray(fine.nodal_dofs[0])
        self.count = fine.N
        self.values, *self.slopes = at_quadrature(fine)
        self.weights = np.asarray(fine.dx).ravel()
        self.explicit = (mass - step / 2 * viscosity * stiffness).tocsr()
        first = mass / step + viscosity * stiffness  # of a step that is implicit alone
        later = mass / step + viscosity / 2 * stiffness
        self.free = np.setdiff1d(np.arange(2 * fine.N + coarse.N - 1), np.r_[self.fixed, self.fixed + fine.N])
        divergence = [each[1:] for each in pressed]  # the pressure of the first corner is 0
        self.mass = mass
        self.systems: list[tuple[Any, Any]] = []
        for block in (first, later):
            none = csr_matrix(block.shape)
            rows = [[block, none, -divergence[0].T], [none, block, -divergence[1].T], [*divergence, None]]
            whole: Any = bmat(rows, format="csr")
            self.systems.append((whole, splu(whole[self.free][:, self.free].tocsc())))

    @np.errstate(all="ignore")
    def run(self, start: Array, wall: Callable[[float], Array], substeps: int, frames: int) -> Array:
        """Return velocities `[frame, corner, 2]` from the flow on that a few steps make of a start `[2, node]`.

        `wall` returns the velocities `[2, node]` at a time, of which those on the edge count. Where the explicit part
        of a step cannot follow the flow, no frame is a number.
        """
        current, time, found = self.moved(start, self.mass @ start.T / self.step, wall(0.0), 0), 0.0, list[Array]()
        before = self.convection(current)
        for number in range(AHEAD + substeps * frames + 1):
            if number >= AHEAD and (number - AHEAD) % substeps == 0:
                found.append(current[:, self.corners].T)
            now, time = self.convection(current), time + self.step
            load = self.explicit @ current.T / self.step - (1.5 * now - 0.5 * before).T
            current, before = self.moved(current, load, wall(time), 1), now
            if not np.isfinite(current).all():
                return np.full((frames + 1, len(self.corners), 2), np.nan)
        return np.stack(found)

    def moved(self, current: Array, load: Array, wall: Array, system: int) -> Array:
        """Return the flow after a step with a load `[node, 2]`."""
        whole, factors = self.systems[system]
        unknown = np.zeros(whole.shape[0])
        for axis in (0, 1):
            unknown[self.fixed + axis * self.count] = wall[axis, self.fixed]
        right = np.concatenate([*load.T, np.zeros(whole.shape[0] - 2 * self.count)]) - whole @ unknown
        unknown[self.free] = factors.solve(right[self.free])
        return np.asarray(unknown[: 2 * self.count].reshape(current.shape))

    def convection(self, flow: Array) -> Array:
        r"""Return the integrals `[2, node]` of :math:`v \cdot \nabla v` with every element."""
        u, v = (self.values @ each for each in flow)
        found = [u * (self.slopes[0] @ each) + v * (self.slopes[1] @ each) for each in flow]
        return np.stack([self.values.T @ (self.weights * each) for each in found])


def at_quadrature(basis: Any) -> tuple[csr_matrix, csr_matrix, csr_matrix]:
    """Return the matrices from the nodes of a scalar basis to values and both slopes at its points of quadrature."""
    cells, per = basis.dx.shape
    rows = np.arange(cells * per)
    parts: list[list[Array]] = [[], [], []]
    for (element,) in basis.basis:
        values = (np.asarray(element), element.grad[0], element.grad[1])
        for part, each in zip(parts, values, strict=True):
            part.append(np.broadcast_to(each, (cells, per)).ravel())
    columns = np.concatenate([np.repeat(each, per) for each in basis.element_dofs])
    every = np.tile(rows, len(basis.basis))
    made = [coo_matrix((np.concatenate(part), (every, columns)), shape=(len(rows), basis.N)).tocsr() for part in parts]
    return made[0], made[1], made[2]


# Files

SOLVERS: dict[str, Callable[[np.random.Generator], Sample]] = {"heat": heat, "drift": drift, "cavity": cavity}


def write(name: str, folder: Path, samples: int = SAMPLES) -> Path:
    """Write the trajectories of a solver, padded to one number of points."""
    made = [SOLVERS[name](np.random.default_rng([[*SOLVERS].index(name), number])) for number in range(samples)]
    for one in made:
        edge = one.pop("edge")
        one |= {"boundary": edge.astype(np.float64), "distance": distance(one["xy"], edge)}
    arrays = {key: padded([one[key] for one in made], -1 if key == "triangles" else 0) for key in made[0]}
    n = np.asarray([len(one["xy"]) for one in made])
    path = folder / f"{name}.npz"
    folder.mkdir(parents=True, exist_ok=True)
    aside = path.with_suffix(".part.npz")  # an interrupted run leaves no file that looks complete
    small: dict[str, Any] = {
        key: each.astype(np.float32) if each.dtype == np.float64 else each for key, each in arrays.items()
    }
    np.savez(aside, n=n, **small)
    aside.replace(path)
    return path


def padded(values: list[Array], value: int) -> Array:
    """Return arrays of unequal sizes as one with a value at padding."""
    if not values[0].ndim:
        return np.stack(values)
    found = np.full((len(values), *np.max([each.shape for each in values], axis=0)), value, values[0].dtype)
    for row, each in zip(found, values, strict=True):
        row[tuple(slice(side) for side in each.shape)] = each
    return found


if __name__ == "__main__":
    write(sys.argv[1], Path(sys.argv[2]), *map(int, sys.argv[3:]))
