"""The pictures of the documentation: predictions, error against time, throughput, profiles and learning curves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.linalg import norm

import physics.burgers
import physics.darcy
from benchmarks.harness import Array, Row, graph, grouped, newest_graph, over_seeds
from benchmarks.tables.trained import tested
from physics.numerics.grid import WALL, coarsen

mpl.use("agg")
SEED, POINTS, BLOCKS, NOISE = 20, 141, (36, 36), 0.01
SOLVED = "solved on 421 x 421"  # with "pressure" it is wider than its panel
SUBS = ((2.3, (1, 2, 5)), (4, (1, 3)))  # up to so many decades, the labelled parts of each
OTHERS = 24  # samples for the standard deviation of the pressure at each point, the unit of the noise
MARKS = ("o", "s", "^", "D", "v", "P", "X", "*", "h", "<", "p", ">", "d", "8", ".", "+")
#: The colours of Okabe and Ito, which are distinguishable with any colour vision.
COLOURS = ("#D55E00", "#0072B2", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#000000", "#7F7F7F")


def save(figure: Figure, target: Path) -> None:
    """Write a figure, the same bytes for the same figure."""
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=110, metadata={"Software": None})
    plt.close(figure)


def predictions(repository: Path, folder: Path) -> None:
    """Draw one prediction of `darcy` and one of `darcy_inverse` on a field that is not in the training set."""
    for model in ("darcy", "darcy_inverse"):
        figure, axes = plt.subplots(1, 4, figsize=(13, 3.1), layout="constrained")
        compare(axes, repository, model)
        save(figure, folder / f"{model}.png")


def compare(axes: Sequence[Axes], repository: Path, model: str) -> None:
    """Draw input, prediction, truth and difference of a model of Darcy's flow, or of its inverse problem."""
    coefficient, truth = sample(SEED)
    inputs, colours = coefficient, ("cividis", "viridis")
    names = ["permeability (input)", "pressure (predicted)", SOLVED]
    if "inverse" in model:
        spread = np.std([sample(SEED + 1 + other)[1] for other in range(OTHERS)], axis=0)
        inputs = truth + NOISE * spread * np.random.default_rng(SEED).standard_normal(truth.shape)
        truth, colours = coarsen(physics.darcy.sample(SEED)[0], BLOCKS, WALL), colours[::-1]
        blocks = "permeability of blocks"
        names = ["pressure with 1 % noise", f"{blocks} (predicted)", f"{blocks} (true)"]
    found = graph(newest_graph(repository / model))(inputs)
    error = found - truth
    bound = float(np.abs(error).max())
    for axis, title, field, colour, low, high in zip(
        axes,
        [*names, f"difference, relative L2 {norm(error) / norm(truth):.1e}"],
        (inputs, found, truth, error),
        (*colours, colours[1], "RdBu"),
        (0.0, 0.0, 0.0, -bound),
        (inputs.max(), truth.max(), truth.max(), bound),
        strict=True,
    ):
        image = axis.imshow(field, cmap=colour, vmin=low, vmax=high, origin="lower", extent=(0, 1, 0, 1))
        axis.set_title(title, fontsize=10)
        axis.set_xticks([0, 1])
        axis.set_yticks([0, 1])
        axis.figure.colorbar(image, ax=axis, shrink=0.85)


def paper(repository: Path, target: Path) -> None:
    """Draw what the served graphs of the paper's networks predict, beside the solutions."""
    figure, axes = plt.subplots(3, 4, figsize=(13, 8.9), layout="constrained", height_ratios=(3, 3, 2.6))
    for row, model in zip(axes, ("darcy_galerkin", "darcy_inverse_galerkin"), strict=False):
        compare(row, repository, model)
        row[1].set_title(model, fontsize=10)
    solve = graph(newest_graph(repository / "burgers_galerkin"))
    for axis, seed in zip(axes[2], range(SEED, SEED + 4), strict=True):
        initial, final = physics.burgers.sample(seed)
        places = np.arange(len(initial)) / len(initial)
        errors = []
        for points, style in ((512, {"c": COLOURS[0], "lw": 3}), (len(initial), {"c": COLOURS[1], "ls": ":", "lw": 3})):
            step = len(initial) // points
            velocity = solve(initial[::step])
            errors.append(norm(velocity - final[::step]) / norm(final[::step]))
            axis.plot(places[::step], velocity, label=f"burgers_galerkin, {points} points", **style)
        axis.plot(places, initial, c="0.75", lw=1, label="initial velocity", zorder=1)
        axis.plot(places, final, c="black", lw=0.8, label="solved on 8192 points")
        axis.set_title(f"relative L2 {errors[0]:.1e} and {errors[1]:.1e}", fontsize=10)
    handles, labels = axes[2, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    save(figure, target)


@cache
def sample(seed: int) -> tuple[Array, Array]:
    """Return permeability and pressure [`POINTS`, `POINTS`], solved on the benchmark's mesh."""
    fields = physics.darcy.sample(seed)
    permeability, pressure = (np.asarray(physics.darcy.restrict(each, POINTS), dtype=float) for each in fields)
    return permeability, pressure


def methods(rows: Sequence[Row], target: Path) -> None:
    """Draw error against time, a panel per model and input; the network is the filled mark."""
    kinds = {"network": "o", "conjugate gradients": "s", "interface reconstructed": "P"}
    kinds |= {"spectral": "^", "closed form": "D", "total variation": "v"}
    if unknown := {row["method"] for row in rows if not row["method"].startswith(tuple(kinds))}:
        raise ValueError(f"expected methods that begin with {', '.join(kinds)} but got {', '.join(sorted(unknown))}")
    panels = list(dict.fromkeys((row["model"], row["input"]) for row in rows))
    lines = -(-len(panels) // 3)
    figure, axes = plt.subplots(lines, 3, figsize=(12.6, 3.4 * lines), layout="constrained", squeeze=False)
    for axis, panel in zip(axes.flat, panels, strict=False):
        for kind, mark in kinds.items():
            # The method that computes the truth itself has no error to draw.
            own = [row for row in rows if (row["model"], row["input"]) == panel and row["error"] > 0]
            chosen = sorted((row for row in own if row["method"].startswith(kind)), key=lambda row: row["seconds"])
            colours = ("black", "black") if kind == "network" else ("tab:blue", "white")
            if chosen:
                times, errors, spreads = (
                    [row[key] for row in chosen] for key in ("seconds", "error", "standard_error")
                )
                times = [1e3 * each for each in times]
                axis.errorbar(times, errors, spreads, fmt=f"{mark}-", c=colours[0], mfc=colours[1], ms=7, label=kind)
        logarithmic(axis, "processor time per field, ms", "relative L2 error")
        axis.set_title(", ".join(panel), fontsize=10)
    for axis in axes.flat[len(panels) :]:
        axis.axis("off")
    handles = {label: handle for axis in axes.flat for handle, label in zip(*axis.get_legend_handles_labels())}  # noqa: B905
    figure.legend(handles.values(), handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=9)
    save(figure, target)


def logarithmic(axis: Axes, across: str, up: str) -> None:
    """Give a panel logarithmic axes with plain numbers, the fewer a decade the more decades there are."""
    axis.set(xscale="log", yscale="log", xlabel=across, ylabel=up)
    for scale in (axis.xaxis, axis.yaxis):
        low, high = scale.get_view_interval()
        decades = np.log10(high / low)
        subs = next((subs for most, subs in SUBS if decades < most), (1,))
        scale.set_major_locator(ticker.LogLocator(subs=subs))
        scale.set_major_formatter("{x:g}")
        scale.set_minor_formatter(ticker.NullFormatter())
    axis.grid(visible=True, alpha=0.3)


def lines(rows: Sequence[Row], keys: tuple[str, str, str], across: str, up: str, target: Path) -> None:
    """Draw a line per name."""
    name, x, y = keys
    figure, axis = plt.subplots(figsize=(8, 4.2), layout="constrained")
    for each, mark in zip(dict.fromkeys(row[name] for row in rows), MARKS, strict=False):
        own = [row for row in rows if row[name] == each]
        axis.plot([row[x] for row in own], [row[y] for row in own], f"{mark}-", label=each)
    axis.set(xscale="log", xlabel=across, ylabel=up)
    ticks = sorted({row[x] for row in rows})
    axis.set_xticks(ticks, [str(each) for each in ticks])
    axis.minorticks_off()
    axis.grid(visible=True, alpha=0.3)
    axis.set_ylim(bottom=0)
    axis.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False, fontsize=9)
    save(figure, target)


def profile(rows: Sequence[Row], target: Path) -> None:
    """Draw time and memory over the tokens; explicit forms are dashed."""
    from benchmarks.profile import COSTS, SUFFIX, growth  # noqa: PLC0415 -- only this picture needs torch

    exponents, types = growth(rows), list(dict.fromkeys(row["form"].removesuffix(SUFFIX) for row in rows))
    units = {"forward": ("forward, ms", 1e3), "backward": ("backward, ms", 1e3), "memory": ("peak memory, MB", 1e-6)}
    figure, axes = plt.subplots(1, 3, figsize=(13, 5), layout="constrained")
    for axis, (cost, (title, scale)) in zip(axes, units.items(), strict=True):
        for drawn, form in enumerate(dict.fromkeys(row["form"] for row in rows)):
            own = sorted((row for row in rows if row["form"] == form), key=lambda row: row["length"])
            number, explicit = types.index(form.removesuffix(SUFFIX)), form.endswith(SUFFIX)
            colour = COLOURS[number % len(COLOURS)]
            axis.plot(
                [row["length"] for row in own],
                [scale * COSTS[cost](row) for row in own],
                color=colour,
                marker=MARKS[number % len(MARKS)],
                markerfacecolor="white" if explicit else colour,
                linestyle="--" if explicit else "-",
                markersize=max(4, 10 - 2 * drawn),  # a line that hides an earlier one leaves its edge visible
                linewidth=max(1.2, 3 - 0.6 * drawn),
                label=f"{form}, $n^{{{exponents[form][cost]:.2f}}}$",
            )
        logarithmic(axis, "tokens", title)
        ticks = sorted({row["length"] for row in rows})
        axis.set_xticks(ticks, [str(each) for each in ticks])
        axis.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.13), ncol=2, frameon=False)
    save(figure, target)


def learning(rows: Iterable[Row], target: Path) -> None:
    """Draw the curves of a comparison: means of all seeds as lines, and their ranges as bands."""
    curves: dict[str, list[list[float]]] = defaultdict(list)
    for row in rows:
        if row["curve"]:
            curves[row["attention"]].append(row["curve"])
    figure, axis = plt.subplots(figsize=(9, 5.5), layout="constrained")
    for number, (kind, found) in enumerate(curves.items()):
        values = 100 * np.array(found)
        epochs, colour = np.arange(1, values.shape[1] + 1), COLOURS[number % len(COLOURS)]
        style: dict[str, Any] = {"linestyle": ("-", "--")[number // len(COLOURS) % 2], "marker": MARKS[number % 8]}
        axis.plot(
            epochs, values.mean(axis=0), color=colour, markersize=4, label=f"{kind} ({len(found)} seeds)", **style
        )
        axis.fill_between(epochs, values.min(axis=0), values.max(axis=0), color=colour, alpha=0.12, linewidth=0)
    axis.set(xlabel="epoch of 100 steps", ylabel="accuracy on validation samples, %")
    axis.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
    axis.grid(visible=True, alpha=0.3)
    axis.legend(fontsize=9, frameon=False, ncol=2, handlelength=3.5)
    save(figure, target)


def amounts(rows: Sequence[Row], target: Path) -> None:
    """Draw the test error of every network with its standard error over the training samples, a panel per problem."""
    problems = grouped(tested(rows), lambda row: row["training"]["problem"])
    figure, axes = plt.subplots(1, len(problems), figsize=(4 * len(problems), 3.4), layout="constrained", squeeze=False)
    for axis, (problem, trainings) in zip(axes[0], problems.items(), strict=True):
        titles = grouped(trainings, lambda row: row["training"]["title"])
        for number, (title, own) in enumerate(sorted(titles.items())):
            groups = sorted(grouped(own, lambda row: row["training"]["samples"]).items())
            found = [over_seeds(np.array([row["result"]["errors"] for row in each])) for _, each in groups]
            counts, (means, spreads) = [count for count, _ in groups], zip(*found, strict=True)
            axis.errorbar(counts, means, spreads, fmt=f"{MARKS[number]}-", color=COLOURS[number], ms=5, label=title)
        logarithmic(axis, "training samples", "relative L2 error on test samples")
        axis.set_xticks(counts, [str(each) for each in counts])
        axis.xaxis.set_minor_locator(ticker.NullLocator())
        axis.set_title(problem, fontsize=10)
        axis.legend(frameon=False, fontsize=8)
    save(figure, target)


def own_data(rows: Sequence[Row], target: Path) -> None:
    """Draw the test error of every network with its standard error, a panel per problem, a mark per processor time."""
    finals = tested(rows)
    problems, titles, times = (
        list(dict.fromkeys(row["training"][key] for row in finals)) for key in ("problem", "title", "seconds")
    )
    size = (2.3 * len(problems) + 1.2, 0.3 * len(titles) + 1.3)
    figure, axes = plt.subplots(1, len(problems), figsize=size, layout="constrained", squeeze=False, sharey=True)
    for axis, problem in zip(axes[0], problems, strict=True):
        for time, mark in zip(sorted(times), "os^", strict=False):
            for place, title in enumerate(titles):
                wanted = {"problem": problem, "title": title, "seconds": time}
                own = [row for row in finals if wanted.items() <= row["training"].items()]
                if own:
                    mean, spread = over_seeds(np.array([row["result"]["errors"] for row in own]))
                    colour = "C1" if title.startswith("Petrov") else "C0"
                    axis.errorbar(mean, place, xerr=spread, fmt=mark, color=colour, markersize=5, capsize=2)
        axis.set(xlim=(0, None), yticks=range(len(titles)), yticklabels=titles)
        axis.set_title(problem, fontsize=10)
        axis.xaxis.set_major_locator(ticker.MaxNLocator(3))
        axis.grid(visible=True, axis="x", alpha=0.3)
    axes[0, 0].invert_yaxis()
    marks = [axes[0, 0].plot([], [], mark, color="gray")[0] for _, mark in zip(times, "os^", strict=False)]
    figure.legend(marks, [f"{time:g} s" for time in sorted(times)], loc="outside upper center", ncols=3, frameon=False)
    figure.supxlabel("relative L2 error on test samples", fontsize=9)
    save(figure, target)


def rollouts(rows: Sequence[Row], target: Path) -> None:
    """Draw the error of the first frame against the time per frame."""
    figure, axis = plt.subplots(figsize=(6, 4.4), layout="constrained")
    for label, mark, start in (
        ("solver, coarser grids and larger steps", "o", "solver,"),
        ("network", "s", "network"),
        ("FNO", "^", "FNO"),
    ):
        own = [row for row in rows if row["method"].split("'")[0].startswith(start) and row["errors"][0] < 1]
        own = [row for row in own if start != "network" or row["method"] == start]
        axis.plot([row["milliseconds"] for row in own], [row["errors"][0] for row in own], mark, label=label)
    still = next(row for row in rows if row["method"].startswith("keeping"))
    axis.axhline(still["errors"][0], linestyle="--", color="gray", label="keeping the first frame")
    logarithmic(axis, "milliseconds of one core per frame", "relative L2 error of the first frame")
    figure.legend(loc="outside upper center", ncols=2)  # where no point is
    save(figure, target)


def sizes(rows: Sequence[Row], target: Path) -> None:
    """Draw time and memory of a model on points against their number."""
    figure, axes = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
    points = [row["points"] for row in rows]
    for axis, key, label in zip(axes, ("seconds", "megabytes"), ("seconds of one core", "megabytes"), strict=True):
        values = [row[key] for row in rows]
        axis.plot(points, values, marker="o", color=COLOURS[1], label="measured")
        slope = (values[-1] - values[0]) / (points[-1] - points[0])
        line = [values[0] + slope * (count - points[0]) for count in points]
        axis.plot(points, line, linestyle="--", color="gray", label="a constant and a linear part")
        axis.set(xscale="log", yscale="log", xlabel="points", ylabel=label)
        axis.grid(visible=True, alpha=0.3)
    axes[0].legend(frameon=False)
    save(figure, target)
