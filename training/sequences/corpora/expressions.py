"""Corpora of ListOps: takes a recipe's data, gives expressions with their values, generated or published."""

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

from training.sequences.corpora.corpus import SPLITS, Corpus, CorpusError, Splits, labels
from training.sequences.corpora.listops import Expression, draw, value
from training.sequences.problem import LISTOPS
from training.sequences.recipe import SequenceData
from training.sequences.samples import Sequences

VERSION = 1
"""Raised whenever the same seed would give other expressions."""

SHARD = 200
"""Expressions of a file: what an interrupted run has to draw again."""


class GeneratedExpressions(Corpus):
    """Expressions by the published rules, no two alike, kept in files of some hundred.

    File `k` of a split is drawn from a stream of its own, (seed, split, k), and leaves out what earlier files hold. So
    the expressions are the same however often the work was interrupted; the folder is named by all they depend on.
    """

    name = "generated"
    about = "expressions drawn by the rules of Long Range Arena's generator"
    labels = LISTOPS.labels
    wanted = "nothing"
    paths = ()

    @property
    def there(self) -> bool:
        return True

    def prepare(self) -> Path:
        path, seen = self.folder / place(self.data, self.seed), set[bytes]()
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
    labels = LISTOPS.labels
    wanted = "basic_train.tsv, basic_val.tsv and basic_test.tsv of Long Range Arena in listops/"
    paths = ("listops/basic_train.tsv", "lra_release/lra_release/listops-1000/basic_train.tsv")

    def read(self) -> Splits:
        path, files = self.prepare(), {"train": "train", "validation": "val", "test": "test"}
        return {
            split: first(path.with_name(f"basic_{suffix}.tsv"), getattr(self.data, split), self.data)
            for split, suffix in files.items()
        }


def place(data: SequenceData, seed: int) -> str:
    """Name the folder of generated expressions."""
    counts = "-".join(str(getattr(data, split)) for split in SPLITS)
    return f"listops-{data.length[0]}-{data.length[1]}-{counts}-seed{seed}-v{VERSION}"


def shards(data: SequenceData) -> Iterator[tuple[str, int, int]]:
    """Give split, number and size of every file, in the order in which they are made."""
    for split in SPLITS:
        for start in range(0, wanted := getattr(data, split), SHARD):
            yield split, start // SHARD, min(SHARD, wanted - start)


def stream(data: SequenceData, seed: int, split: str, number: int) -> Iterator[Expression]:
    """Give the endless expressions that a file is taken from."""
    rng = Random(f"{seed} {split} {number}")  # noqa: S311 -- reproducible, not secret
    while True:
        yield draw(rng, *data.length)


def distinct(expressions: Iterator[Expression], count: int, seen: set[bytes]) -> list[Expression]:
    """Give the first `count` that are neither seen nor alike."""
    found: dict[bytes, Expression] = {}
    for expression in expressions:
        if (key := digest(expression)) not in seen:
            found[key] = expression
        if len(found) == count:
            break
    return [*found.values()]


def digest(expression: Expression) -> bytes:
    """Give what tells expressions apart."""
    return hashlib.blake2b(expression.tobytes(), digest_size=16).digest()


def write(path: Path, expressions: list[Expression]) -> None:
    """Write a file aside and rename it."""
    aside = path.with_name(f".{path.name}")
    ends = np.cumsum([len(expression) for expression in expressions])
    np.savez_compressed(aside, tokens=np.concatenate(expressions), ends=ends)
    aside.replace(path)


def read(path: Path) -> list[Expression]:
    """Read the expressions of a file."""
    with np.load(path) as file:
        tokens: NDArray[np.uint8] = file["tokens"]
        return np.split(tokens, file["ends"][:-1])


def files(path: Path, split: str) -> list[Path]:
    """Give a split's files in order."""
    return sorted(path.glob(f"{split}-*.npz"))


def evaluated(expressions: list[Expression]) -> Sequences:
    """Give expressions with their values."""
    return Sequences((tuple(expressions),), labels(map(value, expressions)))


def first(path: Path, count: int, data: SequenceData) -> Sequences:
    """Give the first expressions of a published file that keep to the lengths, with the values it states."""
    low, high = data.length
    with path.open(newline="") as file:
        rows = ((parse(row["Source"]), int(row["Target"])) for row in csv.DictReader(file, delimiter="\t"))
        found = list(islice(((tokens, label) for tokens, label in rows if low < len(tokens) < high), count))
    if len(found) < count:
        raise CorpusError(f"expected {count} expressions of {low} to {high} tokens in {path} but got {len(found)}")
    return Sequences((tuple(tokens for tokens, _ in found),), labels(label for _, label in found))


def parse(text: str) -> Expression:
    """Give the tokens of an expression as published: ( ( ( [MAX 2 ) 9 ) ] ), round brackets saying nothing."""
    return np.array(LISTOPS.encode(text.replace("(", " ").replace(")", " ")), dtype=np.uint8)
