"""A user's trajectories as training reads them: windows of some frames."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from training.data.own_samples import OwnSamples
from training.problems.problem_file import ProblemFile

Rows = NDArray[np.int64]
Fields = NDArray[np.float32]

IN_MEMORY = 2**28
"""Bytes of an output up to which it is held in memory."""


class Windows(NamedTuple):
    """Some windows of trajectories.

    Attributes:
        states: Per output `[window, frame, (component), *grid]`.
        steady: Steady fields `[window, (component), *grid]` by name.
        parameters: `[window]` by name.
    """

    states: dict[str, Fields]
    steady: dict[str, Fields]
    parameters: dict[str, Fields]


@dataclass(frozen=True)
class TrajectorySamples(OwnSamples):
    """The trajectories of a prepared file.

    Attributes:
        held: Outputs that are held in memory, because every batch reads a few frames from many places.
    """

    held: dict[str, Fields] = field(default_factory=dict, repr=False, compare=False)

    def __reduce__(self) -> tuple[type[TrajectorySamples], tuple[Path, ProblemFile]]:
        return TrajectorySamples, (self.path, self.problem)

    @property
    def frames(self) -> int:
        """Frames of a trajectory."""
        return int(self.file[next(iter(self.problem.outputs))].shape[1])

    def frames_of(self, name: str) -> Any:
        """Return `[sample, time, (component), *grid]` of an output, from memory where it is small."""
        stored = self.file[name]
        if 4 * stored.size > IN_MEMORY:
            return stored
        if name not in self.held:
            self.held[name] = stored[:]
        return self.held[name]

    def windows(self, samples: Rows, starts: Rows | Sequence[int], length: int) -> Windows:
        """Read a window of every named trajectory.

        Args:
            samples: Numbers of the trajectories.
            starts: The first frame of each window.
            length: Frames of a window.
        """
        pairs = [*zip(samples.tolist(), map(int, starts), strict=True)]
        steady = [name for name in self.problem.inputs if name not in self.problem.states]
        read = {name: self.frames_of(name) for name in self.problem.outputs}
        return Windows(
            {
                name: np.stack([frames[sample, start : start + length] for sample, start in pairs])
                for name, frames in read.items()
            },
            {name: self.pick(name, samples) for name in steady},
            {name: self.pick(name, samples) for name in self.problem.parameters},
        )
