"""What the batches of an operator's training hold: samples of a problem file, or those that samplers of ours make.

A field is a trajectory of one frame. Trajectories are learned in single steps first, then in longer and longer
rollouts. Fields of built-in problems are learned on several grids, which are strided views of one stored mesh, and at
several levels of noise.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray
from torch.utils.data import Dataset

from schema.parts import check_symmetries
from schema.problem import Description
from training.calibration import affordable
from training.data import augment, generate
from training.data.dataset import Rows, SampleFile, spread
from training.data.prepare import identity, unversioned_samples
from training.data.views import GRADIENTS, targets
from training.evaluation.drawn import DrawnSamples
from training.fit.workload import FIELDS, BatchSampler, Budget, Workload
from training.losses import Batch
from training.messages import typed
from training.operators import OPERATORS, Operator, OperatorKind
from training.optimisation import FLOAT32
from training.problems.problem import Problem, trajectories_of
from training.problems.problem_file import WEIGHTS, ProblemFile
from training.problems.sections import INSIDE
from training.recipe import Recipe, RecipeError

BATCH = {False: FIELDS, True: 8}  # fields, and trajectories, of a batch that is only measured
MEASURED_POINTS = 2**20  # points of a cloud, over all samples of a batch, while a network is measured
MEASURED_BYTES = 9 * 2**24  # of all samples of a batch, and of all frames, while a network is measured
STATISTICS_SAMPLES = 512  # samples for means and deviations, fewer where they are large


class Batches(Workload[Recipe]):
    """The samples of a recipe of an operator, in batches: those of a problem file, or of a built-in problem."""

    def __init__(self, recipe: Recipe, data: Path, *, progress: bool = True) -> None:
        super().__init__(recipe, data, progress=progress)
        self.drawn = None if recipe.data is None else DrawnSamples(recipe, data, progress=progress)
        self.file: ProblemFile | Description = (
            recipe.file if self.drawn is None else self.drawn.problem.of_samples.description
        )
        self.is_trajectory = self.file.time is not None

    @property
    def sample_bytes(self) -> int:
        return 0 if self.drawn is None else self.drawn.missing_bytes

    def prepare(self) -> Path:
        """Return the samples, those of a built-in problem made where they are missing."""
        return prepared(self.recipe, self.data) if self.drawn is None else self.drawn.path

    @cached_property
    def samples(self) -> SampleFile:
        """The samples of a problem file."""
        return SampleFile(self.prepare(), self.recipe.file)

    @cached_property
    def coarse(self) -> SampleFile | None:
        """The coarse samples that the training begins with; None where it has none."""
        return coarse_samples(self.recipe, self.data)

    @cached_property
    def problem(self) -> Problem:
        return Problem(description=self.samples.described) if self.drawn is None else self.drawn.problem

    # Frames

    @property
    def history(self) -> int:
        """The frames that a step sees."""
        return self.file.time.history if self.file.time is not None else 1

    @property
    def longest(self) -> int:
        """The frames that follow the history of a trajectory."""
        return (self.samples.frames or 1) - self.history

    @property
    def horizon(self) -> int:
        """The frames of the rollouts that are compared on validation samples."""
        time = self.recipe.file.time
        chosen = time.horizon if time is not None else None
        return min(-(-self.longest // 4) if chosen is None else chosen, self.longest)

    # Batches

    @property
    def counts(self) -> tuple[int, int]:
        return self.samples.counts[:2] if self.drawn is None else (self.drawn.data.train, self.drawn.data.validation)

    @property
    def windows(self) -> int:
        return self.longest if self.is_trajectory else 1

    @cached_property
    def rows(self) -> Rows:
        """The numbers of the training samples that are used, ascending; those of a smaller share are among them."""
        train, share = self.counts[0], self.recipe.fit.share
        order = np.random.default_rng(self.recipe.seed).permutation(train)
        return np.sort(order[: max(1, round(share * train))])

    @property
    def batch_sampler(self) -> BatchSampler:
        """One pass over the samples, or over all windows of the trajectories, is an epoch: or the least steps.

        Where validation samples are many beside these, an epoch has more passes: two samples for each of them.
        """
        fit = self.recipe.fit
        whole = BatchSampler.passes(len(self.rows) * self.windows, fit.batch, self.recipe.seed)
        if fit.seconds is None:
            return whole
        enough = -(-2 * self.counts[1] // whole.batch)
        return replace(whole, steps=min(max(whole.steps, enough), fit.least))

    @property
    def budget(self) -> Budget:
        """The steps or the processor time of the recipe, without what the turns of others in a race have taken."""
        fit = self.recipe.fit
        return replace(super().budget, seconds=fit.seconds, least=fit.least).part(1 - fit.race_budget)

    def batch(self, rows: Rows | range, frames: int | None = None) -> Batch:
        """Read samples by their numbers; of trajectories the rollouts from their first frames, to the horizon."""
        return self.as_batch(self.stored(rows, frames))

    def stored(self, rows: Rows | range, frames: int | None = None) -> dict[str, NDArray[Any]]:
        """Read samples, or the beginnings of trajectories, by the names of their arrays."""
        if not self.is_trajectory:
            return self.samples.read(rows)
        length = self.history + (self.horizon if frames is None else frames)
        return self.samples.windows(np.asarray(rows), [0] * len(rows), length)

    def as_batch(self, values: dict[str, NDArray[Any]]) -> Batch:
        """Divide samples into the arguments of a network, in their order, and what it has to predict.

        Points beyond those of the sample that has most are cut off: they are padding in all. Without an input on the
        grid a last argument has its shape.
        """
        if axes := self.file.point_axes:
            valid = slice(int(values["counts"].max()))
            values = {
                name: value[(slice(None),) * axes[name] + (valid,)] if name in axes else value
                for name, value in values.items()
            }
        tensors = {name: torch.from_numpy(value) for name, value in values.items()}
        for one in self.file.tensors:
            if one.per_frame:
                first = self.history - (one.per_frame == "start")
                tensors[one.name] = tensors[one.name][:, first : first + values[one.name].shape[1] - self.history]
        outputs = {name: tensors.pop(name) for name in self.file.output_names}
        for name, output in self.file.states.items():
            tensors[name] = outputs[output][:, 0] if self.history == 1 else outputs[output][:, : self.history]
        following = [each[:, self.history :] if self.is_trajectory else each for each in outputs.values()]
        stored = None
        if self.drawn is not None:  # outputs may be wanted on a grid of their own
            [stored] = following
            following = [torch.from_numpy(targets(self.problem.description, stored.numpy()))]
        arguments = [tensors[name] for name in self.file.argument_names]
        if self.file.takes_grid:
            sides = outputs[self.file.output_fields[0].name].shape[-len(self.file.axes) :]  # of coarse samples, too
            arguments.append(torch.zeros(len(arguments[0]), *sides, dtype=torch.int32))
        weight = self.problem.energy_weight
        return Batch(
            arguments,
            following,
            gradients=tensors.get(GRADIENTS),
            stored=stored,
            noise=tensors.get(augment.NOISE),
            weight=tensors[weight] if weight else None,
            measure=tensors[WEIGHTS] if self.file.weights is not None else None,
            share=tensors.get(augment.SHARE),
            axes=len(self.file.axes),
        )

    @property
    def at_once(self) -> int:
        """How many samples a network sees at one time while it is measured: few where they are large."""
        if self.drawn is not None:
            return FIELDS
        points = MEASURED_POINTS // self.samples.sides[0] if self.file.scattered else FIELDS
        return max(1, min(FIELDS, points, MEASURED_BYTES // self.samples.sample_bytes))

    def batches(self, split: str, frames: int | None = None) -> SplitBatches:
        """Return the samples of a split in batches, each read from the disk when it is needed."""
        return SplitBatches(self, split, frames)

    def validation(self) -> SplitBatches | list[Batch]:
        return self.batches("validation") if self.drawn is None else self.drawn.validation()

    def draw(self, chosen: Rows, rng: Generator, share: float) -> Batch:
        if self.coarse is not None and self.recipe.coarse is not None and share < self.recipe.coarse.share:
            found = rng.integers(self.coarse.counts[0], size=self.recipe.coarse.batch)
            return self.as_batch(self.transformed(self.coarse.read(found), rng))
        if self.drawn is not None:
            samples = self.drawn.grids[int(rng.choice(self.drawn.data.grids))]
            values = self.transformed(samples.read(np.sort(self.rows[chosen])), rng)
            lead = self.file.inputs[0].name
            return self.as_batch(augment.with_noise(values, lead, samples.deviation, self.recipe.fit.noise, rng))
        if not self.is_trajectory:
            rows = self.rows[chosen]
            points, left = self.draw_points(rows, rng)
            return self.as_batch(self.transformed(self.samples.read(rows, points) | left, rng))
        rows, starts = np.divmod(chosen, self.longest)
        length = self.history + min(self.recipe.fit.steps_of(share), self.longest)
        latest = (self.samples.frames or 1) - length
        points, left = self.draw_points(self.rows[rows], rng)
        values = self.samples.windows(self.rows[rows], starts % (latest + 1), length, points) | left
        values = self.transformed(values, rng)
        if self.recipe.fit.noise:
            level = float(rng.choice(self.recipe.fit.noise))
            for name in self.file.output_names:
                given = values[name][:, : self.history]
                size = level * self.samples.statistic(name, "deviation")
                given += rng.normal(0, size, given.shape).astype(np.float32)
        return self.as_batch(values)

    def draw_points(self, rows: Rows, rng: Generator) -> tuple[Rows | None, dict[str, NDArray[Any]]]:
        """Draw the points of samples that a training step sees, where it does not see all of them.

        The result is these, `[row, point]`, and what they change: their numbers, and their shares of all points.
        """
        most = self.recipe.fit.points
        if most is None or not self.file.scattered or self.samples.sides[0] <= most:
            return None, {}
        points, counts = self.samples.drawn_points(rows, most, rng)
        left = np.minimum(counts, most).astype(np.float32)
        return points, {"counts": left, augment.SHARE: left / counts.astype(np.float32)}

    def transformed(
        self, values: dict[str, NDArray[Any]], rng: Generator, names: Sequence[str] | None = None
    ) -> dict[str, NDArray[Any]]:
        """Move every sample by a symmetry of its own, all its frames and fields alike.

        `names` are the symmetries; by default those of the problem, and those that a race has found.
        """
        exact = self.problem.description.symmetries
        names = self.recipe.fit.drawn_symmetries(exact) if names is None else tuple(names)
        if not names:
            return values
        return augment.transformed(values, self.file, names, rng, INSIDE if self.file.mask is not None else "")

    def statistics_batch(self) -> Batch:
        """Return training samples, enough for means and deviations; of trajectories single steps at any frame."""
        if self.drawn is not None:
            return self.as_batch(self.drawn.grids[self.drawn.data.grids[0]].read(range(self.drawn.data.train)))
        samples = self.samples
        if not self.is_trajectory:
            return self.batch(spread(self.rows, affordable(STATISTICS_SAMPLES, samples.sample_bytes)))
        frames, length = samples.frames or 1, self.history + 1
        count = affordable(STATISTICS_SAMPLES, samples.sample_bytes // frames)
        rng = np.random.default_rng(self.recipe.seed)
        rows = rng.choice(self.rows, count)
        return self.as_batch(samples.windows(rows, rng.integers(0, frames - length + 1, count), length))


class SplitBatches(Dataset[Batch]):
    """The batches of a split, each read from the disk when it is needed."""

    def __init__(self, work: Batches, split: str, frames: int | None = None) -> None:
        self.work, self.rows, self.frames = work, work.samples.split(split), frames
        self.starts = range(0, len(self.rows), min(BATCH[work.is_trajectory], work.at_once))

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, position: int) -> Batch:
        start = self.starts[position]
        return self.work.batch(self.rows[start : start + self.starts.step], self.frames)

    def __iter__(self) -> Iterator[Batch]:
        return (self[position] for position in range(len(self)))


def check_settings(recipe: Recipe, file: ProblemFile | Description) -> None:
    """Refuse settings that the samples of a problem cannot have.

    Raises:
        RecipeError: One of them.
    """
    name, fit = recipe.name, recipe.fit
    if not isinstance(fit.symmetries, bool):
        try:
            check_symmetries(fit.drawn_symmetries(file.symmetries), file.axes, file.tensors)
        except ValueError as error:
            raise RecipeError(f"{name}: fit.symmetries: {error}") from error
    if file.scattered and fit.h1:
        raise RecipeError(f"{name}: fit.h1: expected 0 on points: the order of points makes no neighbours")
    if fit.points is not None and not file.scattered:
        raise RecipeError(f"{name}: fit.points: expected it of samples that have points of their own")
    kind = OPERATORS[getattr(recipe.operator, "kind", "")]
    if recipe.precision != FLOAT32 and getattr(kind.build, "own_loss", Operator.own_loss) is not Operator.own_loss:
        raise RecipeError(
            f"{name}: precision: expected {FLOAT32} of the operator {kind.name!r}, which computes its loss itself, but "
            f"got {recipe.precision}"
        )
    refuse_another_equation(recipe, kind)


def refuse_another_equation(recipe: Recipe, kind: OperatorKind) -> None:
    """Refuse data of a user for an operator of ours that solves an equation of its own.

    The bounds that it guarantees are distances to solutions of that one. An operator of another package says itself
    what its bounds are of.

    Raises:
        RecipeError: It is one.
    """
    if recipe.problem_file is None or trajectories_of(recipe.problem_file.name) is not None:
        return
    knows = getattr(kind.build, "contains_solver", False) or getattr(kind.build, "quality", ())
    if knows and kind.build.__module__.startswith(OPERATORS.package):
        raise RecipeError(
            f"{recipe.name}: operator: expected one that learns any equation, as field does, but got {kind.name!r}, "
            "which solves one of its own: what it says of its errors would not be about these data"
        )


# Prepared samples of a problem file, and trajectories that our solvers make


def prepared(recipe: Recipe, data: Path) -> Path:
    """Return the samples of a recipe, those of a generated problem made again where they are missing."""
    path = data / str(recipe.samples)
    return path if path.is_file() else regenerate(recipe, data)


def coarse_samples(recipe: Recipe, data: Path) -> SampleFile | None:
    """Return the coarse samples that a training begins with; None where it has none.

    Raises:
        RecipeError: They are not there.
    """
    if recipe.coarse is None or (problem := recipe.file.of_coarse) is None:
        return None
    path = data / recipe.coarse.samples
    if not path.is_file():
        path = prepare_again(recipe, path.name, data) or path
    if not path.is_file():
        raise RecipeError(f"{recipe.name}: expected the coarse samples {path} but found none")
    return SampleFile(path, problem)


def regenerate(recipe: Recipe, data: Path) -> Path:
    """Return samples that a problem's own sampler and seed make; their file may have another name than the recipe's.

    Raises:
        RecipeError: They cannot be made here, or are made in another way now.
    """
    problem, missing = recipe.file, f"{recipe.name}: expected the samples {data / str(recipe.samples)}"
    generated = trajectories_of(problem.name)
    if generated is None and (renewed := prepare_again(recipe, str(recipe.samples), data)):
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


def prepare_again(recipe: Recipe, name: str, data: Path) -> Path | None:
    """Return the samples of the data that a recipe names, where another version read them, and say so."""
    found = unversioned_samples(name, data)
    if found is not None:
        warnings.warn(
            f"{recipe.name}: {found} holds the data of {name} as they are read now: values that were read in another "
            "way before, such as packed integers or distances on meshes, are not those that it was trained on",
            stacklevel=2,
        )
    return found
