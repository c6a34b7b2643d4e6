"""The charts of docs/benchmarks.md: time over grid points, and throughput over requests in flight."""

from __future__ import annotations

from typing import TYPE_CHECKING

import matplotlib as mpl
import matplotlib.pyplot as plt

from benchmarks.tables import forward

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from benchmarks.service import throughput

MARKS = ("o", "s", "^", "D", "v", "P", "X", "*", "h")


def draw_forward(found: list[forward.Cell], target: Path) -> None:
    """Draw the time of every side for one field over the number of points."""
    single = [cell for cell in found if cell.batch == 1]
    figure, axis = begin("points of the field", "processor time per field, ms")
    names = [side.name for side in single[0].sides if side.name not in forward.CORE]
    for name, mark in zip(names, MARKS, strict=True):
        axis.plot(
            [cell.grid**2 for cell in single],
            [1e3 * cell.side(name).seconds for cell in single],
            mark + "-",
            label=name,
        )
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xticks([cell.grid**2 for cell in single], [f"{cell.grid}²" for cell in single])
    axis.minorticks_off()
    finish(figure, axis, target)


def draw_service(found: throughput.Found, target: Path) -> None:
    """Draw the throughput of every route over the requests in flight, for one grid."""
    figure, axis = begin("requests in flight", "fields per second")
    routes = dict.fromkeys(route for _, _, route in found.loads)
    counts = sorted({count for _, count, _ in found.loads})
    for route, mark in zip(routes, MARKS, strict=False):
        axis.plot(counts, [found.loads[1, count, route].throughput for count in counts], mark + "-", label=route)
    axis.set_xscale("log")
    axis.set_xticks(counts, [str(count) for count in counts])
    axis.minorticks_off()
    axis.set_ylim(bottom=0)
    finish(figure, axis, target)


def begin(across: str, up: str) -> tuple[Figure, Axes]:
    """Return an empty figure with its axes labelled."""
    mpl.use("agg")
    figure, axis = plt.subplots(figsize=(8, 4.2), layout="constrained")
    axis.set_xlabel(across)
    axis.set_ylabel(up)
    axis.grid(visible=True, alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    return figure, axis


def finish(figure: Figure, axis: Axes, target: Path) -> None:
    """Add the legend and write the file."""
    axis.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False, fontsize=9)
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=110, metadata={"Software": None})
    plt.close(figure)
