"""A picture of all experiments, with one panel each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import typer
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator, StrMethodFormatter

from research.memorisation.curves import AXES, FUNCTIONS, curves, floors, height
from research.memorisation.trials import Record

#: The colours of Okabe and Ito, which are distinguishable with any colour vision, and a marker for each.
STYLE = (
    ("#0072B2", "o"),
    ("#D55E00", "D"),
    ("#009E73", "s"),
    ("#CC79A7", "v"),
    ("#E69F00", "^"),
    ("#56B4E9", "P"),
)
#: Styles of the forms of attention, equal in all panels.
FIRST = {"softmax": 0, "hardmax": 1, "softmax, rank 1": 0, "hardmax, rank 1": 1, "constructed softmax, rank 1": 4}
FULL = {"softmax, full rank": 2, "hardmax, full rank": 3}
COLUMNS = 3
#: Subjects of experiments on other data than random sets.
SUBJECTS = {
    "counterexample": "the counter-example memorised",
    "entities": "named entities memorised",
    "context": "labels that need context",
    "function": "error",
    "universality": "error",
    "order": "error of a function of the order",
}


def expect_picture(target: Path | None) -> Path | None:
    """Return the file of an option, if it is of a kind that can be drawn, before anything is computed.

    Raises:
        BadParameter: Its suffix is of no picture.
    """
    if target and target.suffix[1:].lower() not in (known := Figure().canvas.get_supported_filetypes()):
        raise typer.BadParameter(f"expected a file that ends in .{', .'.join(sorted(known))} but got {target}")
    return target


def draw(records: Sequence[Record], target: Path) -> None:
    """Write the picture; the suffix of the file's name decides the format."""
    mpl.use("agg")
    lines = -(-len(records) // COLUMNS)
    figure, grid = plt.subplots(lines, COLUMNS, figsize=(14, 5 * lines), layout="constrained", squeeze=False)
    for axis, record in zip(grid.flat, records, strict=False):
        panel(axis, record)
    for axis in grid.flat[len(records) :]:
        axis.axis("off")
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=110)
    plt.close(figure)


def panel(axis: Axes, record: Record) -> None:
    """Draw one experiment: means of all seeds as lines, their ranges as bands."""
    for number, (label, points) in enumerate(curves(record.experiment, record.rows, height).items()):
        colour, marker = STYLE[(FIRST | FULL).get(label.split(": ")[-1], number) % len(STYLE)]
        x = [point.x for point in points]
        dashed = "uner" in label
        axis.plot(
            x,
            [point.mean for point in points],
            color=colour,
            marker=marker,
            markerfacecolor="white" if dashed else colour,
            linestyle="--" if dashed else "-",
            label=label,
        )
        low, high = ([choose(point.values) for point in points] for choose in (min, max))
        axis.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
    for label, points in floors(record).items():
        x, y = [point.x for point in points], [point.mean for point in points]
        axis.plot(x, y, color="0.45", linestyle="--" if "uner" in label else ":", label=label)
    dress(axis, record)


def dress(axis: Axes, record: Record) -> None:
    """Label a panel; the ticks are the measured values."""
    function, name = record.experiment in FUNCTIONS, AXES[record.experiment].name
    axis.set_title(f"{SUBJECTS.get(record.experiment, 'memorised')} by {name}", fontsize=11)
    axis.set_xlabel(name)
    axis.set_ylabel("error / standard deviation" if function else "share of labels memorised")
    axis.set_xscale("log", base=2)
    axis.xaxis.set_major_locator(FixedLocator(sorted({AXES[record.experiment].x(row) for row in record.rows})))
    axis.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.xaxis.set_minor_locator(NullLocator())
    if function:
        axis.set_ylim(0)
    axis.grid(visible=True, alpha=0.3)
    axis.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.13), ncol=2, frameon=False)
