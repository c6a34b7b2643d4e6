"""The Lightning module that all trainings share; `fields` and `sequences` say what differs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, TypeVar

import lightning.pytorch as pl
import torch
from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from lightning_utilities.core.apply_func import apply_to_collection
from numpy.random import Generator
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from training.fit.loop import processes
from training.fit.loop.order import Epoch, Order, Rows, torch_seed
from training.nn.attention.matrices import penalty

Batch = TypeVar("Batch")

ORTHOGONALITY = 1e-2  # weight of the penalty of matrices that are to be orthogonal


@dataclass(frozen=True)
class Metric:
    """What is measured on validation samples after every epoch.

    Attributes:
        name: Its key in the log.
        mode: Whether the best value is the least or the greatest.
        best: What the best epoch is called in the card.
    """

    name: str
    mode: Literal["min", "max"]
    best: str


def one_cycle(optimiser: torch.optim.Optimizer, rate: float, steps: int, **options: Any) -> OptimizerLRSchedulerConfig:
    """Return an optimiser whose rate rises and falls once over a run, by cosine.

    Args:
        optimiser: The optimiser.
        rate: The highest rate.
        steps: Steps of the run.
        options: Of torch's `OneCycleLR`; `pct_start` is the share of the steps during which the rate rises.
    """
    total = max(3, steps)  # a step up, and one down
    options["pct_start"] = max(options["pct_start"], 2 / total)  # torch divides by zero where it rises or falls in one
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=rate, total_steps=total, **options)
    return {"optimizer": optimiser, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class Task(pl.LightningModule, ABC, Generic[Batch]):
    """Fit a network to samples.

    Attributes:
        metric: What is measured after every epoch.
        workers: Processes that read batches; none by default, and the training process reads them itself.
        orthogonality: The weight of the orthogonality of trained kernels in the loss.

    Args:
        network: What is trained.
        order: Which samples each batch holds.
    """

    metric: ClassVar[Metric]

    def __init__(self, network: nn.Module, order: Order) -> None:
        super().__init__()
        self.network, self.order = network, order
        self.workers, self.orthogonality = 0, ORTHOGONALITY

    @abstractmethod
    def draw(self, chosen: Rows, rng: Generator) -> Batch:
        """Return the training batch of the samples `chosen`."""

    @abstractmethod
    def validation(self) -> Sequence[Batch] | Dataset[Batch]:
        """Return the validation samples in batches, the same after every epoch."""

    @abstractmethod
    def loss(self, batch: Batch) -> Tensor:
        """Return the training loss of a batch, without the penalty of `objective`."""

    def objective(self, batch: Batch) -> Tensor:
        """Return the loss plus the penalty of matrices that are to be orthogonal, where the network has any."""
        loss, found = self.loss(batch), penalty(self.network)
        return loss if found is None else loss + self.orthogonality * found

    @abstractmethod
    def score(self, batch: Batch) -> tuple[float | Tensor, int]:
        """Return the mean of the metric over a batch, and the number of values it is the mean of."""

    @abstractmethod
    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        """Return the optimiser and its schedule."""

    def train_dataloader(self) -> DataLoader[Batch]:
        """Return the epoch's batches; the trainer calls this at every epoch."""
        return self.loader(Epoch(self.order, self.current_epoch, self.share))

    def share(self, chosen: Rows, rng: Generator) -> Batch:
        """Return this process's part of a training batch; all processes draw the same batch."""
        batch = self.draw(chosen, rng)
        if processes.count() == 1:
            return batch
        return apply_to_collection(batch, Tensor, lambda tensor: tensor[processes.rank() :: processes.count()])

    def val_dataloader(self) -> DataLoader[Batch]:
        """Return the validation batches."""
        return self.loader(self.validation())

    def loader(self, batches: Sequence[Batch] | Dataset[Batch]) -> DataLoader[Batch]:
        """Return what reads batches in order, in processes of its own if there are any."""
        return DataLoader(batches, batch_size=None, num_workers=self.workers)  # type: ignore[arg-type] # a list is a data set

    def on_train_batch_start(self, *_: Any) -> None:
        """Seed dropout by (seed, step, process): a resumed run draws the same, whatever the loaders drew before."""
        torch.manual_seed(torch_seed(self.order.seed, self.global_step, processes.rank()))

    def training_step(self, batch: Batch) -> Tensor:
        """Return the objective of a batch and log it."""
        loss = self.objective(batch)
        self.log("loss", loss, on_step=False, on_epoch=True, prog_bar=True, sync_dist=True, batch_size=self.order.batch)
        return loss

    def validation_step(self, batch: Batch) -> None:
        """Log the metric of a validation batch."""
        score, count = self.score(batch)
        self.log(self.metric.name, score, prog_bar=True, sync_dist=True, batch_size=count)
