"""The figures of a report, as images inside the page."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from io import BytesIO
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator
from numpy.typing import NDArray

from training.fit.own.workload import summary
from training.problems.own.problem_file import ProblemFile
from training.report.collect import Drawn, Report

Field = NDArray[np.floating[Any]]
INPUT, OUTPUT, DIFFERENCE = "cividis", "viridis", "coolwarm"
COLOURS = {"training": "#009E73", "validation": "#0072B2", "test": "#D55E00"}  # Okabe and Ito's colours
DECADES = 100.0
"""Positive fields whose greatest value is this many times the least are drawn by their logarithm."""
MOST = 4
"""The most columns of inputs, and the most pictures of outputs."""


def image(figure: Figure) -> str:
    """Return a figure as the address of an embedded SVG image."""
    target = BytesIO()
    with mpl.rc_context({"svg.hashsalt": "report", "savefig.transparent": True}):
        figure.savefig(target, format="svg", dpi=110, metadata={"Date": None, "Creator": None})
    return f"data:image/svg+xml;base64,{b64encode(target.getvalue()).decode()}"


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
    points = [(amount.samples, summary(amount.errors)) for amount in report.amounts]
    used = round(report.amounts[-1].samples / report.amounts[-1].share)
    points.append((used, report.figures["validation"]))
    counts = [samples for samples, _ in points]
    means = [figures["relative_l2"] for _, figures in points]
    bars = [figures.get("standard_error", 0.0) for _, figures in points]
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
        if axis.get_scale() == "log":
            plain(axis)
    return figure


def plain(axis: Axis) -> None:
    """Write plain numbers on a logarithmic axis, also where it spans less than a decade."""
    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low > 5 else (1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())


def samples(report: Report) -> dict[str, Figure]:
    """Draw the best, the median and the worst test sample, a figure per output component."""
    found: dict[str, Figure] = {}
    for name, component, label in components(report.problem, report.drawn[0].truth):
        if len(found) < MOST:
            found[label] = drawer(report)(report, name, component)
    return found


def drawer(report: Report) -> Callable[[Report, str, int | None], Figure]:
    """Return what draws the test samples: curves, planes, or planes of space and time."""
    if len(report.sides) > 1:
        return planes
    return lines if report.frames is None else hovmoeller


def components(problem: ProblemFile, fields: dict[str, Field]) -> Iterator[tuple[str, int | None, str]]:
    """List the components of fields: the field's name, the component's index, and how it is called."""
    sections = problem.inputs | problem.outputs
    for name in fields:
        named = sections[name].components
        if not named:
            yield name, None, name
        for index, component in enumerate(named):
            yield name, index, f"{name} {component}"


def plane(field: Field, component: int | None, axes: int) -> Field:
    """Return one component of a field; of three axes the plane in the middle of the first."""
    chosen = field if component is None else field[component]
    return chosen[chosen.shape[0] // 2] if axes == 3 else chosen


def planes(report: Report, output: str, component: int | None) -> Figure:
    """Draw fields on planes: inputs, truth, prediction and difference, a row per sample.

    Args:
        report: The report.
        output: Name of the output.
        component: Index of its component; None for a scalar.
    """
    rank, (vertical, horizontal) = len(report.sides), [*report.problem.axes.items()][-2:]
    inputs = [*components(report.problem, report.drawn[0].inputs)][:MOST]
    extent = (0, horizontal[1].length, 0, vertical[1].length)
    height = np.clip(2.2 * vertical[1].length / horizontal[1].length, 1.0, 3.2)
    figure = Figure(figsize=(2.35 * (len(inputs) + 3), (height + 0.1) * len(report.drawn) + 0.9), layout="constrained")
    grid = figure.subplots(len(report.drawn), len(inputs) + 3, squeeze=False)
    columns = [[plane(one.inputs[name], index, rank) for one in report.drawn] for name, index, _ in inputs]
    truth, predicted = (
        [plane(fields[output], component, rank) for fields in some]
        for some in ([one.truth for one in report.drawn], [one.predicted for one in report.drawn])
    )
    columns += [truth, predicted, [p - u for p, u in zip(predicted, truth, strict=True)]]
    shared = limits([*truth, *predicted])
    most = float(np.abs(columns[-1]).max()) or 1.0
    scales = [scale(INPUT, limits(column)) for column in columns[:-3]]
    scales += [scale(OUTPUT, shared), scale(OUTPUT, shared)]
    scales.append(scale(DIFFERENCE, (-most, most)))
    titles = [*(label for *_, label in inputs), "truth", "prediction", "difference"]
    for axes, column, colours, title in zip(grid.T, columns, scales, titles, strict=True):
        for axis, field in zip(axes, column, strict=True):
            axis.imshow(field, cmap=colours.cmap, norm=colours.norm, origin="lower", extent=extent, aspect="auto")
            axis.set(xticks=[], yticks=[])
        axes[0].set_title(title, fontsize=10)
        axes[-1].set_xlabel(horizontal[0], fontsize=8)
        figure.colorbar(colours, ax=[*axes], location="bottom", aspect=18, shrink=0.9).ax.tick_params(labelsize=7)
    for axis, one in zip(grid[:, 0], report.drawn, strict=True):
        axis.set_ylabel(f"{row_label(one)}\n{vertical[0]}", fontsize=8)
    return figure


def lines(report: Report, output: str, component: int | None) -> Figure:
    """Draw fields on a line as curves: inputs, output and difference, a row per sample; see `planes`."""
    inputs = [*components(report.problem, report.drawn[0].inputs)][:MOST]
    [(name, axis_)] = report.problem.axes.items()
    figure = Figure(figsize=(3.1 * (len(inputs) + 2), 2.1 * len(report.drawn)), layout="constrained")
    grid = figure.subplots(len(report.drawn), len(inputs) + 2, squeeze=False, sharex=True, sharey="col")
    x = (np.arange(report.sides[0]) + (axis_.points == "cells") / 2) * axis_.length
    x /= report.sides[0] - (axis_.points == "nodes")
    for axes, one in zip(grid, report.drawn, strict=True):
        for axis, (field, index, _) in zip(axes, inputs, strict=False):
            axis.plot(x, plane(one.inputs[field], index, 1), color=COLOURS["training"])
        truth, predicted = (plane(fields[output], component, 1) for fields in (one.truth, one.predicted))
        axes[-2].plot(x, truth, color="black", linewidth=2.5, label="truth")
        axes[-2].plot(x, predicted, color=COLOURS["test"], linestyle="--", label="prediction")
        axes[-1].plot(x, predicted - truth, color=COLOURS["test"])
        axes[0].set_ylabel(row_label(one), fontsize=8)
        for axis in axes:
            axis.grid(visible=True, alpha=0.25)
    grid[0, -2].legend(frameon=False, fontsize=8)
    for axis, title in zip(grid[0], [*(label for *_, label in inputs), output, "difference"], strict=True):
        axis.set_title(title, fontsize=10)
    for axis in grid[-1]:
        axis.set_xlabel(name, fontsize=8)
    return figure


def hovmoeller(report: Report, output: str, component: int | None) -> Figure:
    """Draw trajectories on a line as planes of space and time: truth, prediction and difference, a row per sample."""
    [(name, axis_)], frames = report.problem.axes.items(), report.frames or 1
    step = report.problem.time.step if report.problem.time else 1.0
    figure = Figure(figsize=(8.4, 2.2 * len(report.drawn) + 0.7), layout="constrained")
    grid = figure.subplots(len(report.drawn), 3, squeeze=False, sharex=True, sharey=True)
    pairs = [
        tuple(
            fields[output] if component is None else fields[output][:, component]
            for fields in (one.truth, one.predicted)
        )
        for one in report.drawn
    ]
    most = max(float(np.abs(found - truth).max()) for truth, found in pairs) or 1.0
    shared = scale(OUTPUT, limits([field for pair in pairs for field in pair]))
    colours = (shared, shared, scale(DIFFERENCE, (-most, most)))
    for axes, (truth, found), one in zip(grid, pairs, report.drawn, strict=True):
        for axis, field, colour in zip(axes, (truth, found, found - truth), colours, strict=True):
            extent = (0, axis_.length, 0.5 * step, (frames + 0.5) * step)
            axis.imshow(field, cmap=colour.cmap, norm=colour.norm, origin="lower", extent=extent, aspect="auto")
        axes[0].set_ylabel(f"{row_label(one)}\ntime", fontsize=8)
    for axes, title, colour in zip(grid.T, ("truth", "prediction", "difference"), colours, strict=True):
        axes[0].set_title(title, fontsize=10)
        axes[-1].set_xlabel(name, fontsize=8)
        figure.colorbar(colour, ax=[*axes], location="bottom", aspect=18, shrink=0.9).ax.tick_params(labelsize=7)
    return figure


def row_label(one: Drawn) -> str:
    """Say which sample a row shows."""
    numbers = "".join(f"\n{name} = {value:.3g}" for name, value in one.parameters.items())
    return f"{one.rank}: {one.error:.1e}\nsample {one.number}{numbers}"


def limits(fields: Sequence[Field]) -> tuple[float, float]:
    """Return the least and the greatest value of some fields."""
    return min(float(field.min()) for field in fields), max(float(field.max()) for field in fields)


def scale(colours: str, limits: tuple[float, float]) -> ScalarMappable:
    """Return colours between two values, on a logarithmic scale where positive values span decades."""
    low, high = limits
    return ScalarMappable(LogNorm(low, high) if low > 0 and high > DECADES * low else Normalize(low, high), colours)
