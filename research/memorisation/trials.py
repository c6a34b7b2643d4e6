"""Trials of memorisation: what is learned by which network, the experiments that list them, and a row of figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Annotated, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, PositiveInt

from research.sequences.networks import MemoriserConfig
from research.sequences.problems.memoriser import SOURCES, CorpusName

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
        seed: Seed of data and weights. Batches, and the sets that a function is learned from, are drawn once for all
            trials that are trained together, from the seed of the first.
        steps: Steps of Adam; fewer if all trials that are trained together have memorised everything before.
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


class Record(BaseModel):
    """All rows of an experiment; `Record.model_validate_json` reads its file."""

    model_config = FROZEN

    experiment: str
    torch: str = torch.__version__
    rows: tuple[Row, ...] = ()


SEEDS = range(2)
SEQUENCES = (8, 16, 32, 64, 96)
CHANNELS, HIDDEN, FULL = 16, 128, 16  # default sizes of a network, and its full rank


def network(
    channels: int = CHANNELS, hidden: int = HIDDEN, rank: int = 1, heads: int = 1, *, hard: bool = False
) -> MemoriserConfig:
    """Return the sizes of a network."""
    return MemoriserConfig(channels=channels, hidden=hidden, rank=rank, heads=heads, hard=hard)


#: Softmax and hardmax of rank 1 and of full rank.
FORMS = tuple(network(rank=rank, hard=hard) for rank, hard in product((1, FULL), (False, True)))
RANK_ONE = (network(), network(hard=True))
HEADS = (1, 2, 4, 8)


def by_sequences() -> Iterator[Trial]:
    """Vary the number of sequences, for every form of attention."""
    for seed, sequences in product(SEEDS, SEQUENCES):
        data = RandomSets(sequences=sequences)
        yield from (Trial(data=data, network=form, seed=seed) for form in FORMS)
        yield Trial(data=data, network=network(), constructed=True, seed=seed)


def by_length() -> Iterator[Trial]:
    """Vary the length of the sequences."""
    for seed, length, form in product(SEEDS, (2, 3, 4, 6, 8), RANK_ONE):
        yield Trial(data=RandomSets(length=length), network=form, seed=seed)


def by_words() -> Iterator[Trial]:
    """Vary the size of the vocabulary."""
    for seed, words, form in product(SEEDS, (8, 10, 16, 32, 64), RANK_ONE):
        yield Trial(data=RandomSets(words=words), network=form, seed=seed)


def by_channels() -> Iterator[Trial]:
    """Vary the size of the embeddings, which are not trained for the constructed head."""
    for seed, channels, hard in product(SEEDS, (1, 2, 4, 8, 16), (False, True)):
        yield Trial(network=network(channels=channels, hard=hard), seed=seed)
        if not hard:
            yield Trial(network=network(channels=channels), constructed=True, seed=seed)


def by_rank() -> Iterator[Trial]:
    """Vary the rank, with twice as many sequences as rank 1 memorises easily."""
    for seed, rank, hard in product(SEEDS, (1, 2, 4, 16), (False, True)):
        yield Trial(data=RandomSets(sequences=64), network=network(rank=rank, hard=hard), seed=seed)


def by_heads() -> Iterator[Trial]:
    """Vary the number of heads of rank 1, for as many sequences as `by_rank` has."""
    for seed, heads, hard in product(SEEDS, HEADS, (False, True)):
        yield Trial(data=RandomSets(sequences=64), network=network(heads=heads, hard=hard), seed=seed)


def by_width() -> Iterator[Trial]:
    """Vary the width of the feed-forward nets for several numbers of sequences: parameters per memorised pair."""
    for seed, sequences, hidden in product(range(4), SEQUENCES[:4], (4, 16, 64, 256)):
        yield Trial(data=RandomSets(sequences=sequences), network=network(hidden=hidden), seed=seed)


def counterexample() -> Iterator[Trial]:
    """Vary rank and heads on two sequences that no hardmax attention distinguishes at their common tokens."""
    for seed, rank, hard in product(SEEDS, (1, 4, FULL), (False, True)):
        yield Trial(data=CounterExample(), network=network(rank=rank, hard=hard), seed=seed, steps=300)
    for rank, seed in product((1, FULL), SEEDS):
        yield Trial(data=CounterExample(), network=network(rank=rank, heads=4, hard=True), seed=seed, steps=300)


def entities() -> Iterator[Trial]:
    """Vary the number of sentences of two corpora."""
    for corpus, sentences, hard in product(SOURCES, (100, 300, 1000), (False, True)):
        yield Trial(
            data=NamedEntities(corpus=corpus, sentences=sentences),
            network=network(channels=32, hard=hard),
            steps=600,
            batch=50,
        )


def context() -> Iterator[Trial]:
    """Vary the number of sentences of ambiguous words, whose labels follow from the word and the sentence's cue."""
    for sentences, hard, seed in product((100, 300, 1000), (False, True), SEEDS):
        yield Trial(data=Senses(sentences=sentences), network=network(hard=hard), seed=seed, steps=600, batch=50)


def function() -> Iterator[Trial]:
    """Vary the width of the nets for a permutation equivariant function."""
    for hidden, (rank, hard), seed in product((4, 16, 64, 256), ((1, False), (1, True), (FULL, False)), SEEDS):
        yield Trial(data=Sets(), network=network(hidden=hidden, rank=rank, hard=hard), seed=seed, steps=600)


def universality() -> Iterator[Trial]:
    """Vary the number of heads of rank 1 for the same function, and the width of the nets."""
    for hidden, heads, seed in product((64, 256), HEADS, SEEDS):
        yield Trial(data=Sets(), network=network(hidden=hidden, heads=heads), seed=seed, steps=600)


def order() -> Iterator[Trial]:
    """Vary the number of heads for a function of the order, which only networks with positional encodings see."""
    for heads, positions, seed in product(HEADS, (True, False), SEEDS):
        data, sizes = Sets(function="running"), network(hidden=64, heads=heads)
        yield Trial(data=data, network=sizes, positions=positions, seed=seed, steps=600)


#: The trials of every experiment.
EXPERIMENTS: dict[str, Callable[[], Iterator[Trial]]] = {
    "counterexample": counterexample,
    "sequences": by_sequences,
    "length": by_length,
    "words": by_words,
    "channels": by_channels,
    "rank": by_rank,
    "heads": by_heads,
    "width": by_width,
    "function": function,
    "universality": universality,
    "order": order,
    "entities": entities,
    "context": context,
}
