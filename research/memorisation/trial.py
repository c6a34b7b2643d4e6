"""A trial of memorisation, and its row of figures."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveInt

from research.sequences.corpora.named_entities import CorpusName
from research.sequences.networks.memoriser import MemoriserConfig

FROZEN = ConfigDict(frozen=True, extra="forbid")


class RandomSets(BaseModel):
    """Different sets of distinct tokens in random order, with a random label for every token of each."""

    model_config = FROZEN

    kind: Literal["random"] = "random"
    sequences: PositiveInt = 32
    length: PositiveInt = 3
    words: PositiveInt = 10
    labels: PositiveInt = 4


class CounterExample(BaseModel):
    """Two sequences on a line whose common ends have different labels; see `hidden_from_hardmax`."""

    model_config = FROZEN

    kind: Literal["counterexample"] = "counterexample"


class NamedEntities(BaseModel):
    """The first sentences of a corpus up to `length` words, with the entity that each word is part of."""

    model_config = FROZEN

    kind: Literal["entities"] = "entities"
    corpus: CorpusName = "wnut17"
    sentences: PositiveInt = 300
    length: PositiveInt = 32


class Senses(BaseModel):
    """Sentences of ambiguous words and one cue, which decides the label of every word; see `senses`."""

    model_config = FROZEN

    kind: Literal["senses"] = "senses"
    sentences: PositiveInt = 300
    length: PositiveInt = 12
    words: PositiveInt = 40
    cues: PositiveInt = 8
    labels: PositiveInt = 4


class Sets(BaseModel):
    """A function of `continuous`, on sets or on sequences of numbers."""

    model_config = FROZEN

    kind: Literal["sets"] = "sets"
    length: PositiveInt = 4
    function: Literal["nearest", "running"] = "nearest"


Data = Annotated[RandomSets | CounterExample | NamedEntities | Senses | Sets, Field(discriminator="kind")]


class Trial(BaseModel):
    """One training.

    Attributes:
        data: What is learned.
        network: Sizes of the network.
        constructed: Construct embedding and attention, and train the last feed-forward net only.
        positions: Add a trained vector per location of a sequence to its tokens, for functions of numbers.
        seed: Seed of data and weights.
        steps: Steps of Adam; fewer if everything is memorised before.
        batch: Sequences of a step; all by default.
        rate: Learning rate, which falls to 0 over the second half of the steps.
    """

    model_config = FROZEN

    data: Data = RandomSets()
    network: MemoriserConfig = MemoriserConfig(hidden=128)
    constructed: bool = False
    positions: bool = False
    seed: int = 0
    steps: PositiveInt = 1000
    batch: PositiveInt | None = None
    rate: float = 1e-2

    @property
    def form(self) -> str:
        """Name of the attention."""
        if self.constructed:
            return "constructed softmax, rank 1"
        rank = "full rank" if self.network.rank == self.network.channels else f"rank {self.network.rank}"
        heads = f"{self.network.heads} heads of " if self.network.heads > 1 else ""
        return f"{'hardmax' if self.network.hard else 'softmax'}, {heads}{rank}"


class Row(BaseModel):
    """Figures of a trial.

    Attributes:
        trial: The trial.
        parameters: Number of the network's parameters, trained or not.
        pairs: Number of labels.
        tokens: Share of labels that are right.
        sequences: Share of sequences of which every label is right.
        alone: Share of labels that the best map of single tokens has right.
        entities: Share of labels inside entities that are right, for corpora.
        unseen: Share of labels of new sentences that are right, for ambiguous words.
        error: Root mean square error over the function's standard deviation, for functions.
    """

    model_config = FROZEN

    trial: Trial
    parameters: int
    pairs: int = 0
    tokens: float = 0.0
    sequences: float = 0.0
    alone: float = 0.0
    entities: float | None = None
    unseen: float | None = None
    error: float | None = None
