"""The picture of the inversion: the truth, and the mean and deviation that both methods infer from the sensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np

from benchmarks.inversion.cases import PRIORS, SIDE, Case
from benchmarks.inversion.forward import Network
from benchmarks.inversion.measure import model_error, run
from physics.numerics.adjoint import Linearised
from physics.posterior.sensors import lattice
from serving.inversion.classical import ClassicalModel

if TYPE_CHECKING:
    from pathlib import Path

SEED = 3


def draw(repository: Path, target: Path) -> None:
    """Draw a row per prior.

    Args:
        repository: Exported models.
        target: The file.
    """
    mpl.use("agg")
    figure, axes = plt.subplots(len(PRIORS), 4, figsize=(10.5, 5.2), layout="constrained")
    titles = ("truth and sensors", "mean, network", "mean, finite volumes", "deviation, network")
    error, network, volumes = model_error(repository), Network(repository), ClassicalModel(Linearised)
    for row, prior in zip(axes, PRIORS, strict=True):
        case = Case(prior, SEED)
        (_, learnt), (_, classical) = (run(case, "", forward, error) for forward in (network, volumes))
        limits = {"vmin": case.truth.min(), "vmax": case.truth.max(), "origin": "lower", "extent": (0, 1, 0, 1)}
        fields = (case.truth, learnt.mean, classical.mean)
        images = [panel.imshow(field, **limits) for panel, field in zip(row[:3], fields, strict=True)]
        figure.colorbar(images[2], ax=row[2])
        figure.colorbar(row[3].imshow(learnt.deviation, origin="lower", extent=(0, 1, 0, 1), cmap="magma"), ax=row[3])
        rows, columns = np.moveaxis(lattice(SIDE), -1, 0)
        row[0].plot(columns, rows, "w.", markersize=3)
        row[0].set_ylabel(prior.name)
        for panel, title in zip(row, titles, strict=True):
            panel.set_title(title, fontsize=10)
            panel.set_xticks([])
            panel.set_yticks([])
    figure.savefig(target, dpi=110, metadata={"Software": None})
    plt.close(figure)
