r"""Fields of a built-in problem in memory: a split of a stored file on a coarser grid, and batches of it.

The limit of these trainings is one scalar input and one scalar output, and any parameters (`only_pair`); inputs that
have a default are not in the samples. The store keeps whatever a problem has.

**Noise** is that of an instrument,

.. math::
    \tilde u_i = u_i + \epsilon\, \sigma_i\, \xi_i, \qquad \xi_i \sim N(0, 1),

with :math:`\sigma_i` the deviation at grid point `i` over the training fields, so that a level :math:`\epsilon` means
the same at every point (Cao, NeurIPS 2021, adds :math:`\epsilon \xi` to inputs standardised by point).

**Gradients**, which a weighted loss compares predicted gradients with, are central differences on the finest mesh with
the mesh width h = 1/n for n points an axis, as the published code does (h = 1/421 and 1/8192):

.. math::
    u'_i = \frac{u_{i+1} - u_{i-1}}{2h}.

A field is extended by zero beyond a plane's edges. A line is extended by its last point but one and its second: it
treats the first and the last sample as one and the same point. Both spoil the outermost values; the losses leave them
out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import h5py
import numpy as np
import torch
from numpy.typing import NDArray

from physics.numerics.grid import block_mean, common_grid
from schema.problem import Description, Quantity
from training.data.generated import finished, opened
from training.losses import Batch
from training.problems.problem import PROBLEMS, Array, Problem, Stream
from training.problems.symmetries import transform
from training.user_error import UserError

Split = Literal["train", "validation", "test"]
STREAM_OF: dict[Split, Stream] = {"train": "train", "validation": "train", "test": "test"}
"""The stored group that holds each split: validation samples follow the training samples."""

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
    """Inputs and outputs of a problem."""

    inputs: Array  # `[sample, *grid]` in physical units
    # `[sample, *grid]` in physical units. Where the problem fixes its output grid they lie on the common grid of
    # `physics.numerics.grid`, on which symmetries are exact.
    outputs: Array
    problem: Problem
    provenance: str  # where the samples come from
    gradients: Array | None = None  # the outputs' gradients on the stored mesh, see the module; None if not requested
    parameters: tuple[Array, ...] = ()  # `[sample]` per parameter of the problem, in its order

    @property
    def targets(self) -> Array:
        """What a network has to predict: the outputs on the output grid."""
        return targets(self.problem.description, self.outputs)

    @cached_property
    def deviation(self) -> Array:
        """The inputs' standard deviation at each grid point, the unit of noise."""
        return self.inputs.std(axis=0)


def draw(
    samples: Mapping[int, Samples],
    chosen: NDArray[np.int64],
    rng: np.random.Generator,
    *,
    symmetries: bool,
    noise: tuple[float, ...] = (),
) -> Batch:
    """Return samples on a drawn grid, moved by a symmetry each, with noise of a drawn level in deviations of inputs."""
    source, chosen = samples[int(rng.choice(list(samples)))], np.sort(chosen)
    inputs, outputs = torch.from_numpy(source.inputs[chosen]), torch.from_numpy(source.outputs[chosen])
    gradients = None if source.gradients is None else torch.from_numpy(source.gradients[chosen])
    if symmetries:
        inputs, outputs = transform(source.problem.description, (inputs, outputs), rng)
        gradients = None  # of the outputs before they were moved
    size = None
    if noise:
        levels = rng.choice(np.asarray(noise, np.float32), len(inputs))
        normals = rng.standard_normal(inputs.shape, dtype=np.float32)
        inputs = torch.from_numpy(add_noise(inputs.numpy(), levels, source.deviation, normals))
        size = torch.from_numpy(levels * np.sqrt(np.square(source.deviation).mean()))
    means = torch.from_numpy(targets(source.problem.description, outputs.numpy()))
    parameters = [torch.from_numpy(each[chosen]) for each in source.parameters]
    weight = inputs if source.problem.energy_weight else None
    return Batch([inputs, *parameters], [means], gradients, outputs, size, weight)


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
    rows = slice(after, after + count)
    with opened(path) as file:
        stored, group = str(file.attrs["problem"]), file[STREAM_OF[split]]
        if problem is not None and problem.source.name != stored:
            raise UserError(f"expected samples of {problem.name} but {file.filename} holds those of {stored}")
        wanted = (PROBLEMS[stored] if problem is None else problem).of_samples
        if (ready := max(finished(file, STREAM_OF[split]) - after, 0)) < count:
            raise UserError(f"expected {count} samples in {split} of {path} but {ready} are there: prepare them first")
        pair, common = only_pair(wanted.description), wanted.description.output_grid
        inputs, outputs = group[pair.input.name], group[pair.output.name]
        fine = outputs.shape[1]
        chosen = every(wanted.description, fine, points)
        sides = tuple(len(range(fine)[along]) for along in chosen)
        if common is not None:
            common = common_grid(common)
            strides(wanted.description, fine, common)  # a common grid of other points would lie elsewhere
        slopes = [gradient(outputs[index])[chosen] for index in range(rows.start, rows.stop)] if gradients else None
        return Samples(
            inputs=_each(inputs, rows, sides, lambda field: field[chosen]),
            outputs=_each(outputs, rows, sides, lambda field: field[chosen])
            if common is None
            else _each(outputs, rows, common, lambda field: block_mean(field, common)),
            problem=wanted,
            provenance=str(file.attrs["provenance"]),
            gradients=None if slopes is None else np.stack(slopes),
            parameters=tuple(group[parameter.name][rows] for parameter in wanted.description.parameters),
        )


def deviation(path: Path, count: int, problem: Problem) -> Array:
    """Compute the inputs' deviation `[*grid]` at each point of the mesh, over the first `count` training samples.

    One stored field at a time is in memory; deviations about the first field lose no digits to a large mean.
    """
    with opened(path) as file:
        fields = file["train"][only_pair(problem.description).input.name]
        first = fields[0].astype(np.float64)
        total, squares = np.zeros_like(first), np.zeros_like(first)
        for index in range(count):
            apart = fields[index] - first
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
    with opened(path) as file:
        first = next(field for field in file[STREAM_OF[split]].values() if field.ndim > 1)
        return int(first.shape[1])


def grids(description: Description, mesh: int, index: int = 0) -> list[int]:
    """List the numbers of points, ascending, that striding an axis of `mesh` points gives."""
    end = description.axes[index].far_ends
    return [n for n in range(end + 1, mesh + 1) if (mesh - end) % (n - end) == 0]


def _each(dataset: h5py.Dataset, rows: slice, sides: tuple[int, ...], change: Callable[[Array], Array]) -> Array:
    # One stored field at a time is in memory.
    changed = np.empty((rows.stop - rows.start, *sides), dtype=np.float32)
    for field, index in zip(changed, range(rows.start, rows.stop), strict=True):
        field[...] = change(dataset[index])
    return changed


def add_noise(
    fields: NDArray[Real], levels: NDArray[Real], deviation: NDArray[Real], normals: NDArray[Real]
) -> NDArray[Real]:
    """Add noise of levels `[sample]`, relative to the deviation `[*grid]`, to fields `[sample, *grid]`."""
    return fields + levels.reshape(-1, *(1,) * deviation.ndim) * deviation * normals


def measured(
    fields: NDArray[Real], deviation: NDArray[Real], levels: tuple[float, ...], rng: np.random.Generator
) -> NDArray[Real]:
    """Return fields `[sample, *grid]` with fresh noise, each of one of some levels, relative to the deviation."""
    drawn = rng.choice(np.asarray(levels, dtype=fields.dtype), len(fields))
    return add_noise(fields, drawn, deviation, rng.standard_normal(fields.shape, dtype=np.float32).astype(fields.dtype))


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
