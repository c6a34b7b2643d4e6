"""A run's log: takes the trainer's metrics by epoch, gives a CSV that a resume neither cuts nor repeats."""

from __future__ import annotations

import csv
import time
from pathlib import Path
from typing import Any

import lightning.pytorch as pl

COLUMNS = ("epoch", "loss", "relative_l2", "rate", "seconds")


class RunLog(pl.Callback):
    """Append one row an epoch to `path`; rows of epochs that are about to be repeated are dropped first."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.started = 0.0

    def on_train_start(self, trainer: pl.Trainer, _: pl.LightningModule) -> None:
        """Keep the rows of the epochs that are done."""
        self.write([row for row in read(self.path) if int(row["epoch"]) < trainer.current_epoch])

    def on_train_epoch_start(self, *_: Any) -> None:
        """Start the epoch's clock."""
        self.started = time.perf_counter()

    def on_train_epoch_end(self, trainer: pl.Trainer, _: pl.LightningModule) -> None:
        """Append the epoch's row."""
        metrics = trainer.callback_metrics
        row = {
            "epoch": trainer.current_epoch,
            "loss": f"{metrics['loss'].item():.6e}",
            "relative_l2": f"{metrics['relative_l2'].item():.6e}",
            "rate": f"{trainer.optimizers[0].param_groups[0]['lr']:.6e}",
            "seconds": f"{time.perf_counter() - self.started:.1f}",
        }
        self.write([*read(self.path), row])

    def write(self, rows: list[dict[str, Any]]) -> None:
        """Replace the file in one step."""
        aside = self.path.with_name(f".{self.path.name}")
        with aside.open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            writer.writerows(rows)
        aside.replace(self.path)


def read(path: Path) -> list[dict[str, str]]:
    """Give the rows of a log, none if there is no file yet."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))
