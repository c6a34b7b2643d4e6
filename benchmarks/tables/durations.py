"""The table of durations: the time per step of recipes of the published sizes, and the hours of their whole training.

A step is forward, loss, backward, clipping and the optimiser on real samples, of which few are made. The time is the
median processor time of a few steps on one thread. Where a whole batch takes minutes, a part of it is timed, and the
time is that of the part times the number of parts. The hours are those of all steps of the recipe at this time, without
validation.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch

from training.fit import run
from training.recipes import recipe as recipes
from training.recipes.kinds import AddedRecipe

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.report.page import Table
    from training.recipes.recipe import FileRecipe

HOUR = 3600.0
LIMIT = 0.999  # of the gradient's norm
FEW = ("data.train=64", "data.validation=4", "data.test=4")
HEADER = ("recipe", "attention", "input", "batch", "steps", "s per step", "hours of one core")


@dataclass(frozen=True)
class Subject:
    """A recipe that is timed.

    Attributes:
        recipe: Its name.
        attention: The type of attention.
        input: A sample, in words.
        overrides: Further changes of its keys.
        timed: How many steps are timed.
        parts: How many parts of a batch there are, of which one is timed.
    """

    recipe: str
    attention: str
    input: str
    overrides: tuple[str, ...] = ()
    timed: int = 9
    parts: int = 1


THICK = ('problem="burgers_r10"', "data.grids=[512]")
FIELDS = (
    Subject("burgers-paper", "galerkin", "512 points", (*THICK, "fit.batch=4")),
    Subject("burgers-paper", "fourier", "512 points", THICK),
    Subject("burgers-paper", "galerkin", "2048 points", ("fit.batch=4",)),
    Subject("burgers-paper", "fourier", "2048 points"),
    Subject("darcy-paper85", "galerkin", "85 x 85"),
    Subject("darcy-paper", "galerkin", "141 x 141", timed=3),
    Subject("darcy_inverse-paper", "galerkin", "141 x 141", timed=3),
)
SEQUENCES = (
    Subject("listops-paper", "softmax", "500 to 2,000 tokens", timed=2, parts=16),
    Subject("listops-paper", "kernel-oglu2", "500 to 2,000 tokens", timed=2, parts=16),
)


@dataclass(frozen=True)
class Duration:
    """The time of one recipe's training on one thread."""

    recipe: str
    attention: str
    input: str
    overrides: tuple[str, ...]
    batch: int
    steps: int
    seconds: float

    @property
    def hours(self) -> float:
        """The processor time of all steps."""
        return self.steps * self.seconds / HOUR


def measure(data: Path, subjects: tuple[Subject, ...]) -> Iterator[Duration]:
    """Measure recipes, one after the other.

    Args:
        data: The folder of the samples; missing ones are made.
        subjects: The recipes.

    Yields:
        Their durations.
    """
    for subject in subjects:
        chosen = (f"operator.attention={subject.attention}", *subject.overrides)
        recipe = recipes.read(recipes.find(subject.recipe), [*chosen])
        part = recipe.fit.batch // subject.parts
        few = recipes.read(recipes.find(subject.recipe), [*chosen, *FEW, f"fit.batch={part}"])
        seconds = subject.parts * statistics.median(step_seconds(few, data, subject.timed))
        yield Duration(
            subject.recipe,
            subject.attention,
            subject.input,
            subject.overrides,
            recipe.fit.batch,
            steps(recipe),
            seconds,
        )


def steps(recipe: FileRecipe) -> int:
    """Return the steps of a recipe's whole training."""
    per_epoch = recipe.fit.steps if isinstance(recipe, AddedRecipe) else recipe.data.train // recipe.fit.batch
    return recipe.fit.epochs * per_epoch


def step_seconds(recipe: FileRecipe, data: Path, timed: int) -> list[float]:
    """Return the processor time of some steps, after one that warms up."""
    task = run.workload(recipe, data, progress=False).task()
    optimiser: Any = task.configure_optimizers()
    batches = [batch for _, batch in zip(range(timed + 1), task.train_dataloader(), strict=False)]
    task.network.train()

    def step(batch: Any) -> float:
        started = time.process_time()
        optimiser["optimizer"].zero_grad()
        task.objective(batch).backward()
        torch.nn.utils.clip_grad_norm_(task.network.parameters(), LIMIT)
        optimiser["optimizer"].step()
        return time.process_time() - started

    return [step(batch) for batch in batches][1:]


def document(found: list[Duration]) -> dict[str, Any]:
    """Return everything that was measured."""
    return {"durations": [asdict(each) | {"hours": each.hours} for each in found]}


def known(document: dict[str, Any]) -> list[Duration]:
    """Return the rows of a file."""
    rows = ({key: value for key, value in row.items() if key != "hours"} for row in document["durations"])
    return [Duration(**row | {"overrides": tuple(row["overrides"])}) for row in rows]


def merged(found: list[Duration], new: Duration) -> list[Duration]:
    """Return rows with a new one in the place of its former measurement, in the order of the subjects."""
    order = [(each.recipe, each.attention, each.input) for each in (*FIELDS, *SEQUENCES)]
    rows = {(each.recipe, each.attention, each.input): each for each in (*found, new)}
    return [rows[key] for key in order if key in rows]


def tables(found: list[Duration]) -> dict[str, Table]:
    """Return the tables of fields and of sequences."""
    sequences = {subject.recipe for subject in SEQUENCES}
    return {
        "durations": (HEADER, [row(each) for each in found if each.recipe not in sequences]),
        "durations-sequences": (HEADER, [row(each) for each in found if each.recipe in sequences]),
    }


def row(each: Duration) -> tuple[str, ...]:
    """Return one recipe's row."""
    return (
        each.recipe,
        each.attention,
        each.input,
        str(each.batch),
        f"{each.steps:,}",
        f"{each.seconds:.2g}",
        f"{each.hours:.2g}",
    )
