"""What Lightning drives: takes an operator and batches, gives losses, an optimiser and a schedule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from torch.utils.data import DataLoader, TensorDataset

from training.batches import Batch, Epoch, Plan, steps
from training.config import FitConfig
from training.data import Samples
from training.losses import relative_l2, training_loss
from training.operators import Operator


class Task(pl.LightningModule):
    """Fit an operator in physical units.

    Args:
        operator: the network.
        config: epochs, rate, loss weights.
        plan: how batches are drawn.
        train: training samples by grid.
        watch: a few test samples whose error is logged each epoch; nothing is selected by it, the last weights are
        kept.
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
        """Give the watched samples."""
        fields = TensorDataset(torch.from_numpy(self.watch.inputs), torch.from_numpy(self.watch.outputs))
        return DataLoader(fields, batch_size=self.plan.batch)

    def on_train_epoch_start(self) -> None:
        """Draw dropout from (seed, epoch), so that a resumed run draws the same."""
        torch.manual_seed(self.plan.seed + self.current_epoch)

    def training_step(self, batch: Sequence[torch.Tensor]) -> torch.Tensor:
        """Give the loss of a batch."""
        inputs, outputs = batch
        loss = training_loss(self.operator(inputs), outputs, self.config.h1)
        self.log("loss", loss, on_step=False, on_epoch=True, prog_bar=True, batch_size=len(inputs))
        return loss

    def validation_step(self, batch: Sequence[torch.Tensor]) -> None:
        """Log the relative L2 error of watched samples."""
        inputs, outputs = batch
        error = relative_l2(self.operator(inputs), outputs).mean()
        self.log("relative_l2", error, prog_bar=True, batch_size=len(inputs))

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        """AdamW; the rate rises and falls once over the run, by cosine."""
        optimiser = torch.optim.AdamW(
            self.operator.parameters(), lr=self.config.learning_rate, weight_decay=self.config.weight_decay
        )
        total = self.config.epochs * steps(self.train_samples, self.plan)
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimiser,
            max_lr=self.config.learning_rate,
            total_steps=total,
            pct_start=max(self.config.warmup, 2 / total),  # torch divides by zero where a run of few steps rises in one
            cycle_momentum=False,
        )
        return {"optimizer": optimiser, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}
