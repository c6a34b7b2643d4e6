"""The rows of a card: errors and times of the network on every grid, those of the classical baseline, and the clock."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from physics.numerics.grid import relative_l2
from training.data.fields import only_pair
from training.data.store import Array
from training.evaluation.cases import Case, Sides, cases
from training.evaluation.norms import Fields, distribution, relative_energy, relative_h1, rounded
from training.evaluation.timing import milliseconds, processor, timed
from training.operators import Operator
from training.problems.problem import Conditions, Problem
from training.recipe import DataConfig

BATCH = 10  # bounds the memory of measuring
SLOW_FIELDS = 3  # a slow solve is some hundred solves: ten seconds on 141 x 141 points, minutes on finer grids
IMPATIENT_FIELDS = 10  # enough for a first look: a direct solve's error hardly varies with their number
PATIENT_FIELDS = 100  # at most: the mean error of a direct solve is then known to some per cent


def report(
    operator: Operator,
    problem: Problem,
    data: DataConfig,
    path: Path,
    noise: tuple[float, ...] = (0.0,),
    sides: list[Sides] | None = None,
    *,
    patient: bool = True,
) -> dict[str, Any]:
    """Measure an operator at every level of noise on every grid its data offers; see `cases`.

    Args:
        operator: What is measured.
        problem: The problem it was trained for.
        data: What it was trained on.
        path: The samples' file.
        noise: Levels, in units of the training inputs' deviation at each point.
        sides: Points per axis of the grids; by default `measured_grids`.
        patient: Wait for classical solvers: for up to a hundred fields, and for solvers that take seconds per field.

    Returns:
        A card's `errors`, `classical` and `clock`.
    """
    wanted = cases(problem, data, path, noise, sides)
    most = min(data.test, PATIENT_FIELDS) if patient else IMPATIENT_FIELDS
    return {
        "errors": [errors(operator, case) for case in wanted],
        "classical": [classical(case, most) for case in wanted if has_baseline(case, data, patient=patient)],
        "clock": {"time": "of the processor, one thread", "processor": processor()},
    }


def errors(operator: Operator, case: Case) -> dict[str, Any]:
    """Return the network's row: its errors and times on one case."""
    inputs, numbers = case.inputs, case.samples.parameters
    return case.key | summary(case, predict(operator, inputs, *numbers)) | milliseconds(operator, inputs, *numbers)


@torch.inference_mode()
def predict(operator: Operator, *inputs: Array) -> Array:
    """Compute the outputs `[sample, *grid]` to inputs `[sample, *grid]` and parameters `[sample]`, batch by batch."""
    parts = (slice(start, start + BATCH) for start in range(0, len(inputs[0]), BATCH))
    return np.concatenate([operator(*(torch.from_numpy(each[part]) for each in inputs)).numpy() for part in parts])


def summary(case: Case, found: Fields) -> dict[str, Any]:
    """Compute the figures of a row: those of `distribution` of the case's first fields, mean e_H1, and mean e_a."""
    inputs, truth = case.samples.inputs[: len(found)], case.truth[: len(found)]
    figures = distribution(relative_l2(found, truth)) | {"relative_h1": relative_h1(found, truth).mean()}
    if case.problem.energy_weight is not None:
        wall = Conditions(case.mesh).wall
        figures["relative_energy"] = relative_energy(inputs, found, truth, wall).mean()
    return {"fields": len(found)} | rounded(figures)


def classical(case: Case, most: int = IMPATIENT_FIELDS) -> dict[str, Any]:
    """Measure the classical solver against the stored truth on at most `most` fields, fewer where it is slow.

    Returns:
        A row of a card: errors, median milliseconds per field, and the method in words.

    Raises:
        MissingPartError: The problem has no classical solver.
    """
    baseline = case.problem.require_baseline()
    outputs, times = [], []
    for index, field in enumerate(case.inputs[: min(most, SLOW_FIELDS) if baseline.slow else most]):
        output, seconds = timed(partial(solve, case, index, field))
        outputs.append(output)
        times.append(seconds)
    method = {"milliseconds": round(1000 * statistics.median(times), 1), "method": baseline.method}
    return case.key | summary(case, np.stack(outputs)) | method


def solve(case: Case, index: int, field: Array) -> Fields:
    """Solve for one field, that of the sample `index` with its noise, classically on its own grid."""
    description = case.problem.description
    pair = only_pair(description)
    named = zip(description.parameters, case.samples.parameters, strict=True)
    inputs = {pair.input.name: field} | {parameter.name: values[index] for parameter, values in named}
    conditions = Conditions(case.mesh, case.noise * case.spread if case.noise else 0.0)
    return np.asarray(case.problem.solve(inputs, conditions)[pair.output.name])


def has_baseline(case: Case, data: DataConfig, *, patient: bool) -> bool:
    """Return whether the classical solver is measured: a slow one up to the first trained grid, and with patience."""
    baseline = case.problem.baseline
    if baseline is None or (case.noise and not baseline.noise):
        return False
    return not baseline.slow or (patient and max(case.inputs.shape[1:]) <= data.grids[0])


def beside(card: Mapping[str, Any]) -> list[tuple[dict[str, Any], dict[str, Any] | None]]:
    """Pair a card's errors with the classical solver's on the same grid at the same noise, where there are any."""
    baselines = {key(row): row for row in card["classical"]}
    return [(row, baselines.get(key(row))) for row in card["errors"]]


def key(row: Mapping[str, Any]) -> tuple[tuple[int, ...], float, str]:
    """Return what tells a row from the others."""
    return tuple(row["grid"]), row.get("noise", 0.0), row.get("conditions", "")
