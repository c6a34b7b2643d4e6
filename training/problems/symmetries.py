"""Exact symmetries of the problems: takes samples and a random generator, gives samples that are just as true.

If G maps inputs to outputs and a symmetry s commutes with the equation, then s(input) is answered by s(output).
Drawing s at random for every sample multiplies the training set for free.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations

import numpy as np
import torch
from torch import Tensor

Move = Callable[[Tensor], Tensor]


def square(side_lengths: tuple[int, ...], rng: np.random.Generator) -> Move:
    """Draw one of the square's eight symmetries for a field `[row, column]`; of a rectangle's four otherwise."""
    flips = [axis for axis in (0, 1) if rng.random() < 0.5]
    transpose = rng.random() < 0.5 and side_lengths[0] == side_lengths[1]
    return lambda field: (field.T if transpose else field).flip(flips)


def open_square(side_lengths: tuple[int, ...], rng: np.random.Generator) -> Move:
    """Draw one of the square's symmetries for a field whose grid begins at one wall and ends a step before the other.

    A flip takes point i to n - i and leaves the first where it is: it moves fields by twice the distance of the first
    point from the wall (half a cell of 512 in the neuraloperator's set), and is exact but for that.
    """
    flips = [axis for axis in (0, 1) if rng.random() < 0.5]
    shifts = [int(axis in flips) for axis in (0, 1)]
    transpose = rng.random() < 0.5 and side_lengths[0] == side_lengths[1]
    return lambda field: (field.T if transpose else field).flip(flips).roll(shifts, (0, 1))


def circle(side_lengths: tuple[int, ...], rng: np.random.Generator) -> Move:
    """Draw a shift of a periodic velocity `[point]`, and with probability 1/2 the reflection u(x) -> -u(-x)."""
    shift, reflect = int(rng.integers(side_lengths[0])), rng.random() < 0.5
    return lambda field: (-field.flip(0) if reflect else field).roll(shift)


def cube(side_lengths: tuple[int, ...], rng: np.random.Generator) -> Move:
    """Draw one of the cube's 48 symmetries for a field `[depth, row, column]`; of a box, one that keeps its sides."""
    axes = range(len(side_lengths))
    orders = [order for order in permutations(axes) if tuple(side_lengths[axis] for axis in order) == side_lengths]
    order = orders[rng.integers(len(orders))]
    flips = [axis for axis in axes if rng.random() < 0.5]
    return lambda field: field.permute(order).flip(flips)


SYMMETRIES: dict[str, Callable[[tuple[int, ...], np.random.Generator], Move]] = {
    "darcy": square,
    "darcy_inverse": square,
    "neuralop_darcy": open_square,
    "burgers": circle,
    "poisson": cube,
}


def transform(problem: str, inputs: Tensor, outputs: Tensor, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Move every sample of a batch `[batch, *grid]` by a symmetry of its own."""
    moves = [SYMMETRIES[problem](tuple(inputs.shape[1:]), rng) for _ in inputs]
    moved = [
        torch.stack([move(field) for move, field in zip(moves, fields, strict=True)]) for fields in (inputs, outputs)
    ]
    return moved[0], moved[1]
