"""Trainings on parts of the data with the settings of the run: the validation error against the amount of data."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from training.files import write_json
from training.fit.own.workload import OwnWorkload, measured
from training.fit.record import log
from training.fit.record.folder import RunFolder
from training.fit.run import fit, own_workload
from training.recipes.own import OwnRecipe
from training.recipes.trajectory import TrajectoryRecipe

SHARES = (0.25, 0.5)
TRAJECTORY_SHARES = (0.5,)  # their presets spend the time on the run itself
FOLDER = "amounts"
RESULT = "validation.json"


@dataclass(frozen=True)
class Amount:
    """The result of a training on part of the data.

    Attributes:
        share: Of the run's training samples.
        samples: Training samples.
        errors: Relative L2 error of each validation sample.
    """

    share: float
    samples: int
    errors: NDArray[np.float64]


def shares(recipe: OwnRecipe) -> tuple[float, ...]:
    """Return the parts of the data that are trained on beside a run on all of them."""
    return TRAJECTORY_SHARES if isinstance(recipe, TrajectoryRecipe) else SHARES


def expected_seconds(recipe: OwnRecipe, metrics: Path) -> float:
    """Return how long the trainings on all shares take, from the log of the run."""
    return sum(shares(recipe)) * log.seconds(metrics)


def train_on_share(recipe: OwnRecipe, share: float, run: Path, data: Path, workers: int = 0) -> Amount:
    """Train once more on a share of the data; a finished training is not repeated, an interrupted one continues.

    Args:
        recipe: The run's recipe.
        share: Which part of its training samples is used.
        run: The run's folder, below which the training has its own.
        data: Folder of the prepared samples.
        workers: Processes that read batches.
    """
    folder = run / FOLDER / f"{share:g}"
    settings = recipe.fit.model_copy(update={"share": share * recipe.fit.share})
    part = recipe.model_copy(update={"fit": settings})
    work = own_workload(part, data)
    found = finished(folder, part)
    if found is None:
        found = trained(work, RunFolder(folder), workers)
        write_json(folder / RESULT, {"recipe": part.model_dump(mode="json"), "errors": found})
    return Amount(share, len(work.rows), np.asarray(found))


def finished(folder: Path, recipe: OwnRecipe) -> list[float] | None:
    """Return the errors of a finished training with this recipe, if there was one."""
    if not (folder / RESULT).is_file():
        return None
    document = json.loads((folder / RESULT).read_text())
    return document["errors"] if document["recipe"] == recipe.model_dump(mode="json") else None


def trained(work: OwnWorkload, run: RunFolder, workers: int) -> list[float]:
    """Train, and return the errors of the validation samples."""
    run.path.mkdir(parents=True, exist_ok=True)
    same = run.recipe.is_file() and run.recipe.read_text() == work.recipe.model_dump_json()
    state = run.open(work.recipe, resume=same)
    task = work.task()
    task.workers = workers
    fit(task, work, run, state)
    run.close()
    return [*map(float, measured(task.operator.eval(), work.batches("validation")))]
