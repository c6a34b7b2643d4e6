"""Honest numbers: takes an operator and test samples, gives its error by grid and the classical solver's."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import physics.burgers
import physics.darcy
from training.config import DataConfig
from training.data import Samples, grids, read
from training.losses import relative_l2
from training.operators import Operator
from training.problems import Problem

Array = NDArray[np.float32]

CLASSICAL_FIELDS = 10  # the direct solve's error hardly varies with their number, and it is the slow part


def measured_grids(problem: Problem, data: DataConfig) -> list[int]:
    """Give the trained and the declared grids that the stored mesh can be strided to."""
    return sorted({*data.grids, *problem.grid.declared}.intersection(grids(problem, data.mesh)))


@torch.inference_mode()
def errors(operator: Operator, samples: Samples, noise: float = 0.0) -> dict[str, Any]:
    """Give mean, median and worst relative L2 error, with `noise` on the inputs in units of their deviation."""
    rng = np.random.default_rng(0)
    noisy = samples.inputs + noise * samples.inputs.std() * rng.standard_normal(samples.inputs.shape).astype("float32")
    each = torch.cat([relative_l2(operator(x), y) for x, y in pairs(noisy, samples.outputs)]).numpy()
    return {
        "grid": list(samples.inputs.shape[1:]),
        "fields": len(each),
        "relative_l2": round(float(each.mean()), 6),
        "median": round(float(np.median(each)), 6),
        "worst": round(float(each.max()), 6),
    }


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
    return {
        "grid": list(samples.inputs.shape[1:]),
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


def report(operator: Operator, problem: Problem, data: DataConfig, path: Path) -> dict[str, list[dict[str, Any]]]:
    """Measure an operator on every grid its data offers: the `errors` and `classical` parts of a card."""
    tests = [read(path, "test", data.test, n) for n in measured_grids(problem, data)]
    return {
        "errors": [errors(operator, samples) for samples in tests],
        "classical": [classical(problem, samples, data.mesh) for samples in tests],
    }
