"""Training of general operators on a user's data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
import torch
from lightning.pytorch.utilities.types import OptimizerLRSchedulerConfig
from numpy.random import Generator
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from training.calibration import MOST_FITTED, CalibrationSamples, Measured, affordable, with_errors
from training.data.own_samples import OwnSamples, prepare
from training.evaluation.norms import distribution, rounded
from training.evaluation.timing import processor
from training.examples import MOST, Tensors
from training.fit.loop.order import Order, Rows
from training.fit.task import Metric, Task, one_cycle
from training.fit.workload import Scope, ScopeError, Workload
from training.losses import relative_l2
from training.operators import Operator, build
from training.problems import symmetries
from training.problems.problem import Problem, Trajectories
from training.problems.registry import TRAJECTORIES
from training.recipes.own import OwnFit, OwnRecipe
from training.recipes.recipe import RecipeError

BATCH = 16  # samples of a batch that is only measured
STATISTICS_SAMPLES = 512  # samples for means and deviations, fewer where they are large
WARMUP = 0.15  # share of the steps during which the rate rises


class OwnBatch(NamedTuple):
    """Some samples: input fields and parameters in the order of the operator's arguments, and output fields."""

    inputs: list[Tensor]
    outputs: list[Tensor]


def predictions(network: Operator, inputs: Sequence[Tensor]) -> list[Tensor]:
    """Return the network's outputs as a list."""
    found = network(*inputs)
    return [found] if isinstance(found, Tensor) else list(found)


def errors(network: Operator, batch: OwnBatch) -> Tensor:
    """Return the relative L2 error of every sample, the mean over the outputs: `[batch]`."""
    return mean_errors(predictions(network, batch.inputs), batch.outputs)


def mean_errors(found: Sequence[Tensor], outputs: Sequence[Tensor]) -> Tensor:
    """Return the relative L2 error of every sample of some outputs, the mean over the outputs: `[batch]`."""
    pairs = zip(found, outputs, strict=True)
    return torch.stack([relative_l2(one.flatten(1), truth.flatten(1)) for one, truth in pairs]).mean(dim=0)


@torch.inference_mode()
def measured(network: Operator, batches: Iterable[OwnBatch]) -> NDArray[np.float64]:
    """Return the relative L2 error of every sample of some batches: `[sample]`."""
    return torch.cat([errors(network, batch) for batch in batches]).double().numpy()


class OwnTask(Task[OwnBatch]):
    """Fit a general operator in physical units.

    Args:
        network: The operator.
        config: Epochs, batch, rate.
        seed: Seed of the order and of all that is drawn.
        samples: The prepared samples, read from the disk batch by batch.
        problem: Whose symmetries move the samples.
    """

    metric = Metric("relative_l2", "min", "the epoch of the least error on the validation set")

    def __init__(self, network: Operator, config: OwnFit, seed: int, samples: OwnSamples, problem: Problem) -> None:
        self.rows = training_rows(samples, config.share, seed)
        train, batch = len(self.rows), min(config.batch, len(self.rows))
        super().__init__(network, Order(train, batch, train // batch, seed))
        self.config, self.samples, self.problem = config, samples, problem

    @property
    def operator(self) -> Operator:
        """The network."""
        return cast("Operator", self.network)

    def draw(self, chosen: Rows, rng: Generator) -> OwnBatch:
        batch = as_batch(self.samples, self.rows[chosen])
        if not self.problem.description.symmetries:
            return batch
        fields = len(self.problem.description.inputs)
        moved = symmetries.transform(self.problem.description, [*batch.inputs[:fields], *batch.outputs], rng)
        return OwnBatch([*moved[:fields], *batch.inputs[fields:]], moved[fields:])

    def validation(self) -> SplitBatches:
        return SplitBatches(self.samples, "validation")

    def loss(self, batch: OwnBatch) -> Tensor:
        """Return the mean relative L2 error."""
        return errors(self.operator, batch).mean()

    def score(self, batch: OwnBatch) -> tuple[Tensor, int]:
        """Return the mean relative L2 error of a batch."""
        return errors(self.operator, batch).mean(), len(batch.outputs[0])

    def configure_optimizers(self) -> OptimizerLRSchedulerConfig:
        """Return AdamW, whose rate rises and falls once over the run, by cosine."""
        config = self.config
        optimiser = torch.optim.AdamW(
            self.network.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay
        )
        return one_cycle(optimiser, config.learning_rate, config.epochs * self.order.steps, pct_start=WARMUP)


def as_batch(samples: OwnSamples, rows: NDArray[np.int64] | slice) -> OwnBatch:
    """Read samples as tensors."""
    values = {name: torch.from_numpy(np.asarray(value)) for name, value in samples.read(rows).items()}
    outputs = [values.pop(name) for name in samples.problem.outputs]
    return OwnBatch(list(values.values()), outputs)


def training_rows(samples: OwnSamples, share: float, seed: int) -> NDArray[np.int64]:
    """Return the numbers of the training samples that are used, in ascending order.

    Args:
        samples: The prepared samples.
        share: Which part of them is used; the numbers of a smaller share are among those of a larger one.
        seed: Of the choice.
    """
    train = samples.counts[0]
    return np.sort(np.random.default_rng(seed).permutation(train)[: max(1, round(share * train))])


class SplitBatches(Dataset[OwnBatch]):
    """The batches of a split, each read from the disk when it is needed.

    Args:
        samples: The prepared samples.
        split: `train`, `validation` or `test`.
    """

    def __init__(self, samples: OwnSamples, split: str) -> None:
        where = samples.split(split)
        self.samples, self.stop = samples, where.stop
        self.starts = range(where.start, where.stop, BATCH)

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, position: int) -> OwnBatch:
        start = self.starts[position]
        return as_batch(self.samples, slice(start, min(start + BATCH, self.stop)))

    def __iter__(self) -> Iterator[OwnBatch]:
        return (self[position] for position in range(len(self)))


class OwnWorkload(Workload[OwnRecipe]):
    """A recipe of a general operator on a user's data.

    The samples have been prepared from the user's files before there was a recipe.
    """

    metric = OwnTask.metric
    figures: ClassVar[tuple[str, ...]] = ("errors", "classical", "clock")

    @property
    def average(self) -> float:
        return self.recipe.fit.average

    def check(self) -> None:
        """Require the prepared samples."""
        self.prepare()

    @property
    def sample_bytes(self) -> int:
        return 0  # they are there

    @property
    def parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.network().parameters())

    @cached_property
    def samples(self) -> OwnSamples:
        """The prepared samples."""
        return OwnSamples(self.prepare(), self.recipe.problem)

    @property
    def rows(self) -> NDArray[np.int64]:
        """The numbers of the training samples that the recipe uses."""
        return training_rows(self.samples, self.recipe.fit.share, self.recipe.seed)

    @property
    def first(self) -> OwnBatch:
        """The first training samples, enough for means and deviations; they are in memory at once."""
        return as_batch(self.samples, self.rows[: affordable(STATISTICS_SAMPLES, self.samples.sample_bytes)])

    def batch(self, rows: NDArray[np.int64] | slice) -> OwnBatch:
        """Read samples by their numbers."""
        return as_batch(self.samples, rows)

    def batches(self, split: str) -> Iterable[OwnBatch]:
        """Read the samples of a split."""
        return SplitBatches(self.samples, split)

    def naive(self, batch: OwnBatch) -> list[Tensor]:
        """Return the prediction that needs no network: the mean of the first training samples."""
        return [mean.expand_as(truth) for mean, truth in zip(self.means, batch.outputs, strict=True)]

    @cached_property
    def means(self) -> list[Tensor]:
        """The mean outputs of the first training samples."""
        return [output.mean(dim=0) for output in self.first.outputs]

    def shown(self, name: str, values: Tensor) -> Tensor:
        """Return the part of a sample's field `[(component), *grid]` that is drawn: all of it."""
        del name
        return values

    def prepare(self) -> Path:
        """Return the prepared samples, those of a generated problem made again where they are missing.

        Raises:
            RecipeError: They are missing and cannot be made from what the recipe says.
        """
        path = self.data / self.recipe.samples
        return path if path.is_file() else made_again(self.recipe, self.data)

    def compare(self, problem: Problem) -> None:
        """Compare the samples with those that a checkpoint was trained on, of which the last ones are for the test.

        Raises:
            RecipeError: Their number is another.
        """
        expected, found = (each.description.distribution for each in (problem, self.problem))
        if expected != found:
            raise RecipeError(f"{self.recipe.name}: expected {expected} but found {found} in {self.prepare()}")

    @property
    def problem(self) -> Problem:
        return Problem(description=self.recipe.problem.describe(self.samples.sides, self.samples.counts[0]))

    def network(self) -> Operator:
        torch.manual_seed(self.recipe.seed)
        return build(self.recipe.operator)

    def task(self, init: Path | None = None) -> OwnTask:
        network = self.network()
        first = self.first
        network.fit_normalisers(*first.inputs, *first.outputs)
        return OwnTask(self.restored(network, init), self.recipe.fit, self.recipe.seed, self.samples, self.problem)

    def account(self) -> dict[str, Any]:
        return {
            "distribution": self.problem.description.distribution,
            "fields": len(self.rows),
            "validation_fields": self.samples.counts[1],
            "grids": [list(self.samples.sides)],
            "processor": processor(),
            "validity": {"untested": self.problem.description.untested},
            "remarks": [line for line in str(self.samples.file.attrs["remarks"]).splitlines() if line],
        }

    def measure(self, network: Operator, problem: Problem, scope: Scope) -> dict[str, Any]:
        """Measure a network on the test samples: one row, as there is one grid and no classical solver."""
        if scope.grid is not None or scope.noise is not None:
            raise ScopeError(f"{problem.name}: its data are on one grid and without noise of ours")
        self.compare(problem)
        found = measured(network, SplitBatches(self.samples, "test"))
        row = {"grid": list(self.samples.sides), "fields": len(found)} | summary(found)
        return {"errors": [row], "classical": [], "clock": {"processor": processor()}}

    def calibration_samples(self, network: Operator, fresh: int = 0) -> CalibrationSamples | None:
        """Return every other training sample as fitted, the rest as inputs, and the validation samples."""
        if fresh:
            raise ScopeError(f"{self.recipe.name}: a user's samples cannot be generated")
        train, size = self.samples.split("train"), self.samples.sample_bytes
        rows = np.arange(train.start, train.stop)[: affordable(2 * MOST_FITTED, size)]
        held = [self.samples.split(name) for name in ("validation", "test")]
        validation, test = (
            self.measured(network, np.arange(split.start, split.stop)[: affordable(split.stop, size)]) for split in held
        )
        others = Measured(as_batch(self.samples, rows[1::2]).inputs)
        return CalibrationSamples([self.measured(network, rows[::2])], [validation, others], [test])

    def measured(self, network: Operator, rows: NDArray[np.int64]) -> Measured:
        """Return samples with the errors of a network."""
        batch = as_batch(self.samples, rows)

        def of(part: slice) -> Tensor:
            inputs, outputs = ([tensor[part] for tensor in tensors] for tensors in batch)
            return errors(network, OwnBatch(inputs, outputs))

        return with_errors(batch.inputs, BATCH, of)

    def examples(self) -> Tensors:
        where = self.samples.split("test")
        chosen = slice(where.start, min(where.start + MOST, where.stop))
        return {name: np.asarray(value, dtype=np.float32) for name, value in self.samples.read(chosen).items()}

    def draw_pictures(self, network: Operator, problem: Problem, scope: Scope, folder: Path) -> None:
        del network, scope, folder
        raise ScopeError(f"{problem.name}: pictures of a user's data are in its report")


def generate(problem: Trajectories, data: Path) -> Path:
    """Generate and prepare the samples of a problem in a folder, unless that was done before, and return their file."""
    problem.write(data)
    return prepare(problem.file, data, data)


def made_again(recipe: OwnRecipe, data: Path) -> Path:
    """Return samples that a problem's own sampler and seed make; their file may have another name than the recipe's.

    Raises:
        RecipeError: They are a user's, or the problem has been changed since the recipe was written.
    """
    problem, missing = recipe.problem, f"{recipe.name}: expected the samples {data / recipe.samples}"
    generated = TRAJECTORIES.items.get(problem.name)
    if generated is None:
        found = ", ".join(sorted(path.name for path in data.glob(f"own-{problem.name}-*.h5"))) or "none of this problem"
        raise RecipeError(
            f"{missing} but found {found}. `python -m training data PROBLEM.toml` prepares them from the files that "
            f"it was trained on ({', '.join(problem.data.files)}); other data have another name"
        )
    if (generated.file.seed, generated.file.identity()) != (problem.seed, problem.identity()):
        raise RecipeError(
            f"{missing} but found none, and `{problem.name}` is generated in another way now: "
            "`python -m training fit` trains it anew"
        )
    return generate(generated, data)


def summary(errors_: NDArray[np.float64]) -> dict[str, float]:
    """Return mean with its standard error, median, 95th percentile and worst, with four digits."""
    return rounded(distribution(errors_))
