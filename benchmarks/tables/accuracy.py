"""The tables of docs/accuracy.md: errors and times of the released models and of the classical solvers, by grid."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

from benchmarks.report import markdown
from research import ablation
from training import checkpoint
from training.evaluation import table

if TYPE_CHECKING:
    from pathlib import Path

TRAINING_HEADER = (
    "recipe",
    "fields",
    "steps",
    "minutes",
    "threads",
    "processor",
    "two idle cores (estimated)",
    "one large GPU (estimated)",
)
SPEED = {1: 1.0, 2: 1.6}  # of threads, relative to one
GPU_STEP = 0.03  # seconds, if bounded by the launches of kernels
PAGE_HEADER = (
    "grid",
    "solver",
    "fields",
    "relative L2",
    "standard error",
    "median",
    "95 %",
    "worst",
    "gradient",
    "energy",
    "ms",
    "ms, 8 at once",
)


CLOSED_FORM = "closed-form.md"
"""The page of models that are not trained, beside the page of the others."""


def measure(checkpoints: Path, pictures: Path) -> None:
    """Evaluate every trained model, write its card, and draw its best, median and worst fields."""
    command = [sys.executable, "-m", "training", "evaluate", "--write", "--pictures", str(pictures)]
    for card in trained(cards(checkpoints)):
        environment = os.environ | {"OMP_NUM_THREADS": "1"}  # of the classical solvers
        subprocess.run([*command, str(card.parent)], check=True, env=environment)  # noqa: S603 -- our own command


def write_page(page: Path, checkpoints: Path, compared: Path, other: Path) -> None:
    """Write the tables of a page.

    Args:
        page: The page.
        checkpoints: The released models; their cards hold the figures.
        compared: The results of an ablation.
        other: The card of a model of the neuraloperator data set.
    """
    found = cards(checkpoints)
    for path in found:
        of_card = page if path in trained(found) else page.with_name(CLOSED_FORM)
        markdown.write(of_card, path.parent.name, PAGE_HEADER, table.card_cells(json.loads(path.read_text())))
    markdown.write(page, "ablation", ablation.HEADER, ablation.cells(ablation.load(compared)))
    markdown.write(page, "neuralop", PAGE_HEADER, table.card_cells(json.loads(other.read_text())))
    markdown.write(page, "training", TRAINING_HEADER, training_rows(checkpoints))


def training_rows(checkpoints: Path) -> list[tuple[str, ...]]:
    """Return a row per trained model: the cost of its training, and estimates for other machines."""
    found: list[tuple[str, ...]] = []
    for path in trained(cards(checkpoints)):
        recipe, run = checkpoint.load_operator(path.parent).recipe, json.loads(path.read_text())["training"]
        minutes, steps = run["seconds"] / 60, recipe.fit.epochs * (recipe.data.train // recipe.fit.batch)
        estimates = (f"{minutes * SPEED[min(run['threads'], 2)] / SPEED[2]:.0f}", f"{steps * GPU_STEP / 60:.0f}")
        hardware = (str(run["threads"]), run.get("processor", ""))
        found.append((recipe.name, str(recipe.data.train), str(steps), f"{minutes:.0f}", *hardware, *estimates))
    return found


def trained(found: list[Path]) -> list[Path]:
    """Return the cards of models that were trained; a closed form was not."""
    return [card for card in found if json.loads(card.read_text())["training"]["epochs"]]


def cards(checkpoints: Path) -> list[Path]:
    """Return the released models' cards that hold errors of fields by grid; those of trajectories have a page."""
    found = [(card, json.loads(card.read_text())) for card in sorted(checkpoints.glob("*/card.json"))]
    return [path for path, card in found if "errors" in card and "rollout" not in card]
