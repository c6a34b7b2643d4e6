"""The grammar of ListOps: random nested expressions over digits, and their values.

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

from training.problems.sequence_description import PADDING

NESTED = 0.25  # probability of a list
DEPTH = 10
ARGUMENTS = 10

#: The value of each operator for the values of its arguments.
OPERATORS: dict[str, Callable[[Sequence[int]], int]] = {
    "[MIN": min,
    "[MAX": max,
    "[MED": lambda values: int(statistics.median(values)),
    "[SM": lambda values: sum(values) % 10,
}
CLOSE = "]"

VOCABULARY = (PADDING, *OPERATORS, CLOSE, *"0123456789")
TOKEN = {text: number for number, text in enumerate(VOCABULARY)}
DIGIT = TOKEN["0"]  # the token of digit d is DIGIT + d
LISTS = [TOKEN[operator] for operator in OPERATORS]

Expression = NDArray[np.uint8]


def draw(rng: Random, minimum: int, maximum: int) -> Expression:
    """Return the tokens of a random expression with minimum < length < maximum.

    An expression that has grown too long is discarded at once, which does not change what is drawn otherwise.

    Args:
        rng: The random stream.
        minimum: Length that is too short.
        maximum: Length that is too long.
    """
    while True:
        tokens: list[int] = []
        grow(tokens, rng, maximum)
        if minimum < len(tokens) < maximum:
            return np.array(tokens, dtype=np.uint8)


def grow(tokens: list[int], rng: Random, maximum: int, depth: int = 1) -> None:
    """Append a random node, unless the expression is too long already.

    Args:
        tokens: The expression so far, which is extended.
        rng: The random stream.
        maximum: Length that is too long.
        depth: Depth of the node.
    """
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
        ValueError: The tokens are no expression; the message says what is wrong where.
    """
    lists: list[tuple[str, list[int]]] = [("", [])]  # the open lists, the whole expression first
    for index, token in enumerate(tokens):
        text = VOCABULARY[token]
        if text in OPERATORS:
            lists.append((text, []))
        elif text != CLOSE:
            lists[-1][1].append(digit(text, index))
        else:
            close(lists, index)
    if len(lists) > 1 or len(lists[0][1]) != 1:
        raise ValueError(f"expected one whole expression but got {len(lists) - 1} open lists and {lists[0][1]}")
    return lists[0][1][0]


def digit(text: str, index: int) -> int:
    """Return the value of a digit.

    Raises:
        ValueError: The token is no digit.
    """
    if not text.isdecimal():
        raise ValueError(f"expected an operator, a digit or ] as token {index} but got {text!r}")
    return int(text)


def close(lists: list[tuple[str, list[int]]], index: int) -> None:
    """Replace the innermost open list by its value.

    Raises:
        ValueError: There is no open list, or it has no arguments.
    """
    operator, values = lists.pop()
    if not lists or not values:
        raise ValueError(f"expected an open list with arguments before the ] at token {index}")
    lists[-1][1].append(OPERATORS[operator](values))
