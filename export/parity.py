"""Differences of a written graph and its network on shapes that were never traced.

For models of sequences also how far padding behind the words changes an output, which is only by rounding.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch

from export.graphs.deployable import Deployable
from export.probes import Statistics, draw, lengths, shapes
from physics.numerics.grid import relative_l2

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray
    from torch import nn

    from export.signature import Quality, Signature

#: Largest relative L2 difference to float32 eager. Sums of a few thousand terms in another order differ by some 1e-6.
TOLERANCE = 1e-5

#: Largest difference of a quality output, relative to its value or, for smaller ones, to its floor. A bound at the
#: rounding level of float32 has few digits, and a share of calibration inputs changes in steps.
QUALITY_TOLERANCE = 1e-2
FLOORS: dict[Quality, float] = {
    "error_bound": 1e-3,
    "solve_bound": 1e-4,
    "misfit": 1e-4,
    "error_estimate": 1e-4,
    "novelty": 1.0,
}

Graph: TypeAlias = "Callable[..., list[NDArray[np.float32]]]"


@dataclass(frozen=True)
class Difference:
    """The difference of two outputs: the largest entry in physical units, and the worst sample in relative L2."""

    max_abs: float
    relative_l2: float


@dataclass(frozen=True)
class Comparison:
    """A graph beside float32 eager, which decides, and float64 eager, which shows the rounding of float32 itself.

    `quality` holds the largest difference to float32 eager per quality output, as `QUALITY_TOLERANCE` counts it.
    """

    shape: tuple[int, ...]
    float32: Difference
    float64: Difference
    quality: dict[Quality, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Padded:
    """A graph's output for sequences of a shape beside that for the same with `added` tokens of padding behind."""

    shape: tuple[int, ...]
    added: int
    difference: Difference


class ParityError(ValueError):
    """A graph does not compute what its network computes: the message names the worst shape."""


def evidence(run: Graph, network: nn.Module, signature: Signature, like: Statistics) -> dict[str, Any]:
    """Compare a graph with its network, and return what the certificate says of it."""
    comparisons = compare(run, network, signature, like)
    gate(comparisons)
    found = {
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
            name: float((np.abs(output.astype(np.float64) - truth) / np.maximum(np.abs(truth), FLOORS[name])).max())
            for name, output, truth in zip(signature.quality, outputs[count:], eager32[count:], strict=True)
        }
        single32, double64 = (worst(outputs[:count], each[:count]) for each in (eager32, eager64))
        found.append(Comparison(shape, single32, double64, quality))
    return found


def eager(module: nn.Module, arguments: list[torch.Tensor]) -> list[NDArray[Any]]:
    """Run a network that returns one tensor or a tuple of tensors."""
    found = module(*arguments)
    return [tensor.numpy() for tensor in (found if isinstance(found, tuple) else (found,))]


def worst(outputs: Sequence[NDArray[np.float32]], expected: Sequence[NDArray[Any]]) -> Difference:
    """Return the largest differences over all outputs."""
    found = [difference(*pair) for pair in zip(outputs, expected, strict=True)]
    return Difference(max(one.max_abs for one in found), max(one.relative_l2 for one in found))


def gate(comparisons: Sequence[Comparison], tolerance: float = TOLERANCE) -> None:
    """Accept only graphs within `tolerance` of float32 eager, and quality outputs within `QUALITY_TOLERANCE`."""
    farthest = max(comparisons, key=lambda one: np.nan_to_num(one.float32.relative_l2, nan=np.inf))
    if not farthest.float32.relative_l2 <= tolerance:
        raise ParityError(
            f"for the input {farthest.shape}: expected a relative L2 difference to float32 eager of at most "
            f"{tolerance:g} but found {farthest.float32.relative_l2:.2g}"
        )
    for one in comparisons:
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
