"""Sets of letters with random labels: takes a seed, gives what can only be learned by heart, as no rule is in it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from training.sequences.corpora.corpus import Corpus, CorpusError, Splits
from training.sequences.problem import MEMORISER
from training.sequences.samples import Sequences, Tokens

LETTERS = len(MEMORISER.vocabulary) - 1
TOLD = 3  # sets that a card tells, for who wants to ask for one


class LetterSets(Corpus):
    """Different sets of distinct letters, in random order; what is asked later is what was learned."""

    name = "letters"
    about = "random sets of letters, and a random label for every letter of each; it is measured on the sets it learned"
    labels = MEMORISER.labels
    wanted = "nothing: they are drawn from the seed"
    paths = ()

    @property
    def there(self) -> bool:
        return True

    def prepare(self) -> Path:
        return self.folder

    def description(self) -> str:
        """Tell some sets and their labels too, as nobody can guess them."""
        samples = first(self.read()["train"], TOLD)
        told = "; ".join(map(spelled, *samples.inputs, samples.labels))
        return f"{super().description()}; the first are {told}"

    def read(self) -> Splits:
        low, high = max(1, self.data.length[0]), min(self.data.length[1], LETTERS)
        if self.data.train > (most := sum(math.comb(LETTERS, size) for size in range(low, high + 1))):
            raise CorpusError(
                f"expected data.train up to {most} for sets of {low} to {high} letters: {self.data.train}"
            )
        rng = np.random.default_rng(self.seed)
        found: dict[frozenset[int], Tokens] = {}
        for tokens in draws(low, high, rng):
            found.setdefault(frozenset(tokens.tolist()), tokens)
            if len(found) == self.data.train:
                break
        labels = tuple(rng.integers(len(self.labels), size=len(tokens)) for tokens in found.values())
        return learned(Sequences((tuple(found.values()),), labels), self.data.validation, self.data.test)


def spelled(tokens: Tokens, labels: Tokens) -> str:
    """Write a set and its labels."""
    letters = " ".join(MEMORISER.vocabulary[token] for token in tokens)
    return f"{letters} with {' '.join(MEMORISER.labels[label] for label in labels)}"


def draws(low: int, high: int, rng: np.random.Generator) -> Iterator[Tokens]:
    """Give random letters without end, of all lengths alike."""
    while True:
        yield 1 + rng.permutation(LETTERS)[: rng.integers(low, high + 1)]


def learned(samples: Sequences, validation: int, test: int) -> Splits:
    """Hold nothing out: memory is asked for the first of what was learned."""
    return {"train": samples, "validation": first(samples, validation), "test": first(samples, test)}


def first(samples: Sequences, count: int) -> Sequences:
    """Give the first samples, as many as there are."""
    return Sequences(tuple(one[:count] for one in samples.inputs), samples.labels[:count])
