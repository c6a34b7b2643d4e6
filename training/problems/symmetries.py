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

from collections.abc import Callable, Sequence
from itertools import permutations

import numpy as np
import torch
from torch import Tensor

from training.problems.description import Axis, Description

Move = Callable[[Tensor], Tensor]
Draw = Callable[[tuple[int, ...], np.random.Generator], Move]


def draws(description: Description) -> list[Draw]:
    """Return what draws each of a problem's symmetries.

    Raises:
        ValueError: A name is unknown, the problem has vector fields, whose components would have to change, too, or a
            symmetry would make positive fields negative.
    """
    if any(quantity.components for quantity in (*description.inputs, *description.outputs) if description.symmetries):
        raise ValueError(f"{description.name}: symmetries of fields with components are not supported")
    signs = [name for name in description.symmetries if name == "negate" or name.startswith("reflect_")]
    if signs and any(quantity.positive for quantity in (*description.inputs, *description.outputs)):
        raise ValueError(f"{description.name}: {', '.join(signs)} does not hold for positive fields")
    return [draw(name, description) for name in description.symmetries]


def draw(name: str, description: Description) -> Draw:
    """Return what draws the symmetry of a name; a function of the grid's sides and a random generator.

    Raises:
        ValueError: There is no such symmetry.
    """
    if name == "transpose":
        return transpose
    if name == "negate":
        return negate
    kind, _, along = name.partition("_")
    index = dict(zip(description.axis_names, range(len(description.axes)), strict=True)).get(along)
    if kind not in ALONG or index is None:
        known = [f"{each}_{axis}" for each in ALONG for axis in description.axis_names]
        raise ValueError(
            f"{description.name}: expected symmetries among {', '.join(known)}, transpose, negate but got {name!r}"
        )
    return ALONG[kind](index, description.axes[index])


def flip(index: int, axis: Axis) -> Draw:
    """Draw the mirror image along an axis."""
    step = 1 - axis.far_ends

    def drawn(sides: tuple[int, ...], rng: np.random.Generator) -> Move:
        del sides
        return (lambda field: field.flip(index).roll(step, index)) if rng.random() < 0.5 else keep

    return drawn


def reflect(index: int, axis: Axis) -> Draw:
    """Draw the mirror image along an axis with the opposite sign."""
    flipped = flip(index, axis)

    def drawn(sides: tuple[int, ...], rng: np.random.Generator) -> Move:
        move = flipped(sides, rng)
        return keep if move is keep else lambda field: -move(field)

    return drawn


def shift(index: int, axis: Axis) -> Draw:
    """Draw a shift along a periodic axis.

    Raises:
        ValueError: The axis is not periodic.
    """
    if axis.boundary != "periodic":
        raise ValueError(f"expected a periodic axis for shift_{axis.name} but its boundary is {axis.boundary!r}")

    def drawn(sides: tuple[int, ...], rng: np.random.Generator) -> Move:
        steps = int(rng.integers(sides[index]))
        return lambda field: field.roll(steps, index)

    return drawn


def transpose(sides: tuple[int, ...], rng: np.random.Generator) -> Move:
    """Draw a permutation of the axes that keeps the numbers of points."""
    orders = [order for order in permutations(range(len(sides))) if tuple(sides[axis] for axis in order) == sides]
    order = orders[-1 - int(rng.random() * len(orders))]
    return lambda field: field.permute(order)


def negate(sides: tuple[int, ...], rng: np.random.Generator) -> Move:
    """Draw the sign."""
    del sides
    return torch.neg if rng.random() < 0.5 else keep


def keep(field: Tensor) -> Tensor:
    """Return the field."""
    return field


ALONG: dict[str, Callable[[int, Axis], Draw]] = {"flip": flip, "reflect": reflect, "shift": shift}


def transform(description: Description, tensors: Sequence[Tensor], rng: np.random.Generator) -> list[Tensor]:
    """Move every sample of a batch by a symmetry of its own.

    Args:
        description: The problem.
        tensors: Inputs and outputs `[batch, *grid]`; all of a sample's fields are moved alike.
        rng: Where the symmetries are drawn from.

    Returns:
        The moved tensors in the same order.
    """
    chain = draws(description)
    moves = [[one(tuple(tensors[0].shape[1:]), rng) for one in chain] for _ in tensors[0]]
    return [
        torch.stack([apply(moved, field) for moved, field in zip(moves, fields, strict=True)]) for fields in tensors
    ]


def apply(moves: Sequence[Move], field: Tensor) -> Tensor:
    """Apply drawn symmetries, the last one first."""
    for move in reversed(moves):
        field = move(field)
    return field
