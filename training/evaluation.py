"""Honest numbers: takes an operator and test samples, gives its error by grid and the classical solver's."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import physics.burgers
import physics.darcy
import physics.inversion
import physics.poisson
from training.batches import measured
from training.config import DataConfig
from training.data import Samples, deviation, grids, read, strides
from training.losses import relative_l2
from training.operators import Operator
from training.problems import Problem

Array = NDArray[np.float32]
Sides = tuple[int, ...]

CLASSICAL_FIELDS = 10  # the direct solve's error hardly varies with their number, and it is the slow part
INVERTED_FIELDS = 3  # an inversion is some hundred solves: ten seconds on 141 x 141 points, minutes on finer grids


def measured_grids(problem: Problem, data: DataConfig) -> list[Sides]:
    """Give the trained and the declared grids that the stored mesh can be strided to, and on a plane an oblong one."""
    sides = sorted({*data.grids, *problem.grid.declared}.intersection(grids(problem, data.mesh)))
    axes = len(problem.axes)
    middle = len(sides) // 2
    oblong = [tuple(sides[middle - 1 : middle + 1])] if axes == 2 and len(sides) > 1 else []
    return [*((n,) * axes for n in sides), *oblong]


@torch.inference_mode()
def errors(operator: Operator, samples: Samples, noise: float = 0.0, unit: Array | None = None) -> dict[str, Any]:
    """Give mean, median and worst relative L2 error.

    Args:
        operator: what is measured.
        samples: on what.
        noise: level of the noise on the inputs, the same draw at every call.
        unit: deviation of the training inputs at each point, which noise is relative to; by default the samples' own.
    """
    inputs = noisy(samples, noise, unit)
    each = torch.cat([relative_l2(operator(x), y) for x, y in pairs(inputs, samples.answers)]).numpy()
    return place(samples, noise) | {
        "fields": len(each),
        "relative_l2": round(float(each.mean()), 6),
        "median": round(float(np.median(each)), 6),
        "worst": round(float(each.max()), 6),
    }


def noisy(samples: Samples, noise: float, unit: Array | None) -> Array:
    """Give the inputs with noise, see `errors`."""
    if not noise:
        return samples.inputs
    unit = samples.deviation if unit is None else unit
    return measured(torch.from_numpy(samples.inputs), unit, (noise,), np.random.default_rng(0)).numpy()


def place(samples: Samples, noise: float) -> dict[str, Any]:
    """Say where a row of figures was measured; noise is named where there is some."""
    return {"grid": list(samples.inputs.shape[1:])} | ({"noise": noise} if noise else {})


def pairs(inputs: Array, outputs: Array, size: int = 10) -> Iterable[tuple[torch.Tensor, torch.Tensor]]:
    """Give batches of a bounded size."""
    for start in range(0, len(inputs), size):
        part = slice(start, start + size)
        yield torch.from_numpy(inputs[part]), torch.from_numpy(outputs[part])


def classical(
    problem: Problem, samples: Samples, mesh: int, noise: float = 0.0, unit: Array | None = None
) -> dict[str, Any]:
    """Give error and time of a classical solver that sees what the network sees, against the stored truth.

    An inversion is told the deviation of the noise.
    """
    fields = noisy(samples, noise, unit)[: CLASSICAL_FIELDS if problem.answer is None else INVERTED_FIELDS]
    deviation = noise * (samples.deviation if unit is None else unit)
    started, found = time.perf_counter(), [solve(problem, field, mesh, deviation) for field in fields]
    seconds = (time.perf_counter() - started) / len(found)
    truth = samples.answers[: len(found)]
    each = [np.linalg.norm(p - u) / np.linalg.norm(u) for p, u in zip(found, truth, strict=True)]
    return place(samples, noise) | {
        "fields": len(found),
        "relative_l2": round(float(np.mean(each)), 6),
        "milliseconds": round(1000 * seconds, 1),
        "method": METHODS[problem.name],
    }


METHODS = {
    "darcy_inverse": "total variation on the same grid, told the noise's deviation; adjoint gradients, L-BFGS-B",
    "darcy": "five-point finite volumes on the same grid, conjugate gradients preconditioned by fast diagonalisation",
    "burgers": "ETDRK4 spectral integration on the same grid",
    "poisson": "seven-point differences on the same grid, fast diagonalisation by sine transforms",
}


def solve(problem: Problem, field: Array, mesh: int, noise: Array) -> NDArray[np.float64]:
    """Solve one problem classically on the field's own grid; `noise` is the deviation of its noise."""
    match problem.name:
        case "darcy_inverse":
            rows, columns = problem.answer or field.shape
            return physics.inversion.invert(field, noise=noise, points=(rows, columns), wall=0.5 / mesh)
        case "darcy":
            return physics.darcy.solve(field.astype(float), wall=0.5 / mesh)
        case "poisson":
            return physics.poisson.solve(field)
        case _:
            return physics.burgers.solve(field.astype(float))


def report(
    operator: Operator,
    problem: Problem,
    data: DataConfig,
    path: Path,
    noise: tuple[float, ...] = (0.0,),
    sides: list[Sides] | None = None,
    *,
    patient: bool = True,
) -> dict[str, list[dict[str, Any]]]:
    """Measure an operator at every level of noise on every grid its data offers: a card's `errors` and `classical`.

    Args:
        operator: what is measured.
        problem: what it answers.
        data: what it was trained on.
        path: the samples' file.
        noise: levels, in units of the training inputs' deviation at each point.
        sides: points per axis of the grids; by default `measured_grids`.
        patient: wait for classical solvers that take seconds a field.
    """
    wanted = measured_grids(problem, data) if sides is None else sides
    tests = [read(path, "test", data.test, points, problem=problem.name) for points in wanted]
    units = noise_units(problem, data, path, wanted) if any(noise) else [None] * len(wanted)
    cases = [(test, level, unit) for level in noise for test, unit in zip(tests, units, strict=True)]
    solved = [case for case in cases if has_rival(problem, data, case[0], case[1], patient=patient)]
    return {
        "errors": [errors(operator, *case) for case in cases],
        "classical": [classical(problem, test, data.mesh, level, unit) for test, level, unit in solved],
    }


def has_rival(problem: Problem, data: DataConfig, samples: Samples, noise: float, *, patient: bool) -> bool:
    """Say whether the classical solver is asked: an inversion on trained grids only, a direct solve without noise."""
    if problem.answer is not None:
        return patient and max(samples.inputs.shape[1:]) <= max(data.grids)
    return noise == 0


def noise_units(problem: Problem, data: DataConfig, path: Path, sides: list[Sides]) -> list[Array]:
    """Give the training inputs' deviation at each point of every grid."""
    fine = deviation(path, data.train, problem)
    steps = (strides(problem, data.mesh, points) for points in sides)
    return [fine[tuple(slice(None, None, step) for step in along)] for along in steps]


def beside(card: Mapping[str, list[dict[str, Any]]]) -> list[tuple[dict[str, Any], dict[str, Any] | None]]:
    """Pair a card's errors with the classical solver's on the same grid at the same noise, where there are any."""
    rivals = {(tuple(row["grid"]), row.get("noise", 0.0)): row for row in card["classical"]}
    return [(row, rivals.get((tuple(row["grid"]), row.get("noise", 0.0)))) for row in card["errors"]]
