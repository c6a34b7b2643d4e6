"""One training run: takes a recipe and folders, gives a checkpoint in `runs/<model>-<preset>/`.

.. code-block:: text

    runs/darcy-quick/
      state/ recipe.json     while it runs: the trainer's state after the two last epochs; a killed run resumes there
      metrics.csv            loss, error and rate by epoch
      weights.safetensors config.json card.json     the checkpoint, written at the end
"""

from __future__ import annotations

import logging
import resource
import shutil
import sys
import warnings
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback, EMAWeightAveraging, ModelCheckpoint, TQDMProgressBar
from lightning.pytorch.callbacks.progress.tqdm_progress import Tqdm

from training import checkpoint
from training.data import Request, Samples, prepare, read
from training.evaluation import report
from training.evaluation.timing import processor
from training.fit import log as runlog
from training.fit.allocator import keep_freed_memory
from training.fit.batches import Plan
from training.fit.task import Task
from training.operators import Operator, build
from training.problems.problem import PROBLEMS
from training.problems.validity import validity
from training.recipes.recipe import AnyRecipe, FitConfig, Recipe, RecipeError

STATE, BEST, METRICS = "state", "best.ckpt", "metrics.csv"
EXPECTED_WARNINGS = (
    "Checkpoint directory .* exists and is not empty",  # a resumed run writes where it wrote before
    ".*does not have many workers",  # the samples are in memory: workers would only copy them
    ".*is smaller than the logging interval",  # a tiny run has few batches, and metrics are logged by epoch
    "Your `IterableDataset` has `__len__` defined",  # meant for several loader workers, of which there are none
    ".*isinstance.treespec, LeafSpec.. is deprecated",  # Lightning's own use of torch
)
WATCHED = 16  # test fields whose error is logged after every epoch; all of them where they choose the epoch
KEPT = {"last": "the last epoch", "best": "the epoch of the least error on the test set"}


def fit(recipe: Recipe, folder: Path, data: Path, *, resume: bool = False, init: Path | None = None) -> Path:
    """Train as the recipe says and write the checkpoint.

    Args:
        recipe: what to train on what and how.
        folder: where the run lives.
        data: folder of the generated samples; what is missing is generated.
        resume: go on from the last finished epoch of an interrupted run in `folder`, if there is one.
        init: a checkpoint folder to take the initial weights from.

    Returns:
        The checkpoint folder, which is `folder`.

    Raises:
        CheckpointError: `init` does not fit the recipe.
        RecipeError: `resume` would go on with another recipe than it began.
    """
    keep_freed_memory()
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)  # its tips and its hardware report are not ours
    state = open_state(recipe, folder, resume=resume)
    samples = prepare(request(recipe), data)
    task = prepare_task(recipe, samples, init)
    with warnings.catch_warnings():
        for message in EXPECTED_WARNINGS:
            warnings.filterwarnings("ignore", message)
        make_trainer(recipe, folder).fit(task, ckpt_path=state, weights_only=True)
    if recipe.fit.keep == "best":
        task.load_state_dict(torch.load(folder / STATE / BEST, weights_only=True)["state_dict"])
    operator = task.operator.eval()
    measured = report(operator, PROBLEMS[recipe.problem], recipe.data, samples, recipe.fit.levels, patient=False)
    card = describe(recipe, operator, folder) | measured
    checkpoint.save(folder, operator, recipe, PROBLEMS[recipe.problem], card)
    shutil.rmtree(folder / STATE)
    (folder / "recipe.json").unlink()
    return folder


def open_state(recipe: AnyRecipe, folder: Path, *, resume: bool) -> Path | None:
    """Give the newest saved state to resume from, or clear the folder's old ones and give None.

    Raises:
        RecipeError: the interrupted run was started with another recipe.
    """
    marker = folder / "recipe.json"
    if resume and marker.exists():
        if type(recipe).model_validate_json(marker.read_text()) != recipe:
            raise RecipeError(f"{folder} was interrupted under another recipe ({marker}): restore it, or start afresh")
        states = (folder / STATE).glob("epoch=*.ckpt")
        return max(states, key=lambda path: int(path.stem.partition("=")[2]), default=None)
    shutil.rmtree(folder / STATE, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / METRICS).unlink(missing_ok=True)
    marker.write_text(recipe.model_dump_json())
    return None


def request(recipe: Recipe) -> Request:
    """Say which samples a recipe needs."""
    data, seed = recipe.data, recipe.seed if recipe.data.seed is None else recipe.data.seed
    return Request(recipe.problem, data.mesh, data.train, data.test, seed, data.validation)


def prepare_task(recipe: Recipe, path: Path, init: Path | None) -> Task:
    """Read the samples and build the network, with fitted normalisers."""
    data, fit = recipe.data, recipe.fit
    train = {n: read(path, "train", data.train, n, problem=recipe.problem, gradients=fit.gradients) for n in data.grids}
    watched = data.test if fit.keep == "best" else min(WATCHED, data.test)
    watch = read(path, "test", watched, data.grids[0], problem=recipe.problem)
    operator = initial_operator(recipe, train[data.grids[0]], init)
    return Task(operator, fit, Plan(fit.batch, recipe.seed, fit.symmetries, fit.noise), train, watch)


def initial_operator(recipe: Recipe, samples: Samples, init: Path | None) -> Operator:
    """Build the network with weights drawn from the seed, or taken from a checkpoint."""
    torch.manual_seed(recipe.seed)
    operator = build(recipe.operator)
    operator.fit_normalisers(torch.from_numpy(samples.inputs), torch.from_numpy(samples.answers))
    if init is not None:
        checkpoint.restore(operator, init / checkpoint.WEIGHTS)
    return operator


class ProgressBar(TQDMProgressBar):
    """One bar for the training steps; none where nobody watches, the log's file tells it all."""

    def __init__(self) -> None:
        super().__init__(refresh_rate=5 if sys.stderr.isatty() else 0)

    def init_validation_tqdm(self) -> Tqdm:
        """Give a bar that never shows: validation takes a moment."""
        return Tqdm(disable=True)


def savers(keep: str, folder: Path, metric: str = "relative_l2", mode: str = "min") -> list[ModelCheckpoint]:
    """Save the state at every epoch's end, keep the newest two; and the best epoch's weights if asked for."""
    newest = ModelCheckpoint(folder, "{epoch}", monitor="epoch", mode="max", save_top_k=2, save_on_train_epoch_end=True)
    best = ModelCheckpoint(
        folder, Path(BEST).stem, monitor=metric, mode=mode, save_weights_only=True, enable_version_counter=False
    )
    # The best first: a state that is saved before it has chosen would forget its choice when it is resumed.
    return [best, newest] if keep == "best" else [newest]


def averaging(config: FitConfig) -> list[Callback]:
    """Keep, measure and save the weights' exponential mean if the recipe asks for it: late steps' noise cancels."""
    return [EMAWeightAveraging(decay=config.average)] if config.average else []


def make_trainer(recipe: Recipe, folder: Path) -> pl.Trainer:
    """Configure Lightning: progress bar, CSV log, saved states."""
    return pl.Trainer(
        max_epochs=recipe.fit.epochs,
        gradient_clip_val=recipe.fit.clip,
        reload_dataloaders_every_n_epochs=1,
        num_sanity_val_steps=0,
        callbacks=[
            *averaging(recipe.fit),
            *savers(recipe.fit.keep, folder / STATE),
            runlog.RunLog(folder / METRICS),
            ProgressBar(),
        ],
        logger=False,
        enable_model_summary=False,
        accelerator="auto",
        devices=1,
    )


def describe(recipe: Recipe, operator: Operator, folder: Path) -> dict[str, Any]:
    """Give the card's account of the training."""
    seconds = sum(float(row["seconds"]) for row in runlog.read(folder / METRICS))
    return {
        "training": {
            "distribution": PROBLEMS[recipe.problem].distribution,
            "fields": recipe.data.train,
            "grids": list(recipe.data.grids),
            "epochs": recipe.fit.epochs,
            "kept": KEPT[recipe.fit.keep],
            "seconds": round(seconds, 1),
            "peak_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
            "threads": torch.get_num_threads(),
            "processor": processor(),
            "preset": recipe.preset,
            "seed": recipe.seed,
            "validity": validity(recipe),
        },
        "checkpoint": {"parameters": sum(p.numel() for p in operator.parameters())},
    }
