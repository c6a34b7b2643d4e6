"""The accuracy of a network that labels sequences, beside that of the commonest label."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from research.sequences.corpora.corpus import Splits
from research.sequences.networks.build import Network
from research.sequences.samples import UNLABELLED, Sequences

BATCH = 32  # sequences, which bounds the memory of measuring


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean over all labels: logits `[batch, *token, label]`, labels `[batch, *token]`."""
    return functional.cross_entropy(logits.flatten(0, -2), labels.flatten(), ignore_index=UNLABELLED)


def hits(logits: Tensor, labels: Tensor) -> tuple[int, int]:
    """Count the labels that are found, and all."""
    return int((logits.argmax(dim=-1) == labels).sum()), int((labels != UNLABELLED).sum())


@torch.inference_mode()
def accuracy(network: Network, samples: Sequences) -> dict[str, float]:
    """Return the share of labels that are found, and the mean cross-entropy in nats."""
    counts, losses = [], []
    for batch in samples.by_length(BATCH):
        logits = network(*batch.inputs)
        counts.append(hits(logits, batch.labels))
        losses.append(cross_entropy(logits, batch.labels).item() * counts[-1][1])
    right, labels = np.sum(counts, axis=0)
    return {"accuracy": round(float(right / labels), 6), "cross_entropy": round(float(sum(losses) / labels), 6)}


def majority(train: Sequences, samples: Sequences) -> float:
    """Return the accuracy of the training samples' commonest label as the only prediction."""
    seen, expected = (np.concatenate([np.atleast_1d(label) for label in one.labels]) for one in (train, samples))
    return round(float((expected == np.bincount(seen).argmax()).mean()), 6)


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
