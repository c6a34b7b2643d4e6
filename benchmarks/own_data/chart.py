"""The chart of the comparison: test error against processor seconds, a panel per problem."""

from __future__ import annotations

from typing import TYPE_CHECKING

import matplotlib as mpl
import matplotlib.pyplot as plt
from matplotlib.ticker import NullLocator, ScalarFormatter

from benchmarks.own_data.comparison import TITLES
from benchmarks.own_data.tables import mean_error, problems, select

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

    from benchmarks.own_data.trainings import Row

STYLES = dict(zip(TITLES, ("o-", "s-", "D-", "D:"), strict=True))


def draw(rows: Sequence[Row], target: Path) -> None:
    """Draw a line per network through its mean errors after trainings of several lengths; the points are the seeds.

    Args:
        rows: The trainings.
        target: The file.
    """
    mpl.use("agg")
    names = problems(rows)
    figure, axes = plt.subplots(1, len(names), figsize=(2.6 * len(names) + 1, 3.2), layout="constrained", squeeze=False)
    for axis, name in zip(axes[0], names, strict=True):
        panel(axis, rows, name)
    axes[0, 0].set_ylabel("relative L2 error on test samples")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(TITLES), frameon=False, fontsize=9)
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=110, metadata={"Software": None})
    plt.close(figure)


def panel(axis: Axes, rows: Sequence[Row], name: str) -> None:
    """Draw the networks on one problem."""
    for title, style in STYLES.items():
        found = select(rows, name, title)
        times = sorted({row.training.seconds for row in found})
        means = [mean_error([row for row in found if row.training.seconds == each]) for each in times]
        [line] = axis.plot(times, means, style, label=title, markersize=4)
        axis.plot([row.training.seconds for row in found], [row.result.error for row in found], ".", ms=3, c="k")
        line.set_zorder(3)
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xticks(sorted({row.training.seconds for row in rows if row.training.split == "test"}))
    axis.xaxis.set_major_formatter(ScalarFormatter())
    axis.xaxis.set_minor_locator(NullLocator())
    axis.set_title(name, fontsize=10)
    axis.set_xlabel("processor seconds")
    axis.spines[["top", "right"]].set_visible(False)
