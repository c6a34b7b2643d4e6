"""The baseline's row of a card: errors and time of the classical solver that sees what the network sees."""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.data.pair import only_pair
from training.data.store import Array
from training.evaluation.case import Case
from training.evaluation.norms import summary
from training.problems.problem import Conditions

SLOW_FIELDS = 3  # a slow solve is some hundred solves: ten seconds on 141 x 141 points, minutes on finer grids
IMPATIENT_FIELDS = 10  # enough for a first look: a direct solve's error hardly varies with their number
PATIENT_FIELDS = 100  # at most: the mean error of a direct solve is then known to some per cent


def classical(case: Case, most: int = IMPATIENT_FIELDS) -> dict[str, Any]:
    """Measure the classical solver against the stored truth on at most `most` fields, fewer where it is slow.

    Returns:
        A row of a card: errors, median milliseconds per field, and the method in words.

    Raises:
        MissingPartError: The problem has no classical solver.
    """
    baseline = case.problem.require_baseline()
    count = min(most, SLOW_FIELDS) if baseline.slow else most
    outputs, times = zip(*(timed(case, index, field) for index, field in enumerate(case.inputs[:count])), strict=True)
    return (
        case.key
        | summary(case, np.stack(outputs))
        | {"milliseconds": round(1000 * statistics.median(times), 1), "method": baseline.method}
    )


def timed(case: Case, index: int, field: Array) -> tuple[NDArray[np.float64], float]:
    """Solve for one field, and return the seconds of processor time it took, too."""
    started = time.process_time()
    output = solve(case, index, field)
    return output, time.process_time() - started


def solve(case: Case, index: int, field: Array) -> NDArray[np.float64]:
    """Solve for one field, that of the sample `index` with its noise, classically on its own grid."""
    description = case.problem.description
    pair = only_pair(description)
    named = zip(description.parameters, case.samples.parameters, strict=True)
    inputs = {pair.input.name: field} | {parameter.name: values[index] for parameter, values in named}
    conditions = Conditions(case.mesh, case.noise * case.spread if case.noise else 0.0)
    return np.asarray(case.problem.solve(inputs, conditions)[pair.output.name])
