"""Pictures of the best, the median and the worst field of a test set.

One row per field: input, truth, prediction, error. Truth and prediction share one colour scale, the errors of all rows
another, so that what looks alike is alike. All scales are perceptually even; that of the error has its middle at zero.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from numpy.typing import NDArray

from physics.numerics.norms import relative_l2
from training.data.pair import only_pair
from training.data.store import Array
from training.evaluation.case import Case
from training.evaluation.table import case_name

Field = NDArray[np.floating[Any]]
INPUT, OUTPUT, ERROR = "cividis", "viridis", "coolwarm"
LINES = {"truth": "#000000", "prediction": "#D55E00", "input": "#0072B2", "error": "#D55E00"}  # Okabe and Ito's colours


def draw(case: Case, found: Array, target: Path, title: str) -> None:
    """Write the picture of predictions in the format that the file's name ends with.

    Args:
        case: Inputs and truth.
        found: Predictions `[sample, *grid]`.
        target: The file.
        title: What the picture shows.
    """
    mpl.use("agg")
    inputs = case.inputs
    errors = relative_l2(found, case.truth)
    order = np.argsort(errors)
    chosen = {"best": order[0], "median": order[len(order) // 2], "worst": order[-1]}
    rows = {
        f"{name}\n{errors[index]:.1e}": (inputs[index], case.truth[index], found[index])
        for name, index in chosen.items()
    }
    figure = (draw_lines if inputs.ndim == 2 else draw_planes)(case, rows)
    figure.suptitle(
        f"{title}, {case_name(case.key)}: {len(errors)} test fields by their relative L2 error", fontsize=11
    )
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=80, metadata={"Software": None}, pil_kwargs={"optimize": True})
    plt.close(figure)


def draw_planes(case: Case, rows: dict[str, tuple[Field, Field, Field]]) -> Figure:
    """Draw a plane's fields as images; the unit square's first row is at the bottom."""
    figure, grid = plt.subplots(len(rows), 4, figsize=(9.6, 7.3), layout="constrained", squeeze=False)
    inputs, truths, found = (np.stack([row[part].ravel() for row in rows.values()]) for part in range(3))
    wrong = float(np.abs(found - truths).max())
    scales = [
        scale(INPUT, float(inputs.min()), float(inputs.max())),
        *[scale(OUTPUT, float(min(truths.min(), found.min())), float(max(truths.max(), found.max())))] * 2,
        scale(ERROR, -wrong, wrong),
    ]
    for axes, (name, (given, truth, prediction)) in zip(grid, rows.items(), strict=True):
        for axis, field, colours in zip(axes, (given, truth, prediction, prediction - truth), scales, strict=True):
            axis.imshow(field, cmap=colours.cmap, norm=colours.norm, origin="lower", extent=(0, 1, 0, 1))
            axis.set(xticks=[], yticks=[])
        axes[0].set_ylabel(name, fontsize=11)
    pair = only_pair(case.problem.description)
    label(grid[0], [f"{pair.input.name} (input)", f"{pair.output.name} (true)", "predicted", "error"])
    figure.colorbar(scales[0], ax=grid[:, 0], location="bottom", aspect=18)
    figure.colorbar(scales[1], ax=grid[:, 1:3], location="bottom", aspect=40)
    figure.colorbar(scales[3], ax=grid[:, 3], location="bottom", aspect=18)
    return figure


def scale(colours: str, low: float, high: float) -> ScalarMappable:
    """Return colours between two bounds."""
    return ScalarMappable(Normalize(low, high), colours)


def draw_lines(case: Case, rows: dict[str, tuple[Field, Field, Field]]) -> Figure:
    """Draw a line's fields as curves, truth and prediction in one panel."""
    figure, grid = plt.subplots(
        len(rows), 3, figsize=(9.6, 6.2), layout="constrained", squeeze=False, sharex=True, sharey="col"
    )
    for axes, (name, (given, truth, prediction)) in zip(grid, rows.items(), strict=True):
        x = np.arange(len(given)) / len(given)
        axes[0].plot(x, given, color=LINES["input"])
        axes[1].plot(x, truth, color=LINES["truth"], linewidth=2.5, label="true")
        axes[1].plot(x, prediction, color=LINES["prediction"], linestyle="--", label="predicted")
        axes[2].plot(x, prediction - truth, color=LINES["error"])
        axes[0].set_ylabel(name, fontsize=11)
        for axis in axes:
            axis.grid(visible=True, alpha=0.3)
    grid[0, 1].legend(fontsize=9, frameon=False)
    pair = only_pair(case.problem.description)
    label(grid[0], [f"{pair.input.name} (input)", pair.output.name, "error"])
    for axis in grid[-1]:
        axis.set_xlabel("x")
    return figure


def label(axes: NDArray[Any], titles: list[str]) -> None:
    """Put a title above each column."""
    for axis, title in zip(axes, titles, strict=True):
        axis.set_title(title, fontsize=10)
