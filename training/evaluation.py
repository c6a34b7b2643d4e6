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
from training.batches import measured
from training.config import DataConfig
from training.data import Samples, deviation, grids, read, strides
from training.losses import relative_l2
from training.operators import Operator
from training.problems import Problem

Array = NDArray[np.float32]
Sides = tuple[int, ...]

CLASSICAL_FIELDS = 10  # the direct solve's error hardly varies with their number, and it is the slow part


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
    inputs = torch.from_numpy(samples.inputs)
    if noise:
        unit = samples.deviation if unit is None else unit
        inputs = measured(inputs, unit, (noise,), np.random.default_rng(0))
    each = torch.cat([relative_l2(operator(x), y) for x, y in pairs(inputs.numpy(), samples.answers)]).numpy()
    return place(samples, noise) | {
        "fields": len(each),
        "relative_l2": round(float(each.mean()), 6),
        "median": round(float(np.median(each)), 6),
        "worst": round(float(each.max()), 6),
    }


def place(samples: Samples, noise: float) -> dict[str, Any]:
    """Say where a row of figures was measured; noise is named where there is some."""
    return {"grid": list(samples.inputs.shape[1:])} | ({"noise": noise} if noise else {})


def pairs(inputs: Array, outputs: Array, size: int = 10) -> Iterable[tuple[torch.Tensor, torch.Tensor]]:
    """Give batches of a bounded size."""
    for start in range(0, len(inputs), size):
        part = slice(start, start + size)
        yield torch.from_numpy(inputs[part]), torch.from_numpy(outputs[part])


def classical(problem: Problem, samples: Samples, mesh: int) -> dict[str, Any]:
    """Give error and time of a classical solve that sees what the network sees, against the stored solution."""
    started, found = time.perf_counter(), [solve(problem, field, mesh) for field in samples.inputs[:CLASSICAL_FIELDS]]
    seconds = (time.perf_counter() - started) / len(found)
    truth = samples.outputs[: len(found)]
    each = [np.linalg.norm(p - u) / np.linalg.norm(u) for p, u in zip(found, truth, strict=True)]
    return place(samples, 0.0) | {
        "fields": len(found),
        "relative_l2": round(float(np.mean(each)), 6),
        "milliseconds": round(1000 * seconds, 1),
        "method": METHODS[problem.name],
    }


METHODS = {
    "darcy": "five-point finite volumes on the same grid, conjugate gradients preconditioned by fast diagonalisation",
    "burgers": "ETDRK4 spectral integration on the same grid",
}


def solve(problem: Problem, field: Array, mesh: int) -> NDArray[np.float64]:
    """Solve one problem classically on the field's own grid."""
    if problem.name == "darcy":
        return physics.darcy.solve(field.astype(float), wall=0.5 / mesh)
    return physics.burgers.solve(field.astype(float))


def report(
    operator: Operator,
    problem: Problem,
    data: DataConfig,
    path: Path,
    noise: tuple[float, ...] = (0.0,),
    sides: list[Sides] | None = None,
) -> dict[str, list[dict[str, Any]]]:
    """Measure an operator at every level of noise on every grid its data offers: a card's `errors` and `classical`.

    Args:
        operator: what is measured.
        problem: what it answers.
        data: what it was trained on.
        path: the samples' file.
        noise: levels, in units of the training inputs' deviation at each point.
        sides: points per axis of the grids; by default `measured_grids`.
    """
    wanted = measured_grids(problem, data) if sides is None else sides
    tests = [read(path, "test", data.test, points, problem=problem.name) for points in wanted]
    units = noise_units(problem, data, path, wanted) if any(noise) else [None] * len(wanted)
    solved = tests if problem.name in METHODS and 0.0 in noise else []
    return {
        "errors": [
            errors(operator, test, level, unit) for level in noise for test, unit in zip(tests, units, strict=True)
        ],
        "classical": [classical(problem, test, data.mesh) for test in solved],
    }


def noise_units(problem: Problem, data: DataConfig, path: Path, sides: list[Sides]) -> list[Array]:
    """Give the training inputs' deviation at each point of every grid."""
    fine = deviation(path, data.train, problem)
    steps = (strides(problem, data.mesh, points) for points in sides)
    return [fine[tuple(slice(None, None, step) for step in along)] for along in steps]


def beside(card: Mapping[str, list[dict[str, Any]]]) -> list[tuple[dict[str, Any], dict[str, Any] | None]]:
    """Pair a card's errors with the classical solver's on the same grid at the same noise, where there are any."""
    rivals = {(tuple(row["grid"]), row.get("noise", 0.0)): row for row in card["classical"]}
    return [(row, rivals.get((tuple(row["grid"]), row.get("noise", 0.0)))) for row in card["errors"]]
