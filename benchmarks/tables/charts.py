"""The charts of docs/benchmarks.md: time over grid points, and throughput over requests in flight."""

from __future__ import annotations

from typing import TYPE_CHECKING

import matplotlib as mpl
import matplotlib.pyplot as plt
from matplotlib import ticker
from matplotlib.lines import Line2D

from benchmarks.tables import forward

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from benchmarks.service import throughput
    from benchmarks.tables.classical import pareto

MARKS = ("o", "s", "^", "D", "v", "P", "X", "*", "h", "<")


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


def draw_pareto(found: list[pareto.Point], target: Path) -> None:
    """Draw error against time, a panel per model and input; the network is the filled mark."""
    panels = list(dict.fromkeys((each.model, each.input) for each in found))
    columns = min(3, len(panels))
    mpl.use("agg")
    lines = -(-len(panels) // columns)
    figure, axes = plt.subplots(
        lines, columns, figsize=(4.2 * columns, 3.4 * lines), layout="constrained", squeeze=False
    )
    for axis, panel in zip(axes.flat, panels, strict=False):
        draw_panel(axis, [each for each in found if (each.model, each.input) == panel])
        axis.set_title(", ".join(panel), fontsize=10)
    for axis in axes.flat[len(panels) :]:
        axis.axis("off")
    families = {mark: name for name, mark in (family(each.method) for each in found)}
    handles = [Line2D([], [], marker=mark, linestyle="", color="black", label=name) for mark, name in families.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=9)
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=110, metadata={"Software": None})
    plt.close(figure)


def draw_panel(axis: Axes, points: list[pareto.Point]) -> None:
    """Draw one input: a line per kind of method."""
    for name, mark in dict.fromkeys(family(each.method) for each in points):
        # The method that computes the truth itself has no error to draw.
        chosen = [each for each in points if family(each.method)[0] == name and each.error > 0]
        chosen.sort(key=lambda each: each.seconds)
        axis.errorbar(
            [1e3 * each.seconds for each in chosen],
            [each.error for each in chosen],
            [each.standard_error for each in chosen],
            fmt=mark + "-",
            markerfacecolor="black" if name == "network" else "white",
            color="black" if name == "network" else "tab:blue",
            markersize=7,
        )
    axis.set(xscale="log", yscale="log")
    for scale, digits in ((axis.xaxis, "{x:g}"), (axis.yaxis, "{x:.0e}")):
        scale.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        scale.set_major_formatter(digits)
        scale.set_minor_formatter(ticker.NullFormatter())
    axis.set_xlabel("processor time per field, ms")
    axis.set_ylabel("relative L2 error")
    axis.grid(visible=True, alpha=0.3)


def family(method: str) -> tuple[str, str]:
    """Return a method's kind and its mark."""
    name = method.split(",", maxsplit=1)[0].removesuffix(" to 1e-10")
    return name, {"network": "o", "conjugate gradients": "s", "spectral": "^", "closed form": "D"}[name]


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
