"""What is memorised: takes the description of a data set, gives its sequences by number, every token with a label."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from training.memorisation.trial import CounterExample, NamedEntities, RandomSets, Trial
from training.sequences.corpora import named_entities
from training.sequences.samples import UNLABELLED

Sequences = Int[Tensor, "sequence token"]


class Pairs(NamedTuple):
    """Sequences and labels; padding is token 0 and has none."""

    tokens: Sequences
    labels: Sequences
    words: int  # different tokens, padding among them
    classes: int
    nothing: int | None = None  # the label of words that are part of no entity


def pairs(trial: Trial) -> Pairs:
    """Draw or read what a trial memorises.

    Raises:
        ValueError: there are not so many different sets.
        CorpusError: the corpus is not there, or has fewer sentences.
    """
    match trial.data:
        case RandomSets():
            return random_sets(trial.data, trial.seed)
        case CounterExample():
            return Pairs(torch.tensor([[1, 2, 5, 6], [1, 3, 4, 6]]), torch.tensor([[0, 0, 0, 0], [1, 1, 1, 1]]), 7, 2)
        case NamedEntities():
            return sentences(trial.data)
        case _:
            raise ValueError(f"expected labelled sequences but got {trial.data.kind}")


def random_sets(data: RandomSets, seed: int) -> Pairs:
    """Draw different sets of words, and labels without any rule."""
    if (possible := math.comb(data.words, data.length)) < data.sequences:
        raise ValueError(f"expected at most {possible} sets of {data.length} of {data.words} words: {data.sequences}")
    rng = np.random.default_rng([seed, data.sequences, data.length, data.words])
    tokens = np.array([rng.permutation(chosen) for chosen in distinct(data, rng)])
    labels = rng.integers(data.labels, size=tokens.shape)
    return Pairs(torch.from_numpy(tokens), torch.from_numpy(labels), data.words + 1, data.labels)


def distinct(data: RandomSets, rng: np.random.Generator) -> list[tuple[int, ...]]:
    """Draw the sets, as sorted words from 1 on."""
    found: dict[tuple[int, ...], None] = {}
    while len(found) < data.sequences:
        found[tuple(sorted((1 + rng.permutation(data.words)[: data.length]).tolist()))] = None
    return list(found)


def sentences(data: NamedEntities) -> Pairs:
    """Number the words and labels of a corpus in the order in which they occur; the commonest label is `nothing`."""
    corpus = named_entities.read(data.corpus, data.sentences, data.length)
    words = numbered(word for sentence in corpus for word, _ in sentence)
    labels = numbered(label for sentence in corpus for _, label in sentence)
    tokens = padded([[1 + words[word] for word, _ in sentence] for sentence in corpus], 0)
    classes = padded([[labels[label] for _, label in sentence] for sentence in corpus], UNLABELLED)
    return Pairs(tokens, classes, 1 + len(words), len(labels), labels[named_entities.NOTHING])


def numbered(words: Iterable[str]) -> dict[str, int]:
    """Give each different word the next number."""
    return {word: number for number, word in enumerate(dict.fromkeys(words))}


def padded(rows: list[list[int]], value: int) -> Sequences:
    """Stack rows, filled up behind."""
    filled: NDArray[np.int64] = np.full((len(rows), max(map(len, rows))), value)
    for target, row in zip(filled, rows, strict=True):
        target[: len(row)] = row
    return torch.from_numpy(filled)


def alone(data: Pairs) -> float:
    """Give the share of labels that the best map of words without context has right."""
    seen = data.labels != UNLABELLED
    counts = torch.zeros(data.words, data.classes).index_put_(
        (data.tokens[seen], data.labels[seen]), torch.ones(()), accumulate=True
    )
    return (counts.amax(dim=1).sum() / seen.sum()).item()
