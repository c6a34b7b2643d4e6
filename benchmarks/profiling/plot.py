"""The chart of a profile: time and memory over the number of points, three panels per subject."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.ticker import FixedLocator, LogLocator, NullLocator, StrMethodFormatter

from benchmarks.profiling.forms import SUFFIX
from benchmarks.profiling.growth import Growth
from benchmarks.profiling.report import Profile
from benchmarks.profiling.rows import Row

#: Colours of Okabe and Ito, which are distinct for colour-blind readers, and a marker per type.
STYLE = {
    "galerkin": ("#0072B2", "o"),
    "fourier": ("#009E73", "s"),
    "linear": ("#E69F00", "^"),
    "softmax": ("#D55E00", "D"),
    "causal": ("#CC79A7", "v"),
}
#: For all other types, such as the kernel types, in the order in which a profile has them.
MARKERS = ("P", "X", "*", "p", "h", "<", ">", "d")
Panel = tuple[str, Callable[[Row], float], Callable[[Growth], float]]
PANELS: tuple[Panel, ...] = (
    ("forward, ms", lambda row: 1e3 * row.forward, lambda growth: growth.forward),
    ("backward, ms", lambda row: 1e3 * row.backward, lambda growth: growth.backward),
    ("peak memory, MB", lambda row: row.peak_bytes / 1e6, lambda growth: growth.memory),
)


def draw(profile: Profile, target: Path) -> None:
    """Write the chart in the format of the file's suffix."""
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
    """Draw one cost of one subject, every form as a line with its exponent; explicit forms are dashed.

    Args:
        axis: The axes to draw on.
        panel: Title, cost of a row, and exponent of a form.
        profile: The profile.
        subject: The name of the subject.
    """
    title, cost, power = panel
    rows = [row for row in profile.rows if row.subject == subject and row.skipped is None]
    exponents = {each.form: power(each) for each in profile.growth if each.subject == subject}
    known = styles(row.form for row in profile.rows)
    for drawn, form in enumerate(dict.fromkeys(row.form for row in rows)):
        own = sorted((row for row in rows if row.form == form), key=lambda row: row.points)
        colour, marker = known[form.removesuffix(SUFFIX)]
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


def styles(forms: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return colour and marker of each type; types without a style of their own take one from a colour map."""
    types = dict.fromkeys(form.removesuffix(SUFFIX) for form in forms)
    others = [each for each in types if each not in STYLE]
    colours = mpl.colormaps["viridis"].resampled(len(others) + 1)
    return STYLE | {
        each: (to_hex(colours(number)), MARKERS[number % len(MARKERS)]) for number, each in enumerate(others)
    }


def dress(axis: Axes, title: str, points: list[int]) -> None:
    """Label a panel; the ticks are the measured lengths."""
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
