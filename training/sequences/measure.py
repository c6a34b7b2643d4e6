"""Honest numbers: takes a network and samples, gives its accuracy and that of always saying the commonest label."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from training.sequences.batches import by_length
from training.sequences.corpora.corpus import Splits
from training.sequences.networks.build import Network
from training.sequences.samples import Sequences
from training.sequences.task import cross_entropy, hits

BATCH = 32


@torch.inference_mode()
def accuracy(network: Network, samples: Sequences) -> dict[str, float]:
    """Give the share of labels that are found, and the mean cross-entropy in nats."""
    counts, losses = [], []
    for batch in by_length(samples, BATCH):
        logits = network(*batch.inputs)
        counts.append(hits(logits, batch.labels))
        losses.append(cross_entropy(logits, batch.labels).item() * counts[-1][1])
    right, all_ = np.sum(counts, axis=0)
    return {"accuracy": round(float(right / all_), 6), "cross_entropy": round(float(sum(losses) / all_), 6)}


def majority(train: Sequences, samples: Sequences) -> float:
    """Give the accuracy of always saying the training samples' commonest label."""
    seen, asked = (np.concatenate([np.atleast_1d(label) for label in one.labels]) for one in (train, samples))
    return round(float((asked == np.bincount(seen).argmax()).mean()), 6)


def report(network: Network, splits: Splits) -> dict[str, list[dict[str, Any]]]:
    """Measure a network on the test set: a card's `accuracy`."""
    test = splits["test"]
    row = {
        "split": "test",
        "sequences": len(test),
        "mean_length": round(float(test.lengths.mean()) / len(test.inputs), 1),
        **accuracy(network, test),
        "majority": majority(splits["train"], test),
    }
    return {"accuracy": [row]}
