"""Text classification by bytes: whether a film review is favourable."""

from __future__ import annotations

from pathlib import Path
from zipfile import ZipFile

from research.sequences.corpus import SPLITS, Corpus, Document, SequenceProblem, Splits, deal
from schema.problem import BYTES, SequenceDescription, SizeLimits


class MovieReviews(Corpus):
    """Two thousand reviews, from which all splits are drawn."""

    name = "movie_reviews"
    about = "2,000 film reviews in lower case (polarity data set 2.0, Pang & Lee, 2004; CC BY 4.0)"
    wanted = "movie_reviews.zip of NLTK's data (packages/corpora) in text/"
    paths = ("text/movie_reviews.zip", "movie_reviews.zip")

    def read(self) -> Splits:
        with ZipFile(self.prepare()) as archive:
            names = sorted(name for name in archive.namelist() if name.endswith(".txt"))
            classes = ((name, label) for label, part in enumerate(("/neg/", "/pos/")) for name in names if part in name)
            documents = [(head(archive, name, self.data.length[1]), label) for name, label in classes]
        return deal(dict.fromkeys(SPLITS, documents), self.data, self.seed)


class Imdb(Corpus):
    """The published corpus, 25,000 reviews to train on and as many to test."""

    name = "imdb"
    about = "50,000 film reviews (IMDb, Maas et al., 2011)"
    wanted = "the folder aclImdb of the Large Movie Review Dataset"
    paths = ("aclImdb", "text/aclImdb")

    def read(self) -> Splits:
        train, test = (reviews(self.prepare() / split, self.data.length[1]) for split in ("train", "test"))
        return deal({"train": train, "validation": train, "test": test}, self.data, self.seed)


def head(archive: ZipFile, name: str, length: int) -> bytes:
    """Read the first bytes of an archive's file."""
    with archive.open(name) as file:
        return file.read(length)


def reviews(path: Path, longest: int) -> list[Document]:
    """Read the reviews of a folder's `neg` and `pos`."""
    return [
        (start(file, longest), label)
        for label, name in enumerate(("neg", "pos"))
        for file in sorted((path / name).glob("*.txt"))
    ]


def start(path: Path, length: int) -> bytes:
    """Read a file's first bytes."""
    with path.open("rb") as file:
        return file.read(length)


DESCRIPTION = SequenceDescription(
    name="text",
    title="Text classification by bytes: is a film review favourable?",
    task="tell from the bytes of a film review whether its author liked the film",
    vocabulary=BYTES,
    pattern=None,
    labels=("negative", "positive"),
    length=SizeLimits(minimum=1, maximum=4000, declared=(1000, 2000, 4000)),
    distribution="film reviews in English",
)

PROBLEM = SequenceProblem(DESCRIPTION, corpora=(Imdb, MovieReviews))
