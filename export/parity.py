"""Takes a written graph and the network it came from, gives their differences on shapes that were never traced.

For models of sequences also how far padding behind the words moves an answer, which is not at all but for rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch

from export.deployable import Deployable
from export.questions import lengths, question, shapes
from physics.norms import relative_l2

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray
    from torch import nn

    from export.signature import Signature

#: Largest relative L2 difference to float32 eager. Sums of a few thousand terms in another order differ by some 1e-6.
TOLERANCE = 1e-5

Graph: TypeAlias = "Callable[[NDArray[Any]], NDArray[np.float32]]"


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


@dataclass(frozen=True)
class Padded:
    """A graph's answer to sequences of a shape beside its answer to the same with `added` tokens of padding behind."""

    shape: tuple[int, ...]
    added: int
    difference: Difference


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
    asked = question(shape, signature)
    answer = run(asked)
    with torch.inference_mode():
        eager32, eager64 = single(torch.from_numpy(asked)).numpy(), double(wide(asked)).numpy()
    if answer.shape != eager32.shape:
        raise ParityError(f"for the input {shape}: expected an answer {eager32.shape} but got {answer.shape}")
    return Comparison(shape, difference(answer, eager32), difference(answer, eager64))


def wide(asked: NDArray[Any]) -> torch.Tensor:
    """Give the same numbers in float64, and tokens as they are."""
    tensor = torch.from_numpy(asked)
    return tensor.double() if tensor.is_floating_point() else tensor


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


def padding(run: Graph, signature: Signature) -> list[Padded]:
    """Ask a graph of sequences about the same words, with and without more padding behind them."""
    high = signature.grid.maximum
    batches = [question((2, length), signature) for length in lengths(signature.grid) if length < high]
    return [padded(run, tokens, min(high - tokens.shape[1], tokens.shape[1] + 7)) for tokens in batches]


def padded(run: Graph, tokens: NDArray[np.int32], added: int) -> Padded:
    """Ask about one batch twice; what is said of padding itself does not count."""
    plain, behind = run(tokens), run(np.pad(tokens, ((0, 0), (0, added))))
    if plain.ndim > 2:
        words = tokens[..., None] != 0
        plain, behind = np.where(words, plain, 0), np.where(words, behind[:, : tokens.shape[1]], 0)
    return Padded(tokens.shape, added, difference(behind, plain))


def gate_padding(found: Sequence[Padded], tolerance: float = TOLERANCE) -> None:
    """Let only graphs pass whose answers padding moves by no more than `tolerance`.

    Raises:
        ParityError: padding counts as words.
    """
    for one in found:
        if not one.difference.relative_l2 <= tolerance:
            raise ParityError(
                f"for the input {one.shape}: expected {one.added} tokens of padding behind it to move the answer by at "
                f"most {tolerance:g} in relative L2 but found {one.difference.relative_l2:.2g}"
            )


def difference(answer: NDArray[np.float32], eager: NDArray[Any]) -> Difference:
    """Measure in float64, field by field."""
    error = answer.astype(np.float64) - eager.astype(np.float64)
    return Difference(max_abs=float(np.abs(error).max()), relative_l2=float(relative_l2(answer, eager).max()))
