"""Takes a written graph and the network it came from, gives their differences on shapes that were never traced."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch

from export.deployable import Deployable, example

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray
    from torch import nn

    from export.signature import GridSpec, Signature

#: Largest relative L2 difference to float32 eager. Sums of a few thousand terms in another order differ by some 1e-6.
TOLERANCE = 1e-5

Graph: TypeAlias = "Callable[[NDArray[np.float32]], NDArray[np.float32]]"


@dataclass(frozen=True)
class Difference:
    """How far two answers are apart: the largest entry in physical units, and the worst field in relative L2."""

    max_abs: float
    relative_l2: float


@dataclass(frozen=True)
class Comparison:
    """A graph beside float32 eager, the gate, and float64 eager, which also shows what float32 itself loses."""

    shape: tuple[int, ...]
    float32: Difference
    float64: Difference


class ParityError(ValueError):
    """A graph does not compute what its network computes: the message names the worst shape."""


def compare(run: Graph, operator: nn.Module, signature: Signature) -> list[Comparison]:
    """Compare a graph with its operator over `shapes(signature)`."""
    single = Deployable(operator, signature.input.name)
    double = Deployable(operator, signature.input.name, torch.float64)
    return [compare_at(shape, run, single, double, signature) for shape in shapes(signature)]


def compare_at(
    shape: tuple[int, ...], run: Graph, single: nn.Module, double: nn.Module, signature: Signature
) -> Comparison:
    """Compare for one shape."""
    field = realistic(shape, positive=signature.input.positive)
    answer = run(field)
    with torch.inference_mode():
        eager32, eager64 = single(torch.from_numpy(field)).numpy(), double(wide(field)).numpy()
    if answer.shape != eager32.shape:
        raise ParityError(f"for the input {shape}: expected an answer {eager32.shape} but got {answer.shape}")
    return Comparison(shape, difference(answer, eager32), difference(answer, eager64))


def wide(field: NDArray[np.float32]) -> torch.Tensor:
    """Give the same numbers in float64."""
    return torch.from_numpy(field.astype(np.float64))


def gate(comparisons: Sequence[Comparison], tolerance: float = TOLERANCE) -> None:
    """Let only graphs within `tolerance` of float32 eager pass.

    Raises:
        ParityError: one is farther away, or its answer is not finite.
    """
    worst = max(comparisons, key=lambda one: np.nan_to_num(one.float32.relative_l2, nan=np.inf))
    if not worst.float32.relative_l2 <= tolerance:
        raise ParityError(
            f"for the input {worst.shape}: expected a relative L2 difference to float32 eager of at most {tolerance:g} "
            f"but found {worst.float32.relative_l2:.2g}"
        )


def difference(answer: NDArray[np.float32], eager: NDArray[Any]) -> Difference:
    """Measure in float64, field by field."""
    wanted = eager.astype(np.float64).reshape(len(eager), -1)
    error = answer.astype(np.float64).reshape(len(eager), -1) - wanted
    relative = np.linalg.norm(error, axis=1) / np.linalg.norm(wanted, axis=1)
    return Difference(max_abs=float(np.abs(error).max()), relative_l2=float(relative.max()))


def shapes(signature: Signature) -> list[tuple[int, ...]]:
    """Give batches 1, 2, 3 on the smallest, the largest and the declared grids, and on odd, prime and unequal sides."""
    drawn = [(1 + step % 3, *grid) for step, grid in enumerate(grids(signature.grid))]
    return [shape for shape in drawn if shape != tuple(example(signature).shape)]


def grids(grid: GridSpec) -> list[tuple[int, ...]]:
    """Give sides (two on a plane) of unlike arithmetic; the large ones are few, so that a proof takes seconds."""
    low, high, declared = grid.minimum, grid.maximum, grid.declared
    p, q = prime(2 * low), prime(3 * low)
    even = ((n, n, n) for n in declared)
    sides = [(low, low, low), (p, q, low), (q + 1, low, p), (declared[0], p, q), *even, (high, low, p)]
    cut = (some[: len(grid.axes)] for some in sides)
    return list(dict.fromkeys(some for some in cut if max(some) <= high))


def prime(start: int) -> int:
    """Give the first prime that is at least `start`."""
    return next(n for n in range(max(start, 2), 2 * start + 3) if all(n % k for k in range(2, int(n**0.5) + 1)))


def realistic(shape: tuple[int, ...], *, positive: bool, seed: int = 0) -> NDArray[np.float32]:
    """Draw smooth fields of unit deviation or, where they must be positive, two-valued ones."""
    rng = np.random.default_rng(seed)
    smooth = np.stack([waves(shape[1:], rng) for _ in range(shape[0])])
    return (np.where(smooth >= 0, 12.0, 3.0) if positive else smooth).astype(np.float32)


def waves(sides: tuple[int, ...], rng: np.random.Generator, modes: int = 6) -> NDArray[np.float64]:
    """Draw a random field of the lowest waves, periodic on the unit cube, of deviation 1."""
    field = rng.standard_normal((modes,) * len(sides))
    for n in sides:
        k, x = np.arange(modes), np.arange(n) / n
        basis = np.cos(2 * np.pi * np.outer(x, k) + k) / (1 + k**2)
        field = np.tensordot(field, basis, axes=(0, 1))
    deviation: float = field.std()
    return (field - field.mean()) / deviation
