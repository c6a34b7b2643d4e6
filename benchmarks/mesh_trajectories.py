r"""The comparison of networks on trajectories on meshes, at equal processor time.

The data are those of `benchmarks.mesh_solvers`: 200 trajectories to train, 20 to validate, 40 to test, of 50 frames
after the first one. Petrov is what `fit --preset quick` makes of the problem file. The others step as it does, by an
increment at the points: MeshGraphNet (Pfaff et al., ICLR 2021) on the edges of the triangles, Transolver (Wu et al.,
ICML 2024), and neuraloperator's FNO on a grid that the fields of the points are interpolated to. All see the same
fields; they are trained in single steps with noise on the state, which the increment has to take back, as MeshGraphNet
was published. The rate of each, then its noise, are chosen on validation trajectories of one of the problems. Test
trajectories are used once per final training.
"""

from __future__ import annotations

import itertools
import json
import math
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.harness import ResultFile, Row
from benchmarks.loop import LOST, Settings, descend, order
from benchmarks.mesh_networks import GridNetwork, Meshes, MeshGraphNet, Step, Transolver

COUNTS = (200, 20, 40)  # trajectories to train, to validate and to test
SHOWN, LASTING = (1, 10, 50), 500  # frames that are shown, and the length of the rollouts that have to stay finite
STILL, FNO, TRANSOLVER, MESHGRAPHNET, PETROV = TITLES = (
    "keeping the first frame",
    "FNO on a grid",
    "Transolver",
    "MeshGraphNet",
    "Petrov",
)
TUNING, TUNING_SEED, TUNED_ON = 25.0, 100, "heat"  # processor seconds, a seed, and the problem of the choices
BATCH = 8
PARTS = 4  # trajectories whose rollouts are computed together
#: Of each network sizes and loss, the latter as it was published, and what is chosen from, the first one by default.
SIZES: dict[str, dict[str, int]] = {
    FNO: {"side": 32, "modes": 16},
    TRANSOLVER: {},
    MESHGRAPHNET: {"width": 32, "steps": 10},
}
LOSS = {FNO: "relative", TRANSOLVER: "relative", MESHGRAPHNET: "squares"}
RATES = {FNO: (2e-3, 5e-3), TRANSOLVER: (1e-3, 3e-3), MESHGRAPHNET: (1e-3, 3e-3)}
NOISES = {FNO: (0.0, 3e-3), TRANSOLVER: (0.0, 3e-3), MESHGRAPHNET: (3e-3, 2e-2)}  # in deviations of the state
Array = NDArray[Any]


class DataSet(NamedTuple):
    """The names of a solver's arrays; all have `boundary` and `distance` besides."""

    state: str
    fields: dict[str, int]  # with the number of their components, 0 for none
    numbers: tuple[str, ...] = ()


SETS = {
    "heat": DataSet("heat", {"source": 0}),
    "drift": DataSet("dye", {"wind": 2}, ("kappa",)),
    "cavity": DataSet("velocity", {}, ("lid", "viscosity")),
}


# The samples


def read(file: Path, name: str) -> Meshes:
    """Read the trajectories of a solver."""
    with np.load(file) as arrays:
        values = {key: torch.from_numpy(arrays[key]) for key in arrays.files}
    names, states = SETS[name], values[SETS[name].state].float()
    states = states if states.ndim == 4 else states[..., None]
    points = states.shape[2]
    weight = (torch.arange(points) < values["n"][:, None]).float()[:, :, None]
    fields = [values[key].float() for key in (*names.fields, "boundary", "distance")]
    steady = [each if each.ndim == 3 else each[:, :, None] for each in fields]
    steady += [values[key].float()[:, None, None].expand(-1, points, 1) for key in names.numbers]
    return Meshes(values["xy"].float(), weight, torch.cat(steady, dim=2) * weight, values["triangles"].long(), states)


def split(meshes: Meshes, name: str) -> Meshes:
    """Return the samples of a split."""
    ends = np.cumsum((0, *COUNTS))
    index = ("train", "validation", "test").index(name)
    return meshes[slice(*map(int, ends[index : index + 2]))]


# The networks


NETWORKS: dict[str, Callable[..., Any]] = {FNO: GridNetwork, TRANSOLVER: Transolver, MESHGRAPHNET: MeshGraphNet}


def built(title: str, sizes: dict[str, Any], training: Meshes) -> Step:
    """Build a network for its training samples."""
    components = training.states.shape[3]
    return Step(NETWORKS[title](components + training.steady.shape[2], components, training, **sizes), training)


# Training and measures


def loss(step: Step, batch: Meshes, before: Tensor, after: Tensor, kind: str) -> Tensor:
    """Return the mean square of the increments' errors in deviations, or the mean relative error of the next states."""
    if kind == "relative":
        apart, truth = (each.flatten(1).norm(dim=1) for each in (step(before, batch) - after, after))
        relative: Tensor = (apart / truth).mean()
        return relative
    mean, spread = step.increment_moments
    target = (after - before - mean) / spread
    errors = (step.standard(before, batch) - target).square() * batch.weight
    squares: Tensor = errors.sum() / (batch.weight.sum() * errors.shape[2])
    return squares


def train(
    step: Step, meshes: Meshes, settings: Settings, seconds: float, seed: int, kind: str, noise: float
) -> tuple[float, int]:
    """Train in single steps from noisy states, and return the processor seconds and steps it took."""
    batches = order(len(meshes) * (meshes.states.shape[1] - 1), settings.batch, seed)
    return descend(step, settings, seconds, lambda: objective(step, meshes, next(batches), kind, noise))


def objective(step: Step, meshes: Meshes, chosen: Tensor, kind: str, noise: float) -> Tensor:
    """Return the loss of a step from frames that are chosen by their numbers among those of all samples."""
    frames = meshes.states.shape[1] - 1
    rows, starts = chosen // frames, chosen % frames
    batch, index = meshes[rows], torch.arange(len(rows))
    before, after = batch.states[index, starts], batch.states[index, starts + 1]
    if noise:
        before = before + noise * step.state_moments[1] * torch.randn_like(before) * batch.weight
    return loss(step, batch, before, after, kind)


Rollout = Callable[[Meshes, int], Iterator[Tensor]]
"""Yields the states `[sample, point, component]` that follow the first ones of a batch of meshes."""


@torch.inference_mode()
def rollout(step: Step, batch: Meshes, frames: int) -> Iterator[Tensor]:
    """Yield the states that a network's steps make."""
    state = batch.states[:, 0]
    for _ in range(frames):
        state = step(state, batch)
        yield state


def still(batch: Meshes, frames: int) -> Iterator[Tensor]:
    """Yield the first state."""
    return (batch.states[:, 0] for _ in range(frames))


def measure(roll: Rollout, meshes: Meshes, frames: int) -> tuple[Array, int]:
    """Return the relative L2 errors `[sample, frame]` of rollouts, and how many are finite for so many frames."""
    errors, finite = [], 0
    for rows in torch.arange(len(meshes)).split(PARTS):
        batch, parts, lasting = meshes[rows], [], torch.ones(len(rows), dtype=torch.bool)
        for number, found in enumerate(roll(batch, frames), start=1):
            lasting &= torch.isfinite(found).flatten(1).all(dim=1)
            if number < batch.states.shape[1]:
                truth = batch.states[:, number].flatten(1)
                parts.append((found.flatten(1) - truth).norm(dim=1) / truth.norm(dim=1))
        errors.append(torch.stack(parts, dim=1).nan_to_num(nan=LOST, posinf=LOST).clamp(max=LOST))
        finite += int(lasting.sum())
    return torch.cat(errors).double().numpy(), finite


def fitted(request: dict[str, Any]) -> tuple[Rollout, dict[str, Any]]:
    """Train as `fit` does from the problem file, and return the rollouts and facts of the training."""
    from benchmarks import own_data  # noqa: PLC0415 -- imports more than the environment of the others has

    operator, facts = own_data.fitted(request, "mesh-trajectories")
    names: Any = SETS[request["prepared"]["set"]]
    widths = [*names.fields.values(), 0, 0]

    @torch.inference_mode()
    def roll(batch: Meshes, frames: int) -> Iterator[Tensor]:
        *fields, numbers = batch.steady.split([*(max(1, each) for each in widths), len(names.numbers)], dim=2)
        fields = [each if wide else each[:, :, 0] for each, wide in zip(fields, widths, strict=True)]
        state = batch.states[:, 0] if batch.states.shape[3] > 1 else batch.states[:, 0, :, 0]
        counts = batch.weight[:, :, 0].sum(dim=1)
        rolled: Any = operator
        [found] = rolled.rollout([batch.coordinates, state, *fields, counts, *numbers[:, 0].unbind(1)], frames)
        yield from (found if found.ndim == 4 else found[..., None]).unbind(1)

    return roll, facts | {"parameters": sum(each.numel() for each in operator.parameters())}


def main(request: dict[str, Any]) -> dict[str, Any]:
    """Train a network and measure its rollouts on the requested split.

    Args:
        request: `network`, a title or `petrov`, its `sizes` and `settings`, `loss` and `noise`, `seconds`, `seed`,
            `split`, `frames` of the rollouts, and `prepared` (`file` and `set`, and for Petrov `problem` and `counts`).

    Returns:
        The mean error of all frames and its standard error; the errors of all samples at the frames that are shown;
        how many rollouts are finite; facts of the training.
    """
    torch.set_num_threads(1)
    torch.manual_seed(request["seed"])
    meshes = read(Path(request["prepared"]["file"]), request["prepared"]["set"])
    training, held = split(meshes, "train"), split(meshes, request["split"])
    roll: Rollout = still
    facts: dict[str, Any] = {}
    if request["network"] == "petrov":
        roll, facts = fitted(request)
    elif request["network"] != STILL:
        step = built(request["network"], request["sizes"], training)
        training, held = (replace(each, known=step.network.of_meshes(each)) for each in (training, held))
        settings = Settings(**request["settings"])
        given = (request["seconds"], request["seed"], request["loss"], request["noise"])
        used, steps = train(step, training, settings, *given)
        epochs = steps * settings.batch / len(training) / (training.states.shape[1] - 1)
        facts = {"epochs": epochs, "steps": steps, "seconds": used}
        facts["parameters"] = sum(each.numel() for each in step.parameters())
        roll = partial(rollout, step.eval())
    frames = max(request.get("frames", 0), held.states.shape[1] - 1)
    errors, finite = measure(roll, held, frames)
    means = errors.mean(axis=1)
    shown = {str(frame): [float(f"{each:.4g}") for each in errors[:, frame - 1]] for frame in SHOWN}
    figures = {"error": float(means.mean()), "standard_error": float(means.std(ddof=1) / math.sqrt(len(means)))}
    return figures | {"samples": len(means), "errors": shown, "finite": finite} | facts


# The comparison


def prepared(name: str, folder: Path) -> dict[str, Any]:
    """Return where the trajectories of a solver are; they are made if there are none."""
    from benchmarks import mesh_solvers  # noqa: PLC0415 -- imports more than the environment of the others has

    file, problem = folder / f"{name}.npz", folder / f"mesh_{name}.toml"
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(Path(__file__).parent / "problems" / problem.name, problem)
    if not file.exists():
        mesh_solvers.write(name, folder, sum(COUNTS))
    return {"file": str(file), "set": name, "problem": str(problem), "counts": list(COUNTS)}


def candidate(title: str, rate: float | None = None, noise: float | None = None) -> dict[str, Any]:
    """Return a network with a rate and a level of noise, by default the first ones."""
    if title == STILL:
        return {"network": title}
    if title == PETROV:
        return {"network": "petrov"}
    settings = {"learning_rate": RATES[title][0] if rate is None else rate, "batch": BATCH}
    level = NOISES[title][0] if noise is None else noise
    return {"network": title, "sizes": SIZES[title], "settings": settings, "loss": LOSS[title], "noise": level}


def tuned(title: str, trained: Callable[[list[dict[str, Any]]], list[Row]]) -> dict[str, Any]:
    """Choose the rate of a network, then its level of noise, by the validation errors of short trainings."""
    chosen = candidate(title)
    for key, options in (("rate", RATES), ("noise", NOISES)) if title in SIZES else ():
        rate = chosen["settings"]["learning_rate"]
        tried = [candidate(title, **{"rate": rate, key: each}) for each in options[title]]
        chosen = min(zip(tried, trained(tried), strict=True), key=lambda pair: float(pair[1]["result"]["error"]))[0]
    return chosen


def compare(
    names: Sequence[str],
    titles: Sequence[str],
    seconds: float,
    seeds: int,
    kept: ResultFile,
    folder: Path,
    tuning: float = TUNING,
    frames: int = LASTING,
) -> Iterator[Row]:
    """Tune the networks on one of the problems for some seconds each, then train all, seed by seed.

    Rollouts of test trajectories have so many frames, those of validation trajectories as many as the data.
    """
    from benchmarks.own_data import complete, training  # noqa: PLC0415 -- imports more than the others' environment has

    module = "benchmarks.mesh_trajectories"
    data = {name: prepared(name, folder) for name in {*names, TUNED_ON}}

    def trained(title: str, tried: list[dict[str, Any]]) -> list[Row]:
        rows = [training(TUNED_ON, title, each, tuning, TUNING_SEED, "validation") for each in tried]
        return [*complete(rows, kept, data, 1, module)]

    choices = {title: tuned(title, partial(trained, title)) for title in titles}
    finals = [
        training(name, title, choices[title] | {"frames": frames}, seconds, seed, "test")
        for seed, name, title in itertools.product(range(seeds), names, titles)
        if title != STILL or seed == 0
    ]
    yield from complete(finals, kept, data, 1, module)


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
