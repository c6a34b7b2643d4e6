"""What differs between trainings: the samples of a recipe, its network, its loss and its figures."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import numpy as np
import torch
from numpy.random import Generator
from torch import Tensor, nn

from schema.problem import SequenceDescription
from training import checkpoint
from training.calibration import CalibrationSamples, Measured
from training.checkpoint import Tensors
from training.data.dataset import Rows
from training.fit.loop import BatchSampler, Task
from training.losses import LOSSES, Batch
from training.metrics import METRICS, Grid, measured
from training.metrics.fields import relative_l2, weighed
from training.operators import Operator, build
from training.problems.problem import Problem
from training.recipe import BaseRecipe, Recipe
from training.user_error import UserError

R = TypeVar("R", bound=BaseRecipe)

FIELDS = 16  # samples that a network sees at one time while it is measured


class ScopeError(UserError):
    """Networks of this kind cannot be measured in the requested way."""


@dataclass(frozen=True)
class Scope:
    """What is measured of a network."""

    grid: int | None = None  # points per axis; every measurable grid by default
    noise: float | None = None  # level of noise on the input; the trained levels by default
    patient: bool = False  # wait for classical solvers that take seconds per sample


@dataclass(frozen=True)
class Metric:
    """What is measured on validation samples after every epoch."""

    name: str  # its key in the log
    mode: Literal["min", "max"]  # whether the best value is the least or the greatest
    best: str  # what the best epoch is called in the card


class Workload(ABC, Generic[R]):
    """What differs between trainings: on generated fields, on a user's samples, on sequences."""

    # What is measured on validation samples after every epoch.
    metric: Metric = Metric("relative_l2", "min", "the epoch of the least error on the validation set")
    figures: tuple[str, ...] = ("errors", "classical", "clock")  # keys of the card that `measure` returns

    def __init__(self, recipe: R, data: Path, *, progress: bool = True) -> None:
        self.recipe, self.data, self.progress = recipe, data, progress

    def __deepcopy__(self, _: Any) -> Workload[R]:
        return self  # a copy of the task, as that of averaged weights, shares the samples

    def check(self) -> None:
        """Raise a RecipeError where the recipe cannot be trained."""

    @property
    @abstractmethod
    def sample_bytes(self) -> int:
        """Disk space that the samples take, in bytes; 0 where they are there."""

    @property
    def parameters(self) -> int:
        """Number of the network's parameters, at least nearly, before there are samples."""
        return sum(parameter.numel() for parameter in self.network().parameters())

    @abstractmethod
    def prepare(self) -> Path:
        """Make, complete, find or fetch the samples, and return where they are."""

    @property
    @abstractmethod
    def problem(self) -> Problem | SequenceDescription:
        """What the checkpoint says about the problem."""

    @abstractmethod
    def network(self) -> nn.Module:
        """Build the network with weights drawn from the seed."""

    def fit_normalisers(self, network: Any) -> None:
        """Set a network's means and deviations to those of training samples."""

    def task(self, init: Path | None = None, workers: int = 0) -> Task:
        """Read the samples and build what is trained, with the weights that the checkpoint folder `init` has."""
        network = self.network()
        self.fit_normalisers(network)
        if init is not None:
            checkpoint.restore(network, init / checkpoint.WEIGHTS, partly=True)
        return Task(network, self, workers)

    @property
    @abstractmethod
    def batch_sampler(self) -> BatchSampler:
        """Which training samples each batch holds."""

    @abstractmethod
    def draw(self, chosen: Rows, rng: Generator, share: float) -> Batch:
        """Return the training batch of the samples `chosen`, moved and disturbed by what is drawn from `rng`.

        `share` is that of the training that is done when the epoch begins.
        """

    @abstractmethod
    def validation(self) -> Any:
        """Return the validation samples in batches, as a list or a data set: the same after every epoch."""

    @abstractmethod
    def loss(self, network: Any, batch: Batch) -> Tensor:
        """Return the training loss of a batch."""

    @abstractmethod
    def scores(self, network: Any, batch: Batch) -> tuple[Mapping[str, float | Tensor], int]:
        """Return the means over a batch of the metric and of what else is logged, and how many values they are of."""

    @abstractmethod
    def account(self) -> dict[str, Any]:
        """Return what the card says about the training of this kind alone."""

    @abstractmethod
    def measure(self, network: Any, problem: Any, scope: Scope) -> dict[str, Any]:
        """Measure a trained network on the test set: the card's `figures`."""

    def draw_pictures(self, network: Any, problem: Any, scope: Scope, folder: Path) -> None:
        """Draw predictions beside the truth into a folder; arguments and errors are those of `measure`."""
        del network, scope, folder
        raise ScopeError(f"no pictures are drawn of predictions of {problem.name}")

    def renewed(self, samples: int, files: tuple[str, ...] = ()) -> Workload[R]:
        """Return the workload with new calibration samples: as many, or those of a user's files.

        Raises:
            ScopeError: There is no way to have such samples.
        """
        del samples, files
        raise ScopeError(f"{self.recipe.name}: expected a model of fields, which has samples to calibrate it with")

    def calibration_samples(self, network: Any) -> CalibrationSamples | None:
        """Return samples to calibrate a network with: those of the run, or the `renewed` ones; None for other kinds."""
        del network
        return None

    @abstractmethod
    def examples(self) -> Tensors:
        """Return a few test samples with their truth, by the names on the wire."""


class OperatorWorkload(Workload[Recipe]):
    """A recipe of an operator: what its predictions are compared by."""

    def network(self) -> Operator:
        torch.manual_seed(self.recipe.seed)
        return build(self.recipe.operator)

    @property
    @abstractmethod
    def counts(self) -> tuple[int, int]:
        """The numbers of training and of validation samples."""

    @property
    def windows(self) -> int:
        """How many training samples one sample holds, as a trajectory does; see `order`."""
        return 1

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

    def predictions(self, network: Any, batch: Batch) -> list[Tensor]:
        """Return what a network predicts, in the form of the outputs."""
        found = network(*batch.inputs)
        return [found] if isinstance(found, Tensor) else list(found)

    def loss(self, network: Any, batch: Batch) -> Tensor:
        """Return the operator's own loss, or the recipe's."""
        if batch.stored is not None:
            noise = () if batch.noise is None else (batch.noise,)
            own: Tensor | None = network.own_loss(batch.inputs[0], batch.stored, *noise)
            if own is not None:
                return own
        pair = self.predictions(network, batch), batch.outputs
        found, truth = ([weighed(each, batch.measure) for each in some] for some in pair)
        return LOSSES[self.recipe.fit.loss].compute(found, batch._replace(outputs=truth), self.recipe.fit)

    def errors(self, found: Sequence[Tensor], truth: Sequence[Tensor], measure: Tensor | None = None) -> Tensor:
        """Return relative L2 errors `[batch]`, the mean over the outputs; `measure` is that of `Batch`."""
        grid = Grid(weights=measure)
        return torch.stack([relative_l2(*pair, grid) for pair in zip(found, truth, strict=True)]).mean(dim=0)

    @abstractmethod
    def grid(self, batch: Batch, *, whole: bool = True) -> Grid:
        """Return where the outputs of a batch lie; without `whole` as far as the measures after every epoch need it.

        Those of the energy norm and of gradients on scattered points would take as long as the epoch.
        """

    def measures(self, found: Sequence[Tensor], batch: Batch, *, whole: bool = True) -> dict[str, Tensor]:
        """Compute every error measure that is defined on the grid of a batch, by name, in double precision: `[batch]`.

        Each is the mean over the outputs; of trajectories they are `[batch, frame]`.
        """
        p, u = ([each.cpu().double() for each in some] for some in (found, batch.outputs))
        return measured(METRICS.items, p, u, self.grid(batch, whole=whole).on_cpu())

    def scores(self, network: Any, batch: Batch) -> tuple[dict[str, Tensor], int]:
        """Return the mean relative L2 error of a batch, and those by other measures."""
        found = self.predictions(network, batch)
        error = self.score(found, batch)
        others = {name: each.nanmean() for name, each in self.measures(found, batch, whole=False).items()}
        return others | {self.metric.name: error}, len(batch.outputs[0])

    def score(self, found: Sequence[Tensor], batch: Batch) -> Tensor:
        """Return the metric, the mean relative L2 error of the predictions for a batch."""
        return self.errors(found, batch.outputs, batch.measure).mean()

    @torch.inference_mode()
    def with_errors(self, network: Any, batch: Batch, kind: Mapping[str, Any] | None = None) -> Measured:
        """Return samples of a kind with the errors of a network."""
        starts, errors = range(0, len(batch.inputs[0]), FIELDS), []
        for start in starts:
            inputs, outputs = ([each[start : start + FIELDS] for each in some] for some in batch[:2])
            measure = None if batch.measure is None else batch.measure[start : start + FIELDS]
            errors.append(self.errors(self.predictions(network, Batch(inputs, outputs)), outputs, measure))
        return Measured(batch.inputs, torch.cat(errors), kind or {})
