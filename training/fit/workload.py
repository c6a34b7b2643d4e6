"""What is trained, and how: the samples, network, loss and figures of a recipe, and Lightning's view of them.

A `Workload` is what differs between trainings. `Task` is what Lightning trains: the network of a workload, by its
batches, until a budget of steps or time is used. Batches come in an order that depends on seed and step alone. A run
that is killed and resumed at the end of an epoch therefore sees the data of an uninterrupted one.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import lightning.pytorch as pl
import numpy as np
import torch
from numpy.random import Generator, SeedSequence
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from schema.problem import SequenceDescription
from training import optimisation
from training.calibration import CalibrationSamples
from training.checkpoint import Tensors
from training.data.dataset import Rows
from training.fit import initial
from training.fit.processes import from_first, process_count, process_rank
from training.losses import Batch
from training.messages import UserError
from training.nn.attention import penalty
from training.problems.problem import Problem
from training.recipe import AddedRecipe, Recipe

R = TypeVar("R", bound=Recipe | AddedRecipe)
Item = TypeVar("Item")

ORTHOGONALITY = 1e-2  # weight of the penalty of matrices that are to be orthogonal, where a recipe has no other
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
        """Read the samples and build what is trained, with the weights that the checkpoint folder `init` has.

        Raises:
            CheckpointError: They are those of another network.
        """
        network = self.network()
        self.fit_normalisers(network)
        if init is not None:
            initial.load(network, init, self.recipe)
        return Task(network, self, workers)

    @property
    @abstractmethod
    def batch_sampler(self) -> BatchSampler:
        """Which training samples each batch holds."""

    @property
    def budget(self) -> Budget:
        """What a training may use: by default the steps of the recipe's epochs."""
        return Budget(self.recipe.fit.epochs * self.batch_sampler.steps)

    @property
    def orthogonality(self) -> float:
        """The weight of the penalty of matrices that are to be orthogonal."""
        return ORTHOGONALITY

    @abstractmethod
    def draw(self, chosen: Rows, rng: Generator, share: float) -> Batch:
        """Return the training batch of the samples `chosen`, with symmetries and noise that are drawn from `rng`.

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


class Task(pl.LightningModule):
    """Fit a network to the samples of the workload that builds this."""

    def __init__(self, network: nn.Module, work: Workload[Any], workers: int = 0) -> None:
        super().__init__()
        self.network, self.work, self.workers, self.batch_sampler = network, work, workers, work.batch_sampler
        optimisation.train_in(getattr(network, "learned", network), work.recipe.precision)
        self.budget = work.budget

    def train_dataloader(self) -> DataLoader[Batch]:
        """Return the epoch's batches; the trainer calls this at every epoch."""
        return self.loader(Epoch(self.batch_sampler, self.current_epoch, partial(self.part, self.budget.share)))

    def part(self, share: float, chosen: Rows, rng: Generator) -> Batch:
        """Return this process's part of a training batch; all processes draw the same batch."""
        batch = self.work.draw(chosen, rng, share)
        if process_count() == 1:
            return batch
        mine = slice(process_rank(), None, process_count())
        lists = ([one[mine] for one in each] if isinstance(each, Sequence) else each for each in batch)
        return Batch._make(each[mine] if isinstance(each, Tensor) else each for each in lists)

    def val_dataloader(self) -> DataLoader[Batch]:
        """Return the validation batches, the same after every epoch."""
        return self.loader(self.work.validation())

    def loader(self, batches: Any) -> DataLoader[Batch]:
        """Return what reads a list or data set of batches in order, in processes of its own if there are any."""
        return DataLoader(batches, batch_size=None, num_workers=self.workers)

    def on_train_start(self) -> None:
        """Start the clock, on an accelerator that of the wall; stop what is complete, or as far as it is to be."""
        if self.device.type != "cpu":
            self.budget.clock = time.perf_counter
        self.budget.start()
        self.trainer.should_stop = self.budget.share >= self.budget.until

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["budget"] = {"used": self.budget.used, "share": self.budget.share}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Continue after what has been used; states of earlier releases count steps alone."""
        found = checkpoint.get("budget", {"used": 0.0, "share": 0.0})
        self.budget.used, self.budget.share = found["used"], found["share"]

    def on_before_backward(self, _: Tensor) -> None:
        optimisation.exact(tf32=self.work.recipe.precision == "tf32")

    def on_after_backward(self) -> None:
        optimisation.exact()

    def on_train_batch_start(self, *_: Any) -> None:
        """Seed dropout by (seed, step, process): a resumed run draws the same, whatever the loaders drew before."""
        torch.manual_seed(torch_seed(self.batch_sampler.seed, self.global_step, process_rank()))

    def objective(self, batch: Batch) -> Tensor:
        """Return the loss, plus the penalty of matrices that are to be orthogonal, where the network has any."""
        loss, found = self.work.loss(self.network, batch), penalty(self.network)
        return loss if found is None else loss + self.work.orthogonality * found

    def training_step(self, batch: Batch) -> Tensor:
        loss = self.objective(batch)
        self.log(
            "loss",
            loss,
            on_step=False,
            on_epoch=True,
            prog_bar=True,
            sync_dist=True,
            batch_size=self.batch_sampler.batch,
        )
        return loss

    def validation_step(self, batch: Batch) -> None:
        scores, count = self.work.scores(self.network, batch)
        for name, score in scores.items():
            self.log(name, score, sync_dist=True, batch_size=count)

    def configure_optimizers(self) -> Any:
        """Return the optimiser and its schedule, as the recipe's section `fit` chooses them."""
        fit = self.work.recipe.fit
        optimiser, schedule = fit.build_optimiser(self.network, self.budget.steps)
        return {"optimizer": optimiser, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def lr_scheduler_step(self, scheduler: Any, metric: Any) -> None:
        """Advance the share of the training, the same in all processes, and the schedule; stop what is complete.

        A schedule of steps takes its next step, one of processor time goes where the share is, between two steps.
        """
        del metric
        self.budget.share = from_first(lambda: self.budget.advance(self.global_step))
        self.trainer.should_stop = self.budget.share >= self.budget.until
        if self.budget.seconds is not None:
            scheduler.last_epoch = self.budget.share * (scheduler.total_steps - 1) - 1
        scheduler.step()


@dataclass
class Budget:
    """What a training may use: steps, or processor time and then steps at least and at most.

    Processor time is that of the training thread, validation included. On an idle machine it passes as the clock does.
    On a busy one it passes later, so that the result comes later and is the same.

    Example:
        >>> budget = Budget(steps=1000, seconds=60.0, least=10, clock=iter([5.0, 35.0, 125.0]).__next__)
        >>> budget.start()
        >>> budget.advance(100), budget.advance(200)
        (0.5, 1.0)
    """

    steps: int  # most steps
    seconds: float | None = None  # processor seconds; None for `steps` steps, however long they take
    least: int = 1  # least steps, also where they take longer than the seconds
    clock: Callable[[], float] = time.thread_time
    used: float = 0.0  # seconds so far, also of an interrupted run that this one continues
    share: float = 0.0  # the share that is done, from 0 to 1
    until: float = 1.0  # the share at which the training pauses
    began: float = 0.0

    def part(self, share: float) -> Budget:
        """Return a budget of a share of the steps and of the time."""
        if share == 1:
            return self
        steps, least = (max(1, round(share * each)) for each in (self.steps, self.least))
        return replace(self, steps=steps, seconds=self.seconds and share * self.seconds, least=least)

    def start(self) -> None:
        """Start the clock, after what has been used."""
        self.began = self.clock() - self.used

    def advance(self, step: int) -> float:
        self.used = self.clock() - self.began
        done = step / self.steps
        if self.seconds is not None:
            done = max(done, min(self.used / self.seconds, step / self.least))
        self.share = min(1.0, done)
        return self.share


@dataclass(frozen=True)
class BatchSampler:
    """Which samples each batch holds.

    Passes over the samples follow one another without a break, each in an order of its own. An epoch is a number of
    batches.
    """

    samples: int  # number of training samples
    batch: int  # samples of a batch
    steps: int  # batches of an epoch
    seed: int  # seed of all orders

    @classmethod
    def passes(cls, samples: int, batch: int, seed: int) -> BatchSampler:
        """Return the order in which an epoch is one pass over the samples, without an incomplete batch."""
        batch = min(batch, samples)
        return cls(samples, batch, samples // batch, seed)

    def epoch(self, number: int) -> Iterator[tuple[int, Rows]]:
        """Return the step and the sample numbers `[batch]` of every batch of an epoch."""
        first = number * self.steps
        order = rows(self.samples, first * self.batch, self.steps * self.batch, self.seed)
        return zip(range(first, first + self.steps), order.reshape(self.steps, self.batch), strict=True)


def rows(samples: int, start: int, count: int, seed: int) -> Rows:
    """Return `count` sample numbers from position `start` of all passes over `samples`, one after another."""
    first, last = start // samples, (start + count - 1) // samples
    passes = [np.random.default_rng([seed, number]).permutation(samples) for number in range(first, last + 1)]
    return np.concatenate(passes)[start - first * samples :][:count]


class Epoch(Dataset[Item]):
    """The batches of one epoch by their position in it, so that several processes can make them with `draw`."""

    def __init__(self, order: BatchSampler, number: int, draw: Callable[[Rows, Generator], Item]) -> None:
        self.seed, self.batches, self.draw = order.seed, [*order.epoch(number)], draw

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, position: int) -> Item:
        step, chosen = self.batches[position]
        return self.draw(chosen, np.random.default_rng(stream(self.seed, Stream.AUGMENTATION, step)))


class Stream(IntEnum):
    """What random numbers are drawn for; each purpose has numbers of its own."""

    AUGMENTATION = 0
    DROPOUT = 1


def stream(seed: int, purpose: Stream, step: int, rank: int = 0) -> SeedSequence:
    """Return the seeds of one step, and of one process where each draws numbers of its own.

    Steps of different seeds share none, as sums of seed and step would.
    """
    return SeedSequence(seed, spawn_key=(purpose, step, rank) if rank else (purpose, step))


def torch_seed(seed: int, step: int, rank: int = 0) -> int:
    """Return the seed of torch's generator, from which dropout is drawn, at a step of a process."""
    return int(stream(seed, Stream.DROPOUT, step, rank).generate_state(1, np.uint64)[0] >> np.uint64(1))
