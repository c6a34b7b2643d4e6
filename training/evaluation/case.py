"""Test samples on one grid at one level of noise: what the network and the baseline both see."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from training.data import Samples
from training.data.store import Array
from training.evaluation.noise import noisy
from training.problems.problem import Problem


@dataclass(frozen=True)
class Case:
    """Test samples on one grid.

    Attributes:
        samples: inputs and true outputs.
        mesh: points per axis that the truth was computed on.
        noise: level of the noise on the inputs.
        unit: deviation of the training inputs at each point, which noise is relative to; by default the samples' own.
        conditions: the ranges of the parameters in words, where they are not their defaults.
    """

    samples: Samples
    mesh: int
    noise: float = 0.0
    unit: Array | None = None
    conditions: str = ""

    @property
    def problem(self) -> Problem:
        """The problem of the samples."""
        return self.samples.problem

    @property
    def inputs(self) -> Array:
        """The inputs with their noise, drawn alike at every call and not kept in memory."""
        return noisy(self.samples.inputs, self.noise, self.spread)

    @cached_property
    def truth(self) -> Array:
        """The true outputs on the output grid."""
        return self.samples.targets

    @property
    def spread(self) -> Array:
        """The unit of noise."""
        return self.samples.deviation if self.unit is None else self.unit

    @property
    def key(self) -> dict[str, Any]:
        """What tells a row of figures from the others: the grid, and noise and conditions where there are some."""
        others = {"noise": self.noise, "conditions": self.conditions}
        return {"grid": list(self.samples.inputs.shape[1:])} | {name: value for name, value in others.items() if value}
