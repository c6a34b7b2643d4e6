r"""The memoriser of the proof, with constructed weights: no training, and every label right in exact arithmetic.

.. math::
    z = x_k + \rho v \sum_i \sigma_i(c\,y_k y_i)\, y_i,\quad y = v^T x, \qquad
    s = v^T z, \qquad \text{label} = b_0 + \sum_j \frac{b_j - b_{j-1}}{w_j}\,
    \bigl(\mathrm{relu}(s - l_j) - \mathrm{relu}(s - l_j - w_j)\bigr).

The first map is the contextual mapping of `research.memorisation.contextual_mapping`, with
:math:`\rho = g / 4L` instead of :math:`\epsilon / 4L`. Then the numbers s of different tokens are g/2 apart or more,
since a context moves a number by at most g/4, and contexts of one token stay apart. The last map is a feed-forward net
of one hidden layer: it climbs from a label to the next one between two numbers, wherever the label changes. N sequences
of n tokens with d features take at most

.. math::
    5d + 6(nN - 1) + 1

parameters: 4 d of the head, d of v in the last net, a threshold, an input and an output weight for each of two hidden
units per change of the label, and a bias.

Numbers are decimals with as many digits as the distance of the contexts needs. The widths w are powers of ten and the
thresholds have few digits, so a label is an integer without rounding. `python -m research.memorisation.constructed`
builds memorisers of growing size, and writes docs/constructed.json.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal, localcontext
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch import Tensor

from research.memorisation.contextual_mapping import contextual_mapping, vocabulary

GUARD = 40  # digits beyond those of the smallest distance
MOST_DIGITS = 10_000  # an exponential of as many takes seconds, and a label two of them per token of its sequence

Token = tuple[Decimal, ...]
Labels = Sequence[Sequence[int]]


class RepeatedContextError(ValueError):
    """Two sequences hold one set of tokens, and ask for different labels of one of them; the message names both."""


@dataclass(frozen=True)
class Step:
    """Where the label changes, as two hidden units.

    Attributes:
        start: The number at which the label begins to change.
        width: Over how much it does, a power of ten.
        change: By how much.
    """

    start: Decimal
    width: Decimal
    change: int

    def rise(self, s: Decimal) -> Decimal:
        """Return what the two units add to the label of a number."""
        return self.change * (relu(s - self.start) - relu(s - self.start - self.width)) / self.width


@dataclass(frozen=True)
class ConstructedMemoriser:
    """A constructed memoriser.

    Attributes:
        direction: v.
        sharpness: c.
        scale: rho.
        first: The label of the least number.
        steps: The changes of the label, ascending.
        digits: The precision in which it is exact.
    """

    direction: Token
    sharpness: Decimal
    scale: Decimal
    first: int
    steps: tuple[Step, ...]
    digits: int

    @property
    def parameters(self) -> int:
        """How many numbers it consists of: head, projection, two hidden units per change, and the bias."""
        return 5 * len(self.direction) + 6 * len(self.steps) + 1

    def labels(self, sequence: Tensor) -> list[Decimal]:
        """Return what it computes for every token `[token, channel]` of a sequence of distinct tokens."""
        with localcontext() as context:
            context.prec = self.digits
            return [self.label(s) for s in numbers(self, sequence)]

    def label(self, s: Decimal) -> Decimal:
        """Return the output of the last feed-forward net."""
        return self.first + sum((step.rise(s) for step in self.steps), Decimal(0))


def relu(x: Decimal) -> Decimal:
    """Return x where it is positive, else 0."""
    return max(x, Decimal(0))


def bound(sequences: int, length: int, channels: int) -> int:
    """Return the most parameters that labels of so many sequences take; see the formula of the module."""
    return 5 * channels + 6 * (sequences * length - 1) + 1


def construct(sequences: Tensor, labels: Labels, generator: torch.Generator | None = None) -> ConstructedMemoriser:
    """Build the memoriser of sequences.

    Args:
        sequences: Sequences of distinct tokens, of shape `[sequence, token, channel]`.
        labels: An integer per token.
        generator: Generator of the directions that v is chosen from.

    Raises:
        ValueError: The sequences are outside of the theorem, see `contextual_mapping`, or need more than `MOST_DIGITS`
            digits; or there is no integer for each token.
        RepeatedContextError: A token has two labels in the same context.
    """
    found = contextual_mapping(sequences.double(), generator=generator)
    expect_labels(labels, sequences)
    v = exact(found.attention.key.weight[0])
    words = [dot(v, exact(word)) for word in vocabulary(sequences)]
    least, largest = min(map(abs, words)), max(map(abs, words))
    ordered = sorted(words)
    gap = min(b - a for a, b in pairwise(ordered))
    digits = GUARD + math.ceil(2 * max(0.0, -found.log_distance) / math.log(10)) + 2 * max(0, largest.adjusted())
    if digits > MOST_DIGITS:
        raise ValueError(f"expected sequences that need up to {MOST_DIGITS} digits but these need {digits}")
    # Few digits, and by rounding neither above the one bound nor below the other.
    scale = Decimal(f"{gap / (4 * largest) * Decimal('0.999'):.6e}")
    proven = Decimal(4 * math.log(sequences.shape[1]) + 6)
    sharpness = Decimal(f"{proven / (least * gap) * Decimal('1.001'):.6e}")
    empty = ConstructedMemoriser(v, sharpness, scale, 0, (), digits)
    with localcontext() as context:
        context.prec = digits
        placed = sorted(
            (s, label, index)
            for index, (sequence, wanted) in enumerate(zip(sequences, labels, strict=True))
            for s, label in zip(numbers(empty, sequence), wanted, strict=True)
        )
        steps = tuple(between(a, b) for a, b in pairwise(placed) if a[1] != b[1])
    return ConstructedMemoriser(v, sharpness, scale, placed[0][1], steps, digits)


def expect_labels(labels: Labels, sequences: Tensor) -> None:
    """Require an integer for each token.

    Raises:
        ValueError: There is another number of them, or one is no integer.
    """
    count, length, _ = sequences.shape
    if [*map(len, labels)] != [length] * count:
        raise ValueError(f"expected {length} labels for each of {count} sequences but got {[*map(len, labels)]}")
    if others := [label for each in labels for label in each if not isinstance(label, int)]:
        raise ValueError(f"expected integers as labels but got {others[0]!r}")


def between(lower: tuple[Decimal, int, int], upper: tuple[Decimal, int, int]) -> Step:
    """Return the change of the label between two numbers: a power of ten below a third of their distance wide.

    Raises:
        RepeatedContextError: They are equal up to the precision.
    """
    distance = upper[0] - lower[0]
    with localcontext() as context:
        resolved = max(Decimal(1), abs(lower[0]), abs(upper[0])) * Decimal(10) ** (GUARD // 2 - context.prec)
    if distance <= resolved:
        raise RepeatedContextError(
            f"expected one label of a token in one context but got {lower[1]} in sequence {lower[2]} and {upper[1]} in "
            f"sequence {upper[2]}"
        )
    width = Decimal(10) ** (distance / 3).adjusted()
    return Step((lower[0] + width).quantize(width / 10, rounding=ROUND_CEILING), width, upper[1] - lower[1])


def numbers(built: ConstructedMemoriser, sequence: Tensor) -> list[Decimal]:
    """Return the number s of every token of a sequence: the contextual mapping, projected."""
    y = [dot(built.direction, exact(token)) for token in sequence]
    return [own + built.scale * mean(built.sharpness * own, y) for own in y]


def mean(query: Decimal, y: Sequence[Decimal]) -> Decimal:
    """Return the softmax mean of the values y, whose scores are query times y."""
    top = max(query * each for each in y)
    weights = [(query * each - top).exp() for each in y]
    return sum((w * each for w, each in zip(weights, y, strict=True)), Decimal(0)) / sum(weights)


def exact(values: Tensor) -> Token:
    """Return float64 numbers as decimals, without rounding."""
    return tuple(Decimal(value) for value in values.tolist())


def dot(a: Token, b: Token) -> Decimal:
    """Return the inner product."""
    return sum((x * y for x, y in zip(a, b, strict=True)), Decimal(0))


def drawn(
    count: int, seed: int, words: int = 10, length: int = 3, channels: int = 16
) -> tuple[Tensor, list[list[int]]]:
    """Draw different sets of words in random order, and one of four labels per token, as the trained ones have.

    Raises:
        ValueError: There are fewer different sets.
    """
    if (possible := math.comb(words, length)) < count:
        raise ValueError(f"expected at most {possible} sets of {length} of {words} words but got {count}")
    rng, generator = Random(seed), torch.Generator().manual_seed(seed)  # noqa: S311 - reproducible, not secret
    embedding = torch.randn(words, channels, dtype=torch.float64, generator=generator)
    sets: set[frozenset[int]] = set()
    while len(sets) < count:
        sets.add(frozenset(rng.sample(range(words), length)))
    ordered = [rng.sample(sorted(each), length) for each in sorted(sets, key=sorted)]
    return embedding[torch.tensor(ordered)], [[rng.randrange(4) for _ in range(length)] for _ in ordered]


def row(count: int, seed: int = 0) -> dict[str, Any]:
    """Build a memoriser, check every label, and return its size."""
    sequences, labels = drawn(count, seed)
    built = construct(sequences, labels, torch.Generator().manual_seed(seed))
    right = [built.labels(sequence) == wanted for sequence, wanted in zip(sequences, labels, strict=True)]
    return {
        "sequences": count,
        "labels": sequences.shape[0] * sequences.shape[1],
        "memorised": sum(right) / len(right),
        "parameters": built.parameters,
        "bound": bound(*sequences.shape),
        "digits": built.digits,
    }


if __name__ == "__main__":
    rows = [row(count) for count in (8, 16, 32, 64, 96)]
    Path("docs/constructed.json").write_text(json.dumps(rows, indent=2) + "\n")
    sys.stdout.write("\n".join(map(str, rows)) + "\n")
