"""Ablation: one row of error and time per change of a recipe.

Each row is one short training that differs from the recipe in one key. Its error is measured on validation fields, so
that no choice is made on the test set.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict

from training import checkpoint, recipes
from training import recipe as config
from training.data.views import read
from training.files import write_json
from training.fit import run
from training.fit.operator_workload import OperatorWorkload

NOTHING = "nothing"
"""The change of the row that all others are compared with."""


class Row(BaseModel):
    """One training: its change of the recipe, and its figures; errors are relative, on validation fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    change: str
    parameters: int
    fields: int
    relative_l2: float  # mean
    median: float
    worst: float
    relative_h1: float  # mean
    seconds: float  # of training, wall time
    threads: int


@dataclass(frozen=True)
class Plan:
    """What is trained.

    Attributes:
        recipe: The file that every row starts from.
        overrides: `a.b=c` that all rows share.
        vary: `a.b=c,d`: a row for c and one for d.
    """

    recipe: Path
    overrides: tuple[str, ...]
    vary: tuple[str, ...]

    @property
    def changes(self) -> list[str]:
        """The recipe as it is, then one change after the other."""
        return [NOTHING, *(change for each in self.vary for change in alternatives(each))]


def alternatives(vary: str) -> list[str]:
    """Split `a.b=c,d` into `a.b=c` and `a.b=d`; a comma in brackets belongs to its value.

    Raises:
        RecipeError: There is no key or no value.
    """
    key, found, values = vary.partition("=")
    if not found or not values:
        raise config.RecipeError(f"expected a variation a.b=c,d but got {vary!r}")
    return [f"{key}={value}" for value in re.split(r",(?![^\[]*\])", values)]


def ablate(plan: Plan, folder: Path, data: Path) -> Iterator[Row]:
    """Train and measure row by row; a finished row in `folder` is measured again, not trained.

    Yields:
        A row per change.

    Raises:
        RecipeError: A change does not fit the recipe. Nothing has been trained then.
    """
    changed = {
        change: recipes.read_fields(plan.recipe, [*plan.overrides, *([] if change == NOTHING else [change])])
        for change in plan.changes
    }
    for change, recipe in changed.items():
        yield measure(change, trained(recipe, folder / slug(change), data), data)


def trained(recipe: config.Recipe, folder: Path, data: Path) -> checkpoint.Checkpoint:
    """Return the checkpoint in `folder`, trained now unless it is of this very recipe."""
    finished = (folder / checkpoint.CARD).exists() and checkpoint.read_config(folder).recipe == recipe
    return checkpoint.load_operator(folder if finished else run.train(recipe, folder, data, resume=True))


def measure(change: str, found: checkpoint.Checkpoint, data: Path) -> Row:
    """Measure a trained checkpoint."""
    work, counts = OperatorWorkload(found.recipe, data, progress=False), found.recipe.drawn
    rows = {"count": counts.validation, "points": counts.grids[0], "after": counts.train}
    samples = read(work.prepare(), "validation", **rows, problem=work.problem)
    errors = work.measured(found.operator, samples)
    l2, h1 = errors["relative_l2"], errors["relative_h1"]
    training = found.card.training
    return Row(
        change=change,
        parameters=found.card.checkpoint["parameters"],
        fields=len(l2),
        relative_l2=round(float(l2.mean()), 6),
        median=round(float(np.median(l2)), 6),
        worst=round(float(l2.max()), 6),
        relative_h1=round(float(h1.mean()), 6),
        seconds=training["seconds"],
        threads=training["threads"],
    )


def slug(change: str) -> str:
    """Return a folder's name for a change."""
    return re.sub(r"[^\w.=-]+", "_", change)


def write(plan: Plan, rows: Iterable[Row], path: Path) -> None:
    """Write rows and what they share as JSON."""
    shared = {"recipe": plan.recipe.stem, "overrides": list(plan.overrides), "vary": list(plan.vary)}
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, shared | {"rows": [row.model_dump() for row in rows]})


def load(path: Path) -> list[Row]:
    """Read the rows that `write` wrote."""
    return [Row.model_validate(row) for row in json.loads(path.read_text())["rows"]]


def cells(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Lay rows out for reading, each error beside that of the recipe itself, which is the first row."""
    base = rows[0].relative_l2
    return [
        (
            row.change,
            f"{row.parameters:,}",
            f"{row.relative_l2:.2e}",
            f"{row.relative_l2 / base:.2f}",
            f"{row.worst:.2e}",
            f"{row.relative_h1:.2e}",
            f"{row.seconds / 60:.1f}",
        )
        for row in rows
    ]


HEADER = ("changed", "parameters", "relative L2", "times the recipe's", "worst", "gradient", "minutes")
