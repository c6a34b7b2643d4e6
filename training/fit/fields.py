"""Training of operators between fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from numpy.random import Generator
from torch import Tensor

from training import evaluation
from training.calibration import MOST_FITTED, CalibrationSamples
from training.data import ALL_CORES, Pool, Request, Samples, prepare, read
from training.data.noise import measured
from training.evaluation.cases import validity
from training.evaluation.timing import processor
from training.examples import Tensors, of_fields
from training.fit.batches import Augmentation, Batch, draw
from training.fit.calibration_fields import CalibrationFields, Part
from training.fit.loop.order import Order, Rows
from training.fit.task import Metric, Task, one_cycle
from training.fit.workload import Scope, Workload
from training.losses import LineLoss, PlaneLoss, relative_l2, training_loss
from training.operators import Operator, build
from training.problems.problem import Problem
from training.problems.registry import PROBLEMS
from training.recipes.recipe import FitConfig, Recipe, RecipeError

CALIBRATION_SEED = 20_261_122  # of samples that no training, validation or test uses
WATCHED = 16  # validation samples whose error is logged after every epoch; all of them where they choose the epoch


def request(recipe: Recipe) -> Request:
    """Return which samples a recipe needs."""
    data, seed = recipe.data, recipe.seed if recipe.data.seed is None else recipe.data.seed
    return Request(PROBLEMS[recipe.problem], data.mesh, data.train, data.test, seed, data.validation)


def calibration_request(recipe: Recipe, count: int) -> Request:
    """Return samples that serve calibration alone: half of `count` to fit, then `count` to calibrate."""
    return Request(PROBLEMS[recipe.problem], recipe.data.mesh, count // 2, 0, CALIBRATION_SEED, count)


class FieldTask(Task[Batch]):
    """Fit an operator in physical units.

    Args:
        network: The operator.
        config: Epochs, rate, weights of the loss.
        seed: Seed of the order and of all that is drawn.
        train: Training samples by points per axis.
        watched: Validation samples whose error is logged after each epoch.
    """

    metric = Metric("relative_l2", "min", "the epoch of the least error on the validation set")
    network: Operator

    def __init__(
        self, network: Operator, config: FitConfig, seed: int, train: Mapping[int, Samples], watched: Samples
    ) -> None:
        count = len(next(iter(train.values())).inputs)
        super().__init__(network, Order(count, config.batch, count // config.batch, seed))
        self.config, self.train_samples, self.watched = config, train, watched

    def draw(self, chosen: Rows, rng: Generator) -> Batch:
        return draw(self.train_samples, Augmentation(self.config.symmetries, self.config.noise), chosen, rng)

    def validation(self) -> list[Batch]:
        """Return the watched samples, once at every trained level of noise."""
        fields, rng = self.watched.inputs, np.random.default_rng(self.order.seed)
        deviation = self.train_samples[fields.shape[1]].deviation
        noisy = [measured(fields, deviation, (level,), rng) for level in self.config.noise] or [fields]
        outputs = np.concatenate([self.watched.targets] * len(noisy))
        numbers = [np.concatenate([each] * len(noisy)) for each in self.watched.parameters]
        arrays = (np.concatenate(noisy), outputs, *numbers)
        parts = (torch.from_numpy(each).split(self.config.batch) for each in arrays)
        return [Batch(field, output, parameters=tuple(rest)) for field, output, *rest in zip(*parts, strict=True)]

    def loss(self, batch: Batch) -> Tensor:
        """Return the operator's own loss, or the recipe's."""
        noise = () if batch.noise is None else (batch.noise,)
        if batch.stored is not None and (own := self.network.own_loss(batch.inputs, batch.stored, *noise)) is not None:
            return own
        prediction = self.network(batch.inputs, *batch.parameters)
        if self.config.loss == "relative":
            return training_loss(prediction, batch.outputs, self.config.h1)
        h, gamma = 1 / batch.outputs.shape[-1], self.config.gamma
        if prediction.ndim == 2:
            return LineLoss(h, gamma=gamma)(prediction, batch.outputs, batch.gradients).total
        K = batch.inputs if self.watched.problem.energy_weight else None  # the weight of the gradient in the energy
        return PlaneLoss(h, gamma=gamma)(prediction, batch.outputs, batch.gradients, coefficient=K).total

    def score(self, batch: Batch) -> tuple[Tensor, int]:
        """Return the mean relative L2 error of a batch."""
        return relative_l2(self.network(batch.inputs, *batch.parameters), batch.outputs).mean(), len(batch.inputs)

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        """Return AdamW, whose rate rises and falls once over the run, by cosine."""
        config = self.config
        optimiser = torch.optim.AdamW(
            self.network.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay
        )
        return one_cycle(
            optimiser,
            config.learning_rate,
            config.epochs * self.order.steps,
            pct_start=config.warmup,
            div_factor=config.div_factor,
            final_div_factor=config.final_div_factor,
            cycle_momentum=config.cycle_momentum,
        )


class FieldWorkload(Workload[Recipe]):
    """A recipe of an operator between fields.

    Attributes:
        pool: Where samples are computed.
    """

    metric = FieldTask.metric
    figures = ("errors", "classical", "clock")
    pool: Pool = ALL_CORES

    @property
    def average(self) -> float:
        return self.recipe.fit.average

    def check(self) -> None:
        """Refuse a recipe without validation samples, from which the watched error comes."""
        if not self.recipe.data.validation:
            raise RecipeError(f"{self.recipe.name}: expected data.validation of at least 1 but found 0")

    @property
    def sample_bytes(self) -> int:
        """Return the size of all samples on the stored mesh, input and output in float32; 0 if there is a file."""
        data = self.recipe.data
        if any(self.data.glob(f"{self.problem.source.name}-{data.mesh}-*.h5")):
            return 0
        count = data.train + data.validation + data.test
        return 2 * 4 * count * data.mesh ** len(self.problem.description.axes)

    @property
    def parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.network().parameters())

    @cached_property
    def path(self) -> Path:
        return prepare(request(self.recipe), self.data, self.pool, progress=self.progress)

    def prepare(self) -> Path:
        return self.path

    @property
    def problem(self) -> Problem:
        return PROBLEMS[self.recipe.problem]

    def network(self) -> Operator:
        torch.manual_seed(self.recipe.seed)
        return build(self.recipe.operator)

    def task(self, init: Path | None = None) -> FieldTask:
        data, fit, problem = self.recipe.data, self.recipe.fit, self.problem
        train = {
            n: read(self.path, "train", data.train, n, problem=problem, gradients=fit.gradients) for n in data.grids
        }
        count = data.validation if fit.keep == "best" else min(WATCHED, data.validation)
        watched = read(self.path, "validation", count, data.grids[0], after=data.train, problem=problem)
        network, first = self.network(), train[data.grids[0]]
        network.fit_normalisers(*map(torch.from_numpy, (first.inputs, *first.parameters, first.targets)))
        return FieldTask(self.restored(network, init), fit, self.recipe.seed, train, watched)

    def account(self) -> dict[str, Any]:
        return {
            "distribution": self.problem.description.distribution,
            "fields": self.recipe.data.train,
            "grids": list(self.recipe.data.grids),
            "processor": processor(),
            **({"remarks": [remark]} if (remark := self.network().remark) else {}),
            "validity": validity(self.problem.description, self.recipe.data.grids, self.recipe.fit.levels),
        }

    def measure(self, network: Operator, problem: Problem, scope: Scope) -> dict[str, Any]:
        levels, sides = self.levels(scope), self.sides(scope)
        return evaluation.report(network, problem, self.recipe.data, self.path, levels, sides, patient=scope.patient)

    def calibration_samples(self, network: Operator, fresh: int = 0) -> CalibrationSamples:
        """Return training samples as fitted and the validation samples, or new ones, on every measured grid."""
        data, problem = self.recipe.data, self.problem
        if fresh:
            path = prepare(calibration_request(self.recipe, fresh), self.data, progress=self.progress)
            fitted, held = fresh // 2, fresh
        else:
            path, fitted, held = self.path, min(MOST_FITTED, data.train), data.validation
        test = prepare(replace(request(self.recipe), train=0, validation=0), self.data, progress=self.progress)
        measured = CalibrationFields(
            network, self.recipe, problem, problem.vary if fresh and network.optional else None
        )
        return CalibrationSamples(
            fitted=measured.mixture(Part(path, "train", fitted)),
            calibration=measured.mixture(Part(path, "validation", held, after=fitted if fresh else data.train)),
            test=measured.kinds(Part(test, "test", data.test)),
        )

    def examples(self) -> Tensors:
        return of_fields(self.path, self.problem, self.recipe.data)

    def draw_pictures(self, network: Operator, problem: Problem, scope: Scope, folder: Path) -> None:
        """Draw best, median and worst sample at each level of noise, on the finest trained grid."""
        from training.evaluation import pictures  # noqa: PLC0415 -- it imports matplotlib, which takes a second

        data, model = self.recipe.data, self.recipe.model
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
