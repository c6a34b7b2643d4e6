"""A user's trajectories as training reads them: windows of some frames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from training.data.own_samples import OwnSamples

Rows = NDArray[np.int64]
Fields = NDArray[np.float32]


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


class TrajectorySamples(OwnSamples):
    """The trajectories of a prepared file."""

    @property
    def frames(self) -> int:
        """Frames of a trajectory."""
        return int(self.file[next(iter(self.problem.outputs))].shape[1])

    def windows(self, samples: Rows, starts: Rows | Sequence[int], length: int) -> Windows:
        """Read a window of every named trajectory.

        Args:
            samples: Numbers of the trajectories.
            starts: The first frame of each window.
            length: Frames of a window.
        """
        pairs = [*zip(samples.tolist(), map(int, starts), strict=True)]
        steady = [name for name in self.problem.inputs if name not in self.problem.states]
        return Windows(
            {
                name: np.stack([self.file[name][sample, start : start + length] for sample, start in pairs])
                for name in self.problem.outputs
            },
            {name: self.pick(name, samples) for name in steady},
            {name: self.pick(name, samples) for name in self.problem.parameters},
        )
