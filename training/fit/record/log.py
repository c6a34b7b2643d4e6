"""The log of a training run: one CSV row per epoch, which a resumed run neither cuts nor repeats."""

from __future__ import annotations

import csv
import math
import time
from pathlib import Path
from typing import Any

import lightning.pytorch as pl

from training.files import replacing
from training.fit.record.folder import RunError

#: The columns beside the metric, which has the problem's name for it.
COMMON = ("epoch", "loss", "rate", "seconds")


class RunLog(pl.Callback):
    """Append one row per epoch to `path`; rows of epochs that are about to be repeated are dropped first.

    Args:
        path: The file.
        metric: What is measured after every epoch.
    """

    def __init__(self, path: Path, metric: str) -> None:
        self.path, self.metric = path, metric
        self.columns = ("epoch", "loss", metric, "rate", "seconds")
        self.started = 0.0

    def on_train_start(self, trainer: pl.Trainer, _: pl.LightningModule) -> None:
        """Keep the rows of the epochs that are done."""
        self.write([row for row in read(self.path) if int(row["epoch"]) < trainer.current_epoch])

    def on_train_epoch_start(self, *_: Any) -> None:
        """Start the epoch's clock."""
        self.started = time.perf_counter()

    def on_train_epoch_end(self, trainer: pl.Trainer, _: pl.LightningModule) -> None:
        """Append the epoch's row.

        Raises:
            RunError: The loss or the metric is no finite number: later epochs would be none, either.
        """
        metrics = trainer.callback_metrics
        row = {
            "epoch": trainer.current_epoch,
            "loss": f"{metrics['loss'].item():.6e}",
            self.metric: f"{metrics[self.metric].item():.6e}",
            "rate": f"{trainer.optimizers[0].param_groups[0]['lr']:.6e}",
            "seconds": f"{time.perf_counter() - self.started:.1f}",
        }
        self.write([*read(self.path), row])
        for name in ("loss", self.metric):
            if not math.isfinite(metrics[name].item()):
                raise RunError(
                    f"{self.path}: the training diverged: {name} is {row[name]} after epoch {trainer.current_epoch}. "
                    f"A lower fit.learning_rate may help; samples whose truth is zero everywhere have no relative error"
                )

    def write(self, rows: list[dict[str, Any]]) -> None:
        """Replace the file in one step."""
        with replacing(self.path) as aside, aside.open("w", newline="") as file:
            writer = csv.DictWriter(file, self.columns)
            writer.writeheader()
            writer.writerows(rows)


def read(path: Path) -> list[dict[str, str]]:
    """Return the rows of a log, none if there is no file yet."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def seconds(path: Path) -> float:
    """Return how long all epochs of a log took."""
    return sum(float(row["seconds"]) for row in read(path))
