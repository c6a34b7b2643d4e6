"""The fit of a step operator to windows of trajectories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from numpy.random import Generator
from torch import Tensor

from training.data.trajectory_samples import Rows, TrajectorySamples, Windows
from training.evaluation.norms import LOST
from training.fit.loop.order import Order
from training.fit.own.workload import WARMUP, training_rows
from training.fit.task import Metric, Task, one_cycle
from training.fit.trajectories.rollout import Rollout, RolloutBatches, as_rollout, frame_errors, history, horizon
from training.operators import Operator
from training.operators.trajectory import TrajectoryOperator
from training.problems import symmetries
from training.problems.problem import Problem
from training.recipes.trajectory import RolloutFit


class TrajectoryTask(Task[Rollout]):
    """Fit a step operator in physical units.

    Args:
        network: The operator.
        config: Epochs, batch, rate, lengths of rollouts.
        seed: Seed of the order and of all that is drawn.
        samples: The prepared trajectories.
        problem: Whose symmetries move the samples.
    """

    metric = Metric("rollout_l2", "min", "the epoch of the least rollout error on the validation set")

    def __init__(
        self, network: Operator, config: RolloutFit, seed: int, samples: TrajectorySamples, problem: Problem
    ) -> None:
        self.rows = training_rows(samples, config.share, seed)
        self.starts = samples.frames - history(samples.problem)
        windows = len(self.rows) * self.starts
        batch = min(config.batch, windows)
        super().__init__(network, Order(windows, batch, windows // batch, seed))
        self.config, self.samples, self.problem = config, samples, problem

    @property
    def operator(self) -> TrajectoryOperator:
        """The network."""
        return cast("TrajectoryOperator", self.network)

    @property
    def unroll(self) -> int:
        """Steps of a training rollout in this epoch."""
        return min(self.config.steps_of(self.current_epoch), self.starts)

    def draw(self, chosen: Rows, rng: Generator) -> Rollout:
        samples, starts = np.divmod(chosen, self.starts)
        length = history(self.samples.problem) + self.unroll
        latest = self.samples.frames - length
        windows = self.samples.windows(self.rows[samples], starts % (latest + 1), length)
        return as_rollout(self.samples.problem, self.noisy(self.moved(windows, rng), rng))

    def moved(self, windows: Windows, rng: Generator) -> Windows:
        """Move every window by a symmetry of its own, all frames and fields alike."""
        description = self.problem.description
        if not description.symmetries:
            return windows
        frames = {name: torch.from_numpy(values).unbind(1) for name, values in windows.states.items()}
        fields = [*(each for every in frames.values() for each in every)]
        found = iter(symmetries.transform(description, [*fields, *map(torch.from_numpy, windows.steady.values())], rng))
        states = {name: torch.stack([next(found) for _ in every], dim=1).numpy() for name, every in frames.items()}
        return windows._replace(states=states, steady={name: next(found).numpy() for name in windows.steady})

    def noisy(self, windows: Windows, rng: Generator) -> Windows:
        """Add noise to the frames that a rollout starts from."""
        if not self.config.noise:
            return windows
        count = history(self.samples.problem)
        for name, values in windows.states.items():
            size = self.config.noise * self.samples.statistic(name, "deviation")
            values[:, :count] += rng.normal(0, size, values[:, :count].shape).astype(np.float32)
        return windows

    def validation(self) -> RolloutBatches:
        return RolloutBatches(self.samples, "validation", horizon(self.samples))

    def loss(self, batch: Rollout) -> Tensor:
        """Return the mean relative L2 error over the steps, or of the last one."""
        if self.config.through or batch.frames == 1:
            return frame_errors(self.operator, batch).mean()
        inputs: Sequence[Tensor] = batch.inputs
        with torch.no_grad():
            for _ in range(batch.frames - 1):
                inputs = self.operator.advance(inputs)
        return frame_errors(self.operator, Rollout([*inputs], [each[:, -1:] for each in batch.truth])).mean()

    def score(self, batch: Rollout) -> tuple[Tensor, int]:
        """Return the mean relative L2 error of some rollouts, where one that overflows counts as `LOST`."""
        errors = frame_errors(self.operator, batch).nan_to_num(nan=LOST, posinf=LOST).clamp(max=LOST)
        return errors.mean(), len(batch.truth[0])

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        """Return AdamW, whose rate rises and falls once over the run, by cosine."""
        config = self.config
        optimiser = torch.optim.AdamW(
            self.network.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay
        )
        return one_cycle(optimiser, config.learning_rate, config.epochs * self.order.steps, pct_start=WARMUP)
