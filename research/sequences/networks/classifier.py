"""The classifier maps the tokens of a sequence to the logits of its class.

.. code-block:: text

    tokens [B, L] -> tower -> vector [B, C] -> linear map -> logits [B, labels]
"""

from __future__ import annotations

from typing import Literal

from torch import nn

from research.sequences.networks.tower import Tower, TowerConfig
from training.nn.shapes import Logits, Numbers
from training.problems.sequence_description import SequenceDescription


class ClassifierConfig(TowerConfig):
    """Sizes of a classifier."""

    kind: Literal["classifier"] = "classifier"


class Classifier(nn.Module):
    """Classify sequences; see the diagram of the module.

    Args:
        config: The sizes.
        problem: Numbers of tokens and labels.
    """

    def __init__(self, config: ClassifierConfig, problem: SequenceDescription) -> None:
        super().__init__()
        self.config = config
        self.tower = Tower(config, len(problem.vocabulary))
        self.head = nn.Linear(config.channels, len(problem.labels))

    def forward(self, tokens: Numbers) -> Logits:
        """Return logits `[batch, label]` of tokens `[batch, length]`, padded by 0."""
        return self.head(self.tower(tokens))
