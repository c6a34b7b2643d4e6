"""What Lightning drives: takes an operator and batches, gives losses, an optimiser and a schedule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from torch.utils.data import DataLoader, TensorDataset

from training.data import Samples
from training.fit.batches import Batch, Epoch, Plan, measured, steps
from training.losses import LineLoss, PlaneLoss, relative_l2, training_loss
from training.operators import Operator
from training.problems.problem import DARCY
from training.recipes.recipe import FitConfig


class Task(pl.LightningModule):
    """Fit an operator in physical units.

    Args:
        operator: the network.
        config: epochs, rate, loss weights.
        plan: how batches are drawn.
        train: training samples by grid.
        watch: test samples whose error is logged each epoch; the best epoch by it is kept only if the config says so.
    """

    def __init__(
        self, operator: Operator, config: FitConfig, plan: Plan, train: Mapping[int, Samples], watch: Samples
    ) -> None:
        super().__init__()
        self.operator, self.config, self.plan, self.train_samples, self.watch = operator, config, plan, train, watch

    def train_dataloader(self) -> DataLoader[Batch]:
        """Give the epoch's batches; the trainer asks again at every epoch."""
        return DataLoader(Epoch(self.train_samples, self.plan, self.current_epoch), batch_size=None)

    def val_dataloader(self) -> DataLoader[Any]:
        """Give the watched samples, once at every level of noise that is trained; the noise is always the same."""
        inputs, outputs = torch.from_numpy(self.watch.inputs), torch.from_numpy(self.watch.answers)
        deviation, rng = self.train_samples[inputs.shape[1]].deviation, np.random.default_rng(self.plan.seed)
        noisy = [measured(inputs, deviation, (level,), rng) for level in self.plan.noise] or [inputs]
        fields = TensorDataset(torch.cat(noisy), torch.cat([outputs] * len(noisy)))
        return DataLoader(fields, batch_size=self.plan.batch)

    def on_train_epoch_start(self) -> None:
        """Draw dropout from (seed, epoch), so that a resumed run draws the same."""
        torch.manual_seed(self.plan.seed + self.current_epoch)

    def training_step(self, batch: Batch) -> torch.Tensor:
        """Give the loss of a batch."""
        loss = self.loss(self.operator(batch.inputs), batch)
        self.log("loss", loss, on_step=False, on_epoch=True, prog_bar=True, batch_size=len(batch.inputs))
        return loss

    def loss(self, prediction: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Give what the config asks to minimise; Darcy's input is the coefficient of its energy."""
        if self.config.loss == "relative":
            return training_loss(prediction, batch.outputs, self.config.h1)
        h, gamma = 1 / batch.outputs.shape[-1], self.config.gamma
        if prediction.ndim == 2:
            return LineLoss(h, gamma=gamma)(prediction, batch.outputs, batch.gradients).total
        K = batch.inputs if self.watch.problem == DARCY.name else None
        return PlaneLoss(h, gamma=gamma)(prediction, batch.outputs, batch.gradients, coefficient=K).total

    def validation_step(self, batch: Sequence[torch.Tensor]) -> None:
        """Log the relative L2 error of watched samples."""
        inputs, outputs = batch
        error = relative_l2(self.operator(inputs), outputs).mean()
        self.log("relative_l2", error, prog_bar=True, batch_size=len(inputs))

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        """Give AdamW, whose rate rises and falls once over the run, by cosine."""
        optimiser = torch.optim.AdamW(
            self.operator.parameters(), lr=self.config.learning_rate, weight_decay=self.config.weight_decay
        )
        total = max(3, self.config.epochs * steps(self.train_samples, self.plan))  # a step up, and one down
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimiser,
            max_lr=self.config.learning_rate,
            total_steps=total,
            pct_start=max(self.config.warmup, 2 / total),  # torch divides by zero where it rises or falls in one
            div_factor=self.config.div_factor,
            final_div_factor=self.config.final_div_factor,
            cycle_momentum=self.config.cycle_momentum,
        )
        return {"optimizer": optimiser, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}
