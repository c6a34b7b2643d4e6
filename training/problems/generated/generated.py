"""A problem of trajectories that is generated: what a user's problem file says, and the sampler that makes its data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from training.files import replacing
from training.operators.trajectory import TrajectoryConfig
from training.problems.own.problem_file import ProblemFile


@dataclass(frozen=True)
class Generated:
    """A problem with generated trajectories.

    Attributes:
        file: The problem file; its one data file is made by `write`.
        sample: Makes all arrays of the data file from a seed, by their names in it.
        adapt: Makes the problem's own operator of the general one that a preset chooses; None where that is used.
    """

    file: ProblemFile
    sample: Callable[[int], Mapping[str, NDArray[np.floating]]]
    adapt: Callable[[TrajectoryConfig], TrajectoryConfig] | None = None

    def write(self, folder: Path) -> Path:
        """Make the data file in a folder, unless it is there.

        Args:
            folder: The folder of samples.

        Returns:
            The file.
        """
        [name] = self.file.data.files
        path = folder / name
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{path}.lock"):
            if not path.exists():
                arrays = {key: values.astype(np.float32) for key, values in self.sample(self.file.seed).items()}
                with replacing(path) as aside, aside.open("wb") as file:
                    np.savez(file, **arrays)  # type: ignore[arg-type] # its stub takes allow_pickle for an array
        return path
