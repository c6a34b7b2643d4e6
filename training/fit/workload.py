"""What differs between trainings on fields and on sequences: samples, network, figures."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from torch import nn

from training import checkpoint
from training.calibration import CalibrationSamples
from training.examples import Tensors
from training.fit.task import Metric, Task
from training.problems.problem import Problem
from training.problems.sequence_description import SequenceDescription
from training.recipes.kinds import BaseRecipe
from training.user_error import UserError

R = TypeVar("R", bound=BaseRecipe)
N = TypeVar("N", bound=nn.Module)


class ScopeError(UserError):
    """Networks of this kind cannot be measured in the requested way."""


@dataclass(frozen=True)
class Scope:
    """What is measured of a network.

    Attributes:
        grid: Points per axis; every measurable grid by default.
        noise: Level of noise on the input; the trained levels by default.
        patient: Wait for classical solvers that take seconds per sample.
    """

    grid: int | None = None
    noise: float | None = None
    patient: bool = False


class Workload(ABC, Generic[R]):
    """A recipe, with everything that its kind needs for a training run.

    Attributes:
        metric: What is measured on validation samples after every epoch.
        figures: Keys of the card that `measure` returns.

    Args:
        recipe: What is trained, on what and how.
        data: Folder of the samples; what is missing is generated or fetched.
        progress: Show a bar while samples are made.
    """

    metric: ClassVar[Metric]
    figures: ClassVar[tuple[str, ...]]

    def __init__(self, recipe: R, data: Path, *, progress: bool = True) -> None:
        self.recipe, self.data, self.progress = recipe, data, progress

    @property
    def average(self) -> float:
        """Decay per step of the weights' exponential mean, which is kept instead of them; 0 for none."""
        return 0.0

    @abstractmethod
    def check(self) -> None:
        """Raise a RecipeError where the recipe cannot be trained."""

    @property
    @abstractmethod
    def sample_bytes(self) -> int:
        """Disk space that the samples take, in bytes."""

    @property
    @abstractmethod
    def parameters(self) -> int:
        """Number of the network's parameters, at least nearly, before there are samples."""

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

    @abstractmethod
    def task(self, init: Path | None = None) -> Task[Any]:
        """Read the samples and build what is trained.

        Args:
            init: A checkpoint folder to take the initial weights from.

        Raises:
            CheckpointError: `init` does not fit the recipe.
        """

    @abstractmethod
    def account(self) -> dict[str, Any]:
        """Return what the card says about the training of this kind alone."""

    @abstractmethod
    def measure(self, network: Any, problem: Any, scope: Scope) -> dict[str, Any]:
        """Measure a trained network on the test set.

        Args:
            network: The network.
            problem: Its checkpoint's problem.
            scope: What is measured.

        Returns:
            The card's `figures`.

        Raises:
            ScopeError: Networks of this kind cannot be measured so.
        """

    @abstractmethod
    def draw_pictures(self, network: Any, problem: Any, scope: Scope, folder: Path) -> None:
        """Draw predictions beside the truth into a folder; arguments and errors are those of `measure`."""

    def calibration_samples(self, network: Any, fresh: int = 0) -> CalibrationSamples | None:
        """Return samples to calibrate a trained network with, by default those of its run.

        Args:
            network: The network.
            fresh: How many new calibration samples are generated, which serve nothing else.

        Returns:
            The samples; None where networks of this kind are not calibrated.

        Raises:
            ScopeError: New samples cannot be generated.
        """
        del network, fresh
        return None

    @abstractmethod
    def examples(self) -> Tensors:
        """Return a few test samples with their truth, by the names on the wire."""

    @staticmethod
    def restored(network: N, init: Path | None) -> N:
        """Return the network, with the weights of a checkpoint folder, as far as it has them, if there is one."""
        if init is not None:
            checkpoint.restore(network, init / checkpoint.WEIGHTS, partly=True)
        return network
