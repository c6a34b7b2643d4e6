"""The test samples that the network and the baseline both see: by grid, level of noise and conditions.

A problem with parameters is measured twice: at their defaults, and in the range of the stored samples.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from training.data import Samples, deviation, grids, read
from training.data.fields import every, measured, only_pair
from training.data.store import Array
from training.problems.problem import Conditions, Problem
from training.problems.schema import Description
from training.recipe import DataConfig

Sides = tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """Test samples on one grid."""

    samples: Samples  # inputs and true outputs
    mesh: int  # points per axis that the truth was computed on
    noise: float = 0.0  # level of the noise on the inputs
    # Deviation of the training inputs at each point, which noise is relative to; by default the samples' own.
    unit: Array | None = None
    conditions: str = ""  # the ranges of the parameters in words, where they are not their defaults

    @property
    def problem(self) -> Problem:
        return self.samples.problem

    @property
    def inputs(self) -> Array:
        """The inputs with their noise, drawn alike at every call and not kept in memory."""
        fields = self.samples.inputs
        return measured(fields, self.spread, (self.noise,), np.random.default_rng(0)) if self.noise else fields

    @cached_property
    def truth(self) -> Array:
        """The true outputs on the output grid."""
        return self.samples.targets

    @property
    def spread(self) -> Array:
        """The unit of noise."""
        return self.samples.deviation if self.unit is None else self.unit

    @property
    def key(self) -> dict[str, Any]:
        """What tells a row of figures from the others: the grid, and noise and conditions where there are some."""
        others = {"noise": self.noise, "conditions": self.conditions}
        return {"grid": list(self.samples.inputs.shape[1:])} | {name: value for name, value in others.items() if value}


def cases(
    problem: Problem,
    data: DataConfig,
    path: Path,
    noise: tuple[float, ...] = (0.0,),
    sides: list[Sides] | None = None,
) -> list[Case]:
    """Read the test samples on every grid of `sides`, by default `measured_grids`, per level of noise; see `Case`."""
    problem, wanted = problem.of_samples, measured_grids(problem.description, data) if sides is None else sides
    tests = [read(path, "test", data.test, points, problem=problem) for points in wanted]
    units = noise_units(problem, data, path, wanted) if any(noise) else [None] * len(wanted)
    kinds = [(tests, ranges(problem.description))]
    if has_defaults(problem.description):
        default = at_defaults(read(path, "test", data.test, data.mesh, problem=problem))
        kinds = [([strided(default, points) for points in wanted], ""), *kinds]
    return [
        Case(test, data.mesh, level, unit, conditions)
        for each, conditions in kinds
        for level in noise
        for test, unit in zip(each, units, strict=True)
    ]


def measured_grids(description: Description, data: DataConfig) -> list[Sides]:
    """Return the trained and declared grids that the stored mesh can be strided to, and on a plane an oblong one."""
    sides = sorted({*data.grids, *description.grid.declared}.intersection(grids(description, data.mesh)))
    axes = len(description.axes)
    middle = len(sides) // 2
    oblong = [tuple(sides[middle - 1 : middle + 1])] if axes == 2 and len(sides) > 1 else []
    return [*((n,) * axes for n in sides), *oblong]


def noise_units(problem: Problem, data: DataConfig, path: Path, sides: list[Sides]) -> list[Array]:
    """Compute the training inputs' standard deviation `[*grid]` at each point of every grid."""
    fine = deviation(path, data.train, problem)
    return [fine[every(problem.description, data.mesh, points)] for points in sides]


def ranges(description: Description) -> str:
    """Return the ranges of the parameters in words, such as `time 0.1 to 2`; nothing where there are none."""
    return ", ".join(f"{each.name} {each.minimum:g} to {each.maximum:g}" for each in description.parameters)


def has_defaults(description: Description) -> bool:
    """Return whether there are parameters, and all have a default."""
    return bool(description.parameters) and all(each.default is not None for each in description.parameters)


def at_defaults(samples: Samples) -> Samples:
    """Solve for the inputs of samples on the stored mesh at the parameters' defaults."""
    description, problem = samples.problem.description, samples.problem
    pair, mesh = only_pair(description), samples.inputs.shape[1]
    named = {one.name: np.float64(one.default or 0) for one in description.parameters}
    outputs = [
        problem.solve({pair.input.name: field} | named, Conditions(mesh))[pair.output.name].astype(np.float32)
        for field in samples.inputs
    ]
    parameters = tuple(np.full(len(outputs), value, np.float32) for value in named.values())
    return replace(samples, outputs=np.stack(outputs), parameters=parameters)


def strided(samples: Samples, points: int | tuple[int, ...]) -> Samples:
    """Return samples of the stored mesh on a coarser grid."""
    chosen = (slice(None), *every(samples.problem.description, samples.inputs.shape[1], points))
    inputs, outputs = (np.ascontiguousarray(each[chosen]) for each in (samples.inputs, samples.outputs))
    return replace(samples, inputs=inputs, outputs=outputs)


def validity(description: Description, grids: tuple[int, ...], noise: tuple[float, ...]) -> dict[str, str]:
    """Return a card's limits of validity in words: what was trained, measured, and not tried."""
    levels = [f"{100 * level:g} %" for level in noise if level]
    points, trained_noise = " and ".join(map(str, grids)), " and ".join(levels) or "none"
    return {
        "trained": f"{description.distribution}; points per axis: {points}; noise: {trained_noise}",
        "measured": "on test fields of the same distribution, on the grids in `errors`; other grids are interpolated",
        "not tried": description.untested,
    }
