r"""Corpora of named entities: takes the user's copy of one, gives its sentences, and a label for every word of each.

.. code-block:: text

    wnut17        text/wnut17_train.conll            "word\tlabel", an empty line (or a tab) between sentences
    uner_en_ewt   text/uner_en_ewt-ud-dev.iob2       "number\tword\tlabel\t-\t-", lines of comments begin with "# "

WNUT-17: Derczynski et al., 2017, tweets and comments, CC BY 4.0 (github.com/leondz/emerging_entities_17, where it is
called wnut17train.conll). UNER English-EWT: Mayhew et al., NAACL 2024, arXiv 2311.09122, web texts, CC BY-SA 4.0
(github.com/UniversalNER/UNER_English-EWT). Both are looked for where DATA_PATH points, then in data/.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import groupby, islice
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from training.published.published import VARIABLE
from training.sequences.corpora.corpus import Corpus, CorpusError, Splits
from training.sequences.corpora.letters import learned
from training.sequences.problem import PADDING
from training.sequences.samples import Sequences

NOTHING = "O"  # the label of words that are part of no entity

CorpusName = Literal["wnut17", "uner_en_ewt"]
Sentence = list[tuple[str, str]]  # words and labels


class Source(NamedTuple):
    """Where a corpus is, and in which columns of its lines."""

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


def read(corpus: CorpusName, count: int, longest: int, folder: Path = Path("data")) -> list[Sentence]:
    """Give the first so many sentences that are not too long.

    Raises:
        CorpusError: the file is not there, holds fewer, or has a line of another form.
    """
    source = SOURCES[corpus]
    path = find(source, folder)
    with path.open(encoding="utf-8") as lines:
        short = (sentence for sentence in parse(lines, source, path) if len(sentence) <= longest)
        found = list(islice(short, count))
    if len(found) < count:
        raise CorpusError(f"expected {count} sentences of up to {longest} words in {path} but got {len(found)}")
    return found


def find(source: Source, folder: Path) -> Path:
    """Give a corpus' file."""
    folders = [Path(user), folder] if (user := os.environ.get(VARIABLE)) else [folder]
    if path := next((each / source.file for each in folders if (each / source.file).is_file()), None):
        return path
    raise CorpusError(f"expected a file {source.file}, {source.about}, in {folder} or where {VARIABLE} points")


def parse(lines: Iterable[str], source: Source, path: Path) -> Iterator[Sentence]:
    """Give the sentences of lines; what is between two has no letters."""
    for full, group in groupby(enumerate(lines, 1), lambda line: bool(line[1].strip())):
        if full and (words := [line for line in group if not line[1].startswith("# ")]):
            yield [columns(line, source, f"{path}, line {number}") for number, line in words]


def columns(line: str, source: Source, place: str) -> tuple[str, str]:
    """Give the word and the label of a line."""
    cells = line.rstrip("\n").split("\t")
    if len(cells) <= source.label:
        raise CorpusError(f"{place}: expected {source.label + 1} columns with tabs between them but got {line[:40]!r}")
    return cells[source.word], cells[source.label]


class NamedEntities(Corpus):
    """The first sentences of a corpus, all of which are learned; nothing is held out."""

    name: ClassVar[CorpusName]

    def vocabulary(self) -> tuple[str, ...]:
        """Give the words in the order in which they occur."""
        return (PADDING, *dict.fromkeys(word for sentence in self.sentences() for word, _ in sentence))

    def sentences(self) -> list[Sentence]:
        """Give the sentences that are learned."""
        return read(self.name, self.data.train, self.data.length[1], self.folder)

    def read(self) -> Splits:
        sentences, words = self.sentences(), {word: number for number, word in enumerate(self.vocabulary())}
        tokens = tuple(np.array([words[word] for word, _ in sentence]) for sentence in sentences)
        labels = tuple(np.array([self.labels.index(label) for _, label in sentence]) for sentence in sentences)
        return learned(Sequences((tokens,), labels), self.data.validation, self.data.test)


def spans(*kinds: str) -> tuple[str, ...]:
    """Give the labels of words that begin an entity of a kind, are further inside one, or part of none."""
    return (NOTHING, *(f"{place}-{kind}" for kind in kinds for place in "BI"))


class Wnut17(NamedEntities):
    """Names in tweets."""

    name = "wnut17"
    about = SOURCES["wnut17"].about
    labels = spans("corporation", "creative-work", "group", "location", "person", "product")
    wanted = SOURCES["wnut17"].file
    paths = (SOURCES["wnut17"].file,)


class UnerEnglish(NamedEntities):
    """Names in web texts."""

    name = "uner_en_ewt"
    about = SOURCES["uner_en_ewt"].about
    labels = spans("LOC", "ORG", "PER")
    wanted = SOURCES["uner_en_ewt"].file
    paths = (SOURCES["uner_en_ewt"].file,)
