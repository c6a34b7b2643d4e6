r"""Measures of a network: errors per sample of fields and per frame of trajectories, and times.

With e = p - u, all points counting alike:

.. math::
    e_{L2} = \frac{\|e\|}{\|u\|}, \qquad
    e_{H1} = \frac{\|\nabla e\|}{\|\nabla u\|}, \qquad
    e_a = \left(\frac{\int a\,|\nabla e|^2}{\int a\,|\nabla u|^2}\right)^{1/2}.

The gradient of e_H1 (the seminorm: without e itself) is that of differences of neighbours over their distance, walls
left out. The energy norm e_a, for Darcy's pressure alone, is the quadratic form of the finite volumes on the output's
grid, :math:`v^T A(a) v = \sum_{faces} a_{face} (v_1 - v_2)^2\, length/distance`, with the mean of both sides' a on a
face and v = 0 on the walls (`physics.numerics.volumes`): the norm in which that method is optimal. u is the solution on
the fine mesh, taken at the grid's points.

Times are in seconds of processor time: it equals wall time on an idle machine, and other programs do not lengthen it.
"""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from physics.numerics import volumes
from physics.numerics.grid import relative_l2
from training.calibration.error_estimate import coverage, fewest, quantile
from training.losses import Batch
from training.operators import Operator
from training.problems.problem import Array

Errors = NDArray[np.float64]
Fields = NDArray[np.floating[Any]]
Found = TypeVar("Found")
TIMED = {1: 7, 8: 3}  # sizes, and how often each is timed; the median counts

CORRELATED = 0.8  # below it a prediction says little about a chaotic flow
LOST = 1e3  # the relative error of a rollout that overflows


def relative_h1(found: Fields, truth: Fields) -> Errors:
    """Compute e_H1 `[sample]` of predictions `[sample, *grid]`."""
    return slope(np.subtract(found, truth, dtype=np.float64)) / slope(truth.astype(np.float64))


def slope(fields: Errors) -> Errors:
    """Compute the norm of the gradient: axes in units of the square's side, each derivative's mean over its faces."""
    squares = [
        np.square(np.diff(fields, axis=axis) * (points - 1)).reshape(len(fields), -1).mean(axis=1)
        for axis, points in enumerate(fields.shape[1:], start=1)
    ]
    return np.asarray(np.sqrt(np.sum(squares, axis=0)))


def relative_energy(coefficients: Fields, found: Fields, truth: Fields, wall: float) -> Errors:
    """Compute e_a `[sample]` of fields `[sample, row, column]`, `wall` from the outermost points."""
    pairs = []
    for a, p, u in zip(*(fields.astype(np.float64) for fields in (coefficients, found, truth)), strict=True):
        A, e, v = volumes.matrix(a, wall), (p - u).ravel(), u.ravel()
        pairs.append((e @ (A @ e), v @ (A @ v)))
    error, size = np.asarray(pairs).T
    return np.asarray(np.sqrt(error / size))


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


def frames_l2(found: Fields, truth: Fields) -> Errors:
    """Return the relative L2 error of every frame `[sample, frame]` `[sample, frame, ...]`."""
    return relative_l2(found.reshape(-1, *found.shape[2:]), truth.reshape(-1, *truth.shape[2:])).reshape(
        truth.shape[:2]
    )


def vrmse(found: Fields, truth: Fields) -> Errors:
    """Return the root mean square error over the truth's deviation in space, as The Well counts: `[sample, frame]`.

    What The Well adds to a variance, 1e-7, is a part of that of the whole trajectory here, whose unit may be any.
    """
    error, size = flat(found) - flat(truth), flat(truth)
    least = 1e-7 * size.var(axis=(1, 2))[:, np.newaxis]
    return np.asarray(np.sqrt((error**2).mean(axis=-1) / (size.var(axis=-1) + least)))


def correlation(found: Fields, truth: Fields) -> Errors:
    """Return the correlation in space of prediction and truth: `[sample, frame]`; 0 where one is constant."""
    first, second = (each - each.mean(axis=-1, keepdims=True) for each in (flat(found), flat(truth)))
    sizes = np.linalg.norm(first, axis=-1) * np.linalg.norm(second, axis=-1)
    return np.divide((first * second).sum(axis=-1), sizes, out=np.zeros_like(sizes), where=sizes > 0)


def flat(frames: Fields) -> Errors:
    """Return `[sample, frame, (component), *grid]` as `[sample, frame, value]` in double precision."""
    return np.asarray(frames, dtype=np.float64).reshape(*frames.shape[:2], -1)


def bounded(errors: Errors) -> Errors:
    """Return errors of at most `LOST`, so that a rollout that overflows has a mean, too."""
    return np.minimum(np.nan_to_num(errors, nan=LOST, posinf=LOST), LOST)


def correlated_frames(correlations: Errors) -> NDArray[np.int64]:
    """Return for how many frames from the start the correlation stays at least `CORRELATED`: `[sample]`."""
    lost = correlations < CORRELATED
    return np.where(lost.any(axis=1), lost.argmax(axis=1), correlations.shape[1])


def spectrum(fields: Fields, axes: int) -> Errors:
    """Return the energy by wave number, summed over spheres of equal integer radius: `[sample, wave number]`."""
    sides = fields.shape[fields.ndim - axes :]
    over = tuple(range(fields.ndim - axes, fields.ndim))
    energy = np.abs(np.fft.fftn(np.asarray(fields, dtype=np.float64), axes=over) / np.prod(sides)) ** 2
    numbers = np.meshgrid(*(np.fft.fftfreq(side, 1 / side) for side in sides), indexing="ij")
    radius = np.rint(np.sqrt(sum(each**2 for each in numbers))).astype(int).ravel()
    whole = energy.reshape(len(fields), -1, radius.size).sum(axis=1)
    return np.stack([np.bincount(radius, each)[: min(sides) // 2 + 1] for each in whole])


MEASURES = (frames_l2, vrmse, correlation)


class Measures(NamedTuple):
    """Measures of rollouts, the mean over the outputs: `[trajectory, frame]`, but for `energy`."""

    errors: NDArray[np.float64]  # relative L2 errors, at most 1000
    vrmse: NDArray[np.float64]  # root mean square errors over the deviation in space, at most 1000
    correlation: NDArray[np.float64]  # correlations in space with the truth; 0 where a prediction overflows
    persistence: NDArray[np.float64]  # relative L2 errors of keeping the last given frame
    # `[trajectory, 2, wave number]`: energy of the last frame of truth and prediction, of the first output.
    energy: NDArray[np.float64]

    @classmethod
    @torch.inference_mode()
    def of(cls, work: Any, network: Any, split: str) -> Measures:
        """Measure the whole rollouts from the first frames of a split's trajectories."""
        found = [cls.of_batch(work, network, batch) for batch in work.batches(split, work.longest)]
        return cls._make(np.concatenate(each) for each in zip(*found, strict=True))

    @classmethod
    def of_batch(cls, work: Any, network: Any, batch: Batch) -> Measures:
        """Measure one batch of rollouts."""
        truth = [each.numpy() for each in batch.outputs]
        predicted, still = (
            [each.numpy() for each in some] for some in (work.predictions(network, batch), work.naive(batch))
        )
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # a rollout may overflow
            errors, vrmse, correlation = (
                np.mean([measure(*pair) for pair in zip(predicted, truth, strict=True)], axis=0) for measure in MEASURES
            )
            axes = len(work.file.axes)
            energy = np.stack([spectrum(each[:, -1], axes) for each in (truth[0], predicted[0])], axis=1)
        persistence = np.mean([frames_l2(*pair) for pair in zip(still, truth, strict=True)], axis=0)
        errors, vrmse = (bounded(each) for each in (errors, vrmse))
        return cls(errors, vrmse, np.nan_to_num(correlation), persistence, np.nan_to_num(energy, posinf=0.0))

    def summary(self, step: float, held: NDArray[np.float64] | None = None) -> dict[str, Any]:
        """Return the card's figures; errors `held` `[trajectory, frame]` give the error estimates of the frames."""
        truth, predicted = self.energy.mean(axis=0)
        rows = [*self.rows(step)]
        if held is not None:
            rows = estimates(rows, held, self.errors)
        return {
            "rollout": rows,
            "correlation_time": float(step * correlated_frames(self.correlation).mean()),
            "spectrum": {
                "truth": [significant(float(value)) for value in truth],
                "model": [significant(float(value)) for value in predicted],
            },
        }

    def rows(self, step: float) -> Iterator[dict[str, float]]:
        """Return a row per frame: means over the trajectories, with the standard error of the relative error."""
        count = len(self.errors)
        spread = (
            self.errors.std(axis=0, ddof=1) / np.sqrt(count) if count > 1 else np.full(self.errors.shape[1], np.nan)
        )
        for index in range(self.errors.shape[1]):
            figures = {
                "frame": index + 1,
                "time": (index + 1) * step,
                "relative_l2": self.errors[:, index].mean(),
                "standard_error": spread[index],
                "vrmse": self.vrmse[:, index].mean(),
                "correlation": self.correlation[:, index].mean(),
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
        {**row, "error_estimate": limit, "trajectories": len(tested), **coverage(errors <= limit)}
        for row, limit, errors in zip(rows, limits, tested.T, strict=True)
    ]


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
