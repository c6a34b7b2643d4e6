"""Outputs that are numbers: prediction against truth, for cards and reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray

from training.evaluation.measures import significant

MOST = 8  # the most numbers that are drawn
COLUMNS = 4


@dataclass(frozen=True)
class Parity:
    """One number of every test sample, beside its prediction."""

    output: str
    component: str  # empty of a number without components
    units: str
    deviation: float  # over the training samples
    truth: NDArray[np.float64]  # `[sample]`
    predicted: NDArray[np.float64]

    @property
    def label(self) -> str:
        """The name with the component."""
        return f"{self.output} {self.component}".strip()

    @property
    def row(self) -> dict[str, Any]:
        """What a card says of it: its mean error in its units and in deviations, and the largest one."""
        errors = np.abs(self.predicted - self.truth)
        figures = {
            "deviation": self.deviation,
            "mean_error": errors.mean(),
            "mean_error_in_deviations": errors.mean() / self.deviation,
            "worst_error": errors.max(),
        }
        named = {"output": self.output, **({"component": self.component} if self.component else {})}
        numbers = {key: significant(float(value)) for key, value in figures.items()}
        return {**named, "units": self.units, **numbers}


@torch.inference_mode()
def parities(network: Any, work: Any, split: str = "test") -> list[Parity]:
    """Predict the numbers of a split's samples."""
    found: dict[str, list[tuple[Any, Any]]] = {one.name: [] for one in work.file.scalars}
    for batch in work.batches(split):
        pairs = zip(found.values(), work.scalar_pairs(work.predictions(network, batch), batch), strict=True)
        for each, (predicted, truth, _) in pairs:
            each.append((predicted.double(), truth.double()))
    made = []
    for one in work.file.scalars:
        parts = zip(*found[one.name], strict=True)
        columns = [torch.cat(part).reshape(-1, max(1, len(one.components))).numpy() for part in parts]
        deviations = work.deviations[one.name].double().reshape(-1).tolist()
        for index, component in enumerate(one.components or ("",)):
            predicted, truth = (each[:, index] for each in columns)
            made.append(Parity(one.name, component, one.units, deviations[index], truth, predicted))
    return made


def figure(numbers: Sequence[Parity]) -> Figure:
    """Draw predictions against truth, a panel per number; on the diagonal they are equal."""
    shown = [*numbers][:MOST]
    across = min(COLUMNS, len(shown))
    down = -(-len(shown) // across)
    made = Figure(figsize=(2.9 * across, 2.9 * down), layout="constrained")
    panels = made.subplots(down, across, squeeze=False).flat
    for panel, one in zip(panels, shown, strict=False):
        both = np.concatenate([one.truth, one.predicted])
        ends = [float(both.min()), float(both.max())]
        panel.plot(ends, ends, color="#999999", linewidth=0.8)
        panel.plot(one.truth, one.predicted, ".", color="#D55E00", markersize=3)
        units = "" if one.units == "1" else f" in {one.units}"
        panel.set_title(f"{one.label}{units}", fontsize=8)
        panel.set_xlabel("truth", fontsize=7)
        panel.set_ylabel("prediction", fontsize=7)
        panel.tick_params(labelsize=7)
    for panel in panels:
        panel.set_axis_off()
    return made
