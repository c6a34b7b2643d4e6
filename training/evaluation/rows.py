"""The rows of a card, and their table: errors and times of the network on every grid, and of the classical baseline.

Both see the same test samples, by grid, level of noise and conditions. A problem with parameters is measured twice: at
their defaults, and in the range of the stored samples.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.box import SIMPLE_HEAD
from rich.table import Table
from torch import Tensor

from schema.problem import Description
from training.data.augment import noisy
from training.data.views import Samples, deviation, every, grids, only_pair, read
from training.evaluation.measures import (
    Fields,
    by_measure,
    meanings,
    milliseconds,
    processor,
    summary,
    timed,
)
from training.metrics import Grid
from training.operators import Operator
from training.problems.problem import Array, Conditions, Problem
from training.recipe import DataConfig

Sides = tuple[int, ...]
BATCH = 10  # bounds the memory of measuring
SLOW_FIELDS = 3  # a slow solve is some hundred solves: ten seconds on 141 x 141 points, minutes on finer grids
IMPATIENT_FIELDS = 10  # enough for a first look: a direct solve's error hardly varies with their number
PATIENT_FIELDS = 100  # at most: the mean error of a direct solve is then known to some per cent


@dataclass(frozen=True)
class Case:
    """Test samples on one grid."""

    samples: Samples  # inputs and true outputs
    mesh: int  # points per axis that the truth was computed on
    noise: float = 0.0  # level of the noise on the inputs
    # Deviation of the training inputs at each point, which noise is relative to; by default the samples' own.
    unit: Array | None = None
    conditions: str = ""  # the ranges of the parameters in words, where they are not their defaults

    @property
    def problem(self) -> Problem:
        return self.samples.problem

    @property
    def inputs(self) -> Array:
        """The inputs with their noise, drawn alike at every call and not kept in memory."""
        found = self.samples.inputs
        return noisy(found, self.spread, (self.noise,), np.random.default_rng(0)) if self.noise else found

    @cached_property
    def truth(self) -> Array:
        """The true outputs on the output grid."""
        return self.samples.targets

    @property
    def spread(self) -> Array:
        """The unit of noise."""
        return self.samples.deviation if self.unit is None else self.unit

    @property
    def key(self) -> dict[str, Any]:
        """What tells a row of figures from the others: the grid, and noise and conditions where there are some."""
        others = {"noise": self.noise, "conditions": self.conditions}
        return {"grid": list(self.samples.inputs.shape[1:])} | {name: value for name, value in others.items() if value}


def cases(
    problem: Problem,
    data: DataConfig,
    path: Path,
    noise: tuple[float, ...] = (0.0,),
    sides: list[Sides] | None = None,
) -> list[Case]:
    """Read the test samples on every grid of `sides`, by default `measured_grids`, per level of noise; see `Case`."""
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


def measured_grids(description: Description, data: DataConfig) -> list[Sides]:
    """Return the trained and declared grids that the stored mesh can be strided to, and on a plane an oblong one."""
    sides = sorted({*data.grids, *description.grid.declared}.intersection(grids(description, data.mesh)))
    axes = len(description.axes)
    middle = len(sides) // 2
    oblong = [tuple(sides[middle - 1 : middle + 1])] if axes == 2 and len(sides) > 1 else []
    return [*((n,) * axes for n in sides), *oblong]


def noise_units(problem: Problem, data: DataConfig, path: Path, sides: list[Sides]) -> list[Array]:
    """Compute the training inputs' standard deviation `[*grid]` at each point of every grid."""
    fine = deviation(path, data.train, problem)
    return [fine[every(problem.description, data.mesh, points)] for points in sides]


def ranges(description: Description) -> str:
    """Return the ranges of the parameters in words, such as `time 0.1 to 2`; nothing where there are none."""
    return ", ".join(f"{each.name} {each.minimum:g} to {each.maximum:g}" for each in description.parameters)


def has_defaults(description: Description) -> bool:
    """Return whether there are parameters, and all have a default."""
    return bool(description.parameters) and all(each.default is not None for each in description.parameters)


def at_defaults(samples: Samples) -> Samples:
    """Solve for the inputs of samples on the stored mesh at the parameters' defaults."""
    description, problem = samples.problem.description, samples.problem
    pair, mesh = only_pair(description), samples.inputs.shape[1]
    named = {one.name: np.float64(one.default or 0) for one in description.parameters}
    outputs = [
        problem.solve({pair.input.name: field} | named, Conditions(mesh))[pair.output.name].astype(np.float32)
        for field in samples.inputs
    ]
    parameters = tuple(np.full(len(outputs), value, np.float32) for value in named.values())
    return replace(samples, outputs=np.stack(outputs), parameters=parameters)


def strided(samples: Samples, points: int | tuple[int, ...]) -> Samples:
    """Return samples of the stored mesh on a coarser grid."""
    chosen = (slice(None), *every(samples.problem.description, samples.inputs.shape[1], points))
    inputs, outputs = (np.ascontiguousarray(each[chosen]) for each in (samples.inputs, samples.outputs))
    return replace(samples, inputs=inputs, outputs=outputs)


def validity(description: Description, grids: tuple[int, ...], noise: tuple[float, ...]) -> dict[str, str]:
    """Return a card's limits of validity in words: what was trained, measured, and not tried."""
    levels = [f"{100 * level:g} %" for level in noise if level]
    points, trained_noise = " and ".join(map(str, grids)), " and ".join(levels) or "none"
    return {
        "trained": f"{description.distribution}; points per axis: {points}; noise: {trained_noise}",
        "measured": "on test fields of the same distribution, on the grids in `errors`; other grids are interpolated",
        "not tried": description.untested,
    }


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
    rows = [errors(operator, case) for case in wanted]
    return {
        "errors": rows,
        "classical": [classical(case, most) for case in wanted if has_baseline(case, data, patient=patient)],
        "clock": {"time": "of the processor, one thread", "processor": processor()},
        "measures": meanings(rows),
    }


def errors(operator: Operator, case: Case) -> dict[str, Any]:
    """Return the network's row: its errors and times on one case."""
    inputs, numbers = case.inputs, case.samples.parameters
    return case.key | measures(case, predict(operator, inputs, *numbers)) | milliseconds(operator, inputs, *numbers)


@torch.inference_mode()
def predict(operator: Operator, *inputs: Array) -> Array:
    """Compute the outputs `[sample, *grid]` to inputs `[sample, *grid]` and parameters `[sample]`, batch by batch."""
    parts = (slice(start, start + BATCH) for start in range(0, len(inputs[0]), BATCH))
    return np.concatenate([operator(*(torch.from_numpy(each[part]) for each in inputs)).numpy() for part in parts])


def measures(case: Case, found: Fields) -> dict[str, Any]:
    """Compute the figures of a row for predictions of a case's first fields, by every error measure."""
    pair = only_pair(case.problem.description)
    inputs, truth = case.samples.inputs[: len(found)], case.truth[: len(found)]
    grid = grid_of(case.problem, truth.shape[1:], {pair.input.name: torch.from_numpy(inputs)}, case.mesh)
    return {"fields": len(found)} | summary(by_measure(found, truth, grid))


def grid_of(problem: Problem, sides: Sequence[int], inputs: Mapping[str, Tensor], mesh: int | None) -> Grid:
    """Return the grid of outputs of a problem; without a mesh, which tells where the walls are, no energy is measured.

    Args:
        problem: Whose axes they are.
        sides: Points per axis of the outputs.
        inputs: Inputs and parameters by name.
        mesh: Points per axis that the truth was computed on.
    """
    grid = replace(Grid.of(problem.description.axes, sides), inputs=inputs)
    return grid if mesh is None else replace(grid, energy_weight=problem.energy_weight, wall=Conditions(mesh).wall)


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
    return case.key | measures(case, np.stack(outputs)) | method


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
    table = Table(title=title, caption=without_column(card) or None, box=SIMPLE_HEAD, padding=0, show_edge=False)
    shown = [name for name in HEADER if width >= WIDTH or name not in DETAILS]
    for name in shown:
        table.add_column(name, no_wrap=True, justify="left" if name in HEADER[:2] else "right")
    for pair in beside(card):
        for first, *others in cells(*pair):
            texts = dict(zip(HEADER, (first.replace(", ", "\n"), *others), strict=True))
            table.add_row(*(texts[name] for name in shown))
        table.add_section()
    return table


def without_column(card: Mapping[str, Any]) -> str:
    """Return the means by error measures that have no column, a line per case; none of older cards."""
    meanings = {name: meaning for name, meaning in card.get("measures", {}).items() if name not in ERRORS}
    lines = [
        (
            case_name(row),
            ", ".join(f"{meaning} {scientific(row[name])}" for name, meaning in meanings.items() if name in row),
        )
        for row in card["errors"]
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


def label_table(card: dict[str, list[dict[str, Any]]], title: str) -> Table:
    """Lay a card's accuracies out for reading, that of the commonest label beside them."""
    table = Table("split", "sequences", "mean length", "accuracy", "commonest label", "cross-entropy", title=title)
    for row in card["accuracy"]:
        shares = (f"{row[key]:.2%}" for key in ("accuracy", "majority"))
        table.add_row(
            row["split"], str(row["sequences"]), str(row["mean_length"]), *shares, f"{row['cross_entropy']:.3f}"
        )
    return table
