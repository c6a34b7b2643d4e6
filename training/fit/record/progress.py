"""The progress of a training run: a bar on a terminal, a plain line per epoch elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import TQDMProgressBar
from lightning.pytorch.callbacks.progress.tqdm_progress import Tqdm

from training.fit.record import log

REFRESH = 5  # steps


class Bar(TQDMProgressBar):
    """One bar for the training steps."""

    def __init__(self) -> None:
        super().__init__(refresh_rate=REFRESH)

    def init_validation_tqdm(self) -> Tqdm:
        """Return a bar that never shows, as validation takes a moment."""
        return Tqdm(disable=True)


class Lines(pl.Callback):
    """Write a line per epoch to standard error; the log that it reads has to be written before.

    Args:
        path: The log.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_train_epoch_end(self, trainer: pl.Trainer, _: pl.LightningModule) -> None:
        """Write the line of the epoch that ended."""
        sys.stderr.write(f"{line(log.read(self.path), trainer.max_epochs or 0)}\n")
        sys.stderr.flush()


def progress(path: Path) -> pl.Callback:
    """Return a bar where standard error is a terminal, lines where it is not."""
    return Bar() if sys.stderr.isatty() else Lines(path)


def line(rows: Sequence[Mapping[str, Any]], epochs: int) -> str:
    """Describe the last row of a log.

    Args:
        rows: The log, one row per epoch.
        epochs: How many epochs the run has.
    """
    last, seconds = rows[-1], [float(row["seconds"]) for row in rows]
    left = sum(seconds) / len(seconds) * (epochs - len(rows))
    [metric] = last.keys() - {*log.COMMON}
    loss, error = (f"{name} {float(last[name]):.3e}" for name in ("loss", metric))
    return (
        f"epoch {len(rows)} of {epochs}: {loss}, validation {error}, "
        f"{seconds[-1]:.1f} s, {timedelta(seconds=round(left))} left"
    )
