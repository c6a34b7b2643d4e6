"""ListOps: takes a random stream, gives nested expressions over digits as tokens, and the value of any expression.

The rules of Long Range Arena's generator (Tay et al., ICLR 2021, arXiv 2011.04006; after Nangia & Bowman, 2018, arXiv
1804.06028): below the greatest depth, where the root has depth 1, a node is a list with probability 1/4, else a digit,
uniformly. A list has 2 to 10 arguments, uniformly, and one of four operators, uniformly. Its length counts digits and
two for every list. Expressions are drawn until one is longer than a minimum and shorter than a maximum.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from random import Random

import numpy as np
from numpy.typing import NDArray

from training.sequences.problem import LISTOPS

NESTED = 0.25  # probability of a list
DEPTH = 10
ARGUMENTS = 10

#: What each operator makes of its arguments.
OPERATORS: dict[str, Callable[[Sequence[int]], int]] = {
    "[MIN": min,
    "[MAX": max,
    "[MED": lambda values: int(statistics.median(values)),
    "[SM": lambda values: sum(values) % 10,
}
CLOSE = "]"

TOKEN = {word: number for number, word in enumerate(LISTOPS.vocabulary)}
DIGIT = TOKEN["0"]  # the token of digit d is DIGIT + d
LISTS = [TOKEN[operator] for operator in OPERATORS]

Expression = NDArray[np.uint8]


def draw(rng: Random, minimum: int, maximum: int) -> Expression:
    """Give the tokens of a random expression with minimum < length < maximum.

    One that has grown too long is given up at once, which changes nothing in what is drawn otherwise.
    """
    while True:
        tokens: list[int] = []
        grow(tokens, rng, maximum)
        if minimum < len(tokens) < maximum:
            return np.array(tokens, dtype=np.uint8)


def grow(tokens: list[int], rng: Random, maximum: int, depth: int = 1) -> None:
    """Append a random node of a depth, unless the expression is too long already."""
    if len(tokens) >= maximum:
        return
    if depth == DEPTH or rng.random() > NESTED:
        tokens.append(DIGIT + rng.randrange(10))
        return
    arguments = rng.randint(2, ARGUMENTS)
    tokens.append(rng.choice(LISTS))
    for _ in range(arguments):
        grow(tokens, rng, maximum, depth + 1)
    tokens.append(TOKEN[CLOSE])


def value(tokens: Sequence[int] | Expression) -> int:
    """Evaluate an expression.

    Raises:
        ValueError: it is none; the message says what is wrong where.
    """
    lists: list[tuple[str, list[int]]] = [("", [])]  # those that are open, the whole first
    for place, token in enumerate(tokens):
        word = LISTOPS.vocabulary[token]
        if word in OPERATORS:
            lists.append((word, []))
        elif word != CLOSE:
            lists[-1][1].append(digit(word, place))
        else:
            close(lists, place)
    if len(lists) > 1 or len(lists[0][1]) != 1:
        raise ValueError(f"expected one whole expression but got {len(lists) - 1} open lists and {lists[0][1]}")
    return lists[0][1][0]


def digit(word: str, place: int) -> int:
    """Give a digit's value."""
    if not word.isdecimal():
        raise ValueError(f"expected an operator, a digit or ] as token {place} but got {word!r}")
    return int(word)


def close(lists: list[tuple[str, list[int]]], place: int) -> None:
    """Put the value of the innermost list where it stands."""
    operator, values = lists.pop()
    if not lists or not values:
        raise ValueError(f"expected an open list with arguments before the ] at token {place}")
    lists[-1][1].append(OPERATORS[operator](values))
