"""The sequences of a trial, with a label for every token: drawn, or read from a corpus.

Sentences of ambiguous words need the context: a sentence holds `length - 1` ordinary words, drawn with replacement, and
one cue at a random location. A table that is drawn once has a random label for every pair of a word and a cue; it gives
the labels of the words. The cue itself has no label. So a word alone tells little more than a guess does, and a word
with its sentence everything.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from research.memorisation.trials import CounterExample, NamedEntities, RandomSets, Senses, Trial
from research.sequences.corpus import UNLABELLED, pad
from research.sequences.problems.memoriser import NOTHING, read_sentences

UNSEEN = 500  # new sentences by the same table


class Sentences(NamedTuple):
    """Tokens and labels, both `[sentence, token]`."""

    tokens: Tensor
    labels: Tensor


def senses(data: Senses, seed: int) -> tuple[Sentences, Sentences]:
    """Draw the sentences to learn, and new ones by the same table."""
    rng = np.random.default_rng([seed, data.words, data.cues, data.labels])
    table = rng.integers(data.labels, size=(data.words, data.cues))
    return draw(data, table, data.sentences, rng), draw(data, table, UNSEEN, rng)


def draw(data: Senses, table: NDArray[np.int64], count: int, rng: np.random.Generator) -> Sentences:
    """Draw sentences."""
    words = rng.integers(data.words, size=(count, data.length))
    cues = rng.integers(data.cues, size=count)
    rows, located = np.arange(count), rng.integers(data.length, size=count)
    tokens, labels = 1 + words, table[words, cues[:, None]]
    tokens[rows, located] = 1 + data.words + cues  # 0 is padding
    labels[rows, located] = UNLABELLED
    return Sentences(torch.from_numpy(tokens), torch.from_numpy(labels))


Sequences = Int[Tensor, "sequence token"]


class Pairs(NamedTuple):
    """Sequences and labels; padding is token 0 and has none."""

    tokens: Sequences
    labels: Sequences
    words: int  # number of different tokens, including padding
    classes: int
    nothing: int | None = None  # the label of tokens that are part of no entity
    unseen: Sentences | None = None  # sentences with labels by the same rule, which are not learned


def pairs(trial: Trial) -> Pairs:
    """Draw or read the sequences of a trial.

    Raises:
        ValueError: There are fewer different sets than requested, or the trial has no labelled sequences.
        CorpusError: The corpus is missing, or has fewer sentences.
    """
    match trial.data:
        case RandomSets():
            return random_sets(trial.data, trial.seed)
        case CounterExample():
            return Pairs(torch.tensor([[1, 2, 5, 6], [1, 3, 4, 6]]), torch.tensor([[0, 0, 0, 0], [1, 1, 1, 1]]), 7, 2)
        case NamedEntities():
            return sentences(trial.data)
        case Senses():
            learned, unseen = senses(trial.data, trial.seed)
            return Pairs(*learned, 1 + trial.data.words + trial.data.cues, trial.data.labels, unseen=unseen)
        case _:
            raise ValueError(f"expected labelled sequences but got {trial.data.kind}")


def random_sets(data: RandomSets, seed: int) -> Pairs:
    """Draw different sets of tokens, and random labels.

    Raises:
        ValueError: There are fewer different sets.
    """
    if (possible := math.comb(data.words, data.length)) < data.sequences:
        raise ValueError(f"expected at most {possible} sets of {data.length} of {data.words} tokens: {data.sequences}")
    rng = np.random.default_rng([seed, data.sequences, data.length, data.words])
    tokens = np.array([rng.permutation(chosen) for chosen in distinct(data, rng)])
    labels = rng.integers(data.labels, size=tokens.shape)
    return Pairs(torch.from_numpy(tokens), torch.from_numpy(labels), data.words + 1, data.labels)


def distinct(data: RandomSets, rng: np.random.Generator) -> list[tuple[int, ...]]:
    """Draw the sets, as sorted token numbers from 1."""
    found: dict[tuple[int, ...], None] = {}
    while len(found) < data.sequences:
        found[tuple(sorted((1 + rng.permutation(data.words)[: data.length]).tolist()))] = None
    return list(found)


def sentences(data: NamedEntities) -> Pairs:
    """Read a corpus, and number its words and labels in the order in which they occur."""
    corpus = read_sentences(data.corpus, data.sentences, data.length)
    words = numbered(word for sentence in corpus for word, _ in sentence)
    labels = numbered(label for sentence in corpus for _, label in sentence)
    tokens = pad([np.array([1 + words[word] for word, _ in sentence]) for sentence in corpus], 0)
    classes = pad([np.array([labels[label] for _, label in sentence]) for sentence in corpus], UNLABELLED)
    return Pairs(tokens, classes, 1 + len(words), len(labels), labels[NOTHING])


def numbered(texts: Iterable[str]) -> dict[str, int]:
    """Return the number of each different text, in their order."""
    return {text: number for number, text in enumerate(dict.fromkeys(texts))}


def alone(data: Pairs) -> float:
    """Return the accuracy of the best map from single tokens to labels, which ignores the context."""
    seen = data.labels != UNLABELLED
    counts = torch.zeros(data.words, data.classes).index_put_(
        (data.tokens[seen], data.labels[seen]), torch.ones(()), accumulate=True
    )
    return (counts.amax(dim=1).sum() / seen.sum()).item()
