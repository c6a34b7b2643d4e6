"""Differences of a written graph and its network on shapes that were never traced; `probes` has the inputs.

For models of sequences also how far padding behind the words changes an output, which is only by rounding.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch

from export.graphs.deployable import Deployable
from export.probes import Statistics, draw, lengths, shapes
from schema.card import COMPONENT, FRAME
from training.optimisation import FLOAT32, Rounded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray
    from torch import nn

    from export.signature import Signature
    from training.optimisation import Precision

#: Largest relative L2 difference to float32 eager. Sums of a few thousand terms in another order differ by some 1e-6.
#: That of a number is relative to the size of the data's where it is smaller: one near zero has few digits.
TOLERANCE = 1e-5

#: And of a network whose recipe asks for less precision, with its factors rounded so, to itself in float32. Measured on
#: a GPU, TF32 changed the released models by 4e-6 to 2e-3.
ROUNDED: dict[Precision, float] = {"tf32": 5e-3, "bfloat16": 4e-2}
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
        found = worst(rough[:count], exact[:count], sizes(signature, like)).relative_l2
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
        known = sizes(signature, like)
        single32, double64 = (worst(outputs[:count], each[:count], known) for each in (eager32, eager64))
        # Quality outputs are compared by themselves.
        parts = zip(outputs, eager32, signature.outputs, known, strict=False)
        part = largest(strayed(output, truth, spec.axes, size) for output, truth, spec, size in parts)
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


def sizes(signature: Signature, like: Statistics | None) -> list[NDArray[np.float64]]:
    """Return for every output the sizes of its components in the data if it is a number, and 0 else, or if unknown."""
    known, nothing = like or {}, np.zeros(1)
    return [known[spec.name].size.reshape(-1) if spec.name in known else nothing for spec in signature.outputs]


def worst(
    outputs: Sequence[NDArray[np.float32]], expected: Sequence[NDArray[Any]], known: Sequence[NDArray[np.float64]]
) -> Difference:
    """Return the largest differences over all outputs, whose sizes are known or 0."""
    found = [difference(*each) for each in zip(outputs, expected, known, strict=True)]
    return Difference(largest(one.max_abs for one in found), largest(one.relative_l2 for one in found))


def largest(values: Iterable[float]) -> float:
    """Return the largest value, NaN where one is: `max` passes over a NaN that is not the first."""
    return float(np.max([*values]))


def strayed(
    output: NDArray[Any], expected: NDArray[Any], axes: Sequence[str], known: NDArray[np.float64] | float = 0.0
) -> float:
    """Return the largest difference of a component or frame over a batch, relative to its own size, or a known one."""
    whole = tuple(index for index, axis in enumerate(axes) if axis not in PARTS)
    truth = expected.astype(np.float64)
    error, size = (np.sqrt(np.square(each).sum(whole)) for each in (output - truth, truth))
    size = np.maximum(size, known) if np.any(known) else size + EPSILON / PART_TOLERANCE * size.max()
    return float((error / np.maximum(size, TINY)).max())


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


def difference(
    output: NDArray[np.float32], expected: NDArray[Any], known: NDArray[np.float64] | float = 0.0
) -> Difference:
    """Measure in float64, sample by sample; one is not smaller than the known sizes of its components."""
    truth = expected.astype(np.float64)
    error, axes = output.astype(np.float64) - truth, tuple(range(1, truth.ndim))
    relative = np.sqrt(np.square(error).sum(axes) / np.maximum(np.square(truth).sum(axes), np.square(known).sum()))
    return Difference(max_abs=float(np.abs(error).max()), relative_l2=float(relative.max()))
