"""The picture of the closed form of Burgers' equation as attention: fields, the weights, and single rows of them."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from numpy.typing import NDArray

from physics import burgers
from training.operators.cole_hopf import ColeHopfConfig, ColeHopfOperator

SEED, POINTS, VISCOSITY = 6, 1024, 0.003
COLOURS = {"initial": "#0072B2", "final": "#000000", "left": "#D55E00", "right": "#009E73"}  # Okabe and Ito's colours
BESIDE = 0.03  # how far from the front the two queries are


def draw(target: Path) -> None:
    """Write the picture in the format that the file's name ends with."""
    mpl.use("agg")
    initial = burgers.example(POINTS, SEED)
    initial -= initial.mean()
    operator = ColeHopfOperator(ColeHopfConfig())
    field = torch.from_numpy(initial)[None]
    viscosity = torch.tensor([VISCOSITY])
    final, weights = operator(field, viscosity)[0].numpy(), operator.weights(field, viscosity)[0].numpy()
    front = int(np.argmin(np.gradient(final)))
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained")
    draw_fields(axes[0], initial, final, front)
    draw_weights(axes[1], weights)
    draw_rows(axes[2], weights, front)
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=90, metadata={"Software": None}, pil_kwargs={"optimize": True})
    plt.close(figure)


def queries(front: int) -> dict[str, int]:
    """Return the indices of the two queries, left and right of the front."""
    step = round(BESIDE * POINTS)
    return {"left": (front - step) % POINTS, "right": (front + step) % POINTS}


def draw_fields(axes: Axes, initial: NDArray[np.float64], final: NDArray[np.float64], front: int) -> None:
    """Draw the velocity at t = 0 and t = 1, with the two queries."""
    x = np.arange(POINTS) / POINTS
    axes.plot(x, initial, color=COLOURS["initial"], label="initial")
    axes.plot(x, final, color=COLOURS["final"], label="final, t = 1")
    for name, query in queries(front).items():
        axes.axvline(query / POINTS, color=COLOURS[name], linestyle="--")
    axes.set(title=f"velocity, viscosity {VISCOSITY}", xlabel="x")
    axes.legend(frameon=False)


def draw_weights(axes: Axes, weights: NDArray[np.float64]) -> None:
    """Draw the matrix of the weights, on a logarithmic scale."""
    shown = np.log10(np.maximum(weights, 1e-5))
    image = axes.imshow(shown, origin="lower", extent=(0, 1, 0, 1), cmap="viridis", aspect="equal")
    axes.set(title="log10 of the weights", xlabel="key y: where it came from", ylabel="query x")
    axes.figure.colorbar(image, ax=axes)


def draw_rows(axes: Axes, weights: NDArray[np.float64], front: int) -> None:
    """Draw the weights of the two queries."""
    y = np.arange(weights.shape[1]) / weights.shape[1]
    for name, query in queries(front).items():
        axes.plot(y, weights[query], color=COLOURS[name], label=f"query {name} of the front")
    axes.set(title="two rows of the matrix", xlabel="key y", ylabel="weight", ylim=(None, 1.3 * axes.get_ylim()[1]))
    axes.legend(frameon=False, loc="upper left", fontsize=8)  # above the curves
