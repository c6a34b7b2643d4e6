"""The folder of a run, and what it holds while the run goes on.

.. code-block:: text

    runs/darcy-quick/
      state/ recipe.json     until the run is measured: the trainer's state after the two last epochs
      metrics.csv            loss, validation error and learning rate by epoch
      weights.safetensors config.json card.json examples.safetensors     the checkpoint
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

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
        """Return the newest saved state to resume from, or remove old states and return None.

        Raises:
            RecipeError: The interrupted run was started with another recipe.
        """
        if resume and self.recipe.exists():
            if self.recipe.read_text() != recipe.model_dump_json():
                raise RecipeError(
                    f"{self.path} was interrupted under another recipe ({self.recipe}): restore it, or start afresh"
                )
            states = self.state.glob("epoch=*.ckpt")
            return max(states, key=lambda path: int(path.stem.partition("=")[2]), default=None)
        self.close()
        self.metrics.unlink(missing_ok=True)
        self.recipe.write_text(recipe.model_dump_json())
        return None

    def close(self) -> None:
        """Remove what only a resumed run needs."""
        shutil.rmtree(self.state, ignore_errors=True)
        self.recipe.unlink(missing_ok=True)


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
