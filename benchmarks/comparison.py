"""The comparison of attention types: a row of score and cost per training of a recipe.

Rows differ in one value of the recipe, and in the seed of weights and orders. All share the same samples.
"""

from __future__ import annotations

import json
import statistics
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from benchmarks.profiling.memory import peak_bytes
from training import checkpoint
from training.files import write_json
from training.fit import run
from training.fit.record import log
from training.fit.record.folder import RunFolder
from training.recipes import recipe as config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from training.recipes.recipe import FileRecipe

REPEATS = 5  # timed steps, of which the median is kept


class Row(BaseModel):
    """One training: its score on the test set, and the cost of a step."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    attention: str
    seed: int
    metric: str  # accuracy, or relative_l2
    score: float
    floor: float | None  # the accuracy of always predicting the most common label
    parameters: int
    step_milliseconds: float  # forward and backward, processor time of all threads
    peak_megabytes: float  # of the tensors in a step, beyond weights and input
    threads: int
    curve: tuple[float, ...] = ()  # the metric on the validation samples after every epoch


@dataclass(frozen=True)
class Plan:
    """The trainings: a recipe's file, overrides that all rows share, types of attention, and seeds per type."""

    recipe: Path
    overrides: tuple[str, ...]
    attention: tuple[str, ...]
    seeds: int = 1

    def recipes(self) -> dict[tuple[str, int], FileRecipe]:
        """Return the recipe of every row, by type and seed.

        Raises:
            RecipeError: A type does not exist or does not fit.
        """
        first = config.read(self.recipe, [*self.overrides])
        samples = first.seed if first.data.seed is None else first.data.seed
        return {
            (kind, seed): config.read(
                self.recipe,
                [*self.overrides, f"operator.attention={kind}", f"seed={seed}", f"data.seed={samples}"],
            )
            for seed in range(first.seed, first.seed + self.seeds)
            for kind in self.attention
        }


def compare(plan: Plan, known: Sequence[Row], folder: Path, data: Path) -> Iterator[Row]:
    """Train and measure the rows that are not known yet; an interrupted run is resumed.

    Args:
        plan: The trainings.
        known: The rows that exist.
        folder: The folder of the runs.
        data: The folder of the generated samples.

    Yields:
        The new rows.

    Raises:
        RecipeError: A type does not exist or does not fit; nothing has been trained.
    """
    done = {(row.attention, row.seed) for row in known}
    for (kind, seed), recipe in plan.recipes().items():
        if (kind, seed) not in done:
            yield measure(kind, recipe, folder / f"{recipe.name}-{kind}-{seed}", data)


def measure(kind: str, recipe: FileRecipe, folder: Path, data: Path) -> Row:
    """Train one recipe with a type of attention, and return its row.

    Args:
        kind: The type of attention.
        recipe: The recipe.
        folder: The folder of the run.
        data: The folder of the generated samples.
    """
    finished = (folder / checkpoint.CARD).exists() and checkpoint.read_config(folder).recipe == recipe
    found = checkpoint.load(folder if finished else run.train(recipe, folder, data, resume=True))
    metric, score, floor = reached(found.card)
    milliseconds, megabytes = cost(step(recipe, data))
    return Row(
        attention=kind,
        seed=recipe.seed,
        metric=metric,
        score=score,
        floor=floor,
        parameters=found.card["checkpoint"]["parameters"],
        step_milliseconds=milliseconds,
        peak_megabytes=megabytes,
        threads=torch.get_num_threads(),
        curve=curve(folder),
    )


def reached(card: dict[str, Any]) -> tuple[str, float, float | None]:
    """Return the metric of a card, its value on the test set, and the floor of an accuracy."""
    if "accuracy" in card:
        [row] = card["accuracy"]
        return "accuracy", row["accuracy"], row["majority"]
    return "relative_l2", card["errors"][0]["relative_l2"], None


def curve(folder: Path) -> tuple[float, ...]:
    """Return what the log of a run has for the validation samples, epoch by epoch."""
    rows = log.read(RunFolder(folder).metrics)
    return tuple(float(value) for row in rows for name, value in row.items() if name not in log.COMMON)


def complete(rows: Sequence[Row]) -> list[Row]:
    """Return the rows of the types that have as many seeds as any other."""
    seeds = Counter(row.attention for row in rows)
    return [row for row in rows if seeds[row.attention] == max(seeds.values())]


def step(recipe: FileRecipe, data: Path) -> Callable[[], Tensor]:
    """Return the function that computes the loss of the first batch."""
    task = run.workload(recipe, data, progress=False).task()
    batch = next(iter(task.train_dataloader()))
    return lambda: task.objective(batch)


def cost(loss: Callable[[], Tensor]) -> tuple[float, float]:
    """Return milliseconds and megabytes of a step; the memory is counted in the first one, which warms up."""
    peak = peak_bytes(lambda: loss().backward(), torch.device("cpu"))
    times = [clock(loss) for _ in range(REPEATS)]
    return round(1000 * statistics.median(times), 1), round(peak / 1e6, 1)


def clock(loss: Callable[[], Tensor]) -> float:
    """Return the processor time of one step, in seconds of all threads together."""
    started = time.process_time()
    loss().backward()
    return time.process_time() - started


def shared(plan: Plan) -> dict[str, Any]:
    """Return what all rows of a file share."""
    return {"recipe": plan.recipe.stem, "overrides": list(plan.overrides)}


def write(plan: Plan, rows: Sequence[Row], path: Path) -> None:
    """Write rows and what they share as JSON.

    Args:
        plan: The trainings.
        rows: The rows.
        path: The file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, shared(plan) | {"rows": [row.model_dump() for row in rows]})


def known(plan: Plan, path: Path) -> list[Row]:
    """Return the rows of a file; none if there is no file yet.

    Raises:
        RecipeError: They belong to another recipe, or were trained with other overrides.
    """
    if not path.exists():
        return []
    document = json.loads(path.read_text())
    if (found := {key: document.get(key) for key in shared(plan)}) != shared(plan):
        raise config.RecipeError(f"{path}: expected rows of {shared(plan)} but found {found}")
    return [Row.model_validate(row) for row in document["rows"]]


def load(path: Path) -> list[Row]:
    """Return the rows of a file."""
    return [Row.model_validate(row) for row in json.loads(path.read_text())["rows"]]


HEADER = ("attention", "seeds", "score", "spread", "floor", "parameters", "step in ms", "peak in MB")


def cells(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Return a table row per type: mean and standard deviation of the score over the seeds, and costs."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row.attention].append(row)
    return [line(kind, group) for kind, group in groups.items()]


def line(kind: str, rows: Sequence[Row]) -> tuple[str, ...]:
    """Return one type's table row; costs are medians over its seeds."""
    scores = [row.score for row in rows]
    spread = statistics.stdev(scores) if len(scores) > 1 else None
    return (
        kind,
        str(len(rows)),
        written(statistics.mean(scores), rows[0].metric),
        written(spread, rows[0].metric),
        written(rows[0].floor, rows[0].metric),
        f"{rows[0].parameters:,}",
        f"{statistics.median(row.step_milliseconds for row in rows):.0f}",
        f"{statistics.median(row.peak_megabytes for row in rows):.0f}",
    )


def written(score: float | None, metric: str) -> str:
    """Return an accuracy in per cent, or an error with three digits."""
    if score is None:
        return ""
    return f"{100 * score:.1f} %" if metric == "accuracy" else f"{score:.2e}"
