r"""Exact symmetries by name, drawn at random for every training sample.

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
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import permutations

import numpy as np
import torch
from torch import Tensor

from training.problems.schema import Description, Quantity

Move = Callable[[Tensor], Tensor]
Draw = Callable[[tuple[int, ...], np.random.Generator], Move]


def transform(description: Description, tensors: Sequence[Tensor], rng: np.random.Generator) -> list[Tensor]:
    """Move all of a sample's fields `[batch, *grid]` alike by a symmetry of its own; the order is the same."""
    chain, sides = draws(description), tuple(tensors[0].shape[1:])
    moves = [[one(sides, rng) for one in chain] for _ in tensors[0]]
    return [
        torch.stack([apply(moved, field) for moved, field in zip(moves, fields, strict=True)]) for fields in tensors
    ]


def apply(moves: Sequence[Move], field: Tensor) -> Tensor:
    """Apply drawn symmetries, the last one first."""
    for move in reversed(moves):
        field = move(field)
    return field


def draws(description: Description) -> list[Draw]:
    """Return what draws each of a problem's symmetries.

    Raises:
        ValueError: A name is unknown, the problem has vector fields, whose components would have to change, too, or a
            symmetry would make positive fields negative.
    """
    if any(quantity.components for quantity in (*description.inputs, *description.outputs) if description.symmetries):
        raise ValueError(f"{description.name}: symmetries of fields with components are not supported")
    if signs := change_signs(description.symmetries, (*description.inputs, *description.outputs)):
        raise ValueError(f"{description.name}: {signs}")
    return [draw(name, description) for name in description.symmetries]


def change_signs(symmetries: Iterable[str], fields: Iterable[Quantity]) -> str:
    """Return which symmetries would make which positive fields negative, as a sentence, or nothing."""
    signs = [name for name in symmetries if name == "negate" or name.startswith("reflect_")]
    positive = [one.name for one in fields if one.positive]
    known = f"{', '.join(signs)} does not hold for positive fields ({', '.join(positive)})"
    return known if signs and positive else ""


def draw(name: str, description: Description) -> Draw:
    """Return what draws the symmetry of a name; a function of the grid's sides and a random generator."""
    kind, _, along = name.partition("_")
    if name == "transpose":
        return transpose
    if name == "negate":
        return lambda _, rng: torch.neg if rng.random() < 0.5 else keep
    if kind not in {"flip", "reflect", "shift"} or along not in description.axis_names:
        known = [f"{each}_{axis}" for each in ("flip", "reflect", "shift") for axis in description.axis_names]
        raise ValueError(
            f"{description.name}: expected symmetries among {', '.join(known)}, transpose, negate but got {name!r}"
        )
    index = description.axis_names.index(along)
    axis, sign = description.axes[index], -1 if kind == "reflect" else 1
    if kind != "shift":
        step = 1 - axis.far_ends
        return lambda _, rng: (lambda field: sign * field.flip(index).roll(step, index)) if rng.random() < 0.5 else keep
    if axis.boundary != "periodic":
        raise ValueError(f"expected a periodic axis for {name} but its boundary is {axis.boundary!r}")

    def shift(sides: tuple[int, ...], rng: np.random.Generator) -> Move:
        steps = int(rng.integers(sides[index]))
        return lambda field: field.roll(steps, index)

    return shift


def transpose(sides: tuple[int, ...], rng: np.random.Generator) -> Move:
    """Draw a permutation of the axes that keeps the numbers of points."""
    orders = [order for order in permutations(range(len(sides))) if tuple(sides[axis] for axis in order) == sides]
    order = orders[-1 - int(rng.random() * len(orders))]
    return lambda field: field.permute(order)


def keep(field: Tensor) -> Tensor:
    """Return the field."""
    return field
