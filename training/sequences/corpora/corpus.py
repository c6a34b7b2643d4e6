"""What all corpora have in common: takes documents, cuts them into tokens and deals them out to the splits."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from training.published.published import VARIABLE
from training.sequences.recipe import SequenceData
from training.sequences.samples import Sequences, Tokens

Splits = Mapping[str, Sequences]  # train, validation, test
Document = tuple[bytes, int]  # a text and its class

SPLITS = ("test", "validation", "train")


class CorpusError(ValueError):
    """A corpus is not there, or holds too little: the message says what is wanted where, and where it comes from."""


class Corpus(ABC):
    """One source of a problem's samples.

    Attributes:
        name: in recipes and cards.
        about: what it is, whose, under which licence.
        labels: word by class.
        wanted: where it is looked for, and where it comes from.
        paths: files or folders that show that it is there, in the order in which they are looked for.

    Args:
        data: how many samples of which lengths.
        seed: of all that is drawn.
        folder: where it is made, fetched or looked for, after the folder that DATA_PATH names.
        progress: show a bar where that takes long.
    """

    name: ClassVar[str]
    about: ClassVar[str]
    labels: ClassVar[tuple[str, ...]]
    wanted: ClassVar[str]
    paths: ClassVar[tuple[str, ...]]

    def __init__(self, data: SequenceData, seed: int, folder: Path, *, progress: bool = True) -> None:
        self.data, self.seed, self.folder, self.progress = data, seed, folder, progress

    @property
    def there(self) -> bool:
        """Whether it can be had."""
        return self.find() is not None

    def find(self) -> Path | None:
        """Give the file or folder that holds it."""
        user = os.environ.get(VARIABLE)
        folders = [Path(user), self.folder] if user else [self.folder]
        return next((path for folder in folders for name in self.paths if (path := folder / name).exists()), None)

    def prepare(self) -> Path:
        """Give the same, made or fetched first where that is possible.

        Raises:
            CorpusError: it is not.
        """
        if path := self.find():
            return path
        raise CorpusError(f"no {self.name} corpus in {self.folder} or where DATA_PATH points: expected {self.wanted}")

    def vocabulary(self) -> tuple[str, ...] | None:
        """Give the word of each token, padding first; None where the problem's words are the corpus'."""
        return None

    def description(self) -> str:
        """Say what a network learns from, in the words of a card."""
        return f"{self.about}; sequences of up to {self.data.length[1]} tokens"

    @abstractmethod
    def read(self) -> Splits:
        """Give the samples.

        Raises:
            CorpusError: there are fewer than wanted.
        """


def spell(text: bytes, longest: int) -> Tokens:
    """Give the tokens of a text's first bytes."""
    return np.frombuffer(text[:longest], dtype=np.uint8).astype(np.uint16) + 1


def deal(pools: Mapping[str, Sequence[Document]], data: SequenceData, seed: int) -> Splits:
    """Give each split so many documents of its pool, at random; pools that are the same one are shared out.

    Raises:
        CorpusError: a pool is too small.
    """
    rng, splits = np.random.default_rng(seed), {}
    left: dict[int, Iterator[Document]] = {}
    for split in SPLITS:
        pool = left.setdefault(id(pools[split]), iter(shuffled(pools[split], data.length[0], rng)))
        splits[split] = classified(take(pool, getattr(data, split), split), data.length[1])
    return splits


def shuffled(documents: Sequence[Document], shortest: int, rng: np.random.Generator) -> list[Document]:
    """Give those that are long enough in a random order."""
    long = [document for document in documents if len(document[0]) >= max(1, shortest)]
    return [long[place] for place in rng.permutation(len(long))]


def take(documents: Iterable[Document], count: int, split: str) -> list[Document]:
    """Give the next `count` documents."""
    taken = list(islice(documents, count))
    if len(taken) < count:
        raise CorpusError(f"expected {count} documents for data.{split} but only {len(taken)} are left")
    return taken


def classified(documents: Sequence[Document], longest: int) -> Sequences:
    """Give documents as samples."""
    tokens = tuple(spell(text, longest) for text, _ in documents)
    return Sequences((tokens,), labels(label for _, label in documents))


def labels(classes: Iterable[int]) -> tuple[NDArray[np.int64], ...]:
    """Give classes as labels of whole samples."""
    return tuple(np.array(one, dtype=np.int64) for one in classes)
