"""Sets of letters with random labels, which can only be learned by heart."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from research.sequences.corpora.corpus import Corpus, CorpusError, Splits
from research.sequences.samples import Sequences, Tokens
from training.problems.sequence_description import SequenceDescription

SHOWN = 3  # sets that the card shows with their labels, as they cannot be guessed


class LetterSets(Corpus):
    """Different sets of distinct letters in random order; the test set is the training set."""

    name = "letters"
    about = "random sets of letters, and a random label for every letter of each; it is measured on the sets it learned"
    wanted = "nothing: they are drawn from the seed"
    paths = ()
    by_heart = True

    @property
    def there(self) -> bool:
        return True

    def prepare(self) -> Path:
        return self.folder

    def description(self) -> str:
        """Describe the corpus, with some sets and their labels."""
        samples = first(self.read()["train"], SHOWN)
        pairs = zip(*samples.inputs, samples.labels, strict=True)
        shown = "; ".join(spelled(self.problem, tokens, labels) for tokens, labels in pairs)
        return f"{super().description()}; the first are {shown}"

    def read(self) -> Splits:
        letters = len(self.problem.vocabulary) - 1
        low, high = max(1, self.data.length[0]), min(self.data.length[1], letters)
        if self.data.train > (most := sum(math.comb(letters, size) for size in range(low, high + 1))):
            raise CorpusError(
                f"expected data.train up to {most} for sets of {low} to {high} letters: {self.data.train}"
            )
        rng = np.random.default_rng(self.seed)
        found: dict[frozenset[int], Tokens] = {}
        for tokens in draws(letters, low, high, rng):
            found.setdefault(frozenset(tokens.tolist()), tokens)
            if len(found) == self.data.train:
                break
        labels = tuple(rng.integers(len(self.labels), size=len(tokens)) for tokens in found.values())
        return learned(Sequences((tuple(found.values()),), labels), self.data.validation, self.data.test)


def spelled(problem: SequenceDescription, tokens: Tokens, labels: Tokens) -> str:
    """Write a set and its labels.

    Args:
        problem: Vocabulary and names of the labels.
        tokens: The set.
        labels: Label of each token.
    """
    letters = " ".join(problem.vocabulary[token] for token in tokens)
    return f"{letters} with {' '.join(problem.labels[label] for label in labels)}"


def draws(letters: int, low: int, high: int, rng: np.random.Generator) -> Iterator[Tokens]:
    """Draw sets of letters without end.

    Args:
        letters: Size of the alphabet.
        low: Least length.
        high: Greatest length; all lengths are equally probable.
        rng: The random stream.
    """
    while True:
        yield 1 + rng.permutation(letters)[: rng.integers(low, high + 1)]


def learned(samples: Sequences, validation: int, test: int) -> Splits:
    """Return splits that hold nothing out: validation and test are the first of the training samples.

    Args:
        samples: All samples.
        validation: How many are used for validation.
        test: How many are used for the card.
    """
    return {"train": samples, "validation": first(samples, validation), "test": first(samples, test)}


def first(samples: Sequences, count: int) -> Sequences:
    """Return the first samples, as many as there are."""
    return Sequences(tuple(one[:count] for one in samples.inputs), samples.labels[:count])
