r"""Augmentation of training samples: exact symmetries and noise, drawn at random for every sample.

If G maps inputs to outputs and a symmetry s commutes with the equation, then G(s(input)) = s(G(input)). Training draws
s anew for every sample, which multiplies the training set at no cost.

=================  ====================================================================================
``flip_AXIS``      u(x) -> u(L - x) along an axis, with probability 1/2
``reflect_AXIS``   u(x) -> -u(L - x), with probability 1/2
``shift_AXIS``     u(x) -> u(x - d) along a periodic axis, d uniform over the grid's points
``transpose``      a permutation of the axes, uniform over those that keep the numbers of points
``negate``         u -> -u, with probability 1/2
=================  ====================================================================================

On an axis with ``left`` points a flip takes point i to n - i and leaves the first where it is. Where the first point
is not on the boundary this moves fields by twice its distance from it; the flip is exact but for that.

**Noise** is that of an instrument,

.. math::
    \tilde u_i = u_i + \epsilon\, \sigma_i\, \xi_i, \qquad \xi_i \sim N(0, 1),

with :math:`\sigma_i` the deviation at grid point `i` over the training fields, so that a level :math:`\epsilon` means
the same at every point (Cao, NeurIPS 2021, adds :math:`\epsilon \xi` to inputs standardised by point).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import permutations
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from schema.problem import Schema

NOISE = "noise of the input"  # the key of its size among a sample's tensors, which no name on the wire is like
SHARE = "share of the points"  # likewise, of those that were drawn of a sample

Real = TypeVar("Real", bound=np.floating[Any])
Move = Callable[[Tensor], Tensor]
Draw = Callable[[tuple[int, ...], np.random.Generator], Move]


def transform(description: Schema, tensors: Sequence[Tensor], rng: np.random.Generator) -> list[Tensor]:
    """Move all of a sample's fields `[batch, *grid]` alike by a symmetry of its own; the order is the same."""
    chain, sides = [draw(name, description) for name in description.symmetries], tuple(tensors[0].shape[1:])
    moves = [[one(sides, rng) for one in chain] for _ in tensors[0]]
    return [
        torch.stack([apply(moved, field) for moved, field in zip(moves, fields, strict=True)]) for fields in tensors
    ]


def transformed(
    values: Mapping[str, NDArray[Any]], schema: Schema, names: Sequence[str], rng: np.random.Generator, mask: str = ""
) -> dict[str, NDArray[Any]]:
    """Move the fields of every sample, by name, by symmetries of some names, all its frames alike.

    A change of signs is none of the field that is called `mask`, the domain.
    """
    schema = schema.model_copy(update={"symmetries": tuple(names)})
    fields = {one.name: torch.from_numpy(values[one.name]) for one in schema.fields if one.name in values}
    frames = {name: each.unbind(1) if name in schema.timed else (each,) for name, each in fields.items()}
    found = iter(transform(schema, [each for every in frames.values() for each in every], rng))
    after = {name: [next(found) for _ in every] for name, every in frames.items()}
    new = {
        name: torch.stack(every, 1) if fields[name].ndim > every[0].ndim else every[0] for name, every in after.items()
    }
    return {**values, **{name: (each.abs() if name == mask else each).numpy() for name, each in new.items()}}


def apply(moves: Sequence[Move], field: Tensor) -> Tensor:
    """Apply drawn symmetries, the last one first."""
    for move in reversed(moves):
        field = move(field)
    return field


def draw(name: str, description: Schema) -> Draw:
    """Return what draws the symmetry of a name; a function of the grid's sides and a random generator."""
    if name == "transpose":
        return transpose
    if name == "negate":
        return lambda _, rng: torch.neg if rng.random() < 0.5 else keep
    kind, _, along = name.partition("_")
    index = description.axis_names.index(along)
    if kind == "shift":
        return partial(shift, index)
    step, sign = 1 - description.axes[index].far_ends, -1 if kind == "reflect" else 1
    return lambda _, rng: (lambda field: sign * field.flip(index).roll(step, index)) if rng.random() < 0.5 else keep


def shift(index: int, sides: tuple[int, ...], rng: np.random.Generator) -> Move:
    """Draw a shift along a periodic axis."""
    steps = int(rng.integers(sides[index]))
    return lambda field: field.roll(steps, index)


def transpose(sides: tuple[int, ...], rng: np.random.Generator) -> Move:
    """Draw a permutation of the axes that keeps the numbers of points."""
    orders = [order for order in permutations(range(len(sides))) if tuple(sides[axis] for axis in order) == sides]
    order = orders[-1 - int(rng.random() * len(orders))]
    return lambda field: field.permute(order)


def keep(field: Tensor) -> Tensor:
    """Return the field."""
    return field


# Noise


def add_noise(
    fields: NDArray[Real], levels: NDArray[Real], deviation: NDArray[Real], normals: NDArray[Real]
) -> NDArray[Real]:
    """Add noise of levels `[sample]`, relative to the deviation `[*grid]`, to fields `[sample, *grid]`."""
    return fields + levels.reshape(-1, *(1,) * deviation.ndim) * deviation * normals


def noisy(
    fields: NDArray[Real], deviation: NDArray[Real], levels: tuple[float, ...], rng: np.random.Generator
) -> NDArray[Real]:
    """Return fields `[sample, *grid]` with fresh noise, each of one of some levels, relative to the deviation."""
    drawn = rng.choice(np.asarray(levels, dtype=fields.dtype), len(fields))
    return add_noise(fields, drawn, deviation, rng.standard_normal(fields.shape, dtype=np.float32).astype(fields.dtype))


def with_noise(
    values: Mapping[str, NDArray[Any]],
    name: str,
    deviation: NDArray[Any],
    levels: tuple[float, ...],
    rng: np.random.Generator,
) -> dict[str, NDArray[Any]]:
    """Add noise of a drawn level to a field of every sample, and say how large it is: its root mean square, `NOISE`."""
    if not levels:
        return dict(values)
    drawn = rng.choice(np.asarray(levels, np.float32), len(values[name]))
    normals = rng.standard_normal(values[name].shape, dtype=np.float32)
    size = drawn * np.sqrt(np.square(deviation).mean())
    return {**values, name: add_noise(values[name], drawn, deviation, normals), NOISE: size}
