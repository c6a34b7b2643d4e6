"""One question put to all: takes test samples, a mesh and a level of noise, gives what network and rival both see."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from training.data import Samples
from training.data.store import Array
from training.evaluation.noise import noisy
from training.problems.problem import PROBLEMS, Problem


@dataclass(frozen=True)
class Case:
    """Test samples on one grid.

    Attributes:
        samples: inputs and true answers.
        mesh: points per axis that the truth was computed on.
        noise: level of the noise on the inputs.
        unit: deviation of the training inputs at each point, which noise is relative to; by default the samples' own.
    """

    samples: Samples
    mesh: int
    noise: float = 0.0
    unit: Array | None = None

    @property
    def problem(self) -> Problem:
        """What is asked."""
        return PROBLEMS[self.samples.problem]

    @property
    def wall(self) -> float:
        """Distance from the outermost points to the wall, in sides of the square: half a cell of the mesh."""
        return 0.5 / self.mesh

    @property
    def inputs(self) -> Array:
        """The inputs with their noise, drawn alike at every call and not kept."""
        return noisy(self.samples.inputs, self.noise, self.spread)

    @cached_property
    def truth(self) -> Array:
        """The true answers."""
        return self.samples.answers

    @property
    def spread(self) -> Array:
        """The unit of noise."""
        return self.samples.deviation if self.unit is None else self.unit

    @property
    def place(self) -> dict[str, Any]:
        """Where a row of figures was measured; noise is named where there is some."""
        return {"grid": list(self.samples.inputs.shape[1:])} | ({"noise": self.noise} if self.noise else {})
