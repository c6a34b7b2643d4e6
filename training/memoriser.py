r"""A network that learns labels by heart: takes tokens by number, gives a score for every label of every token.

.. math::
    x = E_t + F_1(E_t), \qquad z = \mathrm{Attn}(x), \qquad \mathrm{scores} = F_2(z),

with an embedding E, feed-forward nets :math:`F_1, F_2` of one hidden layer on every token alone, and one head of
attention of rank 1 between them: the network of Kajitsuka & Sato (ICLR 2024, arXiv 2307.14023, section 4), which can
label every token of finitely many sequences of distinct tokens at will. It is equivariant under permutations.
"""

from __future__ import annotations

from jaxtyping import Float, Integer
from torch import Tensor, nn

from training.attention.low_rank import LowRankAttention
from training.shapes import Mask

Numbers = Integer[Tensor, "batch token"]
Scores = Float[Tensor, "batch token label"]


class Memoriser(nn.Module):
    """Tell a token's label from the token and the set of those around it.

    Args:
        vocabulary: number of different tokens.
        labels: number of different labels.
        channels: features of a token.
        hidden: of the two feed-forward nets.
        rank: of the attention; `channels` for a full head.
        hard: attend by hardmax, with which most contexts look alike.
    """

    def __init__(
        self,
        vocabulary: int,
        labels: int,
        *,
        channels: int = 16,
        hidden: int = 64,
        rank: int = 1,
        hard: bool = False,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, channels)
        self.first = feedforward(channels, hidden, channels)
        self.attention = LowRankAttention(channels, rank, hard=hard)
        self.second = feedforward(channels, hidden, labels)

    def forward(self, tokens: Numbers, mask: Mask | None = None) -> Scores:
        """Give the labels' scores; a mask, `[batch, 1, token]` for padding, is true where a token is seen."""
        embedded = self.embedding(tokens)
        return self.second(self.attention(embedded + self.first(embedded), mask))


def feedforward(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    """Give a net of one hidden layer."""
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs))
