"""The chart of the comparison: test error of every network by problem."""

from __future__ import annotations

from typing import TYPE_CHECKING

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np

from benchmarks.own_data.comparison import TITLES
from benchmarks.own_data.tables import mean_error, problems, select

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.own_data.trainings import Row

WIDTH = 0.2  # of a bar; four stand side by side


def draw(rows: Sequence[Row], target: Path) -> None:
    """Draw a group of bars per problem; the points are the seeds.

    Args:
        rows: The trainings.
        target: The file.
    """
    mpl.use("agg")
    figure, axis = plt.subplots(figsize=(9, 4), layout="constrained")
    names = problems(rows)
    for index, title in enumerate(TITLES):
        found = [select(rows, name, title) for name in names]
        at = np.arange(len(names)) + (index - 1.5) * WIDTH
        axis.bar(at, [mean_error(each) for each in found], WIDTH, label=title)
        points = [(x, row.result.error) for x, each in zip(at, found, strict=True) for row in each]
        axis.plot(*zip(*points, strict=True), "k.", markersize=3) if points else None
    axis.set_yscale("log")
    axis.set_xticks(range(len(names)), names)
    axis.set_ylabel("relative L2 error on test samples")
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, fontsize=9)
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=110, metadata={"Software": None})
    plt.close(figure)
