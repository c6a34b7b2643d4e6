"""Presets for a user's trajectories: the sizes of a static problem's network, and longer and longer rollouts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from training.data.trajectory_samples import TrajectorySamples
from training.fit.own.preset import POINTS, PRESETS, RATE, Preset, components, epochs, scales, sizes, step_seconds
from training.fit.trajectories.band import OVERSAMPLING, working_grid
from training.fit.trajectories.rollout import history
from training.fit.trajectories.task import TrajectoryTask
from training.operators import build
from training.operators.field import FieldConfig, Scale
from training.operators.trajectory import TrajectoryConfig
from training.problems.problem import Problem
from training.problems.problem_file import ProblemFile
from training.problems.schema import Quantity
from training.recipes.trajectory import RolloutFit, TrajectoryRecipe

UNROLL = (1, 1, 2)
"""Steps of training rollouts, each for an equal share of the epochs."""
LONGER = 1.2
"""Of a preset's time: the report trains on one part of the data instead of two."""
BATCHES = (4, 16)
"""The smallest and the largest batch."""


def recipe(
    samples: TrajectorySamples, name: str, adapt: Callable[[TrajectoryConfig], TrajectoryConfig] | None = None
) -> TrajectoryRecipe:
    """Write the recipe of a preset for prepared trajectories.

    Args:
        samples: The trajectories.
        name: A name of `PRESETS`.
        adapt: Makes a problem's own operator of the general one.
    """
    problem, preset = samples.problem, PRESETS[name]
    operator, fit = network(samples, preset), fitting(samples, preset)
    operator = operator if adapt is None else adapt(operator)
    return TrajectoryRecipe(
        model=problem.name,
        preset=name,
        problem=problem,
        samples=samples.path.name,
        seed=problem.seed,
        operator=operator,
        fit=fit.model_copy(update={"epochs": affordable(samples, operator, fit, preset)}),
    )


def network(samples: TrajectorySamples, preset: Preset) -> TrajectoryConfig:
    """Choose the sizes of a step operator."""
    problem, frames = samples.problem, history(samples.problem)
    positions = {name: index for index, name in enumerate(problem.inputs)}
    inputs = {output: name for name, output in problem.states.items()}
    steady = {name: section for name, section in problem.inputs.items() if name not in problem.states}
    scale = dict(zip(steady, scales(samples, steady), strict=True))
    linear: Scale = "linear"
    step = FieldConfig(
        input_components=tuple(stacked(problem, name, section, frames) for name, section in problem.inputs.items()),
        input_scales=tuple(scale.get(name, linear) for name in problem.inputs),
        output_components=components(problem.outputs),
        output_scales=(linear,) * len(problem.outputs),
        **(sizes(samples, preset) | (smooth(samples, preset) if periodic(problem) else {})),
    )
    return TrajectoryConfig(
        step=step,
        history=frames,
        components=components(problem.outputs),
        states=tuple(positions[inputs[name]] for name in problem.outputs),
        conserved=tuple(problem.time is not None and name in problem.time.conserved for name in problem.outputs),
        bounded=periodic(problem),
    )


def periodic(problem: ProblemFile) -> bool:
    """Return whether all axes are periodic."""
    return all(axis.boundary == "periodic" for axis in problem.axes.values())


def smooth(samples: TrajectorySamples, preset: Preset) -> dict[str, Any]:
    """Choose the network of periodic grids: gated spectral layers, without tokens, on the grid that the data need."""
    working, known = working_grid(samples), preset.modes[len(samples.sides)]
    held = max(working) // OVERSAMPLING + 1
    return {
        "working": working,
        "layers": 0,
        "gated": True,
        "band_limited": True,
        "modes": min(int(np.clip(held, known, 2 * known)), *(side // 2 + 1 for side in working)),
    }


def stacked(problem: ProblemFile, name: str, section: Quantity, frames: int) -> int:
    """Return the components with which a field enters a step, 0 for a scalar: those of all frames of a state."""
    if name not in problem.states or frames == 1:
        return len(section.components)
    return frames * max(1, len(section.components))


def fitting(samples: TrajectorySamples, preset: Preset) -> RolloutFit:
    """Choose batch, rate, averaging and rollouts of a training of one epoch."""
    fits = int(np.clip(2 * POINTS / np.prod(samples.sides), *BATCHES))
    longest = samples.frames - history(samples.problem)
    unroll = tuple(min(steps, longest) for steps in UNROLL)
    return RolloutFit(
        epochs=1, batch=2 ** int(np.log2(fits)), learning_rate=RATE, average=preset.average, unroll=unroll
    )


def affordable(samples: TrajectorySamples, operator: TrajectoryConfig, fit: RolloutFit, preset: Preset) -> int:
    """Return the epochs that fill a preset's time, from the time of a few single steps."""
    description = samples.problem.describe(samples.sides, samples.counts[0], samples.frames)
    task = TrajectoryTask(build(operator), fit, 0, samples, Problem(description=description))
    rng = np.random.default_rng(0)
    batch = task.draw(rng.integers(0, task.order.samples, fit.batch), rng)
    task.operator.fit_normalisers(*batch.inputs, *(each[:, 0] for each in batch.truth))
    mean = float(np.mean(fit.unroll))
    return epochs(mean * step_seconds(task, batch) * task.order.steps / LONGER, preset)
