"""One training run on sequences: takes a recipe and folders, gives a checkpoint as `training.fit.fields` does."""

from __future__ import annotations

import logging
import resource
import shutil
import warnings
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch

from training import checkpoint
from training.fit import log as runlog
from training.fit.allocator import keep_freed_memory
from training.fit.fields import BEST, EXPECTED_WARNINGS, METRICS, STATE, ProgressBar, open_state, savers
from training.sequences.batches import Plan
from training.sequences.corpora.corpus import Splits
from training.sequences.corpora.load import load
from training.sequences.measure import report
from training.sequences.networks.build import Network, build
from training.sequences.problem import SequenceProblem
from training.sequences.recipe import SequenceRecipe
from training.sequences.task import SequenceTask

KEPT = {"last": "the last epoch", "best": "the epoch of the best accuracy on the validation set"}
METRIC = "accuracy"


def fit(recipe: SequenceRecipe, folder: Path, data: Path, *, resume: bool = False, init: Path | None = None) -> Path:
    """Train as the recipe says and write the checkpoint.

    Args:
        recipe: what to train on what and how.
        folder: where the run lives.
        data: folder of generated or fetched samples.
        resume: go on from the last finished epoch of an interrupted run in `folder`, if there is one.
        init: a checkpoint folder to take the initial weights from.

    Returns:
        The checkpoint folder, which is `folder`.

    Raises:
        CheckpointError: `init` does not fit the recipe.
        CorpusError: there are no samples.
        RecipeError: `resume` would go on with another recipe than it began.
    """
    keep_freed_memory()
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)  # its tips and its hardware report are not ours
    problem, splits = load(recipe, data)
    state = open_state(recipe, folder, resume=resume)
    task = prepare_task(recipe, problem, splits, init)
    with warnings.catch_warnings():
        for message in EXPECTED_WARNINGS:
            warnings.filterwarnings("ignore", message)
        make_trainer(recipe, folder).fit(task, ckpt_path=state, weights_only=True)
    if recipe.fit.keep == "best":
        task.load_state_dict(torch.load(folder / STATE / BEST, weights_only=True)["state_dict"])
    network = task.operator.eval()
    card = describe(recipe, problem, network, folder) | report(network, splits)
    checkpoint.save(folder, network, recipe, problem, card)
    shutil.rmtree(folder / STATE)
    (folder / "recipe.json").unlink()
    return folder


def prepare_task(recipe: SequenceRecipe, problem: SequenceProblem, splits: Splits, init: Path | None) -> SequenceTask:
    """Build the network with weights drawn from the seed, or taken from a checkpoint."""
    torch.manual_seed(recipe.seed)
    network = build(recipe.operator, problem)
    if init is not None:
        checkpoint.restore(network, init / checkpoint.WEIGHTS)
    plan = Plan(recipe.fit.batch, recipe.fit.steps, recipe.seed)
    return SequenceTask(network, recipe.fit, plan, splits["train"], splits["validation"])


def make_trainer(recipe: SequenceRecipe, folder: Path) -> pl.Trainer:
    """Configure Lightning: progress bar, CSV log, saved states."""
    log = runlog.RunLog(folder / METRICS, METRIC)
    return pl.Trainer(
        max_epochs=recipe.fit.epochs,
        gradient_clip_val=recipe.fit.clip,
        reload_dataloaders_every_n_epochs=1,
        num_sanity_val_steps=0,
        callbacks=[*savers(recipe.fit.keep, folder / STATE, METRIC, "max"), log, ProgressBar()],
        logger=False,
        enable_model_summary=False,
        accelerator="auto",
        devices=1,
    )


def describe(recipe: SequenceRecipe, problem: SequenceProblem, network: Network, folder: Path) -> dict[str, Any]:
    """Give the card's account of the training."""
    rows = runlog.read(folder / METRICS)
    return {
        "training": {
            "distribution": problem.distribution,
            "sequences": recipe.data.train,
            "length": list(recipe.data.length),
            "epochs": recipe.fit.epochs,
            "steps": recipe.fit.epochs * recipe.fit.steps,
            "batch": recipe.fit.batch,
            "kept": KEPT[recipe.fit.keep],
            "seconds": round(sum(float(row["seconds"]) for row in rows), 1),
            "peak_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
            "threads": torch.get_num_threads(),
            "preset": recipe.preset,
            "seed": recipe.seed,
        },
        "checkpoint": {"parameters": sum(p.numel() for p in network.parameters())},
    }
