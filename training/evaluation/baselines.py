"""The classical solver's row: takes a case, gives errors and time of the solver that sees what the network sees."""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

import physics.burgers
import physics.darcy
import physics.inversion
import physics.poisson
from training.data.store import Array
from training.evaluation.case import Case
from training.evaluation.norms import summary

INVERTED_FIELDS = 3  # an inversion is some hundred solves: ten seconds on 141 x 141 points, minutes on finer grids
IMPATIENT_FIELDS = 10  # enough for a first look: a direct solve's error hardly varies with their number

METHODS = {
    "darcy_inverse": "total variation on the same grid, told the noise's deviation; adjoint gradients, L-BFGS-B",
    "darcy": "five-point finite volumes on the same grid, conjugate gradients preconditioned by fast diagonalisation",
    "burgers": "ETDRK4 spectral integration on the same grid",
    "neuralop_darcy": "five-point finite volumes on 256 x 256 cells, each of its nearest grid point's material",
    "poisson": "seven-point differences on the same grid, fast diagonalisation by sine transforms",
}


def classical(case: Case, most: int = IMPATIENT_FIELDS) -> dict[str, Any]:
    """Give errors and median time of a classical solver against the stored truth, on at most `most` fields.

    An inversion is told the deviation of the noise and asked about a few fields only.
    """
    count = most if case.problem.answer is None else min(most, INVERTED_FIELDS)
    found, times = zip(*(timed(case, field) for field in case.inputs[:count]), strict=True)
    return (
        case.place
        | summary(case, np.stack(found))
        | {"milliseconds": round(1000 * statistics.median(times), 1), "method": METHODS[case.problem.name]}
    )


def timed(case: Case, field: Array) -> tuple[NDArray[np.float64], float]:
    """Solve for one field, and give the seconds of processor time it took."""
    started = time.process_time()
    found = solve(case, field)
    return found, time.process_time() - started


def solve(case: Case, field: Array) -> NDArray[np.float64]:
    """Solve one problem classically on the field's own grid."""
    match case.problem.name:
        case "darcy_inverse":
            rows, columns = case.problem.answer or field.shape
            noise = case.noise * case.spread
            return physics.inversion.invert(field, noise=noise, points=(rows, columns), wall=case.wall)
        case "darcy":
            return physics.darcy.solve(field.astype(float), wall=case.wall)
        case "neuralop_darcy":
            return solve_material(field)
        case "poisson":
            return physics.poisson.solve(field)
        case _:
            return physics.burgers.solve(field.astype(float))


def solve_material(material: Array, cells: int = 256) -> NDArray[np.float64]:
    """Give the pressure of a material `[row, column]` of 0 and 1 at its points (i/n + 1/1024), by a finer mesh."""
    centres = (np.arange(cells) + 0.5) / cells
    points = [np.arange(side) / side + 0.5 / 512 for side in material.shape]
    nearest = np.ix_(*(np.abs(centres[:, None] - along).argmin(axis=1) for along in points))
    solution = physics.darcy.solve(np.where(material[nearest] > 0, 1 / 2.78, 1 / 50), wall=0.5 / cells)
    down, across = (np.stack([np.interp(along, centres, unit) for unit in np.eye(cells)], axis=1) for along in points)
    return np.asarray(down @ solution @ across.T)
