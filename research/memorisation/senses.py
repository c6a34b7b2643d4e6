"""Sentences whose labels need the context: ambiguous words, and one cue that decides what they mean.

A sentence holds `length - 1` ordinary words, drawn with replacement, and one cue at a random location. A table that is
drawn once has a random label for every pair of a word and a cue; it gives the labels of the words. The cue itself has
no label. So a word alone tells little more than a guess does, and a word with its sentence everything.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from research.memorisation.trial import Senses
from research.sequences.samples import UNLABELLED

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
    """Draw sentences.

    Args:
        data: Their length, and the numbers of words, cues and labels.
        table: The label of every word beside every cue, `[word, cue]`.
        count: How many sentences.
        rng: The random stream.
    """
    words = rng.integers(data.words, size=(count, data.length))
    cues = rng.integers(data.cues, size=count)
    rows, located = np.arange(count), rng.integers(data.length, size=count)
    tokens, labels = 1 + words, table[words, cues[:, None]]
    tokens[rows, located] = 1 + data.words + cues  # 0 is padding
    labels[rows, located] = UNLABELLED
    return Sentences(torch.from_numpy(tokens), torch.from_numpy(labels))
