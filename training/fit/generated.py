"""Training on the samples of built-in problems: fields on several grids, with symmetries and noise."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.random import Generator

from training import evaluation
from training.calibration import MOST_FITTED, CalibrationSamples, Measured, joined
from training.checkpoint import MOST_EXAMPLES, Tensors
from training.data.augment import add_noise, augmented, noisy
from training.data.dataset import Rows
from training.data.generate import Request, prepare
from training.data.pools import ALL_CORES, Pool
from training.data.views import Samples, Split, every, grids, mesh, only_pair, read
from training.evaluation.measures import processor
from training.evaluation.rows import at_defaults, grid_of, has_defaults, ranges, strided, validity
from training.fit.workload import CALIBRATION_SEED, OperatorWorkload, Scope, ScopeError
from training.losses import Batch
from training.metrics import Grid
from training.operators import Operator
from training.problems.problem import PROBLEMS, Array, Conditions, Fields, Problem
from training.recipe import Recipe, RecipeError

WATCHED = 16  # validation samples whose error is logged after every epoch; all of them where they choose the epoch
MOST_VARIED = 500  # test samples with varied inputs, each of which is solved


class GeneratedWorkload(OperatorWorkload):
    """A recipe of an operator between fields."""

    pool: Pool = ALL_CORES  # where samples are computed
    new: int = 0  # calibration samples that are drawn anew; 0: the validation samples calibrate

    def check(self) -> None:
        """Refuse a recipe without validation samples, from which the watched error comes."""
        if not self.recipe.drawn.validation:
            raise RecipeError(f"{self.recipe.name}: expected data.validation of at least 1 but found 0")

    @property
    def sample_bytes(self) -> int:
        """Return the size of all samples on the stored mesh, input and output in float32; 0 if there is a file."""
        data = self.recipe.drawn
        if any(self.data.glob(f"{self.problem.source.name}-{data.mesh}-*.h5")):
            return 0
        count = data.train + data.validation + data.test
        return 2 * 4 * count * data.mesh ** len(self.problem.description.axes)

    @cached_property
    def path(self) -> Path:
        return prepare(request(self.recipe), self.data, self.pool, progress=self.progress)

    def prepare(self) -> Path:
        return self.path

    @property
    def problem(self) -> Problem:
        return PROBLEMS[str(self.recipe.problem)]

    @cached_property
    def train(self) -> Mapping[int, Samples]:
        """The training samples by points per axis."""
        data, gradients = self.recipe.drawn, self.recipe.fit.gradients
        return {
            n: read(self.path, "train", data.train, n, problem=self.problem, gradients=gradients) for n in data.grids
        }

    @cached_property
    def watched(self) -> Samples:
        """The validation samples whose error is logged after every epoch."""
        data = self.recipe.drawn
        count = data.validation if self.recipe.fit.keep == "best" else min(WATCHED, data.validation)
        return read(self.path, "validation", count, data.grids[0], after=data.train, problem=self.problem)

    def fit_normalisers(self, network: Operator) -> None:
        first = self.train[self.recipe.drawn.grids[0]]
        network.fit_normalisers(*map(torch.from_numpy, (first.inputs, *first.parameters, first.targets)))

    @property
    def counts(self) -> tuple[int, int]:
        return self.recipe.drawn.train, self.recipe.drawn.validation

    def draw(self, chosen: Rows, rng: Generator, share: float) -> Batch:
        del share
        fit = self.recipe.fit
        return augmented(self.train, self.rows[chosen], rng, symmetries=bool(fit.symmetries), noise=fit.noise)

    def validation(self) -> list[Batch]:
        """Return the watched samples, once at every trained level of noise."""
        fit, fields, rng = self.recipe.fit, self.watched.inputs, np.random.default_rng(self.recipe.seed)
        deviation = self.train[fields.shape[1]].deviation
        inputs = [noisy(fields, deviation, (level,), rng) for level in fit.noise] or [fields]
        others = [np.concatenate([each] * len(inputs)) for each in (*self.watched.parameters, self.watched.targets)]
        parts = (torch.from_numpy(each).split(fit.batch) for each in (np.concatenate(inputs), *others))
        return [Batch(inputs, [outputs]) for *inputs, outputs in zip(*parts, strict=True)]

    def grid(self, batch: Batch, *, whole: bool = True) -> Grid:
        names = [one.name for one in (*self.problem.description.inputs, *self.problem.description.parameters)]
        inputs = dict(zip(names, batch.inputs, strict=False))  # optional ones may be left out
        return grid_of(self.problem, batch.outputs[0].shape[1:], inputs, self.recipe.drawn.mesh if whole else None)

    def account(self) -> dict[str, Any]:
        return {
            "distribution": self.problem.description.distribution,
            "fields": len(self.rows),
            "grids": list(self.recipe.drawn.grids),
            "processor": processor(),
            **({"remarks": [remark]} if (remark := self.network().remark) else {}),
            "validity": validity(self.problem.description, self.recipe.drawn.grids, self.recipe.fit.levels),
        }

    def measure(self, network: Operator, problem: Problem, scope: Scope) -> dict[str, Any]:
        levels, sides = self.levels(scope), self.sides(scope)
        return evaluation.report(network, problem, self.recipe.drawn, self.path, levels, sides, patient=scope.patient)

    def renewed(self, samples: int, files: tuple[str, ...] = ()) -> GeneratedWorkload:
        if files:
            raise ScopeError(f"{self.recipe.name}: its samples are drawn, so --samples makes new ones, and not --files")
        found = copy(self)
        found.new = samples
        return found

    def calibration_samples(self, network: Operator) -> CalibrationSamples:
        """Return training samples as fitted and the validation samples, or new ones, on every measured grid."""
        data = self.recipe.drawn
        fitted, held, before, tested = min(MOST_FITTED, data.train), data.validation, data.train, data.test
        if self.new:  # a half of them to fit, then all of them to calibrate; as many test samples check them
            fitted, held, before, tested = self.new // 2, self.new, self.new // 2, max(data.test, self.new)
        wanted = Request(self.problem, data.mesh, fitted, 0, CALIBRATION_SEED, held)
        path = prepare(wanted, self.data, self.pool, progress=self.progress) if self.new else self.path
        checked = replace(request(self.recipe), train=0, validation=0, test=tested)
        test = prepare(checked, self.data, self.pool, progress=self.progress)
        stored = partial(CalibrationFields, self, network, self.problem.vary if self.new and network.optional else None)
        return CalibrationSamples(
            fitted=stored(path, "train", fitted).mixture(),
            calibration=stored(path, "validation", held, after=before).mixture(),
            test=stored(test, "test", tested).kinds(),
        )

    def examples(self) -> Tensors:
        """Return the first test samples on the smallest declared grid, else on the smallest trained one."""
        description, data = self.problem.description, self.recipe.drawn
        possible = set(description.grid.declared).intersection(grids(description, data.mesh))
        points, pair = min(possible or data.grids), only_pair(description)
        samples = read(self.path, "test", min(MOST_EXAMPLES, data.test), points, problem=self.problem)
        numbers = {one.name: values for one, values in zip(description.parameters, samples.parameters, strict=True)}
        return {pair.input.name: samples.inputs, **numbers, pair.output.name: samples.targets}

    def draw_pictures(self, network: Operator, problem: Problem, scope: Scope, folder: Path) -> None:
        """Draw best, median and worst sample at each level of noise, on the finest trained grid."""
        from training.evaluation import pictures  # noqa: PLC0415 -- it imports matplotlib, which takes a second

        data, model = self.recipe.drawn, self.recipe.model
        finest = self.sides(scope) or [(max(data.grids),) * len(problem.description.axes)]
        for case in evaluation.cases(problem, data, self.path, self.levels(scope), finest):
            suffix = ("-range" if case.conditions else "") + (f"-noise-{case.noise:g}" if case.noise else "")
            found = evaluation.predict(network, case.inputs, *case.samples.parameters)
            pictures.draw(case, found, folder / f"{model}{suffix}.png", model)

    def levels(self, scope: Scope) -> tuple[float, ...]:
        """Return the levels of noise of a scope."""
        return self.recipe.fit.levels if scope.noise is None else (scope.noise,)

    def sides(self, scope: Scope) -> list[evaluation.Sides] | None:
        """Return the grid of a scope; None for all measurable ones."""
        return None if scope.grid is None else [(scope.grid,) * len(self.problem.description.axes)]


def request(recipe: Recipe) -> Request:
    """Return which samples a recipe needs."""
    data = recipe.drawn
    seed = recipe.seed if data.seed is None else data.seed
    return Request(PROBLEMS[str(recipe.problem)], data.mesh, data.train, data.test, seed, data.validation)


@dataclass(frozen=True)
class CalibrationFields:
    """Stored samples on which a network is measured for its calibration."""

    work: GeneratedWorkload
    network: Operator
    # Draws optional inputs from a generator and points per axis; without it samples do not hold them.
    vary: Callable[[np.random.Generator, int], Fields] | None
    path: Path  # the samples' file
    split: Split
    count: int
    after: int = 0  # how many training samples come before validation samples, else 0

    @property
    def whole(self) -> evaluation.Sides:
        """Points per axis of the stored mesh."""
        return (mesh(self.path, self.split),) * len(self.work.problem.description.axes)

    def mixture(self) -> Iterator[Measured]:
        """Return samples of all kinds, per grid: each at every level of noise, a half with inputs varied.

        Where all parameters have a default every sample is there with the defaults, too, as most requests have them.
        """
        varied, levels = self.count // 2 if self.vary else 0, self.work.recipe.fit.levels
        default = at_defaults(self.read(self.whole)) if has_defaults(self.work.problem.description) else None
        others, plain = self.varied(slice(self.count - varied, None)), replace(self, count=self.count - varied)
        for sides, samples in plain.on_grids():
            parts = [self.noisy(samples, level) for level in levels]
            parts += [self.noisy(strided(default, sides))] if default else []
            yield joined(*parts, *([self.strided(others, sides)] if others else []))

    def kinds(self) -> Iterator[Measured]:
        """Return samples on every grid, of one kind each."""
        description, others = self.work.problem.description, self.varied(slice(MOST_VARIED))
        default = at_defaults(self.read(self.whole)) if has_defaults(description) else None
        drawn = {"conditions": named} if (named := ranges(description)) else {}
        for sides, samples in self.on_grids():
            if default:
                yield self.noisy(strided(default, sides))
            yield from (self.noisy(samples, level, drawn) for level in self.work.recipe.fit.levels)
            if others:
                yield self.strided(others, sides)

    def on_grids(self) -> Iterator[tuple[evaluation.Sides, Samples]]:
        """Read samples on every grid that they can be strided to; published splits may differ in their mesh."""
        possible = set(grids(self.work.problem.description, self.whole[0]))
        for sides in evaluation.measured_grids(self.work.problem.description, self.work.recipe.drawn):
            if possible.issuperset(sides):
                yield sides, self.read(sides)

    def read(self, sides: evaluation.Sides) -> Samples:
        return read(self.path, self.split, self.count, sides, after=self.after, problem=self.work.problem)

    def noisy(self, samples: Samples, level: float = 0.0, others: Mapping[str, float | str] | None = None) -> Measured:
        """Return samples with noise of a level, drawn anew for every split, and the errors of the network."""
        fields = samples.inputs
        if level:
            rng = np.random.default_rng([self.work.recipe.seed, *self.split.encode(), *np.float64(level).tobytes()])
            normals = rng.standard_normal(fields.shape, dtype=np.float32)
            fields = add_noise(fields, np.full(len(fields), level, np.float32), samples.deviation, normals)
        defaults = [np.full_like(fields, one.default) for one in self.work.problem.optional if self.vary]
        kind: dict[str, float | str] = {"noise": level} if level else {}
        found = self.errors([fields, *defaults, *samples.parameters], samples.targets, **kind, **(others or {}))
        return replace(found, noise=torch.full((len(fields),), level, dtype=torch.float64))

    def varied(self, rows: slice) -> list[Array] | None:
        """Vary the optional inputs of some samples, if they are varied, and solve: inputs and outputs on the mesh."""
        if self.vary is None:
            return None
        points, rng = self.whole[0], np.random.default_rng(self.work.recipe.seed)
        pair = only_pair(self.work.problem.description)
        fields, found = self.read(self.whole).inputs[rows], []
        for field in fields:
            others = self.vary(rng, points)
            output = self.work.problem.solve({pair.input.name: field, **others}, Conditions(points))[pair.output.name]
            found.append([*(others[one.name] for one in self.work.problem.optional), output])
        return [fields, *(np.stack(each).astype(np.float32) for each in zip(*found, strict=True))]

    def strided(self, varied: list[Array], sides: evaluation.Sides) -> Measured:
        """Return varied samples on a coarser grid, with the errors of the network."""
        chosen = (slice(None), *every(self.work.problem.description, varied[-1].shape[1], sides))
        *inputs, outputs = (np.ascontiguousarray(tensor[chosen]) for tensor in varied)
        return self.errors(inputs, outputs, **{one.name: "varied" for one in self.work.problem.optional})

    def errors(self, inputs: list[Array], outputs: Array, **kind: float | str) -> Measured:
        """Return samples of a kind with the errors of the network."""
        batch = Batch([torch.from_numpy(tensor) for tensor in inputs], [torch.from_numpy(outputs)])
        return self.work.with_errors(self.network, batch, kind)
