"""The samples of a built-in problem: made where they are missing, read on several grids, and measured by kinds.

Cards have a row for every kind of the test samples: on each grid, at each level of noise, at some conditions. Error
estimates are calibrated and checked with the kinds of samples that nothing else sees. A problem with parameters is
measured twice: at their defaults, and in the range of the stored samples.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from schema.problem import Description
from training.calibration import MOST_FITTED
from training.checkpoint import MOST_EXAMPLES, Tensors
from training.data import generate
from training.data.augment import noisy
from training.data.generate import DataConfig, Request
from training.data.views import Samples, Split, deviation, every, grids, mesh, read
from training.losses import Batch
from training.problems.problem import PROBLEMS, Array, Problem
from training.recipe import Recipe, RecipeError

Sides = tuple[int, ...]
CALIBRATION_SEED = 20_261_122  # of samples that no training, validation or test uses
MOST_VARIED = 500  # test samples with varied inputs, each of which is solved
WATCHED = 16  # validation samples whose error is logged after every epoch; all of them where they choose the epoch


class DrawnSamples:
    """The samples of the built-in problem of a recipe, in a folder.

    Attributes:
        new: Calibration samples that are drawn anew; 0: the validation samples calibrate.
    """

    new: int = 0

    def __init__(self, recipe: Recipe, folder: Path, *, progress: bool = True) -> None:
        self.recipe, self.data, self.folder, self.progress = recipe, recipe.drawn, folder, progress
        self.problem: Problem = PROBLEMS[str(recipe.problem)]

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
        return generate.prepare(wanted, self.folder, progress=self.progress)

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
        return self.read(self.path, "validation", count, data.grids[0], after=data.train)

    def validation(self) -> list[Batch]:
        """Return the watched samples, once at every trained level of noise."""
        fit, fields, rng = self.recipe.fit, self.watched.inputs, np.random.default_rng(self.recipe.seed)
        deviations = self.grids[fields.shape[1]].deviation
        inputs = [noisy(fields, deviations, (level,), rng) for level in fit.noise] or [fields]
        others = [
            np.concatenate([each] * len(inputs)) for each in (*self.watched.parameters.values(), self.watched.targets)
        ]
        parts = (torch.from_numpy(each).split(fit.batch) for each in (np.concatenate(inputs), *others))
        return [Batch(inputs, [outputs]) for *inputs, outputs in zip(*parts, strict=True)]

    def tests(
        self, problem: Problem, grid: int | None = None, noise: float | None = None, sides: list[Sides] | None = None
    ) -> list[Samples]:
        """Return the test samples of a problem by kinds, on all measurable grids, at the trained levels of noise.

        A grid or a level may be named instead; `sides` are the grids without it.
        """
        problem, data = problem.of_samples, self.data
        wanted = measured_grids(problem.description, data) if sides is None else sides
        wanted = wanted if grid is None else [(grid,) * len(problem.description.axes)]
        levels = self.recipe.fit.levels if noise is None else (noise,)
        tests = [read(self.path, "test", data.test, points, problem=problem) for points in wanted]
        units = noise_units(problem, data, self.path, wanted) if any(levels) else [None] * len(wanted)
        kinds = [(tests, ranges(problem.description))]
        if has_defaults(problem.description):
            default = read(self.path, "test", data.test, data.mesh, problem=problem).at_defaults()
            kinds = [([default.on(points) for points in wanted], ""), *kinds]
        return [
            replace(test, noise=level, unit=unit, conditions=conditions)
            for each, conditions in kinds
            for level in levels
            for test, unit in zip(each, units, strict=True)
        ]

    def calibrating(self, *, vary: bool) -> tuple[Iterator[list[Samples]], ...]:
        """Return the samples that are fitted, that calibrate, and that check, by kinds on every grid.

        They are training, validation and test samples, or new ones, of which a half may have varied inputs.
        """
        data, made = self.data, self.path if not self.new else None
        fitted, held, before, tested = min(MOST_FITTED, data.train), data.validation, data.train, data.test
        if self.new:  # a half of them to fit, then all of them to calibrate; as many test samples check them
            fitted, held, before, tested = self.new // 2, self.new, self.new // 2, max(data.test, self.new)
        path = made or self.make(Request(self.problem, data.mesh, fitted, 0, CALIBRATION_SEED, held))
        checked = self.make(replace(self.request, train=0, validation=0, test=tested))
        kinds = partial(self.kinds, vary=vary and bool(self.new) and self.problem.vary is not None)
        return (
            kinds(path, "train", fitted, apart=False),
            kinds(path, "validation", held, after=before, apart=False),
            kinds(checked, "test", tested, apart=True),
        )

    def kinds(
        self, path: Path, split: Split, count: int, *, after: int = 0, vary: bool, apart: bool
    ) -> Iterator[list[Samples]]:
        """Yield the kinds of stored samples on every grid that they can be strided to; their mesh may be another one.

        Each sample is there at every level of noise and, where all parameters have a default, with the defaults, too,
        as most requests have them. Without `apart` a half has varied inputs instead, else some are there so, too.
        """
        description, seed = self.problem.description, self.recipe.seed
        whole, known = mesh(path, split), ranges(description)
        half = count // 2 if vary and not apart else 0
        rows = slice(MOST_VARIED) if apart else slice(count - half, None)
        stored_on = partial(self.read, path, split, after=after)
        stored = stored_on(count, whole) if vary or has_defaults(description) else None
        others = stored.with_varied(rows, np.random.default_rng(seed)) if stored and vary else None
        default = stored.at_defaults() if stored and has_defaults(description) else None
        # Noise of its own at every level, and in every split.
        levels = {each: [seed, *split.encode(), *np.float64(each).tobytes()] for each in self.recipe.fit.levels}
        possible = set(grids(description, whole))
        for sides in filter(possible.issuperset, measured_grids(description, self.data)):
            samples = stored_on(count - half, sides)
            plain = samples.with_defaults() if vary else samples
            found = [replace(plain, noise=level, conditions=known, seed=drawn) for level, drawn in levels.items()]
            if default is not None:
                coarse = default.on(sides)
                at_defaults = [replace(coarse, noise=level, seed=drawn) for level, drawn in levels.items()]
                found = [*at_defaults, *found] if apart else [*found, *at_defaults]
            yield [*found, *([replace(others.on(sides), varied=others.optional)] if others else [])]

    def read(self, path: Path, split: Split, count: int, points: int | Sides, *, after: int = 0) -> Samples:
        """Read the first samples of a split, strided to some points; see `training.data.views.read`."""
        return read(path, split, count, points, after=after, problem=self.problem)

    def examples(self) -> Tensors:
        """Return the first test samples on the smallest declared grid, else on the smallest trained one."""
        description, data = self.problem.description, self.data
        points = min({*description.grid.declared}.intersection(grids(description, data.mesh)) or data.grids)
        count = min(MOST_EXAMPLES, data.test)
        found = self.read(self.path, "test", count, points)
        return found.read(range(count)) | dict.fromkeys(description.output_names, found.targets)

    def account(self, remark: str) -> dict[str, Any]:
        """Return what a card says of them, and what it has to say about the method."""
        description, data = self.problem.description, self.data
        return {
            "grids": list(data.grids),
            **({"remarks": [remark]} if remark else {}),
            "validity": validity(description, data.grids, self.recipe.fit.levels),
        }


def measured_grids(description: Description, data: DataConfig) -> list[Sides]:
    """Return the trained and declared grids that the stored mesh can be strided to, and on a plane an oblong one."""
    sides = sorted({*data.grids, *description.grid.declared}.intersection(grids(description, data.mesh)))
    axes = len(description.axes)
    middle = len(sides) // 2
    oblong = [tuple(sides[middle - 1 : middle + 1])] if axes == 2 and len(sides) > 1 else []
    return [*((n,) * axes for n in sides), *oblong]


def noise_units(problem: Problem, data: DataConfig, path: Path, sides: list[Sides]) -> list[Array]:
    """Compute the training inputs' standard deviation `[*grid]` at each point of every grid."""
    fine = deviation(path, data.train, problem)
    return [fine[every(problem.description, data.mesh, points)] for points in sides]


def ranges(description: Description) -> str:
    """Return the ranges of the parameters in words, such as `time 0.1 to 2`; nothing where there are none."""
    return ", ".join(f"{each.name} {each.minimum:g} to {each.maximum:g}" for each in description.parameters)


def has_defaults(description: Description) -> bool:
    """Return whether there are parameters, and all have a default."""
    return bool(description.parameters) and all(each.default is not None for each in description.parameters)


def validity(description: Description, grids: tuple[int, ...], noise: tuple[float, ...]) -> dict[str, str]:
    """Return a card's limits of validity in words: what was trained, measured, and not tried."""
    levels = [f"{100 * level:g} %" for level in noise if level]
    points, trained_noise = " and ".join(map(str, grids)), " and ".join(levels) or "none"
    return {
        "trained": f"{description.distribution}; points per axis: {points}; noise: {trained_noise}",
        "measured": "on test fields of the same distribution, on the grids in `errors`; other grids are interpolated",
        "not tried": description.untested,
    }
