"""The matcher maps the tokens of two sequences to the logits of their relation.

.. code-block:: text

    first, second [B, L], [B, M] -> the same tower for each -> u, v [B, C]
      -> [u, v, |u - v|, u v] -> hidden layer -> logits [B, labels]

Neither sequence attends to the other (Tay et al., ICLR 2021, arXiv 2011.04006, section 2.2.3), so the vector of a
document can be computed once and compared with many others.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from research.sequences.networks.tower import Tower, TowerConfig
from training.nn.shapes import Logits
from training.problems.sequence_description import SequenceDescription

First = Integer[Tensor, "batch first"]
Second = Integer[Tensor, "batch second"]


class MatcherConfig(TowerConfig):
    """Sizes of a matcher; its hidden layer has the FFN's."""

    inputs: ClassVar[int] = 2

    kind: Literal["matcher"] = "matcher"


class Matcher(nn.Module):
    """Classify pairs of sequences; see the diagram of the module.

    Args:
        config: The sizes.
        problem: Numbers of tokens and labels.
    """

    def __init__(self, config: MatcherConfig, problem: SequenceDescription) -> None:
        super().__init__()
        self.config = config
        self.tower = Tower(config, len(problem.vocabulary))
        self.head = nn.Sequential(
            nn.Linear(4 * config.channels, config.feedforward),
            nn.ReLU(),
            nn.Linear(config.feedforward, len(problem.labels)),
        )

    def forward(self, first: First, second: Second) -> Logits:
        """Return logits `[batch, label]` of two batches of tokens, padded by 0."""
        return self.head(compare(self.tower(first), self.tower(second)))


def compare(u: Float[Tensor, "batch channel"], v: Float[Tensor, "batch channel"]) -> Float[Tensor, "batch _"]:
    """Return the features of a pair of vectors: both, their distance and their product."""
    return torch.cat([u, v, (u - v).abs(), u * v], dim=-1)
