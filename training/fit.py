"""One training run: takes a recipe and folders, gives a checkpoint in `runs/<model>-<preset>/`.

.. code-block:: text

    runs/darcy-quick/
      state/                 the trainer's state after the two last epochs; a killed run resumes from it
      metrics.csv            loss, error and rate by epoch
      weights.safetensors config.json card.json     the checkpoint, written at the end
"""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import ModelCheckpoint, TQDMProgressBar

from training import checkpoint, runlog
from training.batches import Plan
from training.config import Recipe
from training.data import Request, Samples, prepare, read
from training.evaluation import report
from training.operators import Operator, build
from training.problems import PROBLEMS
from training.task import Task

WATCHED = 16  # test fields whose error is logged after every epoch


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
    """
    folder.mkdir(parents=True, exist_ok=True)
    samples = prepare(request(recipe), data)
    task = prepare_task(recipe, samples, init)
    trainer = make_trainer(recipe, folder)
    trainer.fit(task, ckpt_path=last_state(folder) if resume else None, weights_only=True)
    operator = task.operator.eval()
    card = describe(recipe, operator, folder) | report(operator, PROBLEMS[recipe.problem], recipe.data, samples)
    checkpoint.save(folder, operator, recipe, PROBLEMS[recipe.problem], card)
    return folder


def request(recipe: Recipe) -> Request:
    """Say which samples a recipe needs."""
    return Request(recipe.problem, recipe.data.mesh, recipe.data.train, recipe.data.test, recipe.seed)


def prepare_task(recipe: Recipe, path: Path, init: Path | None) -> Task:
    """Read the samples and build the network, with fitted normalisers."""
    train = {n: read(path, "train", recipe.data.train, n) for n in recipe.data.grids}
    watch = read(path, "test", min(WATCHED, recipe.data.test), recipe.data.grids[0])
    operator = initial_operator(recipe, train[recipe.data.grids[0]], init)
    return Task(operator, recipe.fit, Plan(recipe.fit.batch, recipe.seed, recipe.fit.symmetries), train, watch)


def initial_operator(recipe: Recipe, samples: Samples, init: Path | None) -> Operator:
    """Build the network with weights drawn from the seed, or taken from a checkpoint."""
    torch.manual_seed(recipe.seed)
    operator = build(recipe.operator)
    operator.fit_normalisers(torch.from_numpy(samples.inputs), torch.from_numpy(samples.outputs))
    if init is not None:
        checkpoint.restore(operator, init / checkpoint.WEIGHTS)
    return operator


def make_trainer(recipe: Recipe, folder: Path) -> pl.Trainer:
    """Configure Lightning: progress bar, CSV log, state saved at every epoch's end (the newest two are kept)."""
    states = ModelCheckpoint(
        folder / "state", "{epoch}", monitor="epoch", mode="max", save_top_k=2, save_on_train_epoch_end=True
    )
    return pl.Trainer(
        max_epochs=recipe.fit.epochs,
        gradient_clip_val=recipe.fit.clip,
        reload_dataloaders_every_n_epochs=1,
        num_sanity_val_steps=0,
        callbacks=[states, runlog.RunLog(folder / "metrics.csv"), TQDMProgressBar(refresh_rate=5)],
        logger=False,
        enable_model_summary=False,
        accelerator="auto",
        devices=1,
    )


def last_state(folder: Path) -> Path | None:
    """Give the newest saved state of a run, None if there is none."""
    states = sorted((folder / "state").glob("epoch=*.ckpt"), key=lambda path: int(path.stem.partition("=")[2]))
    return states[-1] if states else None


def describe(recipe: Recipe, operator: Operator, folder: Path) -> dict[str, Any]:
    """Give the card's account of the training."""
    seconds = sum(float(row["seconds"]) for row in runlog.read(folder / "metrics.csv"))
    return {
        "training": {
            "distribution": PROBLEMS[recipe.problem].distribution,
            "fields": recipe.data.train,
            "grids": list(recipe.data.grids),
            "epochs": recipe.fit.epochs,
            "seconds": round(seconds, 1),
            "peak_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
            "threads": torch.get_num_threads(),
            "preset": recipe.preset,
            "seed": recipe.seed,
        },
        "checkpoint": {"parameters": sum(p.numel() for p in operator.parameters())},
    }
