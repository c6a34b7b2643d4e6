"""The tables of the comparison: test errors by problem and network, and the candidates of the tuning."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from benchmarks.own_data.comparison import FNO, PETROV, TITLES, best

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from benchmarks.own_data.trainings import Candidate, Row
    from benchmarks.report.page import Table

HEADER = (
    "problem",
    "network",
    "test error",
    "standard error",
    "relative to FNO",
    "seeds",
    "test samples",
    "parameters",
    "epochs",
    "processor s",
)
TUNING = ("problem", "network", "chosen sizes and settings", "validation error", "of candidates", "processor s each")


def tables(rows: Sequence[Row]) -> dict[str, Table]:
    """Return both tables by their names on the page."""
    return {"own-data": (HEADER, [*errors(rows)]), "own-data-tuning": (TUNING, [*tuning(rows)])}


def errors(rows: Sequence[Row]) -> Iterator[tuple[str, ...]]:
    """Return a row per problem and network: means over the seeds, after the longest trainings."""
    rows = longest(rows)
    for problem in problems(rows):
        baseline = mean_error(select(rows, problem, FNO))
        for title in TITLES:
            found = select(rows, problem, title)
            if not found:
                continue
            results = [row.result for row in found]
            mean = mean_error(found)
            yield (
                problem,
                title,
                f"{mean:.2e}",
                f"{statistics.fmean(each.standard_error for each in results):.1e}",
                f"{mean / baseline:.2f}" if baseline else "",
                f"{len(found)}",
                f"{results[0].samples}",
                f"{results[0].parameters:,}",
                f"{statistics.fmean(each.epochs for each in results):.0f}",
                f"{statistics.fmean(each.seconds for each in results):.0f}",
            )


def tuning(rows: Sequence[Row]) -> Iterator[tuple[str, ...]]:
    """Return a row per problem and tuned network: the chosen candidate."""
    for problem in problems(rows):
        for title in TITLES:
            found = select(rows, problem, title, split="validation")
            if found:
                errors_ = sorted(row.result.error for row in found)
                seconds = found[0].training.seconds
                yield problem, title, text(best(found)), f"{errors_[0]:.2e}", f"{len(found)}", f"{seconds:g}"


def text(candidate: Candidate) -> str:
    """Return sizes and settings as text."""
    return ", ".join(
        f"{key.replace('_', ' ')} {value}" for key, value in (candidate.sizes | candidate.settings).items()
    )


def problems(rows: Iterable[Row]) -> list[str]:
    """Return the problems in order."""
    return [*dict.fromkeys(row.training.problem for row in rows)]


def select(rows: Iterable[Row], problem: str, title: str, split: str = "test") -> list[Row]:
    """Return the rows of a network on a problem."""
    wanted = (problem, title, split)
    return [row for row in rows if (row.training.problem, row.training.title, row.training.split) == wanted]


def longest(rows: Iterable[Row]) -> list[Row]:
    """Return the rows of the longest final trainings."""
    finals = [row for row in rows if row.training.split == "test"]
    most = max((row.training.seconds for row in finals), default=0.0)
    return [row for row in finals if row.training.seconds == most]


def mean_error(rows: Sequence[Row]) -> float:
    """Return the mean error over the seeds; 0 without rows."""
    return statistics.fmean(row.result.error for row in rows) if rows else 0.0


def verdict(rows: Sequence[Row]) -> str:
    """Return on how many problems Petrov's error is at most FNO's, and the largest ratio of the two."""
    rows = longest(rows)
    ratios = [
        mean_error(select(rows, problem, PETROV)) / mean_error(select(rows, problem, FNO))
        for problem in problems(rows)
        if select(rows, problem, PETROV) and select(rows, problem, FNO)
    ]
    at_most = sum(ratio <= 1 for ratio in ratios)
    return f"at most FNO's error on {at_most} of {len(ratios)} problems, at most {max(ratios, default=0):.2f} times it"
