"""Corpora of ListOps: generated and published expressions with their values."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from research.sequences.corpora.corpus import SPLITS, Corpus, CorpusError, Splits, labels
from research.sequences.corpora.grammar import Expression, draw, value
from research.sequences.samples import Sequences
from research.sequences.sequence_data import SequenceData
from training.files import replacing
from training.problems.sequence_description import SequenceDescription

VERSION = 1
"""Raised whenever the same seed would give other expressions."""

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
        path.mkdir(parents=True, exist_ok=True)
        total = sum(getattr(self.data, split) for split in SPLITS)
        with tqdm(total=total, desc=path.name, unit="expression", disable=not self.progress) as bar:
            for split, number, count in shards(self.data):
                file = path / f"{split}-{number:05d}.npz"
                if not file.exists():
                    write(file, distinct(stream(self.data, self.seed, split, number), count, seen))
                seen.update(map(digest, read(file)))
                bar.update(count)
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
    """Draw the expressions of a file without end.

    Args:
        data: Lengths of the expressions.
        seed: Seed of all files.
        split: Split of the file.
        number: Number of the file in its split.
    """
    rng = Random(f"{seed} {split} {number}")  # noqa: S311 -- reproducible, not secret
    while True:
        yield draw(rng, *data.length)


def distinct(expressions: Iterator[Expression], count: int, seen: set[bytes]) -> list[Expression]:
    """Return the first `count` different expressions that have not been seen.

    Args:
        expressions: The stream.
        count: How many.
        seen: Digests of the expressions of earlier files.
    """
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
    """Read the expressions of a file."""
    with np.load(path) as file:
        tokens: NDArray[np.uint8] = file["tokens"]
        return np.split(tokens, file["ends"][:-1])


def files(path: Path, split: str) -> list[Path]:
    """Return a split's files in order."""
    return sorted(path.glob(f"{split}-*.npz"))


def evaluated(expressions: list[Expression]) -> Sequences:
    """Return expressions with their values."""
    return Sequences((tuple(expressions),), labels(map(value, expressions)))


def first(path: Path, count: int, data: SequenceData, problem: SequenceDescription) -> Sequences:
    """Return the first expressions of a published file within the limits of length, with the values it states.

    Args:
        path: The file.
        count: How many.
        data: Lengths.
        problem: The vocabulary.

    Raises:
        CorpusError: The file holds fewer.
    """
    low, high = data.length
    with path.open(newline="") as file:
        rows = ((parse(row["Source"], problem), int(row["Target"])) for row in csv.DictReader(file, delimiter="\t"))
        found = list(islice(((tokens, label) for tokens, label in rows if low < len(tokens) < high), count))
    if len(found) < count:
        raise CorpusError(f"expected {count} expressions of {low} to {high} tokens in {path} but got {len(found)}")
    return Sequences((tuple(tokens for tokens, _ in found),), labels(label for _, label in found))


def parse(text: str, problem: SequenceDescription) -> Expression:
    """Return the tokens of a published expression, such as ( ( ( [MAX 2 ) 9 ) ] ); round brackets are ignored."""
    return np.array(problem.encode(text.replace("(", " ").replace(")", " ")), dtype=np.uint8)
