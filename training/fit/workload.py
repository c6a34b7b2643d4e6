"""What differs between trainings: the samples of a recipe, its network, its loss and its figures."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from numpy.random import Generator
from torch import Tensor, nn

from schema.problem import SequenceDescription
from training import checkpoint
from training.calibration import CalibrationSamples
from training.checkpoint import Tensors
from training.data.dataset import Rows
from training.fit.loop import BatchSampler, Task
from training.losses import Batch
from training.problems.problem import Problem
from training.recipe import BaseRecipe
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

    def fit_trained(self, network: Any) -> None:
        """Set what a network takes from training samples once it is trained."""

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
