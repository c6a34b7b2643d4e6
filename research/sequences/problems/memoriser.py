r"""Memoriser: labels of tokens that one layer of rank-1 attention has learned by heart.

Its corpora are sets of letters with random labels, and sentences with a label for every word, the kind of named entity
that it is part of.

.. code-block:: text

    wnut17        text/wnut17_train.conll            "word\tlabel", an empty line (or a tab) between sentences
    uner_en_ewt   text/uner_en_ewt-ud-dev.iob2       "number\tword\tlabel\t-\t-", lines of comments begin with "# "

WNUT-17: Derczynski et al., 2017, tweets and comments, CC BY 4.0 (github.com/leondz/emerging_entities_17, where it is
called wnut17train.conll). UNER English-EWT: Mayhew et al., NAACL 2024, arXiv 2311.09122, web texts, CC BY-SA 4.0
(github.com/UniversalNER/UNER_English-EWT). Both are looked for where DATA_PATH points, then in data/.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import groupby, islice
from pathlib import Path
from string import ascii_lowercase
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from research.sequences.corpus import Corpus, CorpusError, SequenceProblem, Sequences, Splits, Tokens, located
from schema.problem import PADDING, SequenceDescription, SizeLimits
from training.problems.problem import VARIABLE

SHOWN = 3  # sets that the card shows with their labels, as they cannot be guessed


class LetterSets(Corpus):
    """Different sets of distinct letters in random order; the test set is the training set."""

    name = "letters"
    about = "random sets of letters, and a random label for every letter of each; it is measured on the sets it learned"
    wanted = "nothing: they are drawn from the seed"
    paths = ()
    by_heart = True

    @property
    def there(self) -> bool:
        return True

    def prepare(self) -> Path:
        return self.folder

    def description(self) -> str:
        """Describe the corpus, with some sets and their labels."""
        samples = first(self.read()["train"], SHOWN)
        pairs = zip(*samples.inputs, samples.labels, strict=True)
        shown = "; ".join(spelled(self.problem, tokens, labels) for tokens, labels in pairs)
        return f"{super().description()}; the first are {shown}"

    def read(self) -> Splits:
        letters = len(self.problem.vocabulary) - 1
        low, high = max(1, self.data.length[0]), min(self.data.length[1], letters)
        if self.data.train > (most := sum(math.comb(letters, size) for size in range(low, high + 1))):
            raise CorpusError(
                f"expected data.train up to {most} for sets of {low} to {high} letters: {self.data.train}"
            )
        rng = np.random.default_rng(self.seed)
        found: dict[frozenset[int], Tokens] = {}
        for tokens in draws(letters, low, high, rng):
            found.setdefault(frozenset(tokens.tolist()), tokens)
            if len(found) == self.data.train:
                break
        labels = tuple(rng.integers(len(self.labels), size=len(tokens)) for tokens in found.values())
        return learned(Sequences((tuple(found.values()),), labels), self.data.validation, self.data.test)


def spelled(problem: SequenceDescription, tokens: Tokens, labels: Tokens) -> str:
    """Write a set and its labels."""
    letters = " ".join(problem.vocabulary[token] for token in tokens)
    return f"{letters} with {' '.join(problem.labels[label] for label in labels)}"


def draws(letters: int, low: int, high: int, rng: np.random.Generator) -> Iterator[Tokens]:
    """Draw sets of letters without end."""
    while True:
        yield 1 + rng.permutation(letters)[: rng.integers(low, high + 1)]


def learned(samples: Sequences, validation: int, test: int) -> Splits:
    """Return splits that hold nothing out: validation and test are the first of the training samples."""
    return {"train": samples, "validation": first(samples, validation), "test": first(samples, test)}


def first(samples: Sequences, count: int) -> Sequences:
    """Return the first samples, as many as there are."""
    return Sequences(tuple(one[:count] for one in samples.inputs), samples.labels[:count])


NOTHING = "O"  # the label of words that are part of no entity

CorpusName = Literal["wnut17", "uner_en_ewt"]
Sentence = list[tuple[str, str]]  # words and labels


class Source(NamedTuple):
    """The file of a corpus, and the columns of its lines."""

    file: str
    word: int
    label: int
    about: str


SOURCES: dict[CorpusName, Source] = {
    "wnut17": Source("text/wnut17_train.conll", 0, 1, "tweets of WNUT-17 (Derczynski et al., 2017; CC BY 4.0)"),
    "uner_en_ewt": Source(
        "text/uner_en_ewt-ud-dev.iob2", 1, 2, "web texts of UNER English-EWT (Mayhew et al., 2024; CC BY-SA 4.0)"
    ),
}


def read_sentences(corpus: CorpusName, count: int, longest: int, folder: Path = Path("data")) -> list[Sentence]:
    """Return the first `count` sentences that are not too long.

    Raises:
        CorpusError: The file is missing, holds fewer, or has a line of another form.
    """
    source = SOURCES[corpus]
    path = located([source.file], folder)
    if path is None:
        raise CorpusError(f"expected a file {source.file}, {source.about}, in {folder} or where {VARIABLE} points")
    with path.open(encoding="utf-8") as lines:
        short = (sentence for sentence in parse(lines, source, path) if len(sentence) <= longest)
        found = list(islice(short, count))
    if len(found) < count:
        raise CorpusError(f"expected {count} sentences of up to {longest} words in {path} but got {len(found)}")
    return found


def parse(lines: Iterable[str], source: Source, path: Path) -> Iterator[Sentence]:
    """Return the sentences of lines; lines without letters separate them.

    Raises:
        CorpusError: A line has too few columns.
    """
    for full, group in groupby(enumerate(lines, 1), lambda line: bool(line[1].strip())):
        if full and (words := [line for line in group if not line[1].startswith("# ")]):
            yield [columns(line, source, f"{path}, line {number}") for number, line in words]


def columns(line: str, source: Source, location: str) -> tuple[str, str]:
    """Return the word and the label of a line.

    Raises:
        CorpusError: The line has too few columns.
    """
    cells = line.rstrip("\n").split("\t")
    if len(cells) <= source.label:
        raise CorpusError(
            f"{location}: expected {source.label + 1} columns with tabs between them but got {line[:40]!r}"
        )
    return cells[source.word], cells[source.label]


class NamedEntities(Corpus):
    """The first sentences of a corpus; nothing is held out."""

    by_heart = True
    name: ClassVar[CorpusName]
    kinds: ClassVar[tuple[str, ...]]  # of entities

    @property
    def labels(self) -> tuple[str, ...]:
        """A word begins an entity of a kind, is inside one, or is part of none."""
        return (NOTHING, *(f"{position}-{kind}" for kind in self.kinds for position in "BI"))

    def vocabulary(self) -> tuple[str, ...]:
        """Return the words in the order in which they occur."""
        return (PADDING, *dict.fromkeys(word for sentence in self.sentences() for word, _ in sentence))

    def sentences(self) -> list[Sentence]:
        """Return the sentences that are learned."""
        return read_sentences(self.name, self.data.train, self.data.length[1], self.folder)

    def read(self) -> Splits:
        sentences, words = self.sentences(), {word: number for number, word in enumerate(self.vocabulary())}
        if unknown := {label for sentence in sentences for _, label in sentence} - {*self.labels}:
            raise CorpusError(
                f"{self.prepare()}: expected the labels {', '.join(self.labels)} but got {', '.join(sorted(unknown))}"
            )
        tokens = tuple(np.array([words[word] for word, _ in sentence]) for sentence in sentences)
        labels = tuple(np.array([self.labels.index(label) for _, label in sentence]) for sentence in sentences)
        return learned(Sequences((tokens,), labels), self.data.validation, self.data.test)


class Wnut17(NamedEntities):
    """Names in tweets."""

    name = "wnut17"
    about = SOURCES["wnut17"].about
    kinds = ("corporation", "creative-work", "group", "location", "person", "product")
    wanted = SOURCES["wnut17"].file
    paths = (SOURCES["wnut17"].file,)


class UnerEnglish(NamedEntities):
    """Names in web texts."""

    name = "uner_en_ewt"
    about = SOURCES["uner_en_ewt"].about
    kinds = ("LOC", "ORG", "PER")
    wanted = SOURCES["uner_en_ewt"].file
    paths = (SOURCES["uner_en_ewt"].file,)


DESCRIPTION = SequenceDescription(
    name="memoriser",
    title="Memoriser: labels learned by heart by one layer of rank-1 attention",
    task="tell the label of every word of one of the sequences that were learned by heart; for others it means nothing",
    vocabulary=(PADDING, *ascii_lowercase),
    pattern=r"[a-z]",
    labels=("red", "green", "blue", "yellow"),
    answer="token",
    length=SizeLimits(minimum=1, maximum=128, declared=(8, 32, 128)),
    distribution="random sets of letters, and a random label for every letter of each",
)

PROBLEM = SequenceProblem(DESCRIPTION, corpora=(LetterSets, Wnut17, UnerEnglish))
