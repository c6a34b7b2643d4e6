"""Pictures of one prediction of `darcy` and of `darcy_inverse`: input, output, truth and difference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import onnxruntime

import physics.darcy
from benchmarks.repository import feed, newest_graph
from physics.numerics.averages import coarsen
from physics.numerics.grid import WALL

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

SEED, POINTS, BLOCKS, NOISE = 20, 141, (36, 36), 0.01
OTHERS = 24  # samples for the standard deviation of the pressure at each point, the unit of the noise


class Panel(NamedTuple):
    """One image: its title, what it shows, and its colours between two bounds."""

    title: str
    field: NDArray[np.floating[Any]]
    colours: str
    low: float
    high: float


def draw_darcy(repository: Path, target: Path) -> None:
    """Draw the newest exported `darcy` on a field of its training distribution that is not in the training set."""
    coefficient, truth = sample(SEED)
    found = predict(repository / "darcy", coefficient)
    panels = [
        Panel("permeability (input)", coefficient, "cividis", 0, coefficient.max()),
        Panel("pressure (predicted)", found, "viridis", 0, truth.max()),
        Panel("pressure (solved on 421 x 421)", truth, "viridis", 0, truth.max()),
    ]
    lay_out([*panels, difference(found, truth)], target)


def draw_inverse(repository: Path, target: Path) -> None:
    """Draw the newest exported `darcy_inverse` on a pressure with noise."""
    truth = coarsen(physics.darcy.sample(SEED)[0], BLOCKS, WALL)
    clean = sample(SEED)[1]
    spread = np.std([sample(SEED + 1 + other)[1] for other in range(OTHERS)], axis=0)
    noisy = clean + NOISE * spread * np.random.default_rng(SEED).standard_normal(clean.shape)
    found = predict(repository / "darcy_inverse", noisy)
    panels = [
        Panel("pressure with 1 % noise (input)", noisy, "viridis", 0, clean.max()),
        Panel("permeability of blocks (predicted)", found, "cividis", 0, truth.max()),
        Panel("permeability of blocks (true)", truth, "cividis", 0, truth.max()),
    ]
    lay_out([*panels, difference(found, truth)], target)


def sample(seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return permeability and pressure [`POINTS`, `POINTS`], solved on the benchmark's mesh."""
    permeability, pressure = physics.darcy.sample(seed)
    return (
        np.asarray(physics.darcy.restrict(permeability, POINTS), dtype=np.float64),
        np.asarray(physics.darcy.restrict(pressure, POINTS), dtype=np.float64),
    )


def predict(model: Path, field: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return the output of a model's newest version for one field."""
    session = onnxruntime.InferenceSession(newest_graph(model), providers=["CPUExecutionProvider"])
    found: NDArray[np.float32] = session.run(None, feed(session, field[None]))[0][0]
    return found


def difference(found: NDArray[np.float32], truth: NDArray[np.float64]) -> Panel:
    """Return the panel of the error, with the relative L2 norm in its title."""
    error = found - truth
    relative, bound = np.linalg.norm(error) / np.linalg.norm(truth), float(np.abs(error).max())
    return Panel(f"difference, relative L2 {relative:.1e}", error, "RdBu", -bound, bound)


def lay_out(panels: list[Panel], target: Path) -> None:
    """Draw the panels side by side on the unit square."""
    mpl.use("agg")
    figure, axes = plt.subplots(1, len(panels), figsize=(13, 3.1), layout="constrained")
    for axis, panel in zip(axes, panels, strict=True):
        image = axis.imshow(
            panel.field, cmap=panel.colours, vmin=panel.low, vmax=panel.high, origin="lower", extent=(0, 1, 0, 1)
        )
        axis.set_title(panel.title, fontsize=10)
        axis.set_xticks([0, 1])
        axis.set_yticks([0, 1])
        figure.colorbar(image, ax=axis, shrink=0.85)
    figure.savefig(target, dpi=110, metadata={"Software": None})
    plt.close(figure)
