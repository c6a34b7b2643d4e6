"""The sentences and tables of a report, which the page and the terminal share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from training.report.advice import sentence
from training.report.collect import Report

ERRORS = ("split", "samples", "mean", "standard error", "median", "95th percentile", "worst")
KEYS = ("relative_l2", "standard_error", "median", "percentile_95", "worst")
DATA = ("array", "role", "shape", "units", "least", "greatest", "mean", "deviation")


def verdict(report: Report) -> list[str]:
    """Say what the model is worth, and what to do next."""
    test = report.figures["test"]
    accuracy = (
        f"On {report.counts[2]} test samples, which took part in no decision, the relative L2 error{horizon(report)} "
        "is "
        f"{percent(test['relative_l2'])} on average (median {percent(test['median'])}, "
        f"worst {percent(test['worst'])}). "
        f"{naive(report)} has an error of {percent(report.baseline)}."
    )
    return [accuracy, trust(report.calibration, rollouts=bool(report.frames)), cost(report), sentence(report.evidence)]


def horizon(report: Report) -> str:
    """Say over how many frames an error of trajectories is measured."""
    return f" over {report.frames} frames" if report.frames else ""


def naive(report: Report) -> str:
    """Name the prediction that needs no network."""
    return "Keeping the last given frame" if report.frames else "Predicting the mean training output"


def trust(calibration: Mapping[str, Any] | None, *, rollouts: bool = False) -> str:
    """Say how well the model's own error estimates hold on test samples; those of rollouts are on the card."""
    if rollouts:
        return "With nine validation samples or more, the card estimates the error of every frame."
    if calibration is None or "coverage" not in calibration:
        return "There are too few validation samples for error estimates in the responses."
    return (
        f"Responses estimate their error: on the test samples by {percent(calibration['mean_estimate'])} on average, "
        f"and by at least the true error for {100 * calibration['coverage']:.0f} % of them (aim: 90 %)."
    )


def cost(report: Report) -> str:
    """Say what the model and the user's solver cost."""
    times = report.times
    network = f"One sample takes {duration(times.network)} on one core ({report.processor}), before the export"
    if times.solver is None:
        return f"{network}. The key solver_seconds of the problem file compares this with your solver."
    beside = f"{network}, and {duration(times.solver)} with your solver: {times.speedup:.3g} times as long"
    if times.repaid is None:
        return f"{beside}. Your solver is faster, so the model saves no time."
    return f"{beside}. The training of {duration(times.training)} is repaid after {times.repaid:,.0f} samples."


def errors(report: Report) -> list[tuple[str, ...]]:
    """Return the rows of the table of errors under `ERRORS`."""
    return [
        (split, str(len(report.errors[split])), *(percent(figures[key]) if key in figures else "" for key in KEYS))
        for split, figures in report.figures.items()
    ]


def data(report: Report) -> list[tuple[str, ...]]:
    """Return the rows of the table of the data under `DATA`."""
    return [
        (
            one.name,
            one.role,
            " x ".join(map(str, one.shape)) or "number",
            one.units,
            *(f"{value:.4g}" for value in (one.minimum, one.maximum, one.mean, one.deviation)),
        )
        for one in report.tensors
    ]


def amounts(report: Report) -> list[tuple[str, str]]:
    """Return the validation error by number of training samples; nothing where it was not measured."""
    if not report.amounts:
        return []
    used = round(report.amounts[-1].samples / report.amounts[-1].share)
    rows = [(str(amount.samples), percent(float(amount.errors.mean()))) for amount in report.amounts]
    return [*rows, (str(used), percent(report.figures["validation"]["relative_l2"]))]


def percent(value: float) -> str:
    """Write an error in per cent, with three digits."""
    return f"{100 * value:.3g} %"


def duration(seconds: float) -> str:
    """Write a time in the unit that suits it."""
    for unit, size in (("h", 3600.0), ("min", 60.0), ("s", 1.0), ("ms", 1e-3)):
        if seconds >= size or unit == "ms":
            return f"{seconds / size:.3g} {unit}"
    raise AssertionError
