"""What a model is worth, in the first line of a report: its error beside predictions that need no network.

Two of them: the mean training output, point by point, and the outputs of the training sample whose inputs are nearest
to those asked for; of trajectories the frame that they start from, kept. A network that is not clearly better than
these has learned nothing that a table would not tell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from schema.parts import Quantity
from training.evaluation.measures import naive, valid
from training.fit.operator_workload import OperatorWorkload
from training.losses import Batch

USABLE = 0.05  # the largest mean error on test samples of a model that is called usable
ROUGH = 0.2  # the largest one of a model that is called rough; responses warn of a larger one, too
SHARE = 0.5  # the most that either has of the error of the better prediction without a network
LOOKED_AT = 1 << 28  # values of training inputs that are compared with those of test samples
AT_ONCE = 1 << 24  # values of training inputs, and of test inputs, in memory
MEAN, NEAREST, LAST = "predicting the mean", "the nearest training sample", "keeping the last given frame"
RULE = (
    f"Usable: a mean error of at most {100 * USABLE:g} %; rough: at most {100 * ROUGH:g} %; and either at most "
    f"{100 * SHARE:g} % of the error of the better prediction without a network."
)
LONGER = {"tiny": "quick", "quick": "laptop"}  # the preset that trains longer


class Worth(StrEnum):
    """What a model is good for."""

    USABLE = "usable"
    ROUGH = "rough"
    NOT_USABLE = "not usable yet"


@dataclass(frozen=True)
class Verdict:
    """The mean error on test samples beside that of predictions without a network.

    Attributes:
        error: Of the model.
        baselines: Of the others, by what they are called in a sentence.
        preset: What the model was trained with.
        advice: What would lower the error, in words.
        longer: Whether that is a longer training.
    """

    error: float
    baselines: Mapping[str, float]
    preset: str
    advice: str
    longer: bool

    @property
    def worth(self) -> Worth:
        """What the model is good for, by the thresholds of this file."""
        if not self.error <= min(ROUGH, SHARE * min(self.baselines.values())):
            return Worth.NOT_USABLE
        return Worth.USABLE if self.error <= USABLE else Worth.ROUGH

    @property
    def preset_next(self) -> str:
        """The preset to train with next; empty where a longer training is not what the model needs."""
        if self.worth is Worth.USABLE or not (self.longer or self.preset == "tiny"):
            return ""
        return LONGER.get(self.preset, "")

    @property
    def headline(self) -> str:
        """The first line of the report."""
        beside = " and ".join(f"{percent(error)} of {name}" for name, error in self.baselines.items())
        judged = f"{self.worth.capitalize()}: an error of {percent(self.error)} on test samples, beside {beside}."
        if self.preset_next:
            return f"{judged} This was `{self.preset}`: run `{self.preset_next}`."
        return judged if self.worth is Worth.USABLE else f"{judged} What would lower it: {self.advice}."


def percent(value: float) -> str:
    """Write an error in per cent, with three digits."""
    return f"{100 * value:.3g} %"


def baselines(work: OperatorWorkload) -> dict[str, NDArray[np.float64]]:
    """Measure what needs no network on the test samples: the relative L2 error of each, by its name."""

    def errors(batch: Batch, made: Sequence[Tensor]) -> NDArray[np.float64]:
        found = work.errors(made, batch.outputs, batch.measure)
        return (found.mean(dim=1) if work.is_trajectory else found).double().numpy()

    name = LAST if work.is_trajectory else MEAN
    known = {name: np.concatenate([errors(batch, naive(work, batch)) for batch in work.batches("test")])}
    if work.file.scattered:  # every sample has its own points
        return known
    found, rows = [], nearest(work)
    for batch in work.batches("test"):
        chosen, rows = np.split(rows, [len(batch.outputs[0])])
        others = work.batch(chosen).outputs
        found.append(
            errors(
                batch,
                [each * valid(work, one, each, batch) for one, each in zip(work.file.outputs, others, strict=True)],
            )
        )
    return known | {NEAREST: np.concatenate(found)}


def nearest(work: OperatorWorkload) -> NDArray[np.int64]:
    """Return the number of the training sample with the nearest inputs for every test sample.

    The distance is that of inputs and parameters in units of their deviation, each counting alike; of fields that are
    positive, that of their logarithms. Of very many training samples every so-manieth is looked at.
    """
    wanted = np.asarray(work.samples.split("test"))
    size = sum(int(np.prod(values.shape[1:])) for values in arguments(work, wanted[:1]).values())
    step = -(-len(work.rows) * size // LOOKED_AT)
    rows, block = np.sort(work.rows)[::step], max(1, AT_ONCE // size)
    parts = (wanted[start : start + block] for start in range(0, len(wanted), block))
    return np.concatenate([nearest_of(work, part, rows, block) for part in parts])


def nearest_of(
    work: OperatorWorkload, wanted: NDArray[np.int64], rows: NDArray[np.int64], block: int
) -> NDArray[np.int64]:
    """Return which of some training samples, of which a block is read at one time, is nearest to each wanted one."""
    test = flat(work, arguments(work, wanted))
    best, found = np.full(len(wanted), np.inf), np.zeros(len(wanted), dtype=np.int64)
    for start in range(0, len(rows), block):
        chosen = rows[start : start + block]
        train = flat(work, arguments(work, chosen))
        distances = np.square(train).sum(axis=1) - 2 * test @ train.T  # and the square of `test`, the same for all
        closest = distances.argmin(axis=1)
        values = distances[np.arange(len(test)), closest]
        found, best = np.where(values < best, chosen[closest], found), np.minimum(values, best)
    return found


def arguments(work: OperatorWorkload, rows: range | NDArray[np.int64]) -> dict[str, NDArray[np.float32]]:
    """Read the inputs and parameters of some samples, by name; of trajectories the frames that they start from."""
    batch = work.batch(rows, frames=1 if work.is_trajectory else None)
    return {name: one.numpy() for name, one in zip(work.file.argument_names, batch.inputs, strict=False)}


def flat(work: OperatorWorkload, values: Mapping[str, NDArray[np.float32]]) -> NDArray[np.float64]:
    """Lay out inputs in rows whose squared distance is the sum over the tensors of a mean squared difference."""
    columns = []
    for name, one in values.items():
        wide = one.astype(np.float64).reshape(len(one), -1)
        tensor = work.file[name]
        if isinstance(tensor, Quantity) and tensor.positive:
            wide = np.log(wide)
        elif (deviation := work.samples.statistic(work.file.states.get(name, name), "deviation")) > 0:
            wide = (wide - work.samples.statistic(work.file.states.get(name, name), "mean")) / deviation
        else:
            continue  # the same everywhere
        columns.append(wide / np.sqrt(wide.shape[1]))
    return np.concatenate(columns, axis=1) if columns else np.zeros((len(next(iter(values.values()))), 1))


def duration(seconds: float) -> str:
    """Write a time in the unit that suits it."""
    for unit, size in (("h", 3600.0), ("min", 60.0), ("s", 1.0), ("ms", 1e-3)):
        if seconds >= size or unit == "ms":
            return f"{seconds / size:.3g} {unit}"
    raise AssertionError
