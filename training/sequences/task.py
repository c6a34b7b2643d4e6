"""What Lightning drives: takes a network and sequences, gives losses, an optimiser and a schedule."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from torch import Tensor
from torch.nn import functional
from torch.utils.data import DataLoader

from training.sequences.batches import Epoch, Plan
from training.sequences.networks.build import Network, orthogonality
from training.sequences.recipe import SequenceFit
from training.sequences.samples import UNLABELLED, SequenceBatch, Sequences
from training.sequences.schedule import SCHEDULES

STRIDE = 1_000_003  # keeps the steps of one seed apart from those of the next


class SequenceTask(pl.LightningModule):
    """Fit a network to labels.

    Args:
        operator: the network.
        config: epochs, rate, penalty.
        plan: how batches are drawn.
        train: training samples.
        watch: samples whose accuracy is logged each epoch; the best epoch by it is kept if the config says so.
    """

    def __init__(self, operator: Network, config: SequenceFit, plan: Plan, train: Sequences, watch: Sequences) -> None:
        super().__init__()
        self.operator, self.config, self.plan, self.train_samples, self.watch = operator, config, plan, train, watch

    def train_dataloader(self) -> DataLoader[SequenceBatch]:
        """Give the epoch's batches; the trainer asks again at every epoch."""
        return DataLoader(Epoch(self.train_samples, self.plan, self.current_epoch), batch_size=None)

    def val_dataloader(self) -> DataLoader[SequenceBatch]:
        """Give the watched samples."""
        starts = range(0, len(self.watch), self.plan.batch)
        batches = [self.watch.batch(range(len(self.watch))[start : start + self.plan.batch]) for start in starts]
        return DataLoader(batches, batch_size=None)  # type: ignore[arg-type] # a list is a data set

    def on_train_batch_start(self, *_: Any) -> None:
        """Draw dropout from (seed, step), so that a resumed run draws the same, whatever the loaders drew before."""
        torch.manual_seed(STRIDE * self.plan.seed + self.global_step)

    def training_step(self, batch: SequenceBatch) -> Tensor:
        """Give the loss of a batch."""
        loss = self.loss(batch)
        self.log("loss", loss, on_step=False, on_epoch=True, prog_bar=True, batch_size=len(batch.labels))
        return loss

    def loss(self, batch: SequenceBatch) -> Tensor:
        """Give the cross-entropy, with the kernels' penalty where one is asked for."""
        loss, penalty = cross_entropy(self.operator(*batch.inputs), batch.labels), self.config.orthogonality
        return loss + penalty * orthogonality(self.operator) if penalty else loss

    def validation_step(self, batch: SequenceBatch) -> None:
        """Log the accuracy on watched samples."""
        right, all_ = hits(self.operator(*batch.inputs), batch.labels)
        self.log("accuracy", right / all_, prog_bar=True, batch_size=all_)

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        """Give AdamW under the recipe's schedule."""
        config = self.config
        optimiser = torch.optim.AdamW(
            self.operator.parameters(),
            lr=config.learning_rate,
            betas=(0.9, config.beta2),
            weight_decay=config.weight_decay,
        )
        share = SCHEDULES[config.schedule](config.warmup, config.epochs * config.steps)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, share)
        return {"optimizer": optimiser, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Give the mean over all labels: logits `[batch, *token, label]`, labels `[batch, *token]`."""
    return functional.cross_entropy(logits.flatten(0, -2), labels.flatten(), ignore_index=UNLABELLED)


def hits(logits: Tensor, labels: Tensor) -> tuple[int, int]:
    """Count the labels that are found, and all."""
    return int((logits.argmax(dim=-1) == labels).sum()), int((labels != UNLABELLED).sum())
