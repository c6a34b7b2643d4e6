"""The matcher: takes pairs of sequences, gives the logits of how they belong together.

.. code-block:: text

    first, second [B, L], [B, M] -> one tower, alone for each -> u, v [B, C]
      -> [u, v, |u - v|, u v] -> hidden layer -> logits [B, labels]

The towers never see one another (Tay et al., ICLR 2021, arXiv 2011.04006, section 2.2.3), so documents can be compared
by vectors that were computed once.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from training.nn.shapes import Logits
from training.sequences.networks.tower import Tower, TowerConfig
from training.sequences.sequence_description import SequenceDescription

First = Integer[Tensor, "batch first"]
Second = Integer[Tensor, "batch second"]


class MatcherConfig(TowerConfig):
    """Sizes of a matcher; its hidden layer has the FFN's."""

    inputs: ClassVar[int] = 2

    kind: Literal["matcher"] = "matcher"


class Matcher(nn.Module):
    """See the module's picture; the problem tells the numbers of words and labels."""

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
        return self.head(compare(self.tower(first), self.tower(second)))


def compare(u: Float[Tensor, "batch channel"], v: Float[Tensor, "batch channel"]) -> Float[Tensor, "batch _"]:
    """Give what a pair of vectors is judged by."""
    return torch.cat([u, v, (u - v).abs(), u * v], dim=-1)
