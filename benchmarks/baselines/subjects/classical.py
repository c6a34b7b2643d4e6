"""Classical solvers on the field's own grid, one field at a time.

Those for the Darcy problem solve the same finite volumes (`physics.numerics.volumes`), whose assembly is part of the
time: SciPy's sparse LU in its fastest ordering, PyAMG's smoothed aggregation as a preconditioner, and the project's
own, to a small residual and to the error of the grid.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse.linalg import splu

import physics.burgers
import physics.darcy
import physics.inversion
import physics.numerics.early_stopping
from physics.numerics import volumes
from physics.numerics.grid import WALL

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Field = NDArray[np.float64]

TOLERANCE = 1e-8  # of the iteration: far below the discretisation's own error


class Solver:
    """The base of the solvers: solve a batch, field by field."""

    def __init__(self, file: str, batch: int) -> None:
        self.fields = np.load(file)[:batch].astype(float)
        self.found = self.fields
        self.facts: dict[str, int] = {}

    def step(self) -> None:
        """Solve for every field."""
        self.found = np.stack([self.solve(field) for field in self.fields])

    def solve(self, field: Field) -> Field:
        """Solve for one field."""
        raise NotImplementedError

    def write_output(self, file: str) -> None:
        """Write the last solutions."""
        np.save(file, self.found)


class SparseLU(Solver):
    """SciPy's splu: symmetric mode, minimum degree, no pivoting."""

    def solve(self, field: Field) -> Field:
        matrix = volumes.matrix(field, WALL).tocsc()
        factors = splu(matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
        return np.asarray(factors.solve(load(field))).reshape(field.shape)


class Multigrid(Solver):
    """PyAMG's smoothed aggregation, accelerated by conjugate gradients."""

    def solve(self, field: Field) -> Field:
        import pyamg  # noqa: PLC0415 -- the other solvers' environments have none

        matrix = volumes.matrix(field, WALL)
        levels = pyamg.smoothed_aggregation_solver(matrix)
        return np.asarray(levels.solve(load(field), tol=TOLERANCE, accel="cg")).reshape(field.shape)


class ConjugateGradients(Solver):
    """Conjugate gradients preconditioned by fast diagonalisation."""

    def solve(self, field: Field) -> Field:
        return physics.darcy.solve(field)


class StoppedGradients(Solver):
    """The same iteration in single precision, stopped after a few steps."""

    def __init__(self, file: str, batch: int, steps: int) -> None:
        super().__init__(file, batch)
        self.steps = steps

    def solve(self, field: Field) -> Field:
        return physics.numerics.early_stopping.solve(field, self.steps).astype(float)


class Inversion(Solver):
    """Total variation by adjoint gradients; it receives the noise's deviation at each point."""

    def __init__(self, file: str, batch: int, deviation: list[list[float]], blocks: tuple[int, int]) -> None:
        super().__init__(file, batch)
        self.deviation, self.blocks = np.array(deviation), (blocks[0], blocks[1])

    def solve(self, field: Field) -> Field:
        return physics.inversion.invert(field, noise=self.deviation, points=self.blocks)


class Integration(Solver):
    """ETDRK4 in Fourier space."""

    def solve(self, field: Field) -> Field:
        return physics.burgers.solve(field)


def load(field: Field) -> Field:
    """Return the source, 1, times each point's area."""
    return volumes.areas(field.shape, WALL).ravel()
