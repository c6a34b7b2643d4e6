"""One field to look at: takes a released checkpoint, gives a picture of question, answer, truth and difference."""

from __future__ import annotations

from typing import TYPE_CHECKING

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np

import physics.darcy
from benchmarks.latency import runtime_road

if TYPE_CHECKING:
    from pathlib import Path

SEED, POINTS = 20, 141


def draw(repository: Path, target: Path) -> None:
    """Draw the newest exported `darcy` on a field of its training distribution that it never saw."""
    coefficient, truth = (physics.darcy.restrict(field, POINTS) for field in physics.darcy.sample(SEED))
    found = runtime_road(repository, coefficient.astype(np.float32))()
    mpl.use("agg")
    figure, axes = plt.subplots(1, 4, figsize=(13, 3.1), layout="constrained")
    error = np.linalg.norm(found - truth) / np.linalg.norm(truth)
    panels = [
        ("permeability (asked)", coefficient, "cividis", None),
        ("pressure (answered)", found, "viridis", truth.max()),
        ("pressure (solved on 421 x 421)", truth, "viridis", truth.max()),
        (f"difference, relative L2 {error:.1e}", found - truth, "RdBu", None),
    ]
    for axis, (title, field, colours, top) in zip(axes, panels, strict=True):
        bound = np.abs(field).max() if top is None else top
        low = -bound if colours == "RdBu" else 0
        image = axis.imshow(field, cmap=colours, vmin=low, vmax=bound, origin="lower", extent=(0, 1, 0, 1))
        axis.set_title(title, fontsize=10)
        axis.set_xticks([0, 1])
        axis.set_yticks([0, 1])
        figure.colorbar(image, ax=axis, shrink=0.85)
    figure.savefig(target, dpi=110, metadata={"Software": None})
    plt.close(figure)
