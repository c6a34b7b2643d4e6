"""The rows of a card, and their table: errors and times of the network on every grid, and of the classical baseline.

Both see the same test samples, by grid, level of noise and conditions. A problem with parameters is measured twice: at
their defaults, and in the range of the stored samples.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from rich.box import SIMPLE_HEAD
from rich.table import Table

from schema.card import Measured
from training.data.views import Samples, only_pair
from training.evaluation.measures import Fields, account, milliseconds, row, timed
from training.problems.problem import Array, Conditions

SLOW_FIELDS = 3  # a slow solve is some hundred solves: ten seconds on 141 x 141 points, minutes on finer grids
IMPATIENT_FIELDS = 10  # enough for a first look: a direct solve's error hardly varies with their number
PATIENT_FIELDS = 100  # at most: the mean error of a direct solve is then known to some per cent


def report(work: Any, network: Any, cases: Iterable[Samples], *, patient: bool = True) -> dict[str, Any]:
    """Measure a network of a workload and the classical solver: a card's `errors`, `classical` and `clock`.

    `patient` waits for the solver on up to a hundred fields, and where it takes seconds for each.
    """
    cases, most = [*cases], PATIENT_FIELDS if patient else IMPATIENT_FIELDS
    coarsest = work.recipe.drawn.grids[0]
    rows = [errors(work, network, case) for case in cases]
    baselines = [classical(work, case, most) for case in cases if has_baseline(case, coarsest, patient=patient)]
    return account(rows, baselines, time="of the processor, one thread")


def errors(work: Any, network: Any, case: Samples) -> dict[str, Any]:
    """Return the network's row: its errors and times on one case."""
    return row(case.key, work.measured(network, case)) | milliseconds(network, *case.arguments)


def classical(work: Any, case: Samples, most: int = IMPATIENT_FIELDS) -> dict[str, Any]:
    """Return a card's row of the classical solver on at most `most` fields, fewer where it is slow.

    Raises:
        MissingPartError: The problem has no classical solver.
    """
    baseline = case.problem.require_baseline()
    outputs, times = [], []
    for index, field in enumerate(case.observed[: min(most, SLOW_FIELDS) if baseline.slow else most]):
        output, seconds = timed(partial(solve, case, index, field))
        outputs.append(output)
        times.append(seconds)
    [batch] = case.batches([slice(len(outputs))])
    found = work.measures([torch.from_numpy(np.stack(outputs))], batch)
    method = {"milliseconds": round(1000 * statistics.median(times), 1), "method": baseline.method}
    return row(case.key, {name: each.numpy() for name, each in found.items()}) | method


def solve(case: Samples, index: int, field: Array) -> Fields:
    """Solve for one field, that of the sample `index` with its noise, classically on its own grid."""
    description = case.problem.description
    pair = only_pair(description)
    inputs = {pair.input.name: field} | {name: values[index] for name, values in case.parameters.items()}
    conditions = Conditions(case.mesh, case.noise * case.spread if case.noise else 0.0)
    return np.asarray(case.problem.solve(inputs, conditions)[pair.output.name])


def has_baseline(case: Samples, points: int, *, patient: bool) -> bool:
    """Return whether the classical solver is measured: a slow one up to some points per axis, and with patience."""
    baseline = case.problem.baseline
    if baseline is None or (case.noise and not baseline.noise):
        return False
    return not baseline.slow or (patient and max(case.observed.shape[1:]) <= points)


def beside(card: Measured) -> list[tuple[dict[str, Any], dict[str, Any] | None]]:
    """Pair a card's errors with the classical solver's on the same grid at the same noise, where there are any."""
    baselines = {key(row): row for row in card.classical}
    return [(row, baselines.get(key(row))) for row in card.errors]


def key(row: Mapping[str, Any]) -> tuple[tuple[int, ...], float, str]:
    """Return what tells a row from the others."""
    return tuple(row["grid"]), row.get("noise", 0.0), row.get("conditions", "")


ERRORS = (
    "relative_l2",
    "vrmse",
    "standard_error",
    "median",
    "percentile_95",
    "worst",
    "relative_h1",
    "relative_energy",
)
HEADER = (
    "grid",
    "solver",
    "fields",
    "L2",
    "VRMSE",
    "+-",
    "median",
    "95 %",
    "worst",
    "gradient",
    "energy",
    "ms",
    "of 8",
)
DETAILS = frozenset({"+-", "median", "gradient", "of 8"})  # are left out where the terminal is narrow
WIDTH = 100  # of all columns
NETWORK, CLASSICAL = "network", "classical"


def rich_table(card: Measured, title: str, width: int = WIDTH) -> Table:
    """Lay out a card for a terminal, one section per grid and noise."""
    table = Table(title=title, caption=without_column(card) or None, box=SIMPLE_HEAD, padding=0, show_edge=False)
    left_out = {
        *(DETAILS if width < WIDTH else ()),
        *(() if any("vrmse" in row for row in card.errors) else ("VRMSE",)),
    }
    shown = [name for name in HEADER if name not in left_out]
    for name in shown:
        table.add_column(name, no_wrap=True, justify="left" if name in HEADER[:2] else "right")
    for pair in beside(card):
        for first, *others in cells(*pair):
            texts = dict(zip(HEADER, (first.replace(", ", "\n"), *others), strict=True))
            table.add_row(*(texts[name] for name in shown))
        table.add_section()
    return table


def without_column(card: Measured) -> str:
    """Return the means by error measures that have no column, a line per case; none of older cards."""
    meanings = {name: meaning for name, meaning in (card.measures or {}).items() if name not in ERRORS}
    lines = [
        (
            case_name(row),
            ", ".join(f"{meaning} {scientific(row[name])}" for name, meaning in meanings.items() if name in row),
        )
        for row in card.errors
    ]
    return "\n".join(f"{case}: {text}" for case, text in lines if text)


def cells(network: Mapping[str, Any], baseline: Mapping[str, Any] | None) -> list[tuple[str, ...]]:
    """Return the rows of one case."""
    rows = [(case_name(network), network.get("solver", NETWORK), *figures(network))]
    return rows if baseline is None else [*rows, ("", CLASSICAL, *figures(baseline))]


def case_name(row: Mapping[str, Any]) -> str:
    """Name the grid of a row, and noise, varied source, conditions or frames of a trajectory where there were any."""
    noise = f", {100 * row['noise']:g} % noise" if row.get("noise") else ""
    source = f", {row['source']} source" if "source" in row else ""
    conditions = f", {row['conditions']}" if "conditions" in row else ""
    frames = f", mean of {row['frames']} frames" if "frames" in row else ""
    worst = f", frame {row['frame']:g}" if "frame" in row else ""
    return " x ".join(map(str, row["grid"])) + noise + source + conditions + frames + worst


def figures(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a row's figures; a card of an earlier release, or another problem, may lack some."""
    errors = tuple(scientific(row.get(name)) for name in ERRORS)
    times = (row.get(name, row.get(f"eager_{name}")) for name in ("milliseconds", "milliseconds_of_8"))
    digits = ("" if ms is None else f"{ms:.{0 if ms >= 10 else 1}f}" for ms in times)  # as many as mean something
    return (str(row["fields"]), *errors, *digits)


def scientific(value: float | None) -> str:
    """Write an error with three digits."""
    return "" if value is None else f"{value:.2e}".replace("e-0", "e-") if value else "0"


def label_table(card: Measured, title: str) -> Table:
    """Lay a card's accuracies out for reading, that of the commonest label beside them."""
    table = Table("split", "sequences", "mean length", "accuracy", "commonest label", "cross-entropy", title=title)
    for one in card.accuracy:
        shares = (f"{one[key]:.2%}" for key in ("accuracy", "majority"))
        table.add_row(
            one["split"], str(one["sequences"]), str(one["mean_length"]), *shares, f"{one['cross_entropy']:.3f}"
        )
    return table
