"""The inputs that a written graph and its network are compared on: shapes that were never traced, and their values.

The values are of the size of the data's. A network is a good approximation on inputs like its data, and its rounding
errors are small there. On others it extrapolates: inputs of deviation 1 are thousands of deviations away from data
around 1e-3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors.numpy import load_file

from export.graphs.deployable import argument_shapes
from schema.card import COORDINATES

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from export.signature import Signature
    from schema.card import Parameter, Tensor
    from schema.problem import Grid

#: Points of the largest cloud that is compared, unless the declared ones have more.
LARGEST_CLOUD = 20_000
TENTHS = (0.1, 0.9)  # the shares of the values below the two of a positive field
EDGE = -0.5  # of a smooth field on the edge of a domain that is drawn, of which more than a half is inside


@dataclass(frozen=True)
class Distribution:
    """How the values of one tensor are distributed, per component of a vector; the arrays broadcast to a batch."""

    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]

    @property
    def size(self) -> NDArray[np.float64]:
        """The root mean square."""
        return np.hypot(self.mean, self.deviation)


Statistics = dict[str, Distribution]  # by the name of an input, a parameter, or an output that is a number per sample


def statistics(examples: Path | None, signature: Signature) -> Statistics:
    """Return how inputs and numbers are distributed in a file of examples; nothing without a file, or of tokens."""
    if examples is None or signature.vocabulary is not None:
        return {}
    samples, found = load_file(examples), {}
    scalars = (spec for spec in signature.outputs if {*signature.grid.axes}.isdisjoint(spec.axes))
    specs: tuple[Tensor | Parameter, ...] = (*signature.inputs, *signature.parameters, *scalars)
    for spec in specs:
        if spec.name in samples:
            values = samples[spec.name].astype(np.float64)
            component = spec.axes.index("component") if "component" in spec.axes else None
            axes = tuple(axis for axis in range(values.ndim) if axis != component)
            low, high = (np.quantile(values, share, axis=axes, keepdims=True) for share in TENTHS)
            mean, deviation = (of(values, axis=axes, keepdims=True) for of in (np.mean, np.std))
            found[spec.name] = Distribution(mean, deviation, low, high)
    return found


def shapes(signature: Signature) -> list[tuple[int, ...]]:
    """Return batches 1, 2, 3 on the smallest, largest and declared grids, and on odd, prime and unequal sides."""
    grid = signature.grid
    if signature.scattered:  # larger clouds take minutes in double precision, and are sums of more terms
        grid = grid.model_copy(update={"maximum": min(grid.maximum, max(LARGEST_CLOUD, *grid.declared))})
    sides = [(n,) for n in lengths(grid)] if signature.vocabulary else grids(grid)
    traced = [signature.grid.minimum + step for step in range(3, 3 + 2 * len(signature.grid.axes), 2)]
    drawn = [(1 + step % 3, *some) for step, some in enumerate(sides)]
    return [shape for shape in drawn if shape[1:] != tuple(traced) or shape[0] != 2]


def grids(grid: Grid) -> list[tuple[int, ...]]:
    """Return sides (two on a plane) of unlike arithmetic; the large ones are few, so that it takes seconds."""
    low, high, declared = grid.minimum, grid.maximum, grid.declared
    p, q = prime(2 * low), prime(3 * low)
    even = ((n, n, n) for n in declared)
    mixed = [(declared[0], p, q)] if declared else []
    sides = [(low, low, low), (p, q, low), (q + 1, low, p), *mixed, *even, *grid.unequal, (high, low, p)]
    cut = (some[: len(grid.axes)] for some in sides)
    return list(dict.fromkeys(some for some in cut if max(some) <= high))


def lengths(grid: Grid) -> list[int]:
    """Return the smallest, the largest and the declared lengths of a sequence, and some that are odd and prime."""
    low, high, declared = grid.minimum, grid.maximum, grid.declared
    odd = (prime(low + 1), prime(2 * low + 9), prime(declared[0] // 2))
    return [n for n in dict.fromkeys((low, *odd, *declared, high)) if low <= n <= high]


def prime(start: int) -> int:
    """Return the first prime that is at least `start`."""
    return next(n for n in range(max(start, 2), 2 * start + 3) if all(n % k for k in range(2, int(n**0.5) + 1)))


def draw(
    shape: tuple[int, ...],
    signature: Signature,
    seed: int = 0,
    frames: int | None = None,
    like: Mapping[str, Distribution] | None = None,
) -> tuple[NDArray[Any], ...]:
    """Draw all arguments of a graph for batch and points per axis: fields and parameters, or sequences.

    There are as many frames of a trajectory as samples, up to three, by default. `like` is the distribution of the
    data, fields of deviation 1 by default. A tangent has the deviation of its input.
    """
    if signature.vocabulary is not None:
        words = len(signature.vocabulary.words)
        return tuple(sentences(shape, words, seed + 1000 * index) for index, _ in enumerate(signature.inputs))
    shapes, like = [sides for sides, _ in argument_shapes(signature, shape, frames)], like or {}
    fields = []
    for index, (sides, tensor) in enumerate(zip(shapes, signature.inputs, strict=False)):
        if not {*tensor.axes} & {*signature.grid.axes}:  # the cotangent of numbers
            fields.append(np.random.default_rng(seed + 1000 * index).standard_normal(sides).astype(np.float32))
            continue
        field: NDArray[Any] = realistic(sides, positive=tensor.positive, seed=seed + 1000 * index)
        if tensor.name == signature.mask:
            fields.append((field > EDGE).astype(np.float32))
            continue
        base = tensor.name.removeprefix("tangents.")
        known = like.get(base)
        if known is not None and tensor.positive:
            field = np.where(field > 6, known.high, known.low)
        elif known is not None:
            deviation = np.where(known.deviation > 0, known.deviation, 1)
            field = field * deviation + (0 if base != tensor.name else known.mean)
        fields.append(field.astype(np.float32))
    frame = [np.zeros(shapes[-1], np.int32)] if signature.frames or signature.takes_grid else []
    parameters = (
        numbers(each, parameter, seed, like.get(parameter.name))
        for each, parameter in zip(shapes[len(signature.inputs) :], signature.parameters, strict=False)
    )
    if signature.scattered:
        fields[0] = cloud(shapes[0], seed, like.get(COORDINATES))
        rng, (_, *others) = np.random.default_rng(seed), parameters
        counts = rng.integers(min(signature.grid.minimum, shape[1]), shape[1] + 1, shape[0])
        counts[0] = 0  # all points
        return (*fields, counts.astype(np.float32), *others, *frame)
    return (*fields, *parameters, *frame)


def cloud(shape: tuple[int, ...], seed: int, like: Distribution | None) -> NDArray[np.float32]:
    """Draw coordinates `[batch, point, dimension]` among the data's; some lie beyond them."""
    low, high = (0.0, 1.0) if like is None else (like.low, like.high)
    return np.random.default_rng(seed).uniform(low, high + 0.2 * (high - low), shape).astype(np.float32)


def numbers(
    shape: int | tuple[int, ...], parameter: Parameter, seed: int = 0, like: Distribution | None = None
) -> NDArray[np.float32]:
    """Draw the values of a parameter between its bounds; without them like the data, or near its default."""
    middle = 0.0 if parameter.default is None else parameter.default
    low: Any
    high: Any
    if like is not None:
        low, high = like.low.reshape(-1), like.high.reshape(-1)  # per component
    elif parameter.minimum is None and parameter.maximum is not None:
        low, high = min(middle, parameter.maximum) - 1, parameter.maximum
    else:
        low = middle - 1 if parameter.minimum is None else parameter.minimum
        high = low + 2 if parameter.minimum is not None else middle + 1
    low = low if parameter.minimum is None else parameter.minimum
    high = high if parameter.maximum is None else parameter.maximum
    return np.random.default_rng(seed).uniform(low, np.maximum(low, high), shape).astype(np.float32)


def sentences(shape: tuple[int, ...], words: int, seed: int = 0) -> NDArray[np.int32]:
    """Draw tokens at random: the first sequence is as long as the batch is wide, the others end anywhere before."""
    rng, (batch, length) = np.random.default_rng(seed), shape
    ends = rng.integers(1, length + 1, batch)
    ends[0] = length
    tokens = rng.integers(1, words, shape, dtype=np.int32)
    return np.where(np.arange(length) < ends[:, None], tokens, np.int32(0))


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
