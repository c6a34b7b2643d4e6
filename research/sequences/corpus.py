"""Sequence problems, their samples, and the base of their corpora: how documents become tokens and splits."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import NonNegativeInt, PositiveInt, model_validator
from torch import Tensor

from schema.parts import Frozen
from schema.problem import SequenceDescription, SizeLimits
from training.losses import Batch
from training.messages import Registry, UserError
from training.problems.problem import VARIABLE


class SequenceData(Frozen):
    """Numbers and lengths of the samples.

    Expressions have more than `length[0]` and fewer than `length[1]` tokens, as published; texts are cut to `length[1]`
    bytes, and left out if they have fewer than `length[0]`. `corpus` is one of the problem's; by default the first that
    is found, the published one before its stand-in.
    """

    train: PositiveInt
    validation: PositiveInt  # samples for every decision, such as which epoch to keep
    test: PositiveInt  # samples that are read once, for the card
    length: tuple[NonNegativeInt, PositiveInt]
    corpus: str | None = None
    seed: int | None = None  # of the samples alone; the recipe's by default

    @model_validator(mode="after")
    def expect_order(self) -> SequenceData:
        """Require the least length before the greatest."""
        if self.length[0] > self.length[1]:
            raise ValueError(f"expected the least length before the greatest but got {self.length}")
        return self


UNLABELLED = -100  # where a padded token has no label; torch's cross-entropy leaves it out

Tokens = NDArray[np.integer[Any]]


@dataclass(frozen=True)
class Sequences:
    """Samples of a problem.

    Attributes:
        inputs: The tokens `[length]` of every sample, for each of the problem's inputs.
        labels: The class of every sample, `[]`, or of every token of it, `[length]`.
    """

    inputs: tuple[tuple[Tokens, ...], ...]
    labels: tuple[NDArray[np.int64], ...]

    def __post_init__(self) -> None:
        if {len(tokens) for tokens in self.inputs} != {len(self.labels)}:
            raise ValueError(f"expected one label per sample but got {[*map(len, self.inputs)]} and {len(self.labels)}")

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each sample, of all its inputs together: `[sample]`."""
        return np.array([[len(tokens) for tokens in one] for one in self.inputs], dtype=np.int64).sum(axis=0)

    def batch(self, rows: Sequence[int] | NDArray[np.int64]) -> Batch:
        """Return some samples: tokens `[batch, length]` INT32 by input, padded by 0, and labels, padded, as output."""
        inputs = tuple(pad([one[row] for row in rows], 0).to(torch.int32) for one in self.inputs)
        return Batch(inputs, [pad([self.labels[row] for row in rows], UNLABELLED)])

    def batches(self, size: int) -> Iterator[Batch]:
        """Return all samples in batches, in their order."""
        return map(self.batch, split(np.arange(len(self)), size))

    def by_length(self, size: int) -> Iterator[Batch]:
        """Return all samples in batches of alike length, where padding is least."""
        return map(self.batch, split(np.argsort(self.lengths, kind="stable"), size))


def split(order: NDArray[np.int64], size: int) -> list[NDArray[np.int64]]:
    """Cut an order into parts of a size, and a rest."""
    return [order[start : start + size] for start in range(0, len(order), size)]


def pad(arrays: Sequence[NDArray[np.integer[Any]]], value: int) -> Tensor:
    """Stack arrays `[length]`, filled up with a value at the end, as `[array, longest]`; or numbers as `[array]`."""
    if arrays[0].ndim == 0:
        return torch.tensor([int(number) for number in arrays])
    padded = np.full((len(arrays), max(map(len, arrays))), value, dtype=np.int64)
    for row, array in zip(padded, arrays, strict=True):
        row[: len(array)] = array
    return torch.from_numpy(padded)


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
        return located(self.paths, self.folder)

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
        limits = SizeLimits(minimum=problem.length.minimum, maximum=longest, declared=(*declared, longest))
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


def located(paths: Iterable[str], folder: Path) -> Path | None:
    """Return the first of some files or folders, where DATA_PATH points or else in a folder."""
    user = os.environ.get(VARIABLE)
    folders = [Path(user), folder] if user else [folder]
    return next((path for each in folders for name in paths if (path := each / name).exists()), None)


def spell(text: bytes, longest: int) -> Tokens:
    """Return the tokens of a text's first bytes."""
    return np.frombuffer(text[:longest], dtype=np.uint8).astype(np.uint16) + 1


def deal(pools: Mapping[str, Sequence[Document]], data: SequenceData, seed: int) -> Splits:
    """Draw the documents of each split from its pool; splits with the same pool share no document.

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


@dataclass(frozen=True)
class SequenceProblem:
    """A sequence problem.

    Attributes:
        description: The data part, which checkpoints and cards carry.
        corpora: Sources of its samples, in the order in which they are looked for.
    """

    description: SequenceDescription
    corpora: tuple[type[Corpus], ...]

    @property
    def name(self) -> str:
        """The name in recipes, checkpoints and cards."""
        return self.description.name


SEQUENCES = Registry(
    noun="sequence problem",
    kind=SequenceProblem,
    package="research.sequences.problems",
    attribute="PROBLEM",
    group="petrov.sequence_problems",
)
