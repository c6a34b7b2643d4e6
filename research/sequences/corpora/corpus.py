"""The base of all corpora, and how documents become tokens and are divided among the splits."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from research.sequences.samples import Sequences, Tokens
from research.sequences.sequence_data import SequenceData
from training.problems.published import VARIABLE
from training.problems.sequence_description import LengthLimits, SequenceDescription
from training.user_error import UserError

Splits = Mapping[str, Sequences]  # train, validation, test
Document = tuple[bytes, int]  # a text and its class

PATTERN = r"\S+"  # matches the tokens of a corpus that brings its own vocabulary
SPLITS = ("test", "validation", "train")


class CorpusError(UserError):
    """A corpus is missing or too small: the message says what is expected where, and where it comes from."""


class Corpus(ABC):
    """One source of a problem's samples.

    Attributes:
        name: Name in recipes and cards.
        about: What it is, whose, under which licence.
        wanted: Where it is looked for, and where it comes from.
        paths: Files or folders that show that it is there, in the order in which they are looked for.
        by_heart: Whether its sequences are learned by heart: nothing is held out, and other sequences mean nothing.

    Args:
        problem: The problem, as it is described where no corpus is chosen.
        data: How many samples of which lengths.
        seed: Seed of all that is drawn.
        folder: Where it is made, fetched or looked for, after the folder that DATA_PATH names.
        progress: Show a bar where that takes long.
    """

    name: ClassVar[str]
    about: ClassVar[str]
    wanted: ClassVar[str]
    paths: ClassVar[tuple[str, ...]]
    by_heart: ClassVar[bool] = False

    def __init__(
        self, problem: SequenceDescription, data: SequenceData, seed: int, folder: Path, *, progress: bool = True
    ) -> None:
        self.problem, self.data, self.seed, self.folder, self.progress = problem, data, seed, folder, progress

    @property
    def there(self) -> bool:
        """Whether it is there, or can be made or fetched."""
        return self.find() is not None

    def find(self) -> Path | None:
        """Return the file or folder that holds it, None if there is none."""
        user = os.environ.get(VARIABLE)
        folders = [Path(user), self.folder] if user else [self.folder]
        return next((path for folder in folders for name in self.paths if (path := folder / name).exists()), None)

    def prepare(self) -> Path:
        """Return the file or folder that holds it, made or fetched first where that is possible.

        Raises:
            CorpusError: It is neither there nor can it be made.
        """
        if path := self.find():
            return path
        raise CorpusError(f"no {self.name} corpus in {self.folder} or where DATA_PATH points: expected {self.wanted}")

    def vocabulary(self) -> tuple[str, ...] | None:
        """Return the text of each token, padding first; None where the vocabulary is the problem's."""
        return None

    @property
    def labels(self) -> tuple[str, ...]:
        """Name of each class."""
        return self.problem.labels

    def narrowed(self) -> SequenceDescription:
        """Return the description of the problem on this corpus: lengths, vocabulary, labels and distribution."""
        problem, longest, own = self.problem, self.data.length[1], self.vocabulary()
        declared = tuple(length for length in problem.length.declared if length < longest)
        limits = LengthLimits(minimum=problem.length.minimum, maximum=longest, declared=(*declared, longest))
        tokens = {} if own is None else {"vocabulary": own, "pattern": PATTERN}
        corpus = {"labels": self.labels, "distribution": self.description()}
        return problem.model_copy(update={"length": limits, **corpus, **tokens})

    def description(self) -> str:
        """Describe what a network learns from, for the card."""
        return f"{self.about}; sequences of up to {self.data.length[1]} tokens"

    @abstractmethod
    def read(self) -> Splits:
        """Return the samples.

        Raises:
            CorpusError: There are fewer than requested.
        """


def spell(text: bytes, longest: int) -> Tokens:
    """Return the tokens of a text's first bytes."""
    return np.frombuffer(text[:longest], dtype=np.uint8).astype(np.uint16) + 1


def deal(pools: Mapping[str, Sequence[Document]], data: SequenceData, seed: int) -> Splits:
    """Draw the documents of each split from its pool; splits with the same pool share no document.

    Args:
        pools: Documents by split.
        data: How many are drawn, and their lengths.
        seed: Seed of the draw.

    Raises:
        CorpusError: A pool is too small.
    """
    rng, splits = np.random.default_rng(seed), {}
    left: dict[int, Iterator[Document]] = {}
    for split in SPLITS:
        pool = left.setdefault(id(pools[split]), iter(shuffled(pools[split], data.length[0], rng)))
        splits[split] = classified(take(pool, getattr(data, split), split), data.length[1])
    return splits


def shuffled(documents: Sequence[Document], shortest: int, rng: np.random.Generator) -> list[Document]:
    """Return the documents that are long enough, in a random order."""
    long = [document for document in documents if len(document[0]) >= max(1, shortest)]
    return [long[index] for index in rng.permutation(len(long))]


def take(documents: Iterable[Document], count: int, split: str) -> list[Document]:
    """Return the next `count` documents."""
    taken = list(islice(documents, count))
    if len(taken) < count:
        raise CorpusError(f"expected {count} documents for data.{split} but only {len(taken)} are left")
    return taken


def classified(documents: Sequence[Document], longest: int) -> Sequences:
    """Return documents as samples."""
    tokens = tuple(spell(text, longest) for text, _ in documents)
    return Sequences((tokens,), labels(label for _, label in documents))


def labels(classes: Iterable[int]) -> tuple[NDArray[np.int64], ...]:
    """Return classes as labels of whole samples."""
    return tuple(np.array(one, dtype=np.int64) for one in classes)
