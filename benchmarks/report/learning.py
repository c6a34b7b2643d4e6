"""The picture of a comparison's learning curves: accuracy on validation samples by epoch."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.comparison import Row

#: The colours of Okabe and Ito, which are distinguishable with any colour vision.
COLOURS = ("#D55E00", "#0072B2", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#000000", "#7F7F7F")
MARKERS = "Dos^vPX*"
LINES = ("-", "--")  # those that use the colours a second time are dashed


def draw(rows: Sequence[Row], target: Path) -> None:
    """Draw means of all seeds as lines, and their ranges as bands.

    Args:
        rows: The rows; those without a curve are left out.
        target: The file, whose suffix decides the format.
    """
    mpl.use("agg")
    curves: dict[str, list[tuple[float, ...]]] = defaultdict(list)
    for row in rows:
        if row.curve:
            curves[row.attention].append(row.curve)
    figure, axis = plt.subplots(figsize=(9, 5.5), layout="constrained")
    for number, (kind, found) in enumerate(curves.items()):
        values = 100 * np.array(found)
        epochs = np.arange(1, values.shape[1] + 1)
        colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
        line = LINES[number // len(COLOURS) % len(LINES)]
        label = f"{kind} ({len(found)} seeds)" if len(found) > 1 else kind
        axis.plot(epochs, values.mean(axis=0), color=colour, linestyle=line, marker=marker, markersize=4, label=label)
        axis.fill_between(epochs, values.min(axis=0), values.max(axis=0), color=colour, alpha=0.12, linewidth=0)
    axis.set_xlabel("epoch of 100 steps")
    axis.set_ylabel("accuracy on validation samples, %")
    axis.grid(visible=True, alpha=0.3)
    axis.legend(fontsize=9, frameon=False, ncol=2, handlelength=3.5)
    figure.savefig(target, dpi=110, metadata={"Software": None})
    plt.close(figure)
