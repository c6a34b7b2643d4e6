"""The comparison of attention types: a row of score and cost per training of a recipe.

Rows differ in one value of the recipe, and in the seed of weights and orders. All share the same samples. A step is
forward and backward on the first batch; its time is the processor time of all threads, and its memory the peak of the
tensors beyond weights and input.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks.harness import ResultFile, Row
from benchmarks.profile import peak_bytes
from schema.card import CheckpointCard
from training import checkpoint, recipes
from training.fit import run, run_folder
from training.fit.run_folder import RunFolder
from training.recipe import AddedRecipe, Recipe

REPEATS = 5  # timed steps, of which the median is kept


@dataclass(frozen=True)
class Plan:
    """The trainings: a recipe's file, overrides that all rows share, types of attention, and seeds per type."""

    recipe: Path
    overrides: tuple[str, ...]
    attention: tuple[str, ...]
    seeds: int = 1

    def recipes(self) -> dict[tuple[str, int], Recipe | AddedRecipe]:
        """Return the recipe of every row, by type and seed."""
        first = recipes.read(self.recipe, [*self.overrides])
        samples = first.seed if first.data is None or first.data.seed is None else first.data.seed
        return {
            (kind, seed): recipes.read(
                self.recipe,
                [*self.overrides, f"operator.attention={kind}", f"seed={seed}", f"data.seed={samples}"],
            )
            for seed in range(first.seed, first.seed + self.seeds)
            for kind in self.attention
        }


def compare(plan: Plan, kept: ResultFile, folder: Path, data: Path) -> Iterator[Row]:
    """Train and measure the rows that are not kept yet; an interrupted run is resumed."""
    done = {(row["attention"], row["seed"]) for row in kept.rows}
    for (kind, seed), recipe in plan.recipes().items():
        if (kind, seed) not in done:
            yield kept.add(measure(kind, recipe, folder / f"{recipe.name}-{kind}-{seed}", data))


def measure(kind: str, recipe: Recipe | AddedRecipe, folder: Path, data: Path) -> Row:
    """Train one recipe with a type of attention, and return its row."""
    finished = (folder / checkpoint.CARD).exists() and checkpoint.read_config(folder).recipe == recipe
    found = checkpoint.load(folder if finished else run.train(recipe, folder, data, resume=True))
    metric, score, floor = reached(found.card)
    task = run.workload(recipe, data, progress=False).task()
    batch = next(iter(task.train_dataloader()))
    milliseconds, megabytes = cost(lambda: task.objective(batch))
    logged = run_folder.read_log(RunFolder(folder).metrics)
    return {
        "attention": kind,
        "seed": recipe.seed,
        "metric": metric,
        "score": score,
        "floor": floor,
        "parameters": found.card.checkpoint["parameters"],
        "step_milliseconds": milliseconds,
        "peak_megabytes": megabytes,
        "threads": torch.get_num_threads(),
        # The metric on the validation samples after every epoch.
        "curve": [float(row[run_folder.metric_of(row)]) for row in logged],
    }


def reached(card: CheckpointCard) -> tuple[str, float, float | None]:
    """Return the metric of a card, its value on the test set, and the accuracy of the most common label."""
    if card.accuracy:
        [row] = card.accuracy
        return "accuracy", row["accuracy"], row["majority"]
    return "relative_l2", card.errors[0]["relative_l2"], None


def cost(loss: Callable[[], torch.Tensor]) -> tuple[float, float]:
    """Return milliseconds and megabytes of a step; the memory is counted in the first one, which warms up."""
    peak, times = peak_bytes(lambda: loss().backward()), []
    for _ in range(REPEATS):
        started = time.process_time()
        loss().backward()
        times.append(time.process_time() - started)
    return round(1000 * statistics.median(times), 1), round(peak / 1e6, 1)
