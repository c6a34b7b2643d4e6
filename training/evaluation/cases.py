"""Cases: samples of a built-in problem of one kind each, on one grid, at one level of noise, at some conditions.

Cards have a row for every case of the test samples, error estimates are calibrated and checked with the cases of
samples that nothing else sees. A problem with parameters is measured twice: at their defaults, and in the range of the
stored samples. Samples of a problem file are one case, with no noise of ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from schema.problem import Description
from training.data.augment import noisy
from training.data.generate import DataConfig
from training.data.views import Samples, Split, deviation, every, grids, mesh, read
from training.losses import Batch
from training.problems.problem import Array, Problem

Sides = tuple[int, ...]
BATCH = 10  # bounds the memory of measuring
MOST_VARIED = 500  # test samples with varied inputs, each of which is solved


@dataclass(frozen=True)
class Case:
    """Samples of one kind on one grid, in batches with their noise."""

    samples: Samples  # inputs and true outputs
    mesh: int  # points per axis that the truth was computed on
    noise: float = 0.0  # level of the noise on the inputs
    # Deviation of the training inputs at each point, which noise is relative to; by default the samples' own.
    unit: Array | None = None
    conditions: str = ""  # the ranges of the parameters in words, where they are not their defaults
    varied: tuple[str, ...] = ()  # the optional inputs that are varied
    seed: int | Sequence[int] = 0  # of the noise

    @property
    def problem(self) -> Problem:
        return self.samples.problem

    @property
    def inputs(self) -> Array:
        """The inputs with their noise, drawn alike at every call and not kept in memory."""
        found = self.samples.inputs
        return noisy(found, self.spread, (self.noise,), np.random.default_rng(self.seed)) if self.noise else found

    @property
    def arguments(self) -> list[Array]:
        """The arguments of an operator."""
        return [self.inputs, *self.samples.arguments.values()]

    @property
    def truth(self) -> Array:
        """The true outputs on the output grid."""
        return self.samples.targets

    @property
    def spread(self) -> Array:
        """The unit of noise."""
        return self.samples.deviation if self.unit is None else self.unit

    @property
    def kind(self) -> dict[str, Any]:
        """What tells its samples from others on the same grid."""
        named: dict[str, Any] = {"noise": self.noise, "conditions": self.conditions} | dict.fromkeys(
            self.varied, "varied"
        )
        return {name: value for name, value in named.items() if value}

    @property
    def key(self) -> dict[str, Any]:
        """What tells a row of figures from the others: the grid, and noise and conditions where there are some."""
        return {"grid": list(self.samples.inputs.shape[1:])} | self.kind

    def __len__(self) -> int:
        return len(self.samples.inputs)

    def batches(self, parts: Iterable[slice]) -> Iterator[Batch]:
        """Return parts of the samples; the weight of their energy norm is that of inputs without noise."""
        arguments, truth = self.arguments, self.truth
        for rows in parts:
            weight = torch.from_numpy(self.samples.inputs[rows]) if self.problem.energy_weight else None
            inputs = [torch.from_numpy(each[rows]) for each in arguments]
            yield Batch(inputs, [torch.from_numpy(truth[rows])], weight=weight)

    @property
    def whole(self) -> Batch:
        """All samples together."""
        return next(self.batches([slice(None)]))

    def __iter__(self) -> Iterator[Batch]:
        return self.batches(slice(start, start + BATCH) for start in range(0, len(self), BATCH))


def cases_of_tests(
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
        default = read(path, "test", data.test, data.mesh, problem=problem).at_defaults()
        kinds = [([default.on(points) for points in wanted], ""), *kinds]
    return [
        Case(test, data.mesh, level, unit, conditions)
        for each, conditions in kinds
        for level in noise
        for test, unit in zip(each, units, strict=True)
    ]


@dataclass(frozen=True)
class Stored:
    """Stored samples of a split, as many as are counted, whose cases calibrate and check error estimates."""

    problem: Problem
    data: DataConfig  # of the recipe, which decides the grids
    levels: tuple[float, ...]  # of noise
    seed: int
    vary: bool  # whether a part has other optional inputs than their defaults
    path: Path  # the samples' file
    split: Split
    count: int
    after: int = 0  # how many training samples come before validation samples, else 0

    def by_grid(self, *, apart: bool) -> Iterator[list[Case]]:
        """Return the cases of every grid that the samples can be strided to; published splits may differ in their mesh.

        Each sample is there at every level of noise and, where all parameters have a default, with the defaults, too,
        as most requests have them. Without `apart` a half has varied inputs instead, else some are there so, too.
        """
        whole, description = mesh(self.path, self.split), self.problem.description
        half = self.count // 2 if self.vary and not apart else 0
        rows = slice(MOST_VARIED) if apart else slice(self.count - half, None)
        stored = self.read(whole, self.count) if self.vary or has_defaults(description) else None
        others = stored.varied(rows, np.random.default_rng(self.seed)) if stored and self.vary else None
        default = stored.at_defaults() if stored and has_defaults(description) else None
        possible = set(grids(description, whole))
        for sides in filter(possible.issuperset, measured_grids(description, self.data)):
            samples = self.read(sides, self.count - half)
            plain = samples.with_defaults() if self.vary else samples
            cases = [
                Case(plain, whole, level, conditions=ranges(description), seed=self.drawn(level))
                for level in self.levels
            ]
            if default is not None:
                at_defaults = [Case(default.on(sides), whole, level, seed=self.drawn(level)) for level in self.levels]
                cases = [*at_defaults, *cases] if apart else [*cases, *at_defaults]
            yield [*cases, *([Case(others.on(sides), whole, varied=others.optional)] if others else [])]

    def drawn(self, level: float) -> list[int]:
        """Return the seed of noise of a level, another one for every split."""
        return [self.seed, *self.split.encode(), *np.float64(level).tobytes()]

    def read(self, points: int | Sides, count: int) -> Samples:
        return read(self.path, self.split, count, points, after=self.after, problem=self.problem)


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


def validity(description: Description, grids: tuple[int, ...], noise: tuple[float, ...]) -> dict[str, str]:
    """Return a card's limits of validity in words: what was trained, measured, and not tried."""
    levels = [f"{100 * level:g} %" for level in noise if level]
    points, trained_noise = " and ".join(map(str, grids)), " and ".join(levels) or "none"
    return {
        "trained": f"{description.distribution}; points per axis: {points}; noise: {trained_noise}",
        "measured": "on test fields of the same distribution, on the grids in `errors`; other grids are interpolated",
        "not tried": description.untested,
    }
