"""Presets for a user's data: sizes of the network from the grid, and epochs from the time that a step takes."""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
import torch

from training.data.own_samples import OwnSamples
from training.fit.own.workload import OwnTask, as_batch
from training.fit.task import Task
from training.operators import build
from training.operators.field import FieldConfig, Scale
from training.problems.problem import Problem
from training.problems.schema import Axis, Quantity
from training.recipes.own import OwnFit, OwnRecipe

DECADES = 30.0
"""A positive quantity whose largest value is this many times its least enters by its logarithm."""
TOKENS = {1: 64, 2: 400, 3: 512}
"""About how many tokens a grid is cut into, by the number of axes."""
POINTS = 8192
"""About how many points a batch holds: in the same time, more steps are worth more than larger batches."""
BATCHES = (4, 8)
"""The smallest and the largest batch; batches are powers of two, which several processes can share."""
RATE = 5e-3
TRIALS = 4
"""The least number of steps that are timed, and an eighth of the most."""
PATIENCE = 2.0
"""Seconds after which no more steps are timed."""


@dataclass(frozen=True)
class Preset:
    """How large and how long.

    Attributes:
        seconds: Of training; the epochs are chosen to fill them. The trainings on parts of the data for the report take
            three quarters of them in addition.
        channels: Features of a token.
        layers: Encoder layers.
        detail: Channels on the working grid.
        modes: Wave numbers per axis, by the number of axes.
        spectral: Spectral layers, by the number of axes.
        most: Most epochs.
        average: Decay per step of the weights' exponential mean; 0 for none.
    """

    seconds: float
    channels: int
    layers: int
    detail: int
    modes: dict[int, int]
    spectral: dict[int, int]
    most: int
    average: float = 0.99


PRESETS = {
    "tiny": Preset(8.0, 16, 1, 8, {1: 8, 2: 6, 3: 4}, {1: 2, 2: 2, 3: 2}, 20, average=0.0),
    "quick": Preset(300.0, 64, 1, 32, {1: 16, 2: 8, 3: 6}, {1: 4, 2: 4, 3: 3}, 500),
    "laptop": Preset(5400.0, 96, 3, 48, {1: 32, 2: 12, 3: 8}, {1: 4, 2: 4, 3: 4}, 1500),
}


def recipe(samples: OwnSamples, name: str, seed: int | None = None) -> OwnRecipe:
    """Write the recipe of a preset for prepared samples.

    Args:
        samples: The samples.
        name: A name of `PRESETS`.
        seed: The problem file's by default.

    Raises:
        ValueError: There is no such preset.
    """
    if name not in PRESETS:
        raise ValueError(f"expected a preset among {', '.join(PRESETS)} but got {name!r}")
    problem, preset = samples.problem, PRESETS[name]
    operator, fit = network(samples, preset), fitting(samples, preset)
    epochs = affordable(samples, operator, fit, preset)
    return OwnRecipe(
        model=problem.name,
        preset=name,
        problem=problem,
        samples=samples.path.name,
        seed=problem.seed if seed is None else seed,
        operator=operator,
        fit=fit.model_copy(update={"epochs": epochs}),
    )


def fitting(samples: OwnSamples, preset: Preset) -> OwnFit:
    """Choose batch, rate and averaging of a training of one epoch."""
    least, most = BATCHES
    fits = int(np.clip(POINTS / np.prod(samples.sides), least, most))
    batch = min(2 ** int(np.log2(fits)), max(1, samples.counts[0] // 8))
    return OwnFit(epochs=1, batch=batch, learning_rate=RATE, average=preset.average)


def network(samples: OwnSamples, preset: Preset) -> FieldConfig:
    """Choose the sizes of a network."""
    problem = samples.problem
    return FieldConfig(
        input_components=components(problem.inputs),
        input_scales=scales(samples, problem.inputs),
        output_components=components(problem.outputs),
        output_scales=scales(samples, problem.outputs),
        **sizes(samples, preset),
    )


def sizes(samples: OwnSamples, preset: Preset) -> dict[str, Any]:
    """Choose everything of a network but its input and output fields."""
    problem, sides = samples.problem, samples.sides
    axes = list(problem.axes.values())
    patch = next(size for size in count(1) if np.prod([-(-side // size) for side in sides]) <= TOKENS[len(sides)])
    return {
        "parameter_scales": tuple(
            "log" if (section.minimum or 0) > 0 and spread(samples, name) > DECADES else "linear"
            for name, section in problem.parameters.items()
        ),
        "periodic": tuple(axis.boundary == "periodic" for axis in axes),
        "points": tuple(axis.points for axis in axes),
        "working": sides,
        "translation": tuple(f"shift_{name}" in problem.symmetries.exact for name in problem.axes),
        "patch": patch,
        "channels": preset.channels,
        "layers": preset.layers,
        "feedforward": 2 * preset.channels,
        "detail": preset.detail,
        "spectral": preset.spectral[len(sides)],
        "modes": min(preset.modes[len(sides)], *(modes(side, axis) for side, axis in zip(sides, axes, strict=True))),
    }


def modes(side: int, axis: Axis) -> int:
    """Return the most wave numbers that an axis resolves."""
    return side // 2 + 1 if axis.boundary == "periodic" else side


def components(sections: dict[str, Quantity]) -> tuple[int, ...]:
    """Return the number of components per field, 0 for a scalar."""
    return tuple(len(section.components) for section in sections.values())


def scales(samples: OwnSamples, sections: dict[str, Quantity]) -> tuple[Scale, ...]:
    """Choose the logarithm for positive fields that span decades."""
    return tuple(
        "log" if section.positive and spread(samples, name) > DECADES else "linear"
        for name, section in sections.items()
    )


def spread(samples: OwnSamples, name: str) -> float:
    """Return the ratio of a positive tensor's largest value to its least."""
    return samples.statistic(name, "maximum") / samples.statistic(name, "minimum")


def affordable(samples: OwnSamples, operator: FieldConfig, fit: OwnFit, preset: Preset) -> int:
    """Return the epochs that fill a preset's time, from the time of a few steps."""
    description = samples.problem.describe(samples.sides, samples.counts[0])
    task = OwnTask(build(operator), fit, 0, samples, Problem(description=description))
    batch = as_batch(samples, slice(0, fit.batch))
    task.operator.fit_normalisers(*batch.inputs, *batch.outputs)
    return epochs(step_seconds(task, batch) * task.order.steps, preset)


def epochs(seconds: float, preset: Preset) -> int:
    """Return how many epochs of some seconds fill a preset's time."""
    return int(np.clip(preset.seconds / seconds, 1, preset.most))


def step_seconds(task: Task[Any], batch: Any) -> float:
    """Return the median seconds of the last few steps of some; the first ones are slower."""
    times: list[float] = []
    while len(times) < TRIALS or (len(times) < 8 * TRIALS and sum(times) < PATIENCE):
        times.append(step(task, batch))
    return float(np.median(times[-(len(times) - 1) // 2 :]))


def step(task: Task[Any], batch: Any) -> float:
    """Return the seconds of one forward and backward pass and one update.

    On a busy machine it is the processor time, which other programs do not lengthen.
    """
    optimiser = torch.optim.AdamW(task.network.parameters(), lr=1e-5)
    started, used = time.perf_counter(), time.process_time()
    task.objective(batch).backward()
    optimiser.step()
    optimiser.zero_grad()
    return min(time.perf_counter() - started, time.process_time() - used)
