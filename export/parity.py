"""Differences of a written graph and its network on shapes that were never traced, and the inputs that are compared.

For models of sequences also how far padding behind the words changes an output, which is only by rounding.

The inputs have values of the size of the data's. A network is a good approximation on inputs like its data, and its
rounding errors are small there. On others it extrapolates: inputs of deviation 1 are thousands of deviations away from
data around 1e-3.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from safetensors.numpy import load_file

from export.graphs.deployable import Deployable, argument_shapes
from physics.numerics.grid import relative_l2
from schema.card import COMPONENT, COORDINATES, FRAME
from training.optimisation import FLOAT32, Rounded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import nn

    from export.signature import Signature
    from schema.card import Parameter, Tensor
    from schema.problem import Grid
    from training.optimisation import Precision

#: Largest relative L2 difference to float32 eager. Sums of a few thousand terms in another order differ by some 1e-6.
TOLERANCE = 1e-5

#: And of a network whose recipe asks for less precision, with its factors rounded so, to itself in float32. Measured on
#: a GPU, TF32 changed the released models by 4e-6 to 2e-3.
ROUNDED: dict[Precision, float] = {"tf32": 5e-3, "bfloat16": 4e-2}
#: Points of the largest cloud that is compared, unless the declared ones have more.
LARGEST_CLOUD = 20_000
#: What rounded products cannot guarantee: they made bounds 37 % smaller or larger.
GUARANTEED = {"error_bound", "solve_bound"}

#: Largest difference of a quality output, relative to its value or, for smaller ones, to its floor. A bound at the
#: rounding level of float32 has few digits, and a share of calibration inputs changes in steps.
QUALITY_TOLERANCE = 1e-2
FLOORS: dict[str, float] = {
    "error_bound": 1e-3,
    "solve_bound": 1e-4,
    "misfit": 1e-4,
    "error_estimate": 1e-4,
    "novelty": 1.0,
}

#: Largest difference of a component, or of a frame of a trajectory, relative to its own size: one that is small beside
#: the others, such as a velocity beside a pressure, hardly counts in the whole. Beside it comes what rounding of the
#: largest one makes of a difference of two large numbers.
PART_TOLERANCE = 1e-3
EPSILON = float(np.finfo(np.float32).eps)
PARTS = {COMPONENT, FRAME}  # the axes along which a tensor has parts

TINY = 1e-300  # which keeps 0 / 0 from being a difference

TENTHS = (0.1, 0.9)  # the shares of the values below the two of a positive field
EDGE = -0.5  # of a smooth field on the edge of a domain that is drawn, of which more than a half is inside

Graph: TypeAlias = "Callable[..., list[NDArray[np.float32]]]"


@dataclass(frozen=True)
class Difference:
    """The difference of two outputs: the largest entry in physical units, and the worst sample in relative L2."""

    max_abs: float
    relative_l2: float


@dataclass(frozen=True)
class Comparison:
    """A graph beside float32 eager, which decides, and float64 eager, which shows the rounding of float32 itself.

    `quality` holds the largest difference to float32 eager per quality output, as `QUALITY_TOLERANCE` counts it, and
    `part` that of a component or frame, as `PART_TOLERANCE` does.
    """

    shape: tuple[int, ...]
    float32: Difference
    float64: Difference
    quality: dict[str, float] = field(default_factory=dict)
    part: float = 0.0


@dataclass(frozen=True)
class Padded:
    """A graph's output for sequences of a shape beside that for the same with `added` tokens of padding behind."""

    shape: tuple[int, ...]
    added: int
    difference: Difference


class ParityError(ValueError):
    """A graph does not compute what its network computes: the message names the worst shape."""


def evidence(
    run: Graph, network: nn.Module, signature: Signature, like: Statistics, precision: Precision = FLOAT32
) -> dict[str, Any]:
    """Compare a graph with its network, and return what the certificate says of it; `precision` is that on a GPU."""
    comparisons = compare(run, network, signature, like)
    gate(comparisons)
    found = {
        **({} if precision == FLOAT32 else rounded(network, signature, like, precision)),
        "tolerance": TOLERANCE,
        "comparisons": [{**asdict(one), "shape": list(one.shape)} for one in comparisons],
        "worst": {kind: max(getattr(one, kind).relative_l2 for one in comparisons) for kind in ("float32", "float64")},
    }
    if signature.vocabulary is None:
        return found
    high = signature.grid.maximum
    behind = [
        padded(run, draw((2, length), signature), min(high - length, length + 7))
        for length in lengths(signature.grid)
        if length < high
    ]
    for one in behind:
        if not one.difference.relative_l2 <= TOLERANCE:
            raise ParityError(
                f"for the input {one.shape}: expected {one.added} tokens of padding behind it to change the output "
                f"by at most {TOLERANCE:g} in relative L2 but found {one.difference.relative_l2:.2g}"
            )
    return found | {"padding": [{**asdict(one), "shape": list(one.shape)} for one in behind]}


def rounded(network: nn.Module, signature: Signature, like: Statistics, precision: Precision) -> dict[str, Any]:
    """Compare a network with itself in less precision, and return what the certificate says of it.

    Raises:
        ParityError: It differs by more than the precision's tolerance, or guarantees a bound.
    """
    if bounds := sorted(GUARANTEED.intersection(signature.quality)):
        raise ParityError(
            f"precision: expected float32 for a model that guarantees {' and '.join(bounds)} but got {precision}"
        )
    single, worst_difference = Deployable(network, signature.argument_names), 0.0
    for shape in shapes(signature):
        tensors = [torch.from_numpy(array) for array in draw(shape, signature, like=like)]
        with torch.no_grad():
            exact = eager(single, tensors)
            with Rounded(precision):
                rough = eager(single, tensors)
        count = len(signature.outputs)
        found = worst(rough[:count], exact[:count]).relative_l2
        if not found <= ROUNDED[precision]:
            raise ParityError(
                f"for the input {shape}: expected products in {precision} to change outputs by at most "
                f"{ROUNDED[precision]:g} in relative L2 but found {found:.2g}"
            )
        worst_difference = max(worst_difference, found)
    return {"precision": {"name": precision, "tolerance": ROUNDED[precision], "worst": worst_difference}}


def compare(
    run: Graph,
    operator: nn.Module,
    signature: Signature,
    like: Statistics | None = None,
    over: Sequence[tuple[int, ...]] = (),
) -> list[Comparison]:
    """Compare a graph with its operator on inputs of the size of the data's, over `shapes(signature)` by default."""
    single = Deployable(operator, signature.argument_names)
    double = Deployable(operator, signature.argument_names, torch.float64)
    count, found = len(signature.outputs), []
    for shape in over or shapes(signature):
        arguments = draw(shape, signature, like=like)
        outputs, tensors = run(*arguments), [torch.from_numpy(array) for array in arguments]
        with torch.inference_mode():
            eager32 = eager(single, tensors)
            eager64 = eager(double, [each.double() if each.is_floating_point() else each for each in tensors])
        for output, expected in zip(outputs, eager32, strict=True):
            if output.shape != expected.shape:
                raise ParityError(f"for the input {shape}: expected an output {expected.shape} but got {output.shape}")
        quality = {
            name: float((np.abs(output.astype(np.float64) - truth) / floored(name, truth, signature)).max())
            for name, output, truth in zip(signature.quality, outputs[count:], eager32[count:], strict=True)
        }
        single32, double64 = (worst(outputs[:count], each[:count]) for each in (eager32, eager64))
        parts = zip(outputs, eager32, signature.outputs, strict=False)  # quality outputs are compared by themselves
        part = largest(strayed(output, truth, spec.axes) for output, truth, spec in parts)
        found.append(Comparison(shape, single32, double64, quality, part))
    return found


def floored(quality: str, values: NDArray[Any], signature: Signature) -> NDArray[np.float64]:
    """Return the sizes of a quality output that differences are compared with; intervals have units, and no floor."""
    floor = FLOORS[quality] if signature.interval_of(quality) is None else TINY
    return np.maximum(np.abs(values, dtype=np.float64), floor)


def eager(module: nn.Module, arguments: list[torch.Tensor]) -> list[NDArray[Any]]:
    """Run a network that returns one tensor or a tuple of tensors."""
    found = module(*arguments)
    return [tensor.numpy() for tensor in (found if isinstance(found, tuple) else (found,))]


def worst(outputs: Sequence[NDArray[np.float32]], expected: Sequence[NDArray[Any]]) -> Difference:
    """Return the largest differences over all outputs."""
    found = [difference(*pair) for pair in zip(outputs, expected, strict=True)]
    return Difference(largest(one.max_abs for one in found), largest(one.relative_l2 for one in found))


def largest(values: Iterable[float]) -> float:
    """Return the largest value, NaN where one is: `max` passes over a NaN that is not the first."""
    return float(np.max([*values]))


def strayed(output: NDArray[Any], expected: NDArray[Any], axes: Sequence[str]) -> float:
    """Return the largest difference of a component or frame over a batch, relative to its own size."""
    whole = tuple(index for index, axis in enumerate(axes) if axis not in PARTS)
    truth = expected.astype(np.float64)
    error, size = (np.sqrt(np.square(each).sum(whole)) for each in (output - truth, truth))
    return float((error / np.maximum(size + EPSILON / PART_TOLERANCE * size.max(), TINY)).max())


def gate(comparisons: Sequence[Comparison], tolerance: float = TOLERANCE) -> None:
    """Accept only graphs within `tolerance` of float32 eager, whose parts are within `PART_TOLERANCE`.

    Quality outputs have to be within `QUALITY_TOLERANCE`.
    """
    farthest = max(comparisons, key=lambda one: np.nan_to_num(one.float32.relative_l2, nan=np.inf))
    if not farthest.float32.relative_l2 <= tolerance:
        raise ParityError(
            f"for the input {farthest.shape}: expected a relative L2 difference to float32 eager of at most "
            f"{tolerance:g} but found {farthest.float32.relative_l2:.2g}"
        )
    for one in comparisons:
        if not one.part <= PART_TOLERANCE:
            raise ParityError(
                f"for the input {one.shape}: expected every component and frame of an output to differ from float32 "
                f"eager by at most {PART_TOLERANCE:g} of its own size but found {one.part:.2g}"
            )
        for name, difference in one.quality.items():
            if not difference <= QUALITY_TOLERANCE:
                raise ParityError(
                    f"for the input {one.shape}: expected {name} to differ from float32 eager by at most "
                    f"{QUALITY_TOLERANCE:g} but found {difference:.2g}"
                )


def padded(run: Graph, inputs: Sequence[NDArray[np.int32]], added: int) -> Padded:
    """Run one batch of tokens `[batch, token]` twice; outputs for padding itself do not count."""
    tokens = inputs[0]
    (plain,), (behind,) = run(*inputs), run(*(np.pad(one, ((0, 0), (0, added))) for one in inputs))
    if plain.ndim > 2:
        words = tokens[..., None] != 0
        plain, behind = np.where(words, plain, 0), np.where(words, behind[:, : tokens.shape[1]], 0)
    return Padded(tokens.shape, added, difference(behind, plain))


def difference(output: NDArray[np.float32], expected: NDArray[Any]) -> Difference:
    """Measure in float64, sample by sample."""
    error = output.astype(np.float64) - expected.astype(np.float64)
    return Difference(max_abs=float(np.abs(error).max()), relative_l2=float(relative_l2(output, expected).max()))


# The inputs that are compared


@dataclass(frozen=True)
class Distribution:
    """How the values of one input are distributed, per component of a vector field; the arrays broadcast to a batch."""

    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


Statistics = dict[str, Distribution]  # by the name of an input or parameter


def statistics(examples: Path | None, signature: Signature) -> Statistics:
    """Return the distribution of the inputs in a file of examples; of none without a file, or of tokens."""
    if examples is None or signature.vocabulary is not None:
        return {}
    samples, found = load_file(examples), {}
    specs: tuple[Tensor | Parameter, ...] = (*signature.inputs, *signature.parameters)
    for spec in specs:
        if spec.name in samples:
            values = samples[spec.name].astype(np.float64)
            component = spec.axes.index("component") if "component" in spec.axes else None
            axes = tuple(axis for axis in range(values.ndim) if axis != component)
            low, high = (np.quantile(values, share, axis=axes, keepdims=True) for share in TENTHS)
            mean, deviation = (of(values, axis=axes, keepdims=True) for of in (np.mean, np.std))
            found[spec.name] = Distribution(mean, np.where(deviation > 0, deviation, 1), low, high)
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
            field = field * known.deviation + (0 if base != tensor.name else known.mean)
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
