"""What is tried: takes nothing, gives the data and sizes of one run, and the row of what came of it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveInt

from training.sequences.corpora.named_entities import CorpusName
from training.sequences.networks.memoriser import MemoriserConfig

FROZEN = ConfigDict(frozen=True, extra="forbid")


class RandomSets(BaseModel):
    """Different sets of distinct words in random order, with a random label for every word of each."""

    model_config = FROZEN

    kind: Literal["random"] = "random"
    sequences: PositiveInt = 32
    length: PositiveInt = 3
    words: PositiveInt = 10
    labels: PositiveInt = 4


class CounterExample(BaseModel):
    """Two sequences on a line whose common ends have other labels in each; see `hidden_from_hardmax`."""

    model_config = FROZEN

    kind: Literal["counterexample"] = "counterexample"


class NamedEntities(BaseModel):
    """The first sentences of a corpus that are no longer than `length`, with the entity that each word is part of."""

    model_config = FROZEN

    kind: Literal["entities"] = "entities"
    corpus: CorpusName = "wnut17"
    sentences: PositiveInt = 300
    length: PositiveInt = 32


class Sets(BaseModel):
    """The permutation equivariant function of `equivariant`, on sets of numbers."""

    model_config = FROZEN

    kind: Literal["sets"] = "sets"
    length: PositiveInt = 4


Data = Annotated[RandomSets | CounterExample | NamedEntities | Sets, Field(discriminator="kind")]


class Trial(BaseModel):
    """One run.

    Attributes:
        data: what is to be learned.
        network: its sizes.
        constructed: keep embedding and attention as they are constructed, and train the last feed-forward net alone.
        seed: of data and weights.
        steps: of Adam; fewer if all is memorised before.
        batch: sequences of a step; all by default.
        rate: of Adam; falls to 0 over the second half of the steps.
    """

    model_config = FROZEN

    data: Data = RandomSets()
    network: MemoriserConfig = MemoriserConfig(hidden=128)
    constructed: bool = False
    seed: int = 0
    steps: PositiveInt = 1000
    batch: PositiveInt | None = None
    rate: float = 1e-2

    @property
    def form(self) -> str:
        """Attention in words."""
        if self.constructed:
            return "constructed softmax, rank 1"
        rank = "full rank" if self.network.rank == self.network.channels else f"rank {self.network.rank}"
        return f"{'hardmax' if self.network.hard else 'softmax'}, {rank}"


class Row(BaseModel):
    """What came of a trial.

    Attributes:
        trial: what was tried.
        parameters: of the network, kept fixed or not.
        pairs: labels to be learned.
        tokens: share of them that are right.
        sequences: share of the sequences that are right in every token.
        alone: share of the labels that the best map of words without context has right.
        entities: share of the words inside entities that are right, for corpora.
        error: root mean square over the function's standard deviation, for functions.
    """

    model_config = FROZEN

    trial: Trial
    parameters: int
    pairs: int = 0
    tokens: float = 0.0
    sequences: float = 0.0
    alone: float = 0.0
    entities: float | None = None
    error: float | None = None
