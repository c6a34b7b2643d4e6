r"""Networks that label sequences.

.. code-block:: text

    tower       tokens [B, L], 0 is padding
                  -> embedding of the token + embedding of its position, behind one more token where pooling is `cls`
                  -> L encoder layers, padding masked -> layer norm -> the first token, or the mean over all but padding
                vector [B, C]
    classifier  tokens [B, L] -> tower -> linear map -> logits [B, labels]
    matcher     first, second [B, L], [B, M] -> the same tower for each -> u, v [B, C]
                  -> [u, v, |u - v|, u v] -> hidden layer -> logits [B, labels]
    memoriser   tokens [B, L] -> embedding -> attention between two feed-forward nets -> scores [B, L, labels]

The mask of the padding is computed from the tokens, so the padded length does not change the vector. In a matcher
neither sequence attends to the other (Tay et al., ICLR 2021, arXiv 2011.04006, section 2.2.3), so the vector of a
document can be computed once and compared with many others. The memoriser,

.. math::
    x = E_t, \qquad z = \mathrm{Attn}(x + F_1(x)), \qquad \mathrm{scores} = F_2(z),

learns labels by heart, with an embedding E, feed-forward nets :math:`F_1, F_2` of one hidden layer on every token
alone, and one head of attention of rank 1 between them: the network of Kajitsuka & Sato (ICLR 2024, arXiv 2307.14023,
section 4), which can label every token of finitely many sequences of distinct tokens at will. Heads of higher rank and
several heads are options. It is equivariant under permutations.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Integer
from pydantic import BaseModel, Field, NonNegativeInt, PositiveInt, model_validator
from torch import Tensor, nn

from research.memorisation.low_rank import LowRankAttention
from schema.parts import Frozen
from schema.problem import SequenceDescription
from training.nn.attention import AttentionType
from training.nn.encoder import EncoderConfig, encoder_stack
from training.nn.grids import Logits, Mask, Numbers, Tokens, graphing
from training.nn.pointwise import Activation

UNABLE = ("galerkin", "fourier", "linear")  # they take a mean over all tokens of a domain, including padding
Seen = Bool[Tensor, "batch token"]


class TowerConfig(EncoderConfig):
    """Settings of a tower; the configs of classifier and matcher inherit them."""

    inputs: ClassVar[int] = 1  # sequences of an input

    length: PositiveInt  # most tokens of a sequence
    positions: Literal["learned", "sinusoidal"] = "sinusoidal"  # embedding of a token's position
    pooling: Literal["cls", "mean"] = "cls"  # a token of its own, or the mean over the sequence
    attention: AttentionType = "softmax"
    gain: float = 1.0
    diagonal: float = 0.0
    activation: Activation = "gelu"
    local: NonNegativeInt = 0

    @model_validator(mode="after")
    def expect_masked_padding(self) -> TowerConfig:
        """Refuse settings with which padding would change the vector, or the token in front would see itself alone."""
        if self.attention in UNABLE:
            raise ValueError(f"{self.attention} attention takes a mean over padding, too: choose another")
        if self.local or self.batch_norm or self.attention_norm == "instance":
            raise ValueError("local mixing, batch norm and instance norm would mix padding in: leave them out")
        if self.pooling == "cls" and (self.causal or self.attention == "causal"):
            raise ValueError("the first token of causal attention sees itself alone: set pooling = 'mean'")
        return self


class Tower(nn.Module):
    """Encode sequences; see the diagram of the module.

    Args:
        config: The sizes.
        vocabulary: Number of different tokens, including padding.
    """

    positions: Tensor

    def __init__(self, config: TowerConfig, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, config.channels)
        first = config.pooling == "cls"
        self.first = nn.Parameter(torch.zeros(1, 1, config.channels)) if first else None
        if config.positions == "learned":
            self.positions = nn.Parameter(0.02 * torch.randn(config.length + first, config.channels))
        else:
            self.register_buffer("positions", sinusoids(config.length + first, config.channels), persistent=False)
        self.dropout = nn.Dropout(config.dropout)
        self.encoder = encoder_stack(config, coordinates=0)
        self.norm = nn.LayerNorm(config.channels, config.eps) if config.norm == "pre" else nn.Identity()

    def forward(self, tokens: Numbers) -> Float[Tensor, "batch channel"]:
        """Return vectors `[batch, channel]` of tokens `[batch, length]`, padded by 0.

        Raises:
            ValueError: There is no token, more than the network is for, or one that the vocabulary does not have.
        """
        most = len(self.positions) - (self.first is not None)
        if not graphing() and not 1 <= tokens.shape[-1] <= most:
            raise ValueError(f"expected sequences of 1 to {most} tokens, padding included, but got {tokens.shape[-1]}")
        seen, x = tokens != 0, embed(self.embedding, tokens)
        if self.first is not None:
            seen = torch.cat([torch.ones_like(seen[:, :1]), seen], dim=1)
            x = torch.cat([self.first.expand(x.shape[0], -1, -1), x], dim=1)
        x = self.dropout(x + self.positions[torch.arange(x.shape[1], device=x.device)])
        for layer in self.encoder:
            x = layer(x, mask=seen[:, None])
        return self.pool(self.norm(x), seen)

    def pool(self, x: Tokens, seen: Seen) -> Float[Tensor, "batch channel"]:
        """Return the token in front, or the mean over the tokens that are seen."""
        if self.first is not None:
            return x[:, 0]
        weight = seen.to(x.dtype)[..., None]
        return (x * weight).sum(dim=1) / weight.sum(dim=1).clamp(min=1)


def embed(embedding: nn.Embedding, tokens: Numbers) -> Tokens:
    """Return the vectors of tokens.

    Raises:
        ValueError: The vocabulary does not have a token.
    """
    if graphing():
        return embedding(tokens)
    try:
        return embedding(tokens)
    except IndexError as error:
        message = f"expected tokens 0 to {embedding.num_embeddings - 1} but got {tokens.min()} to {tokens.max()}"
        raise ValueError(message) from error


def sinusoids(length: int, channels: int) -> Float[Tensor, "length channels"]:
    """Return sines and cosines of wave lengths from 2 pi to 20000 pi (Vaswani et al., 2017, section 3.5)."""
    rates = torch.exp(torch.arange(0, channels, 2) * (-math.log(1e4) / channels))
    angles = torch.arange(length)[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[:, :channels]


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
        """Return logits `[batch, label]` of two batches of tokens, padded by 0.

        Raises:
            ValueError: There are not as many first as second sequences.
        """
        if not graphing() and len(first) != len(second):
            raise ValueError(f"expected pairs but got {len(first)} first and {len(second)} second sequences")
        return self.head(compare(self.tower(first), self.tower(second)))


def compare(u: Float[Tensor, "batch channel"], v: Float[Tensor, "batch channel"]) -> Float[Tensor, "batch _"]:
    """Return the features of a pair of vectors: both, their distance and their product."""
    return torch.cat([u, v, (u - v).abs(), u * v], dim=-1)


Outputs = Float[Tensor, "batch token output"]
SPREAD = 0.1  # standard deviation of new embeddings: small, so that no softmax starts as a hardmax, without gradients


class MemoriserConfig(Frozen):
    """Sizes of a memoriser.

    Attributes:
        channels: Features of a token.
        hidden: Width of the two feed-forward nets.
        rank: Rank of each head; `channels` for a full head.
        heads: Heads of the attention, whose outputs are added.
        hard: Attend by hardmax, which maps most contexts to the same output.
    """

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
        return self.layer(embed(self.embedding, tokens), (tokens != 0)[:, None])


def feedforward(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    """Return a net of one hidden layer."""
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs))


NetworkConfig = Annotated[ClassifierConfig | MatcherConfig | MemoriserConfig, Field(discriminator="kind")]
Network = Classifier | Matcher | Memoriser

#: How each config becomes a network.
NETWORKS: dict[type[BaseModel], Callable[[Any, SequenceDescription], Network]] = {
    ClassifierConfig: Classifier,
    MatcherConfig: Matcher,
    MemoriserConfig: lambda config, problem: Memoriser(config, len(problem.vocabulary), len(problem.labels)),
}


def build(config: BaseModel, problem: SequenceDescription) -> Network:
    """Build the network that `config` describes for a problem, with fresh weights."""
    return NETWORKS[type(config)](config, problem)
