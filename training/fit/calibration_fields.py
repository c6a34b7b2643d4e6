"""The samples of a calibration of an operator between fields: with the noise and the inputs that it is made for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from training import evaluation
from training.calibration import Measured, joined, with_errors
from training.data import Samples, grids, read, strides
from training.data.noise import add_noise, measured
from training.data.pair import only_pair
from training.data.store import Array, Split, mesh
from training.evaluation.cases import at_defaults, has_defaults, ranges, strided
from training.losses import relative_l2
from training.operators import Operator
from training.problems.problem import Conditions, Fields, Problem
from training.recipes.recipe import Recipe

BATCH = 16  # fields that a network sees at one time
MOST_VARIED = 200  # test samples with varied inputs, each of which is solved


@dataclass(frozen=True)
class Part:
    """Stored samples.

    Attributes:
        path: Their file.
        split: Their split.
        count: How many.
        after: How many training samples come before validation samples, else 0.
    """

    path: Path
    split: Split
    count: int
    after: int = 0


@dataclass(frozen=True)
class Varied:
    """Samples on the stored mesh whose optional inputs are not their defaults.

    Attributes:
        inputs: All inputs, `[sample, *grid]` each.
        outputs: The solutions `[sample, *grid]`.
    """

    inputs: list[Array]
    outputs: Array


@dataclass(frozen=True)
class CalibrationFields:
    """A network and the samples on which it is measured for its calibration.

    Attributes:
        network: The network.
        recipe: Its recipe.
        problem: Its problem.
        vary: Draws optional inputs from a generator and points per axis; without it samples do not hold them.
    """

    network: Operator
    recipe: Recipe
    problem: Problem
    vary: Callable[[np.random.Generator, int], Fields] | None = None

    def mixture(self, part: Part) -> list[Measured]:
        """Return samples of all kinds in equal parts, per grid: all levels of noise, inputs varied or not."""
        varied = part.count // 2 if self.vary else 0
        others = self.varied(part, slice(part.count - varied, None))
        plain = replace(part, count=part.count - varied)
        return [
            joined(self.noisy(samples), self.on_grid(others, sides)) if others else self.noisy(samples)
            for sides, samples in self.read(plain)
        ]

    def kinds(self, part: Part) -> list[Measured]:
        """Return samples on every grid, of one kind each."""
        others = self.varied(part, slice(MOST_VARIED))
        default = self.defaults(part) if has_defaults(self.problem.description) else None
        drawn = {"conditions": named} if (named := ranges(self.problem.description)) else {}
        found: list[Measured] = []
        for sides, samples in self.read(part):
            found += [self.noisy(strided(default, sides))] if default else []
            found += [self.noisy(samples, level, drawn) for level in self.recipe.fit.levels]
            found += [self.on_grid(others, sides)] if others else []
        return found

    def read(self, part: Part) -> Iterator[tuple[evaluation.Sides, Samples]]:
        """Read samples on every grid that they can be strided to; published splits may differ in their mesh."""
        possible = set(grids(self.problem.description, mesh(part.path, part.split)))
        for sides in evaluation.measured_grids(self.problem.description, self.recipe.data):
            if possible.issuperset(sides):
                yield sides, self.read_on(part, sides)

    def read_on(self, part: Part, sides: evaluation.Sides) -> Samples:
        """Read samples on one grid."""
        return read(part.path, part.split, part.count, sides, after=part.after, problem=self.problem)

    def defaults(self, part: Part) -> Samples:
        """Return a part on the stored mesh at the parameters' defaults."""
        whole = (mesh(part.path, part.split),) * len(self.problem.description.axes)
        return at_defaults(self.read_on(part, whole))

    def noisy(
        self, samples: Samples, level: float | None = None, others: Mapping[str, float | str] | None = None
    ) -> Measured:
        """Return samples with noise and the errors of the network.

        Args:
            samples: Samples without noise.
            level: The level of the noise; by default each has one of the trained levels.
            others: What tells the samples from others besides.
        """
        rng, levels = np.random.default_rng(self.recipe.seed), self.recipe.fit.noise
        fields = samples.inputs
        if level:
            normals = rng.standard_normal(fields.shape, dtype=np.float32)
            fields = add_noise(fields, np.full(len(fields), level, np.float32), samples.deviation, normals)
        elif level is None and levels:
            fields = measured(fields, samples.deviation, levels, rng)
        defaults = [np.full_like(fields, one.default) for one in self.problem.optional if self.vary]
        kind: dict[str, float | str] = {"noise": level} if level else {}
        return self.errors([fields, *defaults, *samples.parameters], samples.targets, **kind, **(others or {}))

    def varied(self, part: Part, rows: slice) -> Varied | None:
        """Vary the optional inputs of some rows of a part, if they are varied, and solve on the stored mesh."""
        if self.vary is None:
            return None
        points = mesh(part.path, part.split)
        fields = self.read_on(part, (points,) * len(self.problem.description.axes)).inputs[rows]
        rng, pair = np.random.default_rng(self.recipe.seed), only_pair(self.problem.description)
        inputs, outputs = [], []
        for field in fields:
            others = self.vary(rng, points)
            inputs.append(others)
            given = {pair.input.name: field, **others}
            outputs.append(self.problem.solve(given, Conditions(points))[pair.output.name].astype(np.float32))
        stacked = [np.stack([each[one.name] for each in inputs]).astype(np.float32) for one in self.problem.optional]
        return Varied([fields, *stacked], np.stack(outputs))

    def on_grid(self, varied: Varied, sides: evaluation.Sides) -> Measured:
        """Return varied samples on a coarser grid, with the errors of the network."""
        steps = strides(self.problem.description, varied.outputs.shape[1], sides)
        every = (slice(None), *(slice(None, None, step) for step in steps))
        inputs = [np.ascontiguousarray(tensor[every]) for tensor in varied.inputs]
        return self.errors(inputs, varied.outputs[every], **{one.name: "varied" for one in self.problem.optional})

    def errors(self, inputs: list[Array], outputs: Array, **kind: float | str) -> Measured:
        """Return samples of a kind with the errors of the network."""
        arguments, truth = (
            [torch.from_numpy(tensor) for tensor in inputs],
            torch.from_numpy(np.ascontiguousarray(outputs)),
        )

        def of(rows: slice) -> torch.Tensor:
            return relative_l2(self.network(*(tensor[rows] for tensor in arguments)), truth[rows])

        return with_errors(arguments, BATCH, of, kind)
