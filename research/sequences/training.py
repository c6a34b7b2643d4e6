"""Training of networks that label sequences, and their accuracy beside that of the commonest label."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.random import Generator
from torch import Tensor
from torch.nn import functional

from research.sequences.corpus import SEQUENCES, UNLABELLED, Sequences, Splits
from research.sequences.networks import Network, build
from research.sequences.recipe import SequenceRecipe, choose, load
from schema.problem import SequenceDescription
from training.checkpoint import MOST_EXAMPLES, Tensors
from training.data.dataset import Rows
from training.fit.workload import BatchSampler, Metric, Scope, ScopeError, Workload
from training.losses import Batch

MOST_LISTED = 256  # sequences that a card lists because they were learned by heart


class SequenceWorkload(Workload[SequenceRecipe]):
    """A recipe of a network that labels sequences."""

    metric = Metric("accuracy", "max", "the epoch of the best accuracy on the validation set")
    figures = ("accuracy",)

    @property
    def sample_bytes(self) -> int:
        data = self.recipe.data
        return (data.train + data.validation + data.test) * data.length[1]

    @property
    def parameters(self) -> int:
        return sum(
            each.numel()
            for each in build(self.recipe.operator, SEQUENCES[self.recipe.problem].description).parameters()
        )

    def prepare(self) -> Path:
        return choose(self.recipe, self.data, progress=self.progress).prepare()

    @cached_property
    def loaded(self) -> tuple[SequenceDescription, Splits]:
        return load(self.recipe, self.data, progress=self.progress)

    @property
    def problem(self) -> SequenceDescription:
        return self.loaded[0]

    def network(self) -> Network:
        torch.manual_seed(self.recipe.seed)
        return build(self.recipe.operator, self.problem)

    @property
    def batch_sampler(self) -> BatchSampler:
        fit = self.recipe.fit
        return BatchSampler(len(self.loaded[1]["train"]), fit.batch, fit.steps, self.recipe.seed)

    @property
    def orthogonality(self) -> float:
        return self.recipe.fit.orthogonality

    def draw(self, chosen: Rows, rng: Generator, share: float) -> Batch:
        """Return some sequences; they are not augmented."""
        del rng, share
        return self.loaded[1]["train"].batch(chosen)

    def validation(self) -> list[Batch]:
        return [*self.loaded[1]["validation"].batches(self.recipe.fit.batch)]

    def loss(self, network: Any, batch: Batch) -> Tensor:
        """Return the cross-entropy."""
        return cross_entropy(network(*batch.inputs), *batch.outputs)

    def scores(self, network: Any, batch: Batch) -> tuple[dict[str, float], int]:
        """Return the accuracy of a batch, and its number of labels."""
        right, labels = hits(network(*batch.inputs), *batch.outputs)
        return {self.metric.name: right / labels}, labels

    def account(self) -> dict[str, Any]:
        fit = self.recipe.fit
        return {
            "distribution": self.problem.distribution,
            "sequences": self.recipe.data.train,
            "length": list(self.recipe.data.length),
            "steps": fit.epochs * fit.steps,
            "batch": fit.batch,
            **self.by_heart(),
        }

    def by_heart(self) -> dict[str, list[str]]:
        """Return the texts that are learned by heart, unless they are many: labels of other texts mean nothing."""
        problem, splits = self.loaded
        [sequences] = splits["train"].inputs[:1]
        if not choose(self.recipe, self.data, progress=False).by_heart or len(sequences) > MOST_LISTED:
            return {}
        return {"by_heart": [" ".join(problem.vocabulary[token] for token in tokens) for tokens in sequences]}

    def measure(self, network: Network, problem: SequenceDescription, scope: Scope) -> dict[str, Any]:
        if scope.grid is not None or scope.noise is not None:
            raise ScopeError(f"sequences have no grid and no noise: {problem.name}")
        return report(network, self.loaded[1])

    def examples(self) -> Tensors:
        problem, splits = self.loaded
        return stored(problem, splits["test"])


def stored(problem: SequenceDescription, test: Sequences) -> Tensors:
    """Return the first test samples of a problem of sequences.

    Returns:
        Tokens `[sample, length]` by input name, all of one length, and `labels` `[sample]` or `[sample, length]`.
    """
    batch = test.batch(range(min(MOST_EXAMPLES, len(test))))
    longest = max(tokens.shape[1] for tokens in batch.inputs)
    inputs = {
        name: np.pad(tokens.numpy(), ((0, 0), (0, longest - tokens.shape[1])))
        for name, tokens in zip(problem.inputs, batch.inputs, strict=True)
    }
    return {**inputs, "labels": batch.outputs[0].numpy().astype(np.int32)}


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
        counts.append(hits(logits, batch.outputs[0]))
        losses.append(cross_entropy(logits, batch.outputs[0]).item() * counts[-1][1])
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
