"""A recipe of a step operator on a user's trajectories, with everything that a training run needs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
from torch import Tensor

from training.calibration import MOST_FITTED, CalibrationSamples, Measured, affordable
from training.data.trajectory_samples import Rows, TrajectorySamples
from training.evaluation.timing import processor
from training.examples import MOST, Tensors
from training.fit.own.workload import STATISTICS_SAMPLES, OwnBatch, OwnWorkload, summary
from training.fit.trajectories.measures import measured
from training.fit.trajectories.rollout import (
    Rollout,
    RolloutBatches,
    as_rollout,
    first_rollout,
    history,
    horizon,
    with_frames,
)
from training.fit.trajectories.task import TrajectoryTask
from training.fit.workload import Scope, ScopeError
from training.operators import Operator
from training.operators.trajectory import TrajectoryConfig
from training.problems.own.from_file import describe
from training.problems.problem import Problem
from training.recipes.trajectory import TrajectoryRecipe

EXAMPLE_BYTES = 2**23  # of all test samples in a checkpoint: longer trajectories are cut


class TrajectoryWorkload(OwnWorkload):
    """A recipe of a step operator on a user's trajectories."""

    metric = TrajectoryTask.metric
    figures = ("errors", "classical", "clock", "rollout", "correlation_time", "spectrum")
    recipe: TrajectoryRecipe

    @cached_property
    def samples(self) -> TrajectorySamples:
        return TrajectorySamples(self.prepare(), self.recipe.problem)

    @property
    def problem(self) -> Problem:
        samples = self.samples
        return Problem(description=describe(self.recipe.problem, samples.sides, samples.counts[0], samples.frames))

    @property
    def single_steps(self) -> Rollout:
        """Some single steps of training trajectories, enough for means and deviations."""
        samples, rng = self.samples, np.random.default_rng(self.recipe.seed)
        count = affordable(STATISTICS_SAMPLES, samples.sample_bytes // samples.frames)
        rows, length = rng.choice(self.rows, count), history(self.recipe.problem) + 1
        starts = rng.integers(0, samples.frames - length + 1, count)
        return as_rollout(self.recipe.problem, samples.windows(rows, starts.tolist(), length))

    def batch(self, rows: Rows | slice) -> OwnBatch:
        """Return the rollouts to the horizon of trajectories by their numbers."""
        numbers = np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
        return with_frames(first_rollout(self.samples, numbers, horizon(self.samples)))

    def batches(self, split: str) -> Iterator[OwnBatch]:
        """Return the rollouts to the horizon of a split."""
        return map(with_frames, RolloutBatches(self.samples, split, horizon(self.samples)))

    def naive(self, batch: OwnBatch) -> list[Tensor]:
        """Return the prediction that needs no network: the last given frame, again and again."""
        operator = cast("TrajectoryConfig", self.recipe.operator)
        starts = [batch.inputs[index] for index in operator.states]
        last = [start if operator.history == 1 else start[:, -1] for start in starts]
        return [one[:, None].expand_as(truth) for one, truth in zip(last, batch.outputs, strict=True)]

    def shown(self, name: str, values: Tensor) -> Tensor:
        """Return the last frame of a trajectory or history, a whole trajectory on a line, any other field as it is."""
        problem = self.recipe.problem
        if name in problem.outputs:
            return values if len(problem.axes) == 1 else values[-1]
        return values[-1] if name in problem.states and history(problem) > 1 else values

    def task(self, init: Path | None = None) -> TrajectoryTask:  # type: ignore[override] # a task of rollouts
        network, steps = self.network(), self.single_steps
        network.fit_normalisers(*steps.inputs, *(each[:, 0] for each in steps.truth))
        return TrajectoryTask(
            self.restored(network, init), self.recipe.fit, self.recipe.seed, self.samples, self.problem
        )

    def account(self) -> dict[str, Any]:
        return super().account() | {"frames": self.samples.frames, "horizon": horizon(self.samples)}

    def measure(self, network: Operator, problem: Problem, scope: Scope) -> dict[str, Any]:
        """Measure rollouts of the test trajectories: the mean up to the horizon, and every frame.

        The error estimates of the frames are those of the validation trajectories, which have also chosen the epoch.
        """
        if scope.grid is not None or scope.noise is not None:
            raise ScopeError(f"{problem.name}: its data are on one grid and without noise of ours")
        self.compare(problem)
        frames = self.samples.frames - history(self.recipe.problem)
        found, held = (measured(network, self.samples, split, frames) for split in ("test", "validation"))
        within = found.errors[:, : horizon(self.samples)].mean(axis=1)
        row = {"grid": list(self.samples.sides), "fields": len(within)} | summary(within)
        time = self.recipe.problem.time
        return {
            "errors": [row],
            "classical": [],
            "clock": {"processor": processor()},
            **found.summary(time.step if time is not None else 1.0, held.errors),
        }

    def calibration_samples(self, network: Operator, fresh: int = 0) -> CalibrationSamples | None:
        """Return states of all splits, for the novelty.

        They are without errors: rollouts have error estimates by frame, which `measure` takes from validation samples.
        """
        del network
        if fresh:
            raise ScopeError(
                f"{self.recipe.name}: trajectories are calibrated by those of the run, not by new --samples"
            )
        fitted, held, test = (self.states(self.samples.split(split)) for split in ("train", "validation", "test"))
        return CalibrationSamples([fitted], [held], [test])

    def states(self, rows: Rows | slice) -> Measured:
        """Draw what steps of some trajectories start from, at any of their frames."""
        numbers = np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows
        seen = history(self.recipe.problem)
        starts = self.samples.frames - seen + 1
        most = affordable(MOST_FITTED, self.samples.sample_bytes * seen // self.samples.frames)
        pairs = len(numbers) * starts
        drawn = np.random.default_rng(self.recipe.seed).choice(pairs, min(pairs, most), replace=False)
        windows = self.samples.windows(numbers[drawn // starts], drawn % starts, seen)
        return Measured(as_rollout(self.recipe.problem, windows).inputs)

    def examples(self) -> Tensors:
        where = self.samples.split("test")
        rows = np.arange(where.start, min(where.start + MOST, where.stop))
        longest = self.samples.frames - history(self.recipe.problem)
        fitting = EXAMPLE_BYTES * self.samples.frames // (len(rows) * self.samples.sample_bytes)
        found = first_rollout(self.samples, rows, min(longest, max(1, fitting)))
        names = [*self.recipe.problem.inputs, *self.recipe.problem.parameters, *self.recipe.problem.outputs]
        return {name: one.numpy() for name, one in zip(names, [*found.inputs, *found.truth], strict=True)}
