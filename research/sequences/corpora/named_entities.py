r"""Corpora of sentences with a label for every word: which kind of named entity it is part of.

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

from research.sequences.corpora.corpus import Corpus, CorpusError, Splits
from research.sequences.corpora.letters import learned
from research.sequences.samples import Sequences
from training.problems.published import VARIABLE
from training.problems.sequence_description import PADDING

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


def read(corpus: CorpusName, count: int, longest: int, folder: Path = Path("data")) -> list[Sentence]:
    """Return the first `count` sentences that are not too long.

    Args:
        corpus: Name of the corpus.
        count: How many sentences.
        longest: Most words of a sentence.
        folder: Where the file is looked for, after the folder that DATA_PATH names.

    Raises:
        CorpusError: The file is missing, holds fewer, or has a line of another form.
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
    """Return the file of a corpus.

    Raises:
        CorpusError: It is missing.
    """
    folders = [Path(user), folder] if (user := os.environ.get(VARIABLE)) else [folder]
    if path := next((each / source.file for each in folders if (each / source.file).is_file()), None):
        return path
    raise CorpusError(f"expected a file {source.file}, {source.about}, in {folder} or where {VARIABLE} points")


def parse(lines: Iterable[str], source: Source, path: Path) -> Iterator[Sentence]:
    """Return the sentences of lines; lines without letters separate them.

    Args:
        lines: The lines of the file.
        source: Its columns.
        path: Its path, for error messages.

    Raises:
        CorpusError: A line has too few columns.
    """
    for full, group in groupby(enumerate(lines, 1), lambda line: bool(line[1].strip())):
        if full and (words := [line for line in group if not line[1].startswith("# ")]):
            yield [columns(line, source, f"{path}, line {number}") for number, line in words]


def columns(line: str, source: Source, location: str) -> tuple[str, str]:
    """Return the word and the label of a line.

    Args:
        line: The line.
        source: Its columns.
        location: File and line number, for the error message.

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
        return read(self.name, self.data.train, self.data.length[1], self.folder)

    def read(self) -> Splits:
        sentences, words = self.sentences(), {word: number for number, word in enumerate(self.vocabulary())}
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
