"""What a card says of errors: distributions over samples, those of rollouts by frame, of numbers; and times.

Errors are those of `training.metrics`. Times are in seconds of processor time: it equals wall time on an idle machine,
and other programs do not lengthen it.
"""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from schema.parts import Quantity
from training.calibration.error_estimate import coverage, quantile
from training.calibration.statistics import fewest
from training.losses import Batch
from training.metrics import METRICS
from training.metrics.fields import spectrum
from training.operators import Operator
from training.problems.problem import Array

Errors = NDArray[np.float64]
Fields = NDArray[np.floating[Any]]
Found = TypeVar("Found")
TIMED = {1: 7, 8: 3}  # sizes, and how often each is timed; the median counts

CORRELATED = 0.8  # below it a prediction says little about a chaotic flow
VRMSE = "vrmse"  # the error over the deviation from the mean
LOST = 1e3  # the relative error of a rollout that overflows


def summary(errors: Mapping[str, Errors]) -> dict[str, float]:
    """Return what a card says of errors `[sample]` by measure: `distribution` of relative L2 errors, means of others.

    The error over the deviation from the mean follows the relative L2 error, which an offset makes small. A mean is
    over the samples whose truth has such an error; without any it is left out.
    """
    others = {name: float(means(each, axis=0)) for name, each in errors.items() if name != "relative_l2"}
    known = {name: mean for name, mean in others.items() if not np.isnan(mean)}
    spread = distribution(errors["relative_l2"])
    beside = {name: known.pop(name) for name in (VRMSE,) if name in known}
    return rounded({"relative_l2": spread.pop("relative_l2")} | beside | spread | known)


def meanings(rows: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Say what the error measures are that rows of a card have, by their keys."""
    found = {name for row in rows for name in row}
    return {name: measure.meaning for name, measure in METRICS.items.items() if name in found}


def distribution(errors: Errors) -> dict[str, float]:
    """Return mean, standard error of the mean (of two samples or more), median, 95th percentile and worst of errors."""
    figures = {"relative_l2": errors.mean()}
    if len(errors) > 1:
        figures["standard_error"] = errors.std(ddof=1) / np.sqrt(len(errors))
    return figures | {"median": np.median(errors), "percentile_95": np.percentile(errors, 95), "worst": errors.max()}


def significant(value: float) -> float:
    """Return a number with four digits."""
    return float(f"{value:.4g}")


def rounded(figures: Mapping[str, float]) -> dict[str, float]:
    """Return figures with four digits."""
    return {name: significant(value) for name, value in figures.items()}


def bounded(errors: Errors) -> Errors:
    """Return errors of at most `LOST`, so that a rollout that overflows has a mean, too."""
    return np.minimum(np.nan_to_num(errors, nan=LOST, posinf=LOST), LOST)


def means(errors: Errors, axis: int) -> Errors:
    """Return the means along an axis of what is a number, NaN where there is none."""
    numbers = ~np.isnan(errors)
    counts = numbers.sum(axis=axis)
    return np.divide(errors.sum(axis=axis, where=numbers), counts, out=np.full(counts.shape, np.nan), where=counts > 0)


def correlated_frames(correlations: Errors) -> NDArray[np.int64]:
    """Return for how many frames from the start the correlation stays at least `CORRELATED`: `[sample]`.

    Frames that have none, of a truth that is constant there, do not end it.
    """
    lost = correlations < CORRELATED
    return np.where(lost.any(axis=1), lost.argmax(axis=1), correlations.shape[1])


class Measures(NamedTuple):
    """Measures of rollouts, the mean over the outputs."""

    errors: dict[str, Errors]  # by error measure `[trajectory, frame]`; relative ones are at most 1000
    persistence: Errors  # relative L2 errors of keeping the last given frame `[trajectory, frame]`
    # `[trajectory, 2, wave number]`: energy of the last frame of truth and prediction, of the first output; without any
    # wave number on scattered points and with a mask.
    energy: Errors

    @classmethod
    @torch.inference_mode()
    def of(cls, work: Any, network: Any, split: str) -> Measures:
        """Measure the whole rollouts from the first frames of a split's trajectories."""
        parts = [cls.of_batch(work, network, batch) for batch in work.batches(split, work.longest)]
        errors = {name: np.concatenate([each.errors[name] for each in parts]) for name in parts[0].errors}
        return cls(errors, *(np.concatenate([each[index] for each in parts]) for index in (1, 2)))

    @classmethod
    def of_batch(cls, work: Any, network: Any, batch: Batch) -> Measures:
        """Measure one batch of rollouts."""
        found = work.predictions(network, batch)
        errors = {name: np.minimum(each.numpy(), LOST) for name, each in work.measures(found, batch).items()}
        pair = ([each.double() for each in some] for some in (naive(work, batch), batch.outputs))
        persistence = work.errors(*pair, batch.measure).numpy()
        if work.file.scattered or work.file.mask is not None:
            return cls(errors, persistence, np.zeros((len(persistence), 2, 0)))
        axes = len(work.file.axes)
        last = (each[0][:, -1].double().nan_to_num(posinf=0.0, neginf=0.0) for each in (batch.outputs, found))
        waves = min(batch.outputs[0].shape[-axes:]) // 2 + 1
        energy = np.stack([spectrum(each, axes)[:, :waves].numpy() for each in last], axis=1)
        return cls(errors, persistence, energy)

    def until(self, horizon: int) -> dict[str, Errors]:
        """Return the errors of every trajectory by measure, the mean up to a horizon: `[trajectory]`."""
        return {name: means(each[:, :horizon], axis=1) for name, each in self.errors.items()}

    def summary(self, step: float, held: NDArray[np.float64] | None = None) -> dict[str, Any]:
        """Return the card's figures; errors `held` `[trajectory, frame]` give the error estimates of the frames."""
        truth, predicted = self.energy.mean(axis=0)
        rows = [*self.rows(step)]
        if held is not None:
            rows = estimates(rows, held, self.errors["relative_l2"])
        waves = {"truth": truth, "model": predicted}
        return {
            "rollout": rows,
            "correlation_time": float(step * correlated_frames(self.errors["correlation"]).mean()),
            **(
                {"spectrum": {name: [significant(float(value)) for value in each] for name, each in waves.items()}}
                if len(truth)
                else {}
            ),
        }

    def rows(self, step: float) -> Iterator[dict[str, float]]:
        """Return a row per frame: means over the trajectories, with the standard error of the relative error."""
        errors = self.errors["relative_l2"]
        count, frames = errors.shape
        spread = errors.std(axis=0, ddof=1) / np.sqrt(count) if count > 1 else np.full(frames, np.nan)
        by_frame = {name: means(each, axis=0) for name, each in self.errors.items() if name != "relative_l2"}
        for index in range(frames):
            figures = {
                "frame": index + 1,
                "time": (index + 1) * step,
                "relative_l2": errors[:, index].mean(),
                "standard_error": spread[index],
                **{name: each[index] for name, each in by_frame.items()},
                "persistence": self.persistence[:, index].mean(),
            }
            yield {name: significant(float(value)) for name, value in figures.items() if np.isfinite(value)}


def estimates(
    rows: Sequence[Mapping[str, Any]], held: NDArray[np.float64], tested: NDArray[np.float64]
) -> list[dict[str, Any]]:
    """Return rows of frames with the quantile of errors `held` `[trajectory, frame]`, and how `tested` ones do.

    Too few trajectories give no estimate.
    """
    if len(held) < fewest():
        return [dict(row) for row in rows]
    limits = [significant(quantile(calibration)) for calibration in held.T]
    return [
        {
            **row,
            "error_estimate": limit,
            "calibrated": len(held),
            "trajectories": len(tested),
            **coverage(errors <= limit),
        }
        for row, limit, errors in zip(rows, limits, tested.T, strict=True)
    ]


# Outputs that are numbers


@dataclass(frozen=True)
class Parity:
    """One number of every test sample, beside its prediction."""

    output: str
    component: str  # empty of a number without components
    units: str
    deviation: float  # over the training samples
    truth: NDArray[np.float64]  # `[sample]`
    predicted: NDArray[np.float64]

    @property
    def label(self) -> str:
        """The name with the component."""
        return f"{self.output} {self.component}".strip()

    @property
    def row(self) -> dict[str, Any]:
        """What a card says of it: its mean error in its units and in deviations, and the largest one."""
        errors = np.abs(self.predicted - self.truth)
        figures = {
            "deviation": self.deviation,
            "mean_error": errors.mean(),
            "mean_error_in_deviations": errors.mean() / self.deviation,
            "worst_error": errors.max(),
        }
        named = {"output": self.output, **({"component": self.component} if self.component else {})}
        numbers = {key: significant(float(value)) for key, value in figures.items()}
        return {**named, "units": self.units, **numbers}


@torch.inference_mode()
def parities(network: Any, work: Any, split: str = "test") -> list[Parity]:
    """Predict the numbers of a split's samples."""
    found: dict[str, list[tuple[Any, Any]]] = {one.name: [] for one in work.file.scalars}
    for batch in work.batches(split):
        pairs = zip(found.values(), work.scalar_pairs(work.predictions(network, batch), batch), strict=True)
        for each, (predicted, truth, _) in pairs:
            each.append((predicted.double(), truth.double()))
    made = []
    for one in work.file.scalars:
        parts = zip(*found[one.name], strict=True)
        columns = [torch.cat(part).reshape(-1, max(1, len(one.components))).numpy() for part in parts]
        deviations = work.deviations[one.name].double().reshape(-1).tolist()
        for index, component in enumerate(one.components or ("",)):
            predicted, truth = (each[:, index] for each in columns)
            made.append(Parity(one.name, component, one.units, deviations[index], truth, predicted))
    return made


# Predictions that need no network, which errors are compared with: the mean, or that nothing changes


def naive(work: Any, batch: Batch) -> list[Tensor]:
    """Return the prediction that needs no network: the mean training output, or the last given frame."""
    if not work.is_trajectory:
        return mean_prediction(work, batch)
    inputs = dict(zip(work.file.argument_names, batch.inputs, strict=True))
    starts = {output: inputs[name] for name, output in work.file.states.items()}
    last = [starts[name] if work.history == 1 else starts[name][:, -1] for name in work.file.output_names]
    return [one[:, None].expand_as(truth) for one, truth in zip(last, batch.outputs, strict=True)]


def mean_prediction(work: Any, batch: Batch) -> list[Tensor]:
    """Return the mean training output for every sample of a batch, and for every frame of trajectories."""
    each = zip(work.file.outputs, work.means, batch.outputs, strict=True)
    return [mean * valid(work, one, truth, batch) for one, mean, truth in each]


def mean_outputs(work: Any) -> list[Tensor]:
    """Return the mean outputs of some training samples; where they have points of their own, over all points.

    Of trajectories it is the mean over frames, too.
    """
    batch, found = work.statistics_batch(), []
    for one, output in zip(work.file.outputs, batch.outputs, strict=True):
        axes = 1 + work.is_trajectory + (work.file.scattered and not one.scalar)  # before those of components and grid
        over, mask = tuple(range(axes)), valid(work, one, output, batch)
        found.append(output.sum(dim=over) / mask.sum(dim=over).clamp_min(1))
    return found


def valid(work: Any, one: Quantity, output: Tensor, batch: Batch) -> Tensor:
    """Return 1 where an output of a batch is defined, and 0 at padding of points and outside a domain."""
    if one.scalar:
        return torch.ones_like(output)
    if work.file.scattered:  # [sample, (frame), point, (component)]
        counts, axis = batch.inputs[len(work.file.inputs)], 1 + work.is_trajectory
        mask = (torch.arange(output.shape[axis]) < counts[:, None]).to(output.dtype)
        mask = mask.reshape(len(mask), *(1,) * (axis - 1), -1, *(1,) * (output.ndim - axis - 1))
    elif work.file.mask is not None:  # [sample, (frame), (component), *grid], after the other inputs
        mask = batch.inputs[len(work.file.inputs) - 1]
        mask = mask.reshape(len(mask), *(1,) * (output.ndim - mask.ndim), *mask.shape[1:])
    else:
        return torch.ones_like(output)
    return mask.expand_as(output)


# Times


@torch.inference_mode()
def milliseconds(operator: Operator, *inputs: Array) -> dict[str, float]:
    """Measure the milliseconds per field of the network before its export, alone and in a batch of eight.

    The exported graph that is served takes other times, which `benchmarks` measures.
    """
    each = {}
    for size, times in TIMED.items():
        batch = [torch.from_numpy(np.resize(one, (size, *one.shape[1:]))) for one in inputs]
        each[size] = 1000 * median_seconds(partial(operator, *batch), times) / size
    return {"eager_milliseconds": round(each[1], 1), "eager_milliseconds_of_8": round(each[8], 1)}


def median_seconds(call: Callable[[], object], times: int) -> float:
    """Time some calls on one thread, after one that is not counted, and return their median."""
    with one_thread():
        call()
        return statistics.median(timed(call)[1] for _ in range(times))


def timed(call: Callable[[], Found]) -> tuple[Found, float]:
    """Call once, and return what the call returns and the seconds that it took."""
    started = time.process_time()
    found = call()
    return found, time.process_time() - started


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def processor() -> str:
    """Return the name of the processor's model, or what else the platform knows of it."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return next(iter(models), platform.processor() or platform.machine())


def account(rows: list[dict[str, Any]], baselines: Iterable[dict[str, Any]] = (), **clock: str) -> dict[str, Any]:
    """Return what a card says by the rows of a network and of a classical solver, and of how times were measured."""
    return {
        "errors": rows,
        "classical": [*baselines],
        "clock": clock | {"processor": processor()},
        "measures": meanings(rows),
    }


def row(key: Mapping[str, Any], found: Mapping[str, Errors]) -> dict[str, Any]:
    """Return a row of errors `[sample]` by measure; `key` tells it from others."""
    return {**key, "fields": len(found["relative_l2"])} | summary(found)
