"""For the eye: takes a profile, draws time and memory over the number of points, three panels for a subject."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, LogLocator, NullLocator, StrMethodFormatter

from benchmarks.profiling.forms import SUFFIX
from benchmarks.profiling.growth import Growth
from benchmarks.profiling.report import Profile
from benchmarks.profiling.rows import Row

#: Okabe and Ito's colours, told apart by every kind of sight; each type has a marker of its own, too.
STYLE = {
    "galerkin": ("#0072B2", "o"),
    "fourier": ("#009E73", "s"),
    "linear": ("#E69F00", "^"),
    "softmax": ("#D55E00", "D"),
    "causal": ("#CC79A7", "v"),
}
Panel = tuple[str, Callable[[Row], float], Callable[[Growth], float]]
PANELS: tuple[Panel, ...] = (
    ("forward, ms", lambda row: 1e3 * row.forward, lambda growth: growth.forward),
    ("backward, ms", lambda row: 1e3 * row.backward, lambda growth: growth.backward),
    ("peak memory, MB", lambda row: row.peak_bytes / 1e6, lambda growth: growth.memory),
)


def draw(profile: Profile, target: Path) -> None:
    """Write the picture in the format that the file's name ends with."""
    mpl.use("agg")
    subjects = list(dict.fromkeys(row.subject for row in profile.rows))
    figure, grid = plt.subplots(
        len(subjects), len(PANELS), figsize=(13, 5 * len(subjects)), layout="constrained", squeeze=False
    )
    for axes, subject in zip(grid, subjects, strict=True):
        for axis, panel in zip(axes, PANELS, strict=True):
            draw_panel(axis, panel, profile, subject)
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=110)
    plt.close(figure)


def draw_panel(axis: Axes, panel: Panel, profile: Profile, subject: str) -> None:
    """Draw one cost of one subject, every form as a line with its exponent; explicit forms are dashed."""
    title, cost, power = panel
    rows = [row for row in profile.rows if row.subject == subject and row.skipped is None]
    exponents = {each.form: power(each) for each in profile.growth if each.subject == subject}
    for drawn, form in enumerate(dict.fromkeys(row.form for row in rows)):
        own = sorted((row for row in rows if row.form == form), key=lambda row: row.points)
        colour, marker = STYLE[form.removesuffix(SUFFIX)]
        explicit = form.endswith(SUFFIX)
        axis.plot(
            [row.points for row in own],
            [cost(row) for row in own],
            color=colour,
            marker=marker,
            markerfacecolor="white" if explicit else colour,
            linestyle="--" if explicit else "-",
            markersize=max(4, 10 - 2 * drawn),  # a line that hides an earlier one leaves its edge visible
            linewidth=max(1.2, 3 - 0.6 * drawn),
            label=f"{form}, $n^{{{exponents[form]:.2f}}}$" if form in exponents else form,
        )
    dress(axis, f"{subject}: {title}", sorted({row.points for row in rows}))


def dress(axis: Axes, title: str, points: list[int]) -> None:
    """Label a panel; the ticks are the lengths that were measured."""
    axis.set_title(title, fontsize=10)
    axis.set_xlabel("points")
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.xaxis.set_major_locator(FixedLocator(points))
    axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    for each in (axis.xaxis, axis.yaxis):
        each.set_minor_locator(NullLocator())
        each.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.grid(visible=True, alpha=0.3)
    if points:
        axis.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.13), ncol=2, frameon=False)
