"""The samples of a recipe: those of a problem file, and those that the sampler of a built-in problem makes.

The first are prepared before the training, and read by their numbers. Drawn ones are made where they are missing, read
on several grids, and divided into cases.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from training.calibration import FEWEST_FITTED, MOST_FITTED
from training.checkpoint import MOST_EXAMPLES, Tensors
from training.data import generate
from training.data.augment import noisy
from training.data.dataset import SampleFile
from training.data.generate import Request
from training.data.prepare import formerly, identity, prepare
from training.data.views import Samples, grids, read
from training.evaluation.cases import Case, Sides, Stored, cases_of_tests, validity
from training.fit.workload import ScopeError
from training.losses import Batch
from training.messages import typed
from training.problems.problem import PROBLEMS, Problem, trajectories_of
from training.problems.sections import DataSection
from training.recipe import Recipe, RecipeError

RENEWED = {"validation": 0.4, "test": 0.3}  # shares of new samples that calibrate and check, the rest is fitted
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


# Prepared samples of a problem file, and trajectories that our solvers make


def prepared(recipe: Recipe, data: Path) -> Path:
    """Return the samples of a recipe, those of a generated problem made again where they are missing."""
    path = data / str(recipe.samples)
    return path if path.is_file() else made_again(recipe, data)


def coarse_samples(recipe: Recipe, data: Path) -> SampleFile | None:
    """Return the coarse samples that a training begins with; None where it has none."""
    if recipe.coarse is None or (problem := recipe.file.of_coarse) is None:
        return None
    path = data / recipe.coarse.samples
    if not path.is_file():
        path = read_anew(recipe, path.name, data) or path
    if not path.is_file():
        raise RecipeError(f"{recipe.name}: expected the coarse samples {path} but found none")
    return SampleFile(path, problem)


def made_again(recipe: Recipe, data: Path) -> Path:
    """Return samples that a problem's own sampler and seed make; their file may have another name than the recipe's."""
    problem, missing = recipe.file, f"{recipe.name}: expected the samples {data / str(recipe.samples)}"
    generated = trajectories_of(problem.name)
    if generated is None and (renewed := read_anew(recipe, str(recipe.samples), data)):
        return renewed
    if generated is None:
        found = ", ".join(sorted(path.name for path in data.glob(f"own-{problem.name}-*.h5"))) or "none of this problem"
        raise RecipeError(
            f"{missing} but found {found}. `{typed('check', 'PROBLEM.toml')}` prepares them from the files that "
            f"it was trained on ({', '.join(problem.data.files)}); other data have another name"
        )
    if (generated.file.seed, identity(generated.file)) != (problem.seed, identity(problem)):
        raise RecipeError(
            f"{missing} but found none, and `{problem.name}` is generated in another way now: "
            f"`{typed('fit', recipe.name)}` trains it anew"
        )
    return generate.trajectories(generated, data)


def read_anew(recipe: Recipe, name: str, data: Path) -> Path | None:
    """Return the samples of the data that a recipe names, where another version read them, and say so."""
    found = formerly(name, data)
    if found is not None:
        warnings.warn(
            f"{recipe.name}: {found} holds the data of {name} as they are read now: values that were read in another "
            "way before, such as packed integers or distances on meshes, are not those that it was trained on",
            stacklevel=2,
        )
    return found


def renewed(work: Any, samples: int, files: tuple[str, ...]) -> Any:
    """Return a workload of new samples alone, which are divided as those of a training are.

    Samples that our samplers make are drawn. A half as many as calibrate are fitted; of trajectories as many check.
    """
    if work.drawn is not None:
        if files:
            raise ScopeError(f"{work.recipe.name}: its samples are drawn, so --samples makes new ones, and not --files")
        found = copy(work)
        found.drawn = copy(work.drawn)
        found.drawn.new = samples
        return found
    generated = None if files else trajectories_of(work.file.name)
    if generated is not None:
        drawn = DataSection(files=generated.file.data.files, validation=samples, test=samples)
        problem = generated.file.model_copy(update={"data": drawn, "seed": CALIBRATION_SEED})
        draw = partial(generated.draw, count=max(FEWEST_FITTED, samples // 2) + 2 * samples)
        path = generate.trajectories(replace(generated, file=problem, draw=draw), work.data)
    elif files:
        named = {"files": files, "coarse": None, **RENEWED}
        file = work.recipe.file
        problem = file.model_copy(update={"data": file.data.model_copy(update=named)})
        path = prepare(problem, Path(), work.data)
    else:
        raise ScopeError(
            f"{work.recipe.name}: a user's samples cannot be drawn: --files names files of new ones, and without "
            "any the validation samples calibrate"
        )
    recipe = work.recipe.model_copy(update={"problem": problem, "samples": path.name, "coarse": None})
    return type(work)(recipe, work.data, progress=work.progress)
