r"""Fields of a built-in problem in memory: a split of a stored file on a coarser grid, and batches of it.

The limit of these trainings is one scalar input and one scalar output, and any parameters (`only_pair`); inputs that
have a default are not in the samples. The store keeps whatever a problem has.

**Gradients**, which a weighted loss compares predicted gradients with, are central differences on the finest mesh with
the mesh width h = 1/n for n points an axis, as the published code does (h = 1/421 and 1/8192):

.. math::
    u'_i = \frac{u_{i+1} - u_{i-1}}{2h}.

A field is extended by zero beyond a plane's edges. A line is extended by its last point but one and its second: it
treats the first and the last sample as one and the same point. Both spoil the outermost values; the losses leave them
out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.random import Generator
from numpy.typing import NDArray

from physics.numerics.grid import block_mean, common_grid
from schema.parts import Quantity
from schema.problem import Description
from training.data.augment import noisy
from training.data.dataset import Rows, SampleGroup
from training.data.pools import ThisProcess, chosen
from training.losses import Batch
from training.messages import UserError
from training.problems.problem import PROBLEMS, Array, Conditions, Fields, Problem, Stream

Split = Literal["train", "validation", "test"]
STREAM_OF: dict[Split, Stream] = {"train": "train", "validation": "train", "test": "test"}
"""The stored group that holds each split: validation samples follow the training samples."""

BATCH = 10  # bounds the memory of measuring
GRADIENTS = "gradients of the output"  # their key among a sample's tensors, which no name on the wire is like

Points = int | tuple[int, ...]
Real = TypeVar("Real", bound=np.floating[Any])


class Pair(NamedTuple):
    """The only input without a default and the only output of a problem."""

    input: Quantity
    output: Quantity


def only_pair(description: Description) -> Pair:
    """Return the only input without a default and the only output of a problem.

    Raises:
        NotImplementedError: The problem has vector fields, or several such inputs or outputs.
    """
    fields = (*(one for one in description.inputs if one.default is None), *description.outputs)
    if len(fields) != 2 or any(quantity.components for quantity in fields):
        raise NotImplementedError(
            f"training supports one scalar input and one scalar output but {description.name} has "
            f"{', '.join(tensor.name for tensor in description.tensors)}"
        )
    return Pair(*fields)


@dataclass(frozen=True)
class Samples:
    """Samples in memory, of one kind on one grid: tensors `[sample, ...]` by name on the wire in physical units.

    There are `GRADIENTS`, too, if requested. Where the problem fixes its output grid, outputs lie on the common grid of
    `physics.numerics.grid`, on which symmetries are exact. Networks and solvers see the inputs with their noise.
    """

    tensors: Mapping[str, Array]
    problem: Problem
    provenance: str  # where the samples come from
    mesh: int = 0  # points per axis that the truth was computed on
    noise: float = 0.0  # level of the noise on the inputs
    # Deviation of the training inputs at each point, which noise is relative to; by default the samples' own.
    unit: Array | None = None
    conditions: str = ""  # the ranges of the parameters in words, where they are not their defaults
    varied: tuple[str, ...] = ()  # the optional inputs that are varied
    seed: int | Sequence[int] = 0  # of the noise

    @property
    def inputs(self) -> Array:
        return self.tensors[only_pair(self.problem.description).input.name]

    @property
    def outputs(self) -> Array:
        return self.tensors[only_pair(self.problem.description).output.name]

    @property
    def parameters(self) -> dict[str, Array]:
        """The problem's parameters `[sample]` by name."""
        return {one.name: self.tensors[one.name] for one in self.problem.description.parameters}

    @property
    def observed(self) -> Array:
        """The inputs with their noise, drawn alike at every call and not kept in memory."""
        rng = np.random.default_rng(self.seed)
        return noisy(self.inputs, self.spread, (self.noise,), rng) if self.noise else self.inputs

    @property
    def spread(self) -> Array:
        """The unit of noise."""
        return self.deviation if self.unit is None else self.unit

    @property
    def kind(self) -> dict[str, Any]:
        """What tells them from others on the same grid."""
        named: dict[str, Any] = {"noise": self.noise, "conditions": self.conditions} | dict.fromkeys(
            self.varied, "varied"
        )
        return {name: value for name, value in named.items() if value}

    @property
    def key(self) -> dict[str, Any]:
        """What tells a row of figures from the others: the grid, and noise and conditions where there are some."""
        return {"grid": list(self.inputs.shape[1:])} | self.kind

    def __len__(self) -> int:
        return len(self.inputs)

    def batches(self, parts: Iterable[slice]) -> Iterator[Batch]:
        """Return parts of the samples; the weight of their energy norm is that of inputs without noise."""
        arguments, truth = self.arguments, self.targets
        for rows in parts:
            weight = torch.from_numpy(self.inputs[rows]) if self.problem.energy_weight else None
            inputs = [torch.from_numpy(each[rows]) for each in arguments]
            yield Batch(inputs, [torch.from_numpy(truth[rows])], weight=weight)

    @property
    def whole(self) -> Batch:
        """All samples together."""
        return next(self.batches([slice(None)]))

    def __iter__(self) -> Iterator[Batch]:
        return self.batches(slice(start, start + BATCH) for start in range(0, len(self), BATCH))

    @property
    def optional(self) -> tuple[str, ...]:
        """The names of the optional inputs that the samples have."""
        return tuple(one.name for one in self.problem.optional if one.name in self.tensors)

    @property
    def arguments(self) -> list[Array]:
        """The arguments of an operator."""
        return [self.observed, *(self.tensors[name] for name in (*self.optional, *self.parameters))]

    @property
    def targets(self) -> Array:
        """What a network has to predict: the outputs on the output grid."""
        return targets(self.problem.description, self.outputs)

    @cached_property
    def deviation(self) -> Array:
        """The inputs' standard deviation at each grid point, the unit of noise."""
        return self.inputs.std(axis=0)

    def read(self, rows: Rows | range) -> dict[str, Array]:
        """Return samples by the names of their tensors, as `SampleFile.read` does."""
        chosen = slice(rows.start, rows.stop) if isinstance(rows, range) else rows
        return {name: each[chosen] for name, each in self.tensors.items()}

    def on(self, points: Points) -> Samples:
        """Return samples of the stored mesh on a coarser grid."""
        chosen = (slice(None), *every(self.problem.description, self.inputs.shape[1], points))
        coarse = {
            name: np.ascontiguousarray(each[chosen]) if each.ndim > 1 else each for name, each in self.tensors.items()
        }
        return replace(self, tensors=coarse)

    def at_defaults(self) -> Samples:
        """Solve for the inputs on the stored mesh at the parameters' defaults."""
        numbers = {one.name: np.asarray(one.default or 0, np.float64) for one in self.problem.description.parameters}
        whole = {name: np.full(len(self.inputs), value, np.float32) for name, value in numbers.items()}
        return self.solved([(field, numbers) for field in self.inputs], {**self.tensors, **whole})

    def with_defaults(self) -> Samples:
        """Return the samples with their optional inputs, at their defaults."""
        defaults = {one.name: np.full_like(self.inputs, one.default) for one in self.problem.optional}
        return replace(self, tensors={**self.tensors, **defaults})

    def with_varied(self, rows: slice, rng: Generator) -> Samples:
        """Vary the optional inputs of some samples on the stored mesh, and solve.

        Raises:
            MissingPartError: The problem varies none.
        """
        found = {name: each[rows] for name, each in self.tensors.items()}
        fields, vary = self.inputs[rows], self.problem.require_vary()
        numbers = {name: each[rows] for name, each in self.parameters.items()}
        others = [
            {name: each[row, ...] for name, each in numbers.items()} | dict(vary(rng, len(field)))
            for row, field in enumerate(fields)
        ]
        for one in self.problem.optional:
            found[one.name] = np.stack([each[one.name] for each in others]).astype(np.float32)
        return self.solved([*zip(fields, others, strict=True)], found)

    def solved(self, inputs: Sequence[tuple[Array, Fields]], tensors: Mapping[str, Array]) -> Samples:
        """Return tensors with the outputs of some inputs, on the mesh, each with other inputs and parameters by name.

        Where RAY_ADDRESS names a cluster, its machines compute them.
        """
        jobs = [(number, field, others) for number, (field, others) in enumerate(inputs)]
        solved = chosen(ThisProcess()).completed(partial(output, self.problem), jobs)
        found = {number: one for (number, *_), one in solved}
        outputs = np.stack([found[number] for number in range(len(jobs))])
        return replace(self, tensors={**tensors, only_pair(self.problem.description).output.name: outputs})


def output(problem: Problem, job: tuple[int, Array, Fields]) -> Array:
    """Return the output of an input, which follows its number, with other inputs and parameters by name."""
    _, field, others = job
    pair = only_pair(problem.description)
    found = problem.solve({pair.input.name: field, **others}, Conditions(len(field)))
    return found[pair.output.name].astype(np.float32)


def read(
    path: Path,
    split: Split,
    count: int,
    points: Points,
    *,
    after: int = 0,
    problem: Problem | None = None,
    gradients: bool = False,
) -> Samples:
    """Read the first `count` samples of a split, strided to `points` points per axis.

    One stored field at a time is in memory besides the result, and a file that is still being filled may be read.
    `after` is how many training samples come before validation samples, `problem` what the samples are for where the
    file serves several problems. With `gradients` the outputs' gradients are read, too.

    Raises:
        ValueError: The stored mesh cannot be strided to `points`, fewer than `count` samples are there, they are for
            another problem, or `after` does not fit the split.
        NotImplementedError: The problem has several inputs or outputs.
    """
    if (split == "validation") != (after > 0):
        raise ValueError(f"expected the number of training samples for validation, else 0, but got {after} for {split}")
    rows, stored = range(after, after + count), SampleGroup(path, STREAM_OF[split])
    with closing(stored):
        made_for = str(stored.attributes["problem"])
        if problem is not None and problem.source.name != made_for:
            raise UserError(f"expected samples of {problem.name} but {path} holds those of {made_for}")
        wanted = (PROBLEMS[made_for] if problem is None else problem).of_samples
        if (ready := max(stored.finished() - after, 0)) < count:
            raise UserError(f"expected {count} samples in {split} of {path} but {ready} are there: prepare them first")
        pair, common = only_pair(wanted.description), wanted.description.output_grid
        fine = stored.file[pair.output.name].shape[1]
        chosen = every(wanted.description, fine, points)
        sides = tuple(len(range(fine)[along]) for along in chosen)
        if common is not None:
            common = common_grid(common)
            strides(wanted.description, fine, common)  # a common grid of other points would lie elsewhere
        outputs = stored.fields(pair.output.name, rows, chosen if common is None else ())
        tensors = {pair.input.name: together(stored.fields(pair.input.name, rows, chosen), (count, *sides))}
        tensors |= {one.name: stored.pick(one.name, rows) for one in wanted.description.parameters}
        tensors[pair.output.name] = (
            together(outputs, (count, *sides))
            if common is None
            else together((block_mean(each, common) for each in outputs), (count, *common))
        )
        if gradients:
            slopes = stored.fields(pair.output.name, rows)
            tensors[GRADIENTS] = np.stack([gradient(each)[chosen] for each in slopes])
        return Samples(tensors, wanted, str(stored.attributes["provenance"]), fine)


def deviation(path: Path, count: int, problem: Problem) -> Array:
    """Compute the inputs' deviation `[*grid]` at each point of the mesh, over the first `count` training samples.

    One stored field at a time is in memory; deviations about the first field lose no digits to a large mean.
    """
    with closing(SampleGroup(path, "train")) as stored:
        fields = stored.fields(only_pair(problem.description).input.name, range(count))
        first = next(fields).astype(np.float64)
        total, squares = np.zeros_like(first), np.zeros_like(first)
        for field in fields:
            apart = field - first
            total += apart
            squares += apart**2
    variance = squares / count - (total / count) ** 2
    return np.sqrt(np.maximum(variance, 0)).astype(np.float32)


def targets(description: Description, outputs: Array) -> Array:
    """Return outputs `[sample, *grid]`, as they were read, on the problem's output grid."""
    sides = description.output_grid
    return outputs if sides is None else block_mean(outputs, sides)


def strides(description: Description, mesh: int, points: Points) -> tuple[int, ...]:
    """Return the step along each axis from `mesh` points per axis to `points`, one number for all or one per axis."""
    sides = points if isinstance(points, tuple) else (points,) * len(description.axes)
    if len(sides) != len(description.axes):
        raise UserError(f"expected points for the axes {description.axis_names} of {description.name} but got {points}")
    for index, side in enumerate(sides):
        if side not in (sizes := grids(description, mesh, index)):
            raise UserError(f"cannot stride {mesh} points of {description.name} to {side}; possible are {sizes}")
    pairs = zip(description.axes, sides, strict=True)
    return tuple((mesh - axis.far_ends) // (side - axis.far_ends) for axis, side in pairs)


def every(description: Description, mesh: int, points: Points) -> tuple[slice, ...]:
    """Return which points `[*grid]` of a mesh a coarser grid keeps; see `strides`."""
    return tuple(slice(None, None, step) for step in strides(description, mesh, points))


def mesh(path: Path, split: Split) -> int:
    """Return the points per axis of the stored fields of a split."""
    with closing(SampleGroup(path, STREAM_OF[split])) as stored:
        return next(int(field.shape[1]) for field in stored.file.values() if field.ndim > 1)


def grids(description: Description, mesh: int, index: int = 0) -> list[int]:
    """List the numbers of points, ascending, that striding an axis of `mesh` points gives."""
    end = description.axes[index].far_ends
    return [n for n in range(end + 1, mesh + 1) if (mesh - end) % (n - end) == 0]


def together(fields: Iterable[Array], shape: tuple[int, ...]) -> Array:
    """Return fields as one array `[field, *grid]`; one field at a time is in memory besides it."""
    found = np.empty(shape, np.float32)
    for into, field in zip(found, fields, strict=True):
        into[...] = field
    return found


def gradient(field: Array) -> Array:
    """Compute u' `[point]` of a line `[point]`, or both derivatives `[row, column, 2]` of a plane, along rows first.

    Raises:
        ValueError: the field has more axes.
    """
    if field.ndim > 2:
        raise ValueError(f"gradients are defined on lines and planes but got a field of {field.ndim} axes")
    wide = field.astype(np.float64)
    return (line(wide) if field.ndim == 1 else plane(wide)).astype(np.float32)


def line(field: NDArray[np.float64]) -> NDArray[np.float64]:
    """Differentiate lines `[..., point]`."""
    return central(np.concatenate([field[..., -2:-1], field, field[..., 1:2]], axis=-1), axis=-1)


def plane(field: NDArray[np.float64]) -> NDArray[np.float64]:
    """Differentiate planes `[..., row, column]` along rows and columns: `[..., row, column, 2]`."""
    whole = [(0, 0)] * (field.ndim - 2)
    padded = [np.pad(field, [*whole, *sides]) for sides in ([(1, 1), (0, 0)], [(0, 0), (1, 1)])]
    return np.stack([central(padded[0], axis=-2), central(padded[1], axis=-1)], axis=-1)


def central(padded: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
    """Compute (u_{i+1} - u_{i-1}) / 2h along an axis that holds one point more at either end."""
    n = padded.shape[axis] - 2
    after, before = np.arange(2, n + 2), np.arange(n)
    return (padded.take(after, axis) - padded.take(before, axis)) * n / 2
