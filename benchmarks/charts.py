"""Takes the figures of a run, draws them: time over points, and throughput over questions in flight."""

from __future__ import annotations

from typing import TYPE_CHECKING

import matplotlib as mpl
import matplotlib.pyplot as plt

from benchmarks import forward, load

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes

MARKS = ("o", "s", "^", "D", "v", "P", "X", "*", "h")


def draw_forward(found: list[forward.Cell], target: Path) -> None:
    """Draw everybody's time for one field over the number of points."""
    single = [cell for cell in found if cell.batch == 1]
    figure, axis = begin("points of the field", "processor time a field, ms")
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


def draw_service(found: load.Found, target: Path) -> None:
    """Draw every road's throughput over the questions in flight, for one grid."""
    figure, axis = begin("questions in flight", "fields a second")
    roads = dict.fromkeys(road for _, _, road in found.loads)
    counts = sorted({count for _, count, _ in found.loads})
    for road, mark in zip(roads, MARKS, strict=False):
        axis.plot(counts, [found.loads[1, count, road].throughput for count in counts], mark + "-", label=road)
    axis.set_xscale("log")
    axis.set_xticks(counts, [str(count) for count in counts])
    axis.minorticks_off()
    axis.set_ylim(bottom=0)
    finish(figure, axis, target)


def begin(across: str, up: str) -> tuple[plt.Figure, Axes]:
    """Give an empty picture."""
    mpl.use("agg")
    figure, axis = plt.subplots(figsize=(8, 4.2), layout="constrained")
    axis.set_xlabel(across)
    axis.set_ylabel(up)
    axis.grid(visible=True, alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    return figure, axis


def finish(figure: plt.Figure, axis: Axes, target: Path) -> None:
    """Add the legend and write the picture."""
    axis.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False, fontsize=9)
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=110, metadata={"Software": None})
    plt.close(figure)
