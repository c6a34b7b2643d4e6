r"""Darcy flow by scikit-fem in the layout of PDEBench: permeability of two materials to pressure.

.. math::
    -\nabla\cdot(\nu\nabla u) = \beta, \qquad \beta = 1

on the unit square with u = 0 on its sides. Bilinear elements on twice the 32 x 32 cells of the data, each of which has
one permeability; u is stored at the cells' centres.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
import skfem
from scipy.sparse.linalg import splu
from skfem.helpers import dot, grad

from benchmarks.own_data.solvers.random_fields import random_fields

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.random import Generator
    from numpy.typing import NDArray

SIDE, REFINEMENT = 32, 2
LOW, HIGH = 0.1, 1.0  # the two permeabilities of PDEBench


def flow(u: Any, v: Any, w: Any) -> Any:
    """Return the flow."""
    return w["nu"] * dot(grad(u), grad(v))


def source(v: Any, _: Any) -> Any:
    """Return the source."""
    return 1.0 * v


STIFFNESS, LOAD = skfem.BilinearForm(flow), skfem.LinearForm(source)


class Solver:
    """The mesh, and what depends on it alone."""

    def __init__(self) -> None:
        ends = np.linspace(0, 1, REFINEMENT * SIDE + 1)
        self.basis = skfem.Basis(skfem.MeshQuad.init_tensor(ends, ends), skfem.ElementQuad1())
        x, y = np.floor(np.asarray(self.basis.global_coordinates()) * SIDE).astype(int)
        self.cells = (x, y)
        self.free = self.basis.complement_dofs(self.basis.get_dofs())
        self.load = LOAD.assemble(self.basis)
        self.centres = (np.arange(SIDE) + 0.5) / SIDE
        self.probes = self.basis.probes(np.stack(np.meshgrid(self.centres, self.centres, indexing="ij")).reshape(2, -1))

    def solve(self, nu: NDArray[Any]) -> NDArray[np.float64]:
        """Return the pressure at the cells' centres.

        Args:
            nu: The permeability of each cell, `[x, y]`.
        """
        matrix, free = STIFFNESS.assemble(self.basis, nu=nu[self.cells]), self.free
        pressure = np.zeros(self.basis.N)
        pressure[free] = splu(matrix[free][:, free].tocsc()).solve(self.load[free])
        return np.asarray(self.probes @ pressure).reshape(SIDE, SIDE)


def write(samples: int, folder: Path, rng: Generator) -> None:
    """Write `darcy.hdf5` as PDEBench does: `nu` [N, X, Y], `tensor` [N, 1, X, Y], coordinates, and `beta`.

    Args:
        samples: How many.
        folder: Where to.
        rng: The generator of the inputs.
    """
    solver = Solver()
    nu = np.where(random_fields(samples, (SIDE, SIDE), (False, False), 2, 9, rng) > 0, HIGH, LOW)
    with h5py.File(folder / "darcy.hdf5", "w") as target:
        target["nu"] = nu.astype("f4")
        target["tensor"] = np.stack([solver.solve(each) for each in nu])[:, None].astype("f4")
        target["x-coordinate"] = target["y-coordinate"] = solver.centres.astype("f4")
        target.attrs["beta"] = 1.0
