"""ListOps: the value of a nested expression over digits, and its corpora of generated and published expressions.

The rules of Long Range Arena's generator (Tay et al., ICLR 2021, arXiv 2011.04006; after Nangia & Bowman, 2018, arXiv
1804.06028): below the greatest depth, where the root has depth 1, a node is a list with probability 1/4, else a digit,
uniformly. A list has 2 to 10 arguments, uniformly, and one of four operators, uniformly. Its length counts digits and
two for every list. Expressions are drawn until one is longer than a minimum and shorter than a maximum.
"""

from __future__ import annotations

import csv
import hashlib
import statistics
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from random import Random
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from research.sequences.corpus import (
    SPLITS,
    Corpus,
    CorpusError,
    SequenceData,
    SequenceProblem,
    Sequences,
    Splits,
    labels,
)
from schema.problem import PADDING, SequenceDescription, SizeLimits
from training.files import replacing
from training.messages import counted

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
    """
    while True:
        tokens: list[int] = []
        grow(tokens, rng, maximum)
        if minimum < len(tokens) < maximum:
            return np.array(tokens, dtype=np.uint8)


def grow(tokens: list[int], rng: Random, maximum: int, depth: int = 1) -> None:
    """Append a random node, unless the expression is too long already."""
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


def expressions(length: int, depth: int = 1) -> int:
    """Return how many expressions of a length there are, with their root at a depth.

    Example:
        >>> expressions(1), expressions(3), expressions(4)
        (10, 0, 400)
    """
    if length == 1 or depth == DEPTH:
        return 10 * (length == 1)
    return len(LISTS) * sum(rows(length - 2, arguments, depth + 1) for arguments in range(2, ARGUMENTS + 1))


@cache
def rows(length: int, arguments: int, depth: int) -> int:
    """Return how many rows of some arguments there are, of a length in all."""
    if not arguments:
        return int(length == 0)
    firsts = range(1, length - arguments + 2)
    return sum(expressions(first, depth) * rows(length - first, arguments - 1, depth) for first in firsts)


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


VERSION = 1
"""Raised whenever the same seed would give other expressions."""

FEW = 12
"""Of more tokens there are more expressions than anyone asks for: 6e11 of 13."""

SHARD = 200
"""Expressions per file, which an interrupted run has to draw again."""


class GeneratedExpressions(Corpus):
    """Expressions by the published rules, no two alike, kept in files of `SHARD` each.

    File `k` of a split is drawn from a stream of its own, (seed, split, k), and leaves out what earlier files hold. So
    interruptions do not change the expressions. The folder's name holds everything that they depend on.
    """

    name = "generated"
    about = "expressions drawn by the rules of Long Range Arena's generator"
    wanted = "nothing"
    paths = ()

    @property
    def there(self) -> bool:
        return True

    def prepare(self) -> Path:
        path, seen = self.folder / folder_name(self.data, self.seed), set[bytes]()
        total = sum(getattr(self.data, split) for split in SPLITS)
        low, high = self.data.length
        possible = sum(map(expressions, range(low + 1, high))) if high <= max(low, FEW) + 1 else total
        if total > possible:  # more would be drawn for without end
            raise CorpusError(
                f"expected {total} expressions of {low + 1} to {high - 1} tokens but there are {possible}"
            )
        path.mkdir(parents=True, exist_ok=True)
        with counted(path.name, total, "expressions", shown=self.progress) as advance:
            for split, number, count in shards(self.data):
                file = path / f"{split}-{number:05d}.npz"
                if not file.exists():
                    write(file, distinct(stream(self.data, self.seed, split, number), count, seen))
                seen.update(map(digest, read(file)))
                advance(count)
        return path

    def read(self) -> Splits:
        path = self.prepare()
        return {split: evaluated([each for file in files(path, split) for each in read(file)]) for split in SPLITS}


class PublishedExpressions(Corpus):
    """The published files, as Long Range Arena's generator writes them."""

    name = "lra"
    about = "the published files basic_{train,val,test}.tsv of Long Range Arena"
    wanted = "basic_train.tsv, basic_val.tsv and basic_test.tsv of Long Range Arena in listops/"
    paths = ("listops/basic_train.tsv", "lra_release/lra_release/listops-1000/basic_train.tsv")

    def read(self) -> Splits:
        path, files = self.prepare(), {"train": "train", "validation": "val", "test": "test"}
        return {
            split: first(path.with_name(f"basic_{suffix}.tsv"), getattr(self.data, split), self.data, self.problem)
            for split, suffix in files.items()
        }


def folder_name(data: SequenceData, seed: int) -> str:
    """Return the name of the folder of generated expressions."""
    counts = "-".join(str(getattr(data, split)) for split in SPLITS)
    return f"listops-{data.length[0]}-{data.length[1]}-{counts}-seed{seed}-v{VERSION}"


def shards(data: SequenceData) -> Iterator[tuple[str, int, int]]:
    """Return split, number and size of every file, in the order in which they are made."""
    for split in SPLITS:
        for start in range(0, wanted := getattr(data, split), SHARD):
            yield split, start // SHARD, min(SHARD, wanted - start)


def stream(data: SequenceData, seed: int, split: str, number: int) -> Iterator[Expression]:
    """Draw the expressions of a file without end."""
    rng = Random(f"{seed} {split} {number}")  # noqa: S311 -- reproducible, not secret
    while True:
        yield draw(rng, *data.length)


def distinct(expressions: Iterator[Expression], count: int, seen: set[bytes]) -> list[Expression]:
    """Return the first `count` different expressions that have not been seen."""
    found: dict[bytes, Expression] = {}
    for expression in expressions:
        if (key := digest(expression)) not in seen:
            found[key] = expression
        if len(found) == count:
            break
    return [*found.values()]


def digest(expression: Expression) -> bytes:
    """Return the digest of an expression."""
    return hashlib.blake2b(expression.tobytes(), digest_size=16).digest()


def write(path: Path, expressions: list[Expression]) -> None:
    """Write a file, which is there as a whole or not at all."""
    ends = np.cumsum([len(expression) for expression in expressions])
    with replacing(path) as aside, aside.open("wb") as file:
        np.savez_compressed(file, tokens=np.concatenate(expressions), ends=ends)


def read(path: Path) -> list[Expression]:
    """Read the expressions of a file.

    Raises:
        CorpusError: The file is damaged.
    """
    try:
        with path.open("rb") as file, np.load(file) as stored:
            tokens: NDArray[np.uint8] = stored["tokens"]
            return np.split(tokens, stored["ends"][:-1])
    except (EOFError, KeyError, ValueError, BadZipFile, zlib.error) as error:
        raise CorpusError(
            f"{path}: expected expressions of an earlier run but it is damaged ({error}); remove it to draw them again"
        ) from error


def files(path: Path, split: str) -> list[Path]:
    """Return a split's files in order."""
    return sorted(path.glob(f"{split}-*.npz"))


def evaluated(expressions: list[Expression]) -> Sequences:
    """Return expressions with their values."""
    return Sequences((tuple(expressions),), labels(map(value, expressions)))


def first(path: Path, count: int, data: SequenceData, problem: SequenceDescription) -> Sequences:
    """Return the first expressions of a published file within the limits of length, with the values it states.

    Raises:
        CorpusError: The file holds fewer, or a line of another form.
    """
    low, high = data.length
    with path.open(newline="") as file:
        lines = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        samples = (sample(line, f"{path}, line {lines.line_num}", problem) for line in lines)
        found = list(islice(((tokens, label) for tokens, label in samples if low < len(tokens) < high), count))
    if len(found) < count:
        raise CorpusError(
            f"expected {count} expressions of {low + 1} to {high - 1} tokens in {path} but got {len(found)}"
        )
    return Sequences((tuple(tokens for tokens, _ in found),), labels(label for _, label in found))


def sample(line: dict[str, str | None], where: str, problem: SequenceDescription) -> tuple[Expression, int]:
    """Return the tokens of a line and the value that it states.

    Raises:
        CorpusError: The line has other columns, no whole expression, or another value than that of its expression.
    """
    source, target = line.get("Source"), line.get("Target")
    if source is None or target not in problem.labels:
        raise CorpusError(f"{where}: expected an expression in Source and its value, 0 to 9, in Target but got {line}")
    try:
        tokens = parse(source, problem)
        found = value(tokens.tolist())
    except ValueError as error:
        raise CorpusError(f"{where}: {error}") from error
    if found != int(target):
        raise CorpusError(f"{where}: expected the expression's value {found} in Target but got {target}")
    return tokens, found


def parse(text: str, problem: SequenceDescription) -> Expression:
    """Return the tokens of a published expression, such as ( ( ( [MAX 2 ) 9 ) ] ); round brackets are ignored."""
    return np.array(problem.encode(text.replace("(", " ").replace(")", " ")), dtype=np.uint8)


DESCRIPTION = SequenceDescription(
    name="listops",
    title="ListOps: the value of a nested expression",
    task=(
        "evaluate lists of digits and lists: [MIN and [MAX give the least and the greatest, [MED the median rounded "
        "down, [SM the sum modulo 10; ] closes a list, as in [MAX 2 9 [MIN 4 7 ] 0 ] which is 9"
    ),
    vocabulary=VOCABULARY,
    pattern=r"\[(?:MIN|MAX|MED|SM)|\]|[0-9]",
    labels=(*"0123456789",),
    length=SizeLimits(minimum=1, maximum=2000, declared=(500, 1000, 2000)),
    distribution=(
        "random trees of depth up to 10 with 2 to 10 arguments a list, each a list with probability 1/4 (Long Range "
        "Arena's generator)"
    ),
)

PROBLEM = SequenceProblem(DESCRIPTION, corpora=(GeneratedExpressions, PublishedExpressions))
