"""All rows of a card: errors of the network on every grid, those of the baseline, and the clock."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from training.data import read
from training.evaluation.baselines import IMPATIENT_FIELDS, PATIENT_FIELDS, classical
from training.evaluation.case import Case
from training.evaluation.conditions import at_defaults, has_defaults, ranges, strided
from training.evaluation.grids import Sides, measured_grids
from training.evaluation.network import errors
from training.evaluation.noise import noise_units
from training.evaluation.timing import processor
from training.operators import Operator
from training.problems.problem import Problem
from training.recipes.recipe import DataConfig

Rows = list[dict[str, Any]]


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
    """Measure an operator at every level of noise on every grid its data offers.

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


def cases(
    problem: Problem,
    data: DataConfig,
    path: Path,
    noise: tuple[float, ...] = (0.0,),
    sides: list[Sides] | None = None,
) -> list[Case]:
    """Read the test samples on every grid, for one level of noise after the other; see `report`.

    Those of a problem with parameters come twice: at the defaults, and at the parameters that they were drawn with.
    """
    problem, wanted = problem.of_samples, measured_grids(problem.description, data) if sides is None else sides
    tests = [read(path, "test", data.test, points, problem=problem) for points in wanted]
    units = noise_units(problem, data, path, wanted) if any(noise) else [None] * len(wanted)
    kinds = [(tests, ranges(problem.description))]
    if has_defaults(problem.description):
        default = at_defaults(read(path, "test", data.test, data.mesh, problem=problem))
        kinds = [([strided(default, points) for points in wanted], ""), *kinds]
    return [
        Case(test, data.mesh, level, unit, conditions)
        for each, conditions in kinds
        for level in noise
        for test, unit in zip(each, units, strict=True)
    ]


def has_baseline(case: Case, data: DataConfig, *, patient: bool) -> bool:
    """Return whether the classical solver is measured on a case.

    Args:
        case: The samples.
        data: What the network was trained on.
        patient: Wait for slow solvers, which are measured on grids up to the first of those trained on.
    """
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
