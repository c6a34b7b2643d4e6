r"""The memoriser maps tokens to a score for every label of every token, and learns labels by heart.

.. math::
    x = E_t, \qquad z = \mathrm{Attn}(x + F_1(x)), \qquad \mathrm{scores} = F_2(z),

with an embedding E, feed-forward nets :math:`F_1, F_2` of one hidden layer on every token alone, and one head of
attention of rank 1 between them: the network of Kajitsuka & Sato (ICLR 2024, arXiv 2307.14023, section 4), which can
label every token of finitely many sequences of distinct tokens at will. Heads of higher rank and several heads are
options. It is equivariant under permutations.
"""

from __future__ import annotations

import math
from typing import ClassVar, Literal

from jaxtyping import Float
from pydantic import BaseModel, ConfigDict, PositiveInt
from torch import Tensor, nn

from training.nn.attention.low_rank import LowRankAttention
from training.nn.shapes import Logits, Mask, Numbers, Tokens

Outputs = Float[Tensor, "batch token output"]
SPREAD = 0.1  # standard deviation of new embeddings: small, so that no softmax starts as a hardmax, without gradients


class MemoriserConfig(BaseModel):
    """Sizes of a memoriser.

    Attributes:
        channels: Features of a token.
        hidden: Width of the two feed-forward nets.
        rank: Rank of each head; `channels` for a full head.
        heads: Heads of the attention, whose outputs are added.
        hard: Attend by hardmax, which maps most contexts to the same output.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    inputs: ClassVar[int] = 1  # sequences of an input
    length: ClassVar[float] = math.inf  # most tokens of a sequence, as positions are not embedded

    kind: Literal["memoriser"] = "memoriser"
    channels: PositiveInt = 16
    hidden: PositiveInt = 64
    rank: PositiveInt = 1
    heads: PositiveInt = 1
    hard: bool = False


class OneLayer(nn.Module):
    """Attention between two feed-forward nets, on tokens as they are: see the module's formula.

    Args:
        config: The sizes.
        outputs: Features of an output token.
    """

    def __init__(self, config: MemoriserConfig, outputs: int) -> None:
        super().__init__()
        self.first = feedforward(config.channels, config.hidden, config.channels)
        self.attention = LowRankAttention(config.channels, config.rank, config.heads, hard=config.hard)
        self.second = feedforward(config.channels, config.hidden, outputs)

    def forward(self, tokens: Tokens, mask: Mask | None = None) -> Outputs:
        """Return the outputs of every token; a mask, `[batch, 1, token]` for padding, is true where a token is seen."""
        return self.second(self.attention(tokens + self.first(tokens), mask))


class Memoriser(nn.Module):
    """Score the labels of a token from the token and the set of the other tokens.

    Args:
        config: The sizes.
        vocabulary: Number of different tokens, including 0, which is padding and is masked.
        labels: Number of different labels.
    """

    def __init__(self, config: MemoriserConfig, vocabulary: int, labels: int) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(vocabulary, config.channels)
        nn.init.normal_(self.embedding.weight, std=SPREAD)
        self.layer = OneLayer(config, labels)

    def forward(self, tokens: Numbers) -> Logits:
        """Return scores `[batch, length, label]` of tokens `[batch, length]`, padded by 0."""
        return self.layer(self.embedding(tokens), (tokens != 0)[:, None])


def feedforward(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    """Return a net of one hidden layer.

    Args:
        inputs: Input features.
        hidden: Features of the hidden layer.
        outputs: Output features.
    """
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs))
