"""The samples of a built-in problem: made where they are missing, read on several grids, and divided into cases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from training.calibration import MOST_FITTED
from training.checkpoint import MOST_EXAMPLES, Tensors
from training.data.augment import noisy
from training.data.generate import Request, prepare
from training.data.views import Samples, grids, read
from training.evaluation.cases import Case, Sides, Stored, cases_of_tests, validity
from training.losses import Batch
from training.problems.problem import PROBLEMS, Problem
from training.recipe import Recipe, RecipeError

CALIBRATION_SEED = 20_261_122  # of samples that no training, validation or test uses
WATCHED = 16  # validation samples whose error is logged after every epoch; all of them where they choose the epoch


class DrawnSamples:
    """The samples of the built-in problem of a recipe, in a folder.

    Attributes:
        new: Calibration samples that are drawn anew; 0: the validation samples calibrate.
    """

    new: int = 0

    def __init__(self, recipe: Recipe, folder: Path, *, progress: bool = True) -> None:
        self.recipe, self.data, self.folder, self.progress = recipe, recipe.drawn, folder, progress

    @property
    def problem(self) -> Problem:
        return PROBLEMS[str(self.recipe.problem)]

    @property
    def request(self) -> Request:
        """Which samples the recipe needs."""
        data = self.data
        seed = self.recipe.seed if data.seed is None else data.seed
        return Request(self.problem, data.mesh, data.train, data.test, seed, data.validation)

    def check(self) -> None:
        """Refuse a recipe without validation samples, from which the watched error comes."""
        if not self.data.validation:
            raise RecipeError(f"{self.recipe.name}: expected data.validation of at least 1 but found 0")

    @property
    def missing_bytes(self) -> int:
        """The size of all samples on the stored mesh, input and output in float32; 0 if there is a file."""
        data = self.data
        if any(self.folder.glob(f"{self.problem.source.name}-{data.mesh}-*.h5")):
            return 0
        count = data.train + data.validation + data.test
        return 2 * 4 * count * data.mesh ** len(self.problem.description.axes)

    def make(self, wanted: Request) -> Path:
        """Make samples, where they are missing."""
        return prepare(wanted, self.folder, progress=self.progress)

    @cached_property
    def path(self) -> Path:
        return self.make(self.request)

    @cached_property
    def grids(self) -> Mapping[int, Samples]:
        """The training samples by points per axis."""
        data, gradients = self.data, self.recipe.fit.gradients
        return {
            n: read(self.path, "train", data.train, n, problem=self.problem, gradients=gradients) for n in data.grids
        }

    @cached_property
    def watched(self) -> Samples:
        """The validation samples whose error is logged after every epoch."""
        data = self.data
        count = data.validation if self.recipe.fit.keep == "best" else min(WATCHED, data.validation)
        return read(self.path, "validation", count, data.grids[0], after=data.train, problem=self.problem)

    def validation(self) -> list[Batch]:
        """Return the watched samples, once at every trained level of noise."""
        fit, fields, rng = self.recipe.fit, self.watched.inputs, np.random.default_rng(self.recipe.seed)
        deviation = self.grids[fields.shape[1]].deviation
        inputs = [noisy(fields, deviation, (level,), rng) for level in fit.noise] or [fields]
        others = [
            np.concatenate([each] * len(inputs)) for each in (*self.watched.parameters.values(), self.watched.targets)
        ]
        parts = (torch.from_numpy(each).split(fit.batch) for each in (np.concatenate(inputs), *others))
        return [Batch(inputs, [outputs]) for *inputs, outputs in zip(*parts, strict=True)]

    def tests(
        self, problem: Problem, grid: int | None, noise: float | None, sides: list[Sides] | None = None
    ) -> list[Case]:
        """Return the test samples of a problem on all measurable grids, at the trained levels of noise.

        A grid or a level may be named instead; `sides` are the grids without it.
        """
        wanted = sides if grid is None else [(grid,) * len(problem.description.axes)]
        levels = self.recipe.fit.levels if noise is None else (noise,)
        return cases_of_tests(problem, self.data, self.path, levels, wanted)

    def calibrating(self, *, vary: bool) -> tuple[Stored, Stored, Stored]:
        """Return the samples that are fitted, that calibrate, and that check.

        They are training, validation and test samples, or new ones, of which a half may have varied inputs.
        """
        data, made = self.data, self.path if not self.new else None
        fitted, held, before, tested = min(MOST_FITTED, data.train), data.validation, data.train, data.test
        if self.new:  # a half of them to fit, then all of them to calibrate; as many test samples check them
            fitted, held, before, tested = self.new // 2, self.new, self.new // 2, max(data.test, self.new)
        path = made or self.make(Request(self.problem, data.mesh, fitted, 0, CALIBRATION_SEED, held))
        checked = self.make(replace(self.request, train=0, validation=0, test=tested))
        vary = vary and bool(self.new) and self.problem.vary is not None
        stored = partial(Stored, self.problem, data, self.recipe.fit.levels, self.recipe.seed, vary)
        return (
            stored(path, "train", fitted),
            stored(path, "validation", held, after=before),
            stored(checked, "test", tested),
        )

    def examples(self) -> Tensors:
        """Return the first test samples on the smallest declared grid, else on the smallest trained one."""
        description, data = self.problem.description, self.data
        points = min({*description.grid.declared}.intersection(grids(description, data.mesh)) or data.grids)
        count = min(MOST_EXAMPLES, data.test)
        found = read(self.path, "test", count, points, problem=self.problem)
        return found.read(range(count)) | dict.fromkeys(description.output_names, found.targets)

    def account(self, remark: str) -> dict[str, Any]:
        """Return what a card says of them, and what it has to say about the method."""
        description, data = self.problem.description, self.data
        return {
            "grids": list(data.grids),
            **({"remarks": [remark]} if remark else {}),
            "validity": validity(description, data.grids, self.recipe.fit.levels),
        }
