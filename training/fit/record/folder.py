"""The folder of a run, and what it holds while the run goes on.

.. code-block:: text

    runs/darcy-quick/
      state/ recipe.json     until the run is measured: the trainer's state after the two last epochs
      metrics.csv            loss, validation error and learning rate by epoch
      weights.safetensors config.json card.json examples.safetensors     the checkpoint
"""

from __future__ import annotations

import os
import pickle
import shutil
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins import TorchCheckpointIO

from training import checkpoint
from training.files import replacing
from training.recipes.kinds import BaseRecipe
from training.recipes.recipe import RecipeError
from training.user_error import UserError

STATES = 3  # saved states at once: the two newest, and the one that is being written
COPIES = 5  # what a state holds of each parameter at most: itself, Adam's two moments, the mean, and the best epoch's
RESERVE = 64 * 2**20  # bytes for everything else


class RunError(UserError):
    """A run cannot start or be completed: the message names the folder, what was expected and what was found."""


@dataclass(frozen=True)
class RunFolder:
    """A run's folder."""

    path: Path

    @property
    def state(self) -> Path:
        """The folder of the trainer's states."""
        return self.path / "state"

    @property
    def best(self) -> Path:
        """The weights of the best epoch so far, where the recipe keeps the best."""
        return self.state / "best.ckpt"

    @property
    def metrics(self) -> Path:
        """The log."""
        return self.path / "metrics.csv"

    @property
    def recipe(self) -> Path:
        """The recipe of a run that has not ended."""
        return self.path / "recipe.json"

    def open(self, recipe: BaseRecipe, *, resume: bool) -> Path | None:
        """Return the newest whole state to resume from, or remove old states and return None.

        Raises:
            RecipeError: The interrupted run was started with another recipe.
        """
        if resume and self.recipe.exists():
            if self.recipe.read_text() != recipe.model_dump_json():
                raise RecipeError(
                    f"{self.path} was interrupted under another recipe ({self.recipe}): restore it, or start afresh"
                )
            states = sorted(self.state.glob("epoch=*.ckpt"), key=lambda path: -int(path.stem.partition("=")[2]))
            return next(filter(whole, states), None)
        self.close()
        self.metrics.unlink(missing_ok=True)
        self.recipe.write_text(recipe.model_dump_json())
        return None

    def finished(self, recipe: BaseRecipe) -> bool:
        """Return whether the folder holds the finished run of a recipe.

        Raises:
            RecipeError: It holds that of another recipe, which must not be lost by mistake.
        """
        if self.recipe.exists() or not all(
            (self.path / name).is_file() for name in (checkpoint.WEIGHTS, checkpoint.CONFIG)
        ):
            return False
        if checkpoint.read_config(self.path).recipe != recipe:
            raise RecipeError(
                f"{self.path} holds the finished run of another recipe: `rm -r {self.path}`, or leave out --resume, "
                "to train anew"
            )
        return True

    def close(self) -> None:
        """Remove what only a resumed run needs."""
        shutil.rmtree(self.state, ignore_errors=True)
        self.recipe.unlink(missing_ok=True)


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
        """Write a state; see the base class."""
        del storage_options
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        try:
            with replacing(Path(path)) as aside:
                torch.save(checkpoint, aside)
        except (OSError, RuntimeError) as error:  # torch reports a full disk by either
            raise RunError(f"{path}: expected to save the state of the training but: {error}") from error


def expect_room(folder: Path, needed: int) -> None:
    """Make a folder, and check that it is writable and its disk has room.

    Args:
        folder: Where something is about to be written.
        needed: Bytes.

    Raises:
        RunError: It is not writable, or has less room.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"{folder}: expected a folder that can be made but found: {error.strerror}") from error
    if not os.access(folder, os.W_OK):
        raise RunError(f"{folder}: expected a writable folder but found a read-only one")
    if (free := shutil.disk_usage(folder).free) < needed:
        raise RunError(f"{folder}: expected {needed / 1e6:.0f} MB of free disk space but found {free / 1e6:.0f} MB")


def state_bytes(parameters: int) -> int:
    """Return the disk space that the states of a network with so many float32 parameters take."""
    return 4 * parameters * COPIES * STATES + RESERVE
