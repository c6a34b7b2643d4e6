"""A run: its folder, states, log and progress.

.. code-block:: text

    runs/darcy-quick/
      state/ recipe.json     until the run is measured: the trainer's state after the two last epochs
      metrics.csv            loss, learning rate, and validation errors by every measure, by epoch
      weights.safetensors config.json card.json examples.safetensors     the checkpoint
"""

from __future__ import annotations

import csv
import json
import math
import pickle
import shlex
import shutil
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import lightning.pytorch as pl
import torch
from filelock import FileLock, Timeout
from lightning.fabric.plugins import TorchCheckpointIO
from lightning.pytorch.callbacks import ModelCheckpoint

from training import checkpoint
from training.files import read_json, replacing, write_text
from training.fit.processes import is_first
from training.messages import Bar, UserError, in_terminal
from training.recipe import BaseRecipe, RecipeError, from_document

STATES = 4  # saved states at once: the two newest, that of the best epoch, and the one that is being written
COPIES = 4  # what a state holds of each parameter at most: itself, Adam's two moments, and the mean
RESERVE = 64 * 2**20  # bytes for everything else
#: Members of the files by which the folder of a run is known, also of one that another release has written.
OF_RUNS = {"recipe.json": {"model", "operator"}, checkpoint.CONFIG: {"recipe", "problem"}}


class RunError(UserError):
    """A run cannot start or be completed: the message names the folder, what was expected and what was found."""


class DivergenceError(RunError):
    """A loss or an error is infinite or NaN."""


@dataclass(frozen=True)
class RunFolder:
    """A run's folder."""

    path: Path

    @property
    def state(self) -> Path:
        return self.path / "state"

    @property
    def best(self) -> Path:
        """The weights of the best epoch so far, where the recipe keeps the best."""
        return self.state / "best.ckpt"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.csv"

    @property
    def report(self) -> Path:
        """The page on a model of a problem file; `training.report` writes it."""
        return self.path / "report.html"

    @property
    def recipe(self) -> Path:
        """The recipe of a run that has not ended."""
        return self.path / "recipe.json"

    @property
    def saved(self) -> Path:
        """An empty file, once a run that has not ended has written its checkpoint, which then is measured."""
        return self.state / "saved"

    @property
    def unfinished(self) -> bool:
        """Whether a training was stopped here: a checkpoint in the folder is that of an earlier one."""
        return self.recipe.exists() and not self.saved.exists()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other commands that write out of the folder.

        A training would remove and replace the states of another; and who measures or calibrates a checkpoint for
        minutes and then writes its card would undo what another has written there meanwhile.

        Raises:
            RunError: One is running there.
        """
        if not is_first():
            yield
            return
        lock = FileLock(self.path / ".lock", timeout=0)
        try:
            held = lock.acquire()  # the system frees that of a process that is killed
        except Timeout as error:
            raise RunError(
                f"{self.path}: expected no other command that writes there but one is running: wait for it, or train "
                "into another folder (--out)"
            ) from error
        with held:
            try:
                yield
            finally:
                Path(lock.lock_file).unlink(missing_ok=True)

    def expect_own(self) -> None:
        """Check that the folder is empty, or that of a run: a training removes and replaces files there.

        Raises:
            RunError: It holds something else.
        """
        held = sorted(path.name for path in self.path.glob("[!.]*"))
        if held and not any(keys <= members(self.path / name) for name, keys in OF_RUNS.items()):
            raise RunError(
                f"{self.path}: expected a new folder, an empty one or that of a run but found "
                f"{checkpoint.some(held)}: name another one (--out)"
            )

    def expect_ended(self) -> None:
        """Check that no training was stopped in the folder, whose log is beside the weights of an earlier one.

        Raises:
            RunError: One was.
        """
        if self.unfinished:
            raise RunError(
                f"{self.path}: expected a training that has ended but found one that was stopped: its command with "
                "--resume goes on with it"
            )

    def expect_recipe(self, recipe: BaseRecipe) -> None:
        """Check that a training that was stopped in the folder, if there is one, has this recipe.

        Raises:
            RecipeError: It has another one.
        """
        if self.recipe.exists() and (began := self.began()) != recipe:
            differ = "" if began is None else f", {checkpoint.differences(began, recipe)}"
            raise RecipeError(
                f"{self.recipe}: expected the recipe of this training, which was stopped, but found another "
                f"recipe{differ}: go on with its settings (--set), or leave out --resume, to train anew"
            )

    def open(self, recipe: BaseRecipe, *, resume: bool) -> Path | None:
        """Return the newest whole state to resume from, or remove old states and return None.

        Raises:
            RecipeError: The run to resume has another recipe.
        """
        if resume and self.recipe.exists():
            self.expect_recipe(recipe)
            return self.newest()
        self.close()
        self.metrics.unlink(missing_ok=True)
        write_text(self.recipe, recipe.model_dump_json())
        return None

    def newest(self) -> Path | None:
        """Return the newest whole state; None where there is none."""
        states = sorted(self.state.glob("epoch=*.ckpt"), key=lambda path: -int(path.stem.partition("=")[2]))
        return next(filter(whole, states), None)

    def began(self) -> BaseRecipe | None:
        """Return the recipe of the run that has not ended; None where there is none that can be read."""
        try:
            return from_document(json.loads(self.recipe.read_text()))
        except (OSError, ValueError):
            return None

    def finished(self, recipe: BaseRecipe) -> bool:
        """Return whether the folder holds the finished run of a recipe.

        Raises:
            RecipeError: It holds that of another one.
        """
        if self.recipe.exists() or not all(
            (self.path / name).is_file() for name in (checkpoint.WEIGHTS, checkpoint.CONFIG)
        ):
            return False
        if (found := checkpoint.read_config(self.path).recipe) != recipe:
            remove = shlex.join(["rm", "-r", str(self.path)])
            raise RecipeError(
                f"{self.path} holds the finished run of another recipe, {checkpoint.differences(found, recipe)}: "
                f"`{remove}`, or leave out --resume, to train anew"
            )
        return True

    def close(self) -> None:
        """Remove what only a resumed run needs: the recipe first, by which it would go on, and without states begin."""
        self.recipe.unlink(missing_ok=True)
        shutil.rmtree(self.state, ignore_errors=True)


def members(path: Path) -> set[str]:
    """Return the names of the members of a JSON file; none where it is something else."""
    try:
        return {*read_json(path)}
    except (OSError, ValueError):
        return set()


def whole(state: Path) -> bool:
    """Return whether a state can be read: a kill or a full disk may have left a part of the newest."""
    try:
        torch.load(state, map_location="cpu", weights_only=True)
    except (RuntimeError, OSError, EOFError, pickle.UnpicklingError) as error:
        warnings.warn(f"{state}: left out, as it cannot be read: {error}", stacklevel=2)
        return False
    return True


class StateIO(TorchCheckpointIO):
    """Replace a state in one step, once its bytes are on the disk."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None) -> None:
        del storage_options
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        try:
            with replacing(Path(path)) as aside:
                torch.save(checkpoint, aside)
        except (OSError, RuntimeError) as error:  # torch reports a full disk by either
            raise RunError(f"{path}: expected to save the state of the training but: {error}") from error


class States(ModelCheckpoint):
    """Save states, and know those that there are in the folder of the run, which may have been moved meanwhile."""

    @property
    def state_key(self) -> str:
        """The key of this in a state, that of its base class, as earlier releases wrote it."""
        return super().state_key.replace(type(self).__qualname__, ModelCheckpoint.__qualname__, 1)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Look for the states in this folder; those that are elsewhere, as a candidate's of a race, stay there."""
        folder, scores = Path(str(self.dirpath)), state_dict["best_k_models"]
        if scores and all((folder / Path(path).name).is_file() for path in scores):
            here = {path: str(folder / Path(path).name) for path in scores}
            names = ("best_model_path", "kth_best_model_path")
            state_dict = {
                **state_dict,
                "dirpath": self.dirpath,
                "best_k_models": {here[path]: score for path, score in scores.items()},
                **{name: here.get(state_dict[name], state_dict[name]) for name in names},
            }
        super().load_state_dict(state_dict)


def state_bytes(parameters: int) -> int:
    """Return the disk space that the states of a network with so many float32 parameters take."""
    return 4 * parameters * COPIES * STATES + RESERVE


def least_state_bytes(parameters: int, fit: Any) -> int:
    """Return what a state takes at least: the weights, the optimiser's moments of each, and their mean."""
    moments = 1 if getattr(fit, "optimiser", "muon") == "muon" else 2
    return 4 * parameters * (1 + moments + bool(getattr(fit, "average", 0.0)))


#: The first columns; the metric, which has the problem's name for it, is the third. Other error measures follow.
COLUMNS = ("epoch", "loss", "{metric}", "rate", "share", "seconds")


class RunLog(pl.Callback):
    """Append one row per epoch to `path`; rows of epochs that are about to be repeated are dropped first."""

    def __init__(self, path: Path, metric: str) -> None:
        self.path, self.metric = path, metric
        self.started = 0.0

    def on_train_start(self, trainer: pl.Trainer, _: pl.LightningModule) -> None:
        self.write([row for row in read_log(self.path) if int(row["epoch"]) < trainer.current_epoch])

    def on_train_epoch_start(self, *_: Any) -> None:
        self.started = time.perf_counter()

    def on_train_epoch_end(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        """Append the epoch's row."""
        metrics = trainer.callback_metrics
        row = {
            "epoch": trainer.current_epoch,
            "loss": f"{metrics['loss'].item():.6e}",
            self.metric: f"{metrics[self.metric].item():.6e}",
            "rate": f"{trainer.optimizers[0].param_groups[0]['lr']:.6e}",
            "share": f"{cast('Any', task).budget.share:.6g}",
            "seconds": f"{time.perf_counter() - self.started:.1f}",
        }
        row |= {name: f"{value.item():.6e}" for name, value in metrics.items() if name not in row}
        self.write([*read_log(self.path), row])
        for name in ("loss", self.metric):
            if not math.isfinite(metrics[name].item()):
                raise DivergenceError(
                    f"{self.path}: the training diverged: {name} is {row[name]} after epoch {trainer.current_epoch}. "
                    f"A lower fit.learning_rate may help; samples whose truth is zero everywhere have no relative error"
                )

    def write(self, rows: list[dict[str, Any]]) -> None:
        """Replace the file in one step."""
        with replacing(self.path) as aside, aside.open("w", newline="") as file:
            first = [name.format(metric=self.metric) for name in COLUMNS]  # a log of an earlier release has no others
            writer = csv.DictWriter(file, [*dict.fromkeys([*first, *(name for row in rows for name in row)])])
            writer.writeheader()
            writer.writerows(rows)


def read_log(path: Path) -> list[dict[str, str]]:
    """Return the rows of a log, none if there is no file yet."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def training_seconds(path: Path) -> float:
    """Return how long all epochs of a log took."""
    return sum((float(row["seconds"]) for row in read_log(path)), 0.0)


class ProgressBar(pl.Callback):
    """Draw a bar for the share of the training that is done, with loss and validation error of the last epoch.

    They come from the log at `path`, which has to be written before. It is no progress bar of Lightning, which draws
    one per epoch: a training may have hundreds.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_train_start(self, _: pl.Trainer, task: pl.LightningModule) -> None:
        self.bar = Bar("training", 1.0, cast("Any", task).budget.share)

    def on_train_batch_end(self, _: pl.Trainer, task: pl.LightningModule, *__: Any) -> None:
        self.bar.show(completed=cast("Any", task).budget.share)

    def on_train_epoch_end(self, *_: Any) -> None:
        rows = read_log(self.path)
        loss, error = errors(rows[-1])
        self.bar.show(text=f"epoch {len(rows)}, loss {loss:.1e}, error {error:.1e}", force=True)

    def on_train_end(self, *_: Any) -> None:
        self.bar.close()

    def on_exception(self, *_: Any) -> None:
        if hasattr(self, "bar"):
            self.bar.close()


class ProgressLines(pl.Callback):
    """Write a line per epoch to standard error, from the log at `path`, which has to be written before."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_train_epoch_end(self, *_: Any) -> None:
        sys.stderr.write(f"{line(read_log(self.path))}\n")
        sys.stderr.flush()


def progress(path: Path) -> pl.Callback:
    """Return a bar where standard error is a terminal, lines where it is not."""
    return ProgressBar(path) if in_terminal() else ProgressLines(path)


def errors(row: Mapping[str, Any]) -> tuple[float, float]:
    """Return the loss and the validation error of a row of a log."""
    return float(row["loss"]), float(row[metric_of(row)])


def metric_of(row: Mapping[str, Any]) -> str:
    """Return the name of the metric of a row of a log."""
    return [*row][COLUMNS.index("{metric}")]


def line(rows: Sequence[Mapping[str, Any]]) -> str:
    """Describe the last row of a log, one row per epoch."""
    last, share = rows[-1], float(rows[-1]["share"])
    left = sum(float(row["seconds"]) for row in rows) * (1 - share) / share
    loss, error = (f"{name} {float(last[name]):.3e}" for name in ("loss", metric_of(last)))
    return (
        f"epoch {len(rows)}, {share:.0%}: {loss}, validation {error}, "
        f"{float(last['seconds']):.1f} s, {timedelta(seconds=round(left))} left"
    )
