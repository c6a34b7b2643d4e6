"""The released models of trajectories beside their solvers on coarser grids with larger steps, error against time.

All run on one thread, on the test trajectories in one batch, one after the other, round by round. The error of a frame
is the mean relative L2 distance to the trajectory that the solver made with its own step, with its standard error over
the trajectories; the time is the median processor time per trajectory and frame. Truth and coarse solutions are carried
between grids by their Fourier series. The trajectories' own error is their distance from finer ones, computed once. FNO
is trained anew, or its row of the last time is kept.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter
from numpy.typing import NDArray

from benchmarks.trajectories import fno_baseline
from benchmarks.trajectories.endurance import measured
from physics import burgers, kuramoto_sivashinsky, navier_stokes
from training import checkpoint
from training.data.own_samples import prepare
from training.data.trajectory_samples import TrajectorySamples
from training.evaluation import norms
from training.operators.navier_stokes import NavierStokesOperator
from training.operators.trajectory import TrajectoryOperator
from training.problems.generated import GENERATED

if TYPE_CHECKING:
    from pathlib import Path

Array = NDArray[np.float64]
Solve = Callable[[Array, int, Array, float], Array]
Solution = tuple[Array, float]
"""Frames `[trajectory, frame, *grid]` and the processor seconds that they took."""


class Resolution(NamedTuple):
    """A size of the solver in the graph; see `NavierStokesConfig`."""

    resolved: int
    substeps: int


TRAJECTORIES = 16
FINER = (Resolution(12, 12), Resolution(14, 16), Resolution(16, 20))
"""Sizes of the solver inside of the network with which it is measured alone, its own size first."""
ROUNDS = 3
TRUTH = "the trajectories' own error: twice the points, half the step"
SHOWN = (1, 5, 10, 20)
HEADER = ("method", "milliseconds per frame", *(f"frame {frame}" for frame in SHOWN))
Row = dict[str, Any]


@dataclass(frozen=True)
class Setting:
    """A solver's grids and steps to compare with.

    Attributes:
        solve: Maps initial fields, frames, parameters and a step to the frames that follow.
        points: Points per axis.
        steps: Time steps.
        own_step: The time step of the trajectories themselves.
    """

    solve: Solve
    points: tuple[int, ...]
    steps: tuple[float, ...]
    own_step: float


SETTINGS = {
    "kuramoto_sivashinsky": Setting(
        lambda start, frames, length, step: kuramoto_sivashinsky.solve(start, frames, 2.0, length, step),
        (24, 32, 48, 64),
        (1.0, 0.5, 0.25, 0.1),
        kuramoto_sivashinsky.STEP,
    ),
    "navier_stokes": Setting(
        lambda start, frames, viscosity, step: navier_stokes.solve(start, frames, 1.0, viscosity, step),
        (16, 24, 32, 48, 64),
        (0.25, 0.125, 0.0625),
        navier_stokes.STEP,
    ),
}


def measure(
    name: str, checkpoints: Path, data: Path, kept: Sequence[Row] = (), seconds: float | None = None
) -> list[Row]:
    """Measure a model, FNO, persistence, and the model's solver with several settings.

    Args:
        name: A name of `SETTINGS`.
        checkpoints: The folder of released checkpoints.
        data: The folder of samples.
        kept: Rows of an earlier measurement, of which FNO's is kept.
        seconds: Processor time of FNO's training; None to keep its row.
    """
    torch.set_num_threads(1)
    truth, numbers = trajectories(name, data, "test")
    network, setting = loaded(name, checkpoints), SETTINGS[name]
    methods: dict[str, Callable[[], Solution]] = {"network": partial(predicted, network, truth, numbers)}
    if isinstance(network, NavierStokesOperator):
        for finer in FINER:
            alone = NavierStokesOperator(network.config.model_copy(update=finer._asdict()))
            method = f"the network's solver alone, {finer.resolved} waves, {finer.substeps} steps"
            methods[method] = partial(uncorrected, alone, truth, numbers)
    still = np.broadcast_to(truth[:, :1], truth[:, 1:].shape)
    methods["keeping the first frame"] = lambda: (still, 0.0)
    for points in setting.points:
        for step in setting.steps:
            method = f"solver, {points} points per axis, step {step:g}"
            methods[method] = partial(solved, setting, points, step, truth, numbers)
    with ExitStack() as stack:
        if seconds is not None:
            asked = fno_baseline.request(name, data, seconds)
            used = fno_baseline.trained(asked)["seconds"]
            method = f"{fno_baseline.METHOD}, {used:.0f} seconds of training"
            methods[method] = stack.enter_context(fno_baseline.rollouts(asked, truth, numbers))
        found = interleaved(methods, ROUNDS)
    doubled = solved(setting, 2 * truth.shape[-1], setting.own_step / 2, truth, numbers)
    rows = [*(row(method, each, truth) for method, each in found.items()), row(TRUTH, doubled, truth)]
    return ordered(rows if seconds is not None else [*rows, *filter(is_fno, kept)])


def interleaved(methods: Mapping[str, Callable[[], Solution]], rounds: int) -> dict[str, Solution]:
    """Run all methods one after the other, round by round, and return their frames and median times."""
    found = [{method: work() for method, work in methods.items()} for _ in range(rounds)]
    return {
        method: (frames, statistics.median(each[method][1] for each in found))
        for method, (frames, _) in found[0].items()
    }


def ordered(rows: list[Row]) -> list[Row]:
    """Return the rows in the order of the table: the network, FNO, and the others as they are."""
    return [rows[0], *filter(is_fno, rows), *(each for each in rows[1:] if not is_fno(each))]


def trajectories(name: str, data: Path, split: str) -> tuple[Array, Array]:
    """Return trajectories `[trajectory, frame, *grid]` of a problem, which are made where they are missing.

    Args:
        name: The problem's name.
        data: The folder of samples.
        split: Which of them.

    Returns:
        The trajectories, and the parameter `[trajectory]`.
    """
    generated = GENERATED[name]
    generated.write(data)
    samples = TrajectorySamples(prepare(generated.file, data, data), generated.file)
    rows = slice(*(samples.split(split).start + each for each in (0, TRAJECTORIES)))
    [output], [parameter] = generated.file.outputs, generated.file.parameters
    return samples.file[output][rows].astype(np.float64), samples.file[parameter][rows].astype(np.float64)


def loaded(name: str, checkpoints: Path) -> TrajectoryOperator:
    """Return a released model of trajectories.

    Raises:
        TypeError: It is another model.
    """
    network = checkpoint.load(checkpoints / name).operator
    if not isinstance(network, TrajectoryOperator):
        raise TypeError(f"{name}: expected a model of trajectories but found {type(network).__name__}")
    return network


def endurance(name: str, checkpoints: Path, data: Path) -> Row:
    """Roll out from all validation trajectories; see `endurance.measured`.

    Args:
        name: A name of `SETTINGS`.
        checkpoints: The folder of released checkpoints.
        data: The folder of samples.
    """
    truth, numbers = trajectories(name, data, "validation")
    return measured(loaded(name, checkpoints), truth, numbers)


@torch.inference_mode()
def uncorrected(network: NavierStokesOperator, truth: Array, numbers: Array) -> Solution:
    """Return the frames of the solver of a network without its correction, and the seconds they took."""
    network.prepared(*(torch.ones(1, *truth.shape[2:]), torch.ones(1)))
    state, viscosity = (torch.from_numpy(each.astype(np.float32)) for each in (truth[:, 0], numbers))
    started, found = time.process_time(), []
    for _ in range(truth.shape[1] - 1):
        state = network.prepared(state, viscosity)[0]
        found.append(state)
    return torch.stack(found, dim=1).double().numpy(), time.process_time() - started


@torch.inference_mode()
def predicted(network: TrajectoryOperator, truth: Array, numbers: Array) -> Solution:
    """Return the network's frames, and the seconds they took."""
    inputs = [torch.from_numpy(each.astype(np.float32)) for each in (truth[:, 0], numbers)]
    network.rollout(inputs, 1)
    started = time.process_time()
    [found] = network.rollout(inputs, truth.shape[1] - 1)
    return found.double().numpy(), time.process_time() - started


def solved(setting: Setting, points: int, step: float, truth: Array, numbers: Array) -> Solution:
    """Return a solver's frames, and the seconds they took; not a number where it overflows."""
    start = carried(truth[:, 0], points)
    started = time.process_time()
    try:
        with np.errstate(all="ignore"):
            found = setting.solve(start, truth.shape[1] - 1, numbers, step)
    except FloatingPointError:
        return np.full_like(truth[:, 1:], np.nan), time.process_time() - started
    taken = time.process_time() - started
    return carried(found, truth.shape[-1], axes=truth.ndim - 2), taken


def carried(fields: Array, points: int, axes: int | None = None) -> Array:
    """Carry fields `[..., *grid]` to as many points per axis by their Fourier series.

    Args:
        fields: The fields.
        points: Points per axis.
        axes: Axes of the grid; all but the first by default.
    """
    for axis in range(fields.ndim - (fields.ndim - 1 if axes is None else axes), fields.ndim):
        fields = np.moveaxis(burgers.interpolate(np.moveaxis(fields, axis, -1), points), -1, axis)
    return fields


def row(method: str, found: Solution, truth: Array) -> Row:
    """Return what is kept of one method."""
    frames, seconds = found
    errors = norms.bounded(norms.frames_l2(frames, truth[:, 1:]))
    spread = errors.std(axis=0, ddof=1) / np.sqrt(len(errors)) if len(errors) > 1 else np.zeros(errors.shape[1])
    return {
        "method": method,
        "milliseconds": short(1e3 * seconds / (frames.shape[0] * frames.shape[1])),
        "errors": [short(each) for each in errors.mean(axis=0)],
        "standard_errors": [short(each) for each in spread],
    }


def short(value: float) -> float:
    """Return a number with three digits."""
    return float(f"{value:.3g}")


def is_fno(found: Row) -> bool:
    """Return whether a row is FNO's."""
    return str(found["method"]).startswith(fno_baseline.METHOD)


def is_setting(found: Row) -> bool:
    """Return whether a row is that of a solver's setting."""
    return str(found["method"]).startswith("solver,")


def cells(rows: list[Row]) -> list[tuple[str, ...]]:
    """Return the table: the network, persistence, and the cheapest settings of the solver for each error."""
    settings = sorted((each for each in rows if is_setting(each)), key=lambda each: float(each["milliseconds"]))
    best, shown = 1.0, [each for each in rows if not is_setting(each)]  # a solver that overflows is not shown
    for each in settings:
        if each["errors"][0] < best:
            best = each["errors"][0]
            shown.append(each)
    return [
        (
            each["method"],
            f"{each['milliseconds']:.3g}" if each["milliseconds"] else "",
            *(error(each, frame) for frame in SHOWN),
        )
        for each in shown
    ]


def error(found: Row, frame: int) -> str:
    """Return the mean error of a frame and its standard error, the latter with one digit."""
    return f"{found['errors'][frame - 1]:.2g} ± {found['standard_errors'][frame - 1]:.1g}"


def draw(rows: list[Row], path: Path) -> None:
    """Draw the error of the first frame against the time per frame.

    Args:
        rows: What `measure` has found.
        path: The picture's file.
    """
    network, still = rows[0], next(each for each in rows if each["method"].startswith("keeping"))
    known = [each for each in rows if is_setting(each) and each["errors"][0] < 1]
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    times, errors = ([each["milliseconds"] for each in known], [each["errors"][0] for each in known])
    axes.loglog(times, errors, "o", label="solver, coarser grids and larger steps")
    axes.loglog(network["milliseconds"], network["errors"][0], "s", label="network")
    for each in filter(is_fno, rows):
        axes.loglog(each["milliseconds"], each["errors"][0], "^", label="FNO")
    axes.axhline(still["errors"][0], linestyle="--", color="gray", label="keeping the first frame")
    axes.set_xlabel("milliseconds of one core per frame")
    axes.set_ylabel("relative L2 error of the first frame")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    figure.legend(loc="outside upper center", ncols=2)  # where no point is
    figure.savefig(path, dpi=100)
