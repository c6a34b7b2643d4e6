"""Rollouts: what the operator starts from, and the frames that follow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from training.data.trajectory_samples import Rows, TrajectorySamples, Windows
from training.fit.own.workload import OwnBatch
from training.losses import relative_l2
from training.operators.trajectory import TrajectoryOperator
from training.problems.problem_file import ProblemFile

BATCH = 8  # trajectories that are rolled out together


class Rollout(NamedTuple):
    """Some windows: the operator's arguments without `frame`, and the frames that follow.

    Attributes:
        inputs: In the order of the arguments; a state as `[window, (history), (component), *grid]`.
        truth: Per output `[window, frame, (component), *grid]`.
    """

    inputs: list[Tensor]
    truth: list[Tensor]

    @property
    def frames(self) -> int:
        """The number of frames that follow."""
        return self.truth[0].shape[1]


def as_rollout(problem: ProblemFile, windows: Windows) -> Rollout:
    """Divide windows into what a rollout starts from and what follows.

    Args:
        problem: Which output each state belongs to, and how many frames of it are given.
        windows: The windows.
    """
    seen = history(problem)
    states = {name: torch.from_numpy(values) for name, values in windows.states.items()}
    starts = {name: states[output][:, :seen] for name, output in problem.states.items()}
    given = {name: start[:, 0] if seen == 1 else start for name, start in starts.items()}
    others = {name: torch.from_numpy(values) for name, values in (windows.steady | windows.parameters).items()}
    order = [*problem.inputs, *problem.parameters]
    return Rollout([(given | others)[name] for name in order], [states[name][:, seen:] for name in problem.outputs])


def frame_errors(operator: TrajectoryOperator, batch: Rollout) -> Tensor:
    """Return the relative L2 error of every frame, the mean over the outputs: `[window, frame]`."""
    return compared(operator.rollout(batch.inputs, batch.frames), batch.truth)


def compared(found: Sequence[Tensor], truth: Sequence[Tensor]) -> Tensor:
    """Return the relative L2 error of every frame, the mean over the outputs: `[window, frame]`."""
    pairs = zip(found, truth, strict=True)
    errors = [relative_l2(one.flatten(2).flatten(0, 1), true.flatten(2).flatten(0, 1)) for one, true in pairs]
    return torch.stack(errors).mean(dim=0).unflatten(0, truth[0].shape[:2])


def history(problem: ProblemFile) -> int:
    """Return the frames that a step sees."""
    return problem.time.history if problem.time is not None else 1


def horizon(samples: TrajectorySamples) -> int:
    """Return the frames of the rollouts that are compared on validation samples."""
    longest, time = samples.frames - history(samples.problem), samples.problem.time
    chosen = time.horizon if time is not None and time.horizon is not None else -(-longest // 4)
    return min(chosen, longest)


class RolloutBatches(Dataset[Rollout]):
    """The rollouts from the first frames of a split's trajectories, each batch read when it is needed.

    Args:
        samples: The prepared trajectories.
        split: `train`, `validation` or `test`.
        frames: Frames that follow.
    """

    def __init__(self, samples: TrajectorySamples, split: str, frames: int) -> None:
        where = samples.split(split)
        self.samples, self.stop, self.frames = samples, where.stop, frames
        self.starts = range(where.start, where.stop, BATCH)

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, position: int) -> Rollout:
        start = self.starts[position]
        return first_rollout(self.samples, np.arange(start, min(start + BATCH, self.stop)), self.frames)

    def __iter__(self) -> Iterator[Rollout]:
        return (self[position] for position in range(len(self)))


def first_rollout(samples: TrajectorySamples, rows: Rows, frames: int) -> Rollout:
    """Return the rollouts from the first frames of some trajectories."""
    problem = samples.problem
    return as_rollout(problem, samples.windows(rows, [0] * len(rows), history(problem) + frames))


def with_frames(batch: Rollout) -> OwnBatch:
    """Return rollouts with all arguments of the operator, the number of frames included."""
    frame = torch.zeros(len(batch.truth[0]), batch.frames, dtype=torch.int32)
    return OwnBatch([*batch.inputs, frame], batch.truth)
