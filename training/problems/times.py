"""The times between frames that data files say, beside the step of the problem file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from training.data.readers import UNEVEN, DataFile
from training.problems.columns import DataError

if TYPE_CHECKING:
    from training.problems.problem_file import ProblemFile


def unlike_times(problem: ProblemFile, files: Sequence[DataFile]) -> list[str]:
    """Return what is worth a look in the times of frames that files say, in sentences.

    Raises:
        DataError: A series of meshes has steps of another length than the first one.
    """
    if problem.time is None:
        return []
    steps: dict[float, DataFile] = {}  # the first file that has each
    lines: list[str] = []
    for file in files:
        times = np.asarray(file.coordinates.get("time", ()))
        if times.dtype.kind not in "fiu" or times.ndim != 1 or len(times) < 2 or not np.isfinite(times).all():
            continue
        apart = np.diff(times.astype(np.float64))
        usual = float(np.median(apart))
        if np.ptp(apart) > UNEVEN * abs(usual) and not lines:
            lines.append(
                f"{file.path.name} has from {apart.min():g} to {apart.max():g} between two frames: one network makes "
                "all steps, expected equal ones"
            )
        if any(abs(usual - one) <= UNEVEN * abs(one) for one in steps):
            continue
        if steps and file.format == "series":
            first, other = next(iter(steps.items()))
            raise DataError(
                f"{file.path}: expected {first:g} between two frames, as in {other.path}, but found {usual:g}: one "
                "network makes steps of one length"
            )
        steps[usual] = file
    if len(steps) > 1:
        said = ", ".join(f"{step:g} in {file.path.name}" for step, file in steps.items())
        lines.append(f"files have other times between two frames: {said}; one network makes steps of one length")
    wanted = problem.time.step
    if steps and all(abs(step - wanted) > UNEVEN * abs(step) for step in steps):
        lines.append(
            f"the data have {next(iter(steps)):g} between two frames and [time] says step = {wanted:g}: another unit?"
        )
    return lines
