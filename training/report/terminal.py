"""A report on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from training.report import texts
from training.report.collect import Report

BLOCKS = "▁▂▃▄▅▆▇█"
WIDTH = 60


def show(report: Report, console: Console) -> None:
    """Print a report.

    Args:
        report: The report.
        console: Where it is printed.
    """
    train, validation, test = report.counts
    heads = f"{train} training, {validation} validation and {test} test samples on {sides(report)} points"
    console.print(table(f"{report.problem.name}: {heads}", texts.DATA, texts.data(report)))
    for remark in report.remarks:
        console.print(f"note: {remark}", markup=False)
    console.print(table("relative L2 error by sample", texts.ERRORS, texts.errors(report)))
    curve = [row["relative_l2"] for row in report.epochs]
    console.print(f"validation error by epoch, {curve[0]:.2g} to {curve[-1]:.2g}, logarithmic\n{sparkline(curve)}\n")
    ranks = ", ".join(f"{one.rank} {one.number} ({texts.percent(one.error)})" for one in report.drawn)
    console.print(f"test samples: {ranks}", markup=False)
    if rows := texts.amounts(report):
        console.print(table("amount of data", ("training samples", "mean error"), rows))
    for line in texts.verdict(report):
        console.print(line, markup=False, highlight=False)


def sides(report: Report) -> str:
    """Write the grid."""
    return " x ".join(map(str, report.sides))


def table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Lay out a table for eighty columns; the first column is left-aligned."""
    made = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    for index, name in enumerate(header):
        made.add_column(name, justify="right" if index else "left")
    for row in rows:
        made.add_row(*row)
    return made


def sparkline(values: Sequence[float]) -> str:
    """Draw positive values as blocks, on a logarithmic scale, at most `WIDTH` of them."""
    parts = np.array_split(np.log(values), min(WIDTH, len(values)))
    means = np.asarray([part.mean() for part in parts])
    span = float(np.ptp(means)) or 1.0
    return "".join(BLOCKS[int(level)] for level in np.rint((means - means.min()) / span * (len(BLOCKS) - 1)))
