r"""Steady heat by scikit-fem: conductivity, source and wind to temperature, with walls and a periodic axis.

.. math::
    -\nabla\cdot(k\nabla T) + w\,\partial_x T = f

on [0, 1] x [0, 2]. T is 0 on both walls y = 0 and y = 1, and periodic in x. Bilinear elements on twice the 24 x 32
cells of the data, each of which has one value of k and f; T is stored at the cells' centres.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
import skfem
from scipy.sparse import csr_matrix
from scipy.sparse.linalg import splu
from skfem.helpers import dot, grad

from benchmarks.own_data.solvers.random_fields import random_fields

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.random import Generator
    from numpy.typing import NDArray

ROWS, COLUMNS = 24, 32
HEIGHT, WIDTH = 1.0, 2.0


def conduction(u: Any, v: Any, w: Any) -> Any:
    """Return conduction and wind."""
    return w["k"] * dot(grad(u), grad(v)) + w["wind"] * grad(u)[0] * v


def source(v: Any, w: Any) -> Any:
    """Return the source."""
    return w["f"] * v


STIFFNESS, LOAD = skfem.BilinearForm(conduction), skfem.LinearForm(source)


class Solver:
    """The mesh, and what depends on it alone."""

    def __init__(self) -> None:
        across, up = (np.linspace(0, *each) for each in ((WIDTH, 2 * COLUMNS + 1), (HEIGHT, 2 * ROWS + 1)))
        self.basis = skfem.Basis(skfem.MeshQuad.init_tensor(across, up), skfem.ElementQuad1())
        x, y = np.asarray(self.basis.global_coordinates())
        self.cells = (np.floor(y / HEIGHT * ROWS).astype(int), np.floor(x / WIDTH * COLUMNS).astype(int))
        self.periodic, self.free = self.unknowns()
        y, x = np.meshgrid(
            (np.arange(ROWS) + 0.5) / ROWS * HEIGHT, (np.arange(COLUMNS) + 0.5) / COLUMNS * WIDTH, indexing="ij"
        )
        self.probes = self.basis.probes(np.array([x.ravel(), y.ravel()])) @ self.periodic

    def unknowns(self) -> tuple[csr_matrix, NDArray[np.int64]]:
        """Return the map from periodic unknowns to those of the mesh, and which periodic ones are off the walls."""
        x, y = self.basis.doflocs
        points = np.stack([np.where(np.isclose(x, WIDTH), 0, x), y]).round(9)
        unique, inverse = np.unique(points, axis=1, return_inverse=True)
        count = self.basis.N
        expand = csr_matrix((np.ones(count), (np.arange(count), inverse.ravel())), shape=(count, unique.shape[1]))
        return expand, np.flatnonzero((unique[1] > 0) & (unique[1] < HEIGHT))

    def solve(self, k: NDArray[Any], f: NDArray[Any], wind: float) -> NDArray[np.float64]:
        """Return the temperature at the cells' centres, `[row, column]`.

        Args:
            k: The conductivity of each cell, `[row, column]`.
            f: The source of each cell, `[row, column]`.
            wind: The speed along x.
        """
        matrix = self.periodic.T @ STIFFNESS.assemble(self.basis, k=k[self.cells], wind=wind) @ self.periodic
        vector = self.periodic.T @ LOAD.assemble(self.basis, f=f[self.cells])
        free = self.free
        temperature = np.zeros(matrix.shape[0])
        temperature[free] = splu(matrix[free][:, free].tocsc()).solve(vector[free])
        return np.asarray(self.probes @ temperature).reshape(ROWS, COLUMNS)


def write(samples: int, folder: Path, rng: Generator) -> None:
    """Write `heat.h5` with the arrays `k`, `f`, `wind` and `T`.

    Args:
        samples: How many.
        folder: Where to.
        rng: The generator of the inputs.
    """
    shape, periodic = (ROWS, COLUMNS), (False, True)
    k = np.exp(0.8 * random_fields(samples, shape, periodic, 3, 4, rng))
    f = 3 + 5 * random_fields(samples, shape, periodic, 3, 4, rng)
    wind = rng.uniform(-2, 2, samples)
    solver = Solver()
    with h5py.File(folder / "heat.h5", "w") as target:
        target["k"], target["f"], target["wind"] = k, f, wind
        target["T"] = np.stack([solver.solve(*each) for each in zip(k, f, wind, strict=True)])
