"""The curves of a report: errors by epoch, by sample, by amount of data, by time, and in the race."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from training.fit.search import WITH
from training.report.collect import Report

COLOURS = {"training": "#009E73", "validation": "#0072B2", "test": "#D55E00"}  # Okabe and Ito's colours


def learning_curve(report: Report) -> Figure:
    """Draw loss and validation error against the epoch."""
    figure, axes = panel()
    epochs = [int(row["epoch"]) + 1 for row in report.epochs]
    for key, split, label in (("loss", "training", "training loss"), ("relative_l2", "validation", "validation error")):
        axes.semilogy(epochs, [row[key] for row in report.epochs], color=COLOURS[split], label=label)
    axes.set(xlabel="epoch", ylabel="relative L2 error")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return finished(figure, axes)


def distribution(report: Report) -> Figure:
    """Draw the share of samples whose error is below a value, by split."""
    figure, axes = panel()
    for split, errors in report.errors.items():
        order = np.sort(errors)
        order, share = np.concatenate([order[:1], order]), np.arange(len(order) + 1) / len(order)
        label = f"{split}, {len(errors)} samples"
        axes.step(order, share, where="post", color=COLOURS[split], label=label)
    axes.set(xscale="log", xlabel="relative L2 error", ylabel="share of samples below", ylim=(0, 1.02))
    return finished(figure, axes)


def amounts(report: Report) -> Figure:
    """Draw the validation error against the number of training samples."""
    figure, axes = panel()
    counts, means, bars = zip(
        *((samples, one["relative_l2"], one.get("standard_error", 0.0)) for samples, one in report.by_amount),
        strict=True,
    )
    axes.errorbar(counts, means, yerr=bars, color=COLOURS["validation"], marker="o", capsize=3, label="validation")
    axes.set(xscale="log", yscale="log", xlabel="training samples", ylabel="mean relative L2 error")
    finished(figure, axes)
    axes.xaxis.set_major_locator(FixedLocator(counts))
    return figure


def rollout(report: Report) -> Figure:
    """Draw the error of rollouts and of keeping the last given frame against time."""
    figure, axes = panel()
    times = [row["time"] for row in report.rollout]
    errors, spread = (
        np.array([row.get(key, 0.0) for row in report.rollout]) for key in ("relative_l2", "standard_error")
    )
    axes.semilogy(times, errors, color=COLOURS["test"], label="model")
    axes.fill_between(
        times, np.maximum(errors - spread, errors / 10), errors + spread, color=COLOURS["test"], alpha=0.2
    )
    axes.semilogy(
        times, [row["persistence"] for row in report.rollout], color="black", ls=":", label="last given frame"
    )
    axes.axvline(times[(report.frames or 1) - 1], color="grey", lw=0.8)
    axes.set(xlabel="time", ylabel="relative L2 error")
    return finished(figure, axes)


def race(found: Mapping[str, Any]) -> Figure:
    """Draw the validation error of each network against the share of the budget that it has used."""
    figure, axes = panel()
    lines: dict[str, list[tuple[float, float]]] = {}
    for each in found["rounds"]:
        for name, error in each["validation_error"].items():
            lines.setdefault(name, []).append((100 * each["share"], error))
    for name, points in lines.items():
        won = name == found["winner"]
        start = [lines[name.partition(WITH)[0]][-2]] if WITH in name else []
        axes.semilogy(*zip(*start, *points, strict=False), marker="o", lw=3 if won else 1, ms=4, label=name)
    axes.set(xlabel="share of the budget that a network has used, %", ylabel="validation error")
    finished(figure, axes).set_size_inches(6.4, 4.4)
    axes.legend(frameon=False, fontsize="x-small")
    return figure


def panel() -> tuple[Figure, Axes]:
    """Return a figure with one panel, half as wide as the page."""
    figure = Figure(figsize=(5.2, 3.4), layout="constrained")
    return figure, figure.subplots()


def finished(figure: Figure, axes: Axes) -> Figure:
    """Add what all curves share: a grid, a legend and plain numbers on logarithmic axes."""
    axes.grid(visible=True, alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    for axis in (axes.xaxis, axes.yaxis):
        if axis.get_scale() == "log":  # also where it spans less than a decade
            low, high = axis.get_view_interval()
            axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low > 5 else (1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9)))
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axis.set_minor_locator(NullLocator())
    return figure
