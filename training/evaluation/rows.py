"""The rows of a card, and their table: errors and times of the network on every grid, and of the classical baseline."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.box import SIMPLE_HEAD
from rich.table import Table

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
    """Measure an operator and the classical solver: a card's `errors`, `classical` and `clock`; see `cases`.

    `patient` waits for the solver on up to a hundred fields, and where it takes seconds for each.
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
    """Return a card's row of the classical solver on at most `most` fields, fewer where it is slow.

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


ERRORS = ("relative_l2", "standard_error", "median", "percentile_95", "worst", "relative_h1", "relative_energy")
HEADER = ("grid", "solver", "fields", "L2", "+-", "median", "95 %", "worst", "gradient", "energy", "ms", "of 8")
DETAILS = frozenset({"+-", "median", "gradient", "of 8"})  # are left out where the terminal is narrow
WIDTH = 100  # of all columns
NETWORK, CLASSICAL = "network", "classical"


def rich_table(card: Mapping[str, Any], title: str, width: int = WIDTH) -> Table:
    """Lay out a card for a terminal, one section per grid and noise."""
    table = Table(title=title, box=SIMPLE_HEAD, padding=0, show_edge=False)
    shown = [name for name in HEADER if width >= WIDTH or name not in DETAILS]
    for name in shown:
        table.add_column(name, no_wrap=True, justify="left" if name in HEADER[:2] else "right")
    for pair in beside(card):
        for first, *others in cells(*pair):
            texts = dict(zip(HEADER, (first.replace(", ", "\n"), *others), strict=True))
            table.add_row(*(texts[name] for name in shown))
        table.add_section()
    return table


def cells(network: Mapping[str, Any], baseline: Mapping[str, Any] | None) -> list[tuple[str, ...]]:
    """Return the rows of one case."""
    rows = [(case_name(network), network.get("solver", NETWORK), *figures(network))]
    return rows if baseline is None else [*rows, ("", CLASSICAL, *figures(baseline))]


def case_name(row: Mapping[str, Any]) -> str:
    """Name the grid a row was measured on, and the noise, the varied source or the conditions where there were any."""
    noise = f", {100 * row['noise']:g} % noise" if row.get("noise") else ""
    source = f", {row['source']} source" if "source" in row else ""
    conditions = f", {row['conditions']}" if "conditions" in row else ""
    return " x ".join(map(str, row["grid"])) + noise + source + conditions


def figures(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a row's figures; a card of an earlier release, or another problem, may lack some."""
    errors = tuple(scientific(row.get(name)) for name in ERRORS)
    times = (row.get(name) for name in ("milliseconds", "milliseconds_of_8"))
    digits = ("" if ms is None else f"{ms:.{0 if ms >= 10 else 1}f}" for ms in times)  # as many as mean something
    return (str(row["fields"]), *errors, *digits)


def scientific(value: float | None) -> str:
    """Write an error with three digits."""
    return "" if value is None else f"{value:.2e}".replace("e-0", "e-") if value else "0"


def label_table(card: dict[str, list[dict[str, Any]]], title: str) -> Table:
    """Lay a card's accuracies out for reading, that of the commonest label beside them."""
    table = Table("split", "sequences", "mean length", "accuracy", "commonest label", "cross-entropy", title=title)
    for row in card["accuracy"]:
        shares = (f"{row[key]:.2%}" for key in ("accuracy", "majority"))
        table.add_row(
            row["split"], str(row["sequences"]), str(row["mean_length"]), *shares, f"{row['cross_entropy']:.3f}"
        )
    return table
