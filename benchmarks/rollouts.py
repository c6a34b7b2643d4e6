"""Models of trajectories beside their solvers on coarser grids with larger steps, and beside FNO.

All roll out on one thread from the test trajectories in one batch, interleaved. The error of a frame is the mean
relative L2 distance to the trajectory that the solver made with its own step; the time is the median processor time per
trajectory and frame. Truth and coarse solutions are carried between grids by their Fourier series. FNO is trained on
single steps for some processor time. `benchmarks.trajectories` compares networks on a user's trajectories.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.harness import Array, Row, Side, Worker, interleave, result_of, timed
from physics import burgers, kuramoto_sivashinsky, navier_stokes
from training import checkpoint
from training.data import generate
from training.data.dataset import SampleFile
from training.evaluation import measures
from training.metrics import METRICS
from training.operators.navier_stokes import NavierStokesOperator
from training.operators.trajectory import TrajectoryOperator
from training.problems.problem import PROBLEMS

Solve = Callable[[Array, int, Array, float], Array]


NETWORK, FNO, STILL = "network", "FNO (neuraloperator)", "keeping the first frame"
TRUTH = "the trajectories' own error: twice the points, half the step"
TRAJECTORIES, ROUNDS, FRAMES_BOUNDED = 16, 3, 500
#: Waves and steps of the solver inside of `navier_stokes` with which it is measured alone, its own size first.
ALONE = ((12, 12), (14, 16), (16, 20))


@dataclass(frozen=True)
class Setting:
    """A solver's grids and steps to compare with, and the settings of FNO."""

    solve: Solve  # maps initial fields, frames, parameters and a step to the frames that follow
    points: tuple[int, ...]  # per axis
    steps: tuple[float, ...]
    own_step: float  # of the trajectories themselves
    fno: dict[str, Any]  # its sizes, with as many wave numbers as the released model has
    batch: int


SETTINGS = {
    "kuramoto_sivashinsky": Setting(
        lambda start, frames, length, step: kuramoto_sivashinsky.solve(start, frames, 2.0, length, step),
        (24, 32, 48, 64),
        (1.0, 0.5, 0.25, 0.1),
        kuramoto_sivashinsky.STEP,
        {"modes": 48},
        16,
    ),
    "navier_stokes": Setting(
        lambda start, frames, viscosity, step: navier_stokes.solve(start, frames, 1.0, viscosity, step),
        (16, 24, 32, 48, 64),
        (0.25, 0.125, 0.0625),
        navier_stokes.STEP,
        {"modes": 24, "increment": True},
        8,
    ),
}


def measure(name: str, checkpoints: Path, data: Path, kept: list[Row], seconds: float | None) -> list[Row]:
    """Measure a released model, FNO, persistence, and the model's solver with several settings."""
    torch.set_num_threads(1)
    truth, numbers = trajectories(name, data, "test")
    network, setting = loaded(checkpoints / name), SETTINGS[name]
    frames = truth.shape[1] - 1
    sides: dict[str, Side] = {NETWORK: timed(partial(predicted, network, frames=frames))}
    if isinstance(network, NavierStokesOperator):
        for resolved, substeps in ALONE:
            finer = network.config.model_copy(update={"resolved": resolved, "substeps": substeps})
            alone = timed(partial(uncorrected, NavierStokesOperator(finer), frames=frames))
            sides[f"the network's solver alone, {resolved} waves, {substeps} steps"] = alone
    sides[STILL] = lambda state, _: (np.broadcast_to(state[:, None], truth[:, 1:].shape), 0.0)
    for points in setting.points:
        for step in setting.steps:
            sides[f"solver, {points} points per axis, step {step:g}"] = partial(solved, setting, points, step, frames)
    with ExitStack() as stack:
        if seconds is not None:
            request = fno_request(name, data, seconds)
            write_trajectories(name, data, Path(request["file"]))
            used = trained(request)["seconds"]
            worker = Worker("benchmarks.networks:Rollout", "neuralop", request=request, frames=frames)
            sides[f"{FNO}, {used:.0f} seconds of training"] = stack.enter_context(worker)
        found = interleave(sides, [(truth[:, 0], numbers)], ROUNDS)
    rows = [row(method, each.outputs[0], each.seconds, truth) for method, each in found.items()]
    doubled = solved(setting, 2 * truth.shape[-1], setting.own_step / 2, frames, truth[:, 0], numbers)
    rows.append(row(TRUTH, *doubled, truth))
    return [*rows, *(each for each in kept if seconds is None and each["method"].startswith(FNO))]


def trajectories(name: str, data: Path, split: str) -> tuple[Array, Array]:
    """Return trajectories `[trajectory, frame, *grid]` of a built-in problem, and their parameter `[trajectory]`."""
    generated = PROBLEMS[name].require_trajectories()
    samples = SampleFile(generate.trajectories(generated, data), generated.file)
    start = samples.split(split).start
    [output], [parameter] = generated.file.outputs, generated.file.parameters
    found = (samples.file[each.name][start : start + TRAJECTORIES] for each in (output, parameter))
    fields, numbers = (each.astype(np.float64) for each in found)
    return fields, numbers


def loaded(folder: Path) -> TrajectoryOperator:
    """Return a trained model of trajectories."""
    network = checkpoint.load(folder).operator
    if not isinstance(network, TrajectoryOperator):
        raise TypeError(f"{folder}: expected a model of trajectories but found {type(network).__name__}")
    return network


@torch.inference_mode()
def predicted(network: TrajectoryOperator, *inputs: Array, frames: int) -> Array:
    """Return the network's frames."""
    [found] = network.rollout([torch.from_numpy(each.astype(np.float32)) for each in inputs], frames)
    return np.asarray(found.double().numpy())


@torch.inference_mode()
def uncorrected(network: NavierStokesOperator, state: Array, numbers: Array, *, frames: int) -> Array:
    """Return the frames of the solver of a network without its correction."""
    current, viscosity = (torch.from_numpy(each.astype(np.float32)) for each in (state, numbers))
    found = []
    for _ in range(frames):
        current = network.prepared(current, viscosity)[0]
        found.append(current)
    return np.asarray(torch.stack(found, dim=1).double().numpy())


def solved(
    setting: Setting, points: int, step: float, frames: int, state: Array, numbers: Array
) -> tuple[Array, float]:
    """Return a solver's frames, and the seconds they took; not a number where it overflows."""

    def work() -> Array:
        try:
            with np.errstate(all="ignore"):
                return setting.solve(start, frames, numbers, step)
        except FloatingPointError:
            return np.full((len(state), frames, *start.shape[1:]), np.nan)

    start = carried(state, points, state.ndim - 1)
    found, seconds = timed(work)()
    return carried(found, state.shape[-1], state.ndim - 1), seconds


def carried(fields: Array, points: int, axes: int) -> Array:
    """Carry fields to as many points on each of their last axes by their Fourier series."""
    for axis in range(fields.ndim - axes, fields.ndim):
        fields = np.moveaxis(burgers.interpolate(np.moveaxis(fields, axis, -1), points), -1, axis)
    return fields


def row(method: str, frames: Array, seconds: float, truth: Array) -> Row:
    """Return what is kept of one method: means and standard errors over the trajectories, per frame."""
    pairs = zip(frames, truth[:, 1:], strict=True)
    errors = measures.bounded(np.stack([METRICS.items["relative_l2"](*pair) for pair in pairs]))
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


def fno_request(name: str, data: Path, seconds: float) -> dict[str, Any]:
    """Return the request of FNO's training on a built-in problem; see `networks.main` and `write_trajectories`."""
    file, setting = PROBLEMS[name].require_trajectories().file, SETTINGS[name]
    return {
        "network": "fno",
        "sizes": setting.fno,
        "settings": {"batch": setting.batch},
        "file": str(data / f"fno-{name}-trajectories.npz"),
        "state": "state",
        "parameter": "parameter",
        "held": [file.data.validation, file.data.test],
        "seconds": seconds,
        "seed": 0,
        "weights": str(data / f"fno-{name}-{seconds:g}.npz"),
    }


def write_trajectories(name: str, data: Path, target: Path) -> None:
    """Write all trajectories of a built-in problem and their parameter as FNO's environment reads them."""
    generated = PROBLEMS[name].require_trajectories()
    samples = SampleFile(generate.trajectories(generated, data), generated.file)
    [output], [parameter] = generated.file.outputs, generated.file.parameters
    np.savez(target, state=samples.file[output.name][:], parameter=samples.file[parameter.name][:])


def trained(request: dict[str, Any]) -> dict[str, Any]:
    """Train FNO unless that is done, and return the result."""
    file = Path(request["weights"]).with_suffix(".json")
    if not file.exists():
        file.write_text(json.dumps(result_of("benchmarks.networks", "neuralop", request)))
    found: dict[str, Any] = json.loads(file.read_text())
    return found


@torch.inference_mode()
def bounded(network: TrajectoryOperator, truth: Array, *numbers: Array) -> Row:
    """Return how many rollouts stay finite for 500 frames, and the largest value beside that of the truth."""
    inputs = [torch.from_numpy(each.astype(np.float32)) for each in (truth[:, 0], *numbers)]
    [found] = network.rollout(inputs, FRAMES_BOUNDED)
    finite = torch.isfinite(found).flatten(2).all(dim=2)  # [trajectory, frame]
    return {
        "trajectories": len(truth),
        "frames": FRAMES_BOUNDED,
        "finite": int(finite.all(dim=1).sum()),
        "shortest": int(finite.sum(dim=1).min()),
        "largest": short(float(found[finite].abs().max())),
        "largest_of_truth": short(float(np.abs(truth).max())),
    }
