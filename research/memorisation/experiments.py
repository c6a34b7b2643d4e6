"""The experiments and their trials."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

from research.memorisation.trial import CounterExample, NamedEntities, RandomSets, Senses, Sets, Trial
from research.sequences.corpora.named_entities import SOURCES
from research.sequences.networks.memoriser import MemoriserConfig

SEEDS = range(2)
SEQUENCES = (8, 16, 32, 64, 96)
CHANNELS, HIDDEN, FULL = 16, 128, 16  # default sizes of a network, and its full rank


def network(
    channels: int = CHANNELS, hidden: int = HIDDEN, rank: int = 1, heads: int = 1, *, hard: bool = False
) -> MemoriserConfig:
    """Return the sizes of a network.

    Args:
        channels: Features of a token.
        hidden: Width of the feed-forward nets.
        rank: Rank of each head.
        heads: Heads of the attention.
        hard: Attend by hardmax.
    """
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
