"""The published corpus for document matching: pairs of papers of the ACL Anthology Network."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from research.sequences.corpora.corpus import Corpus, CorpusError, Splits, labels, spell
from research.sequences.samples import Sequences, Tokens
from research.sequences.sequence_data import SequenceData


class Citations(Corpus):
    """Pairs of papers as Long Range Arena has them: label, two names, two texts, separated by tabs."""

    name = "aan"
    about = "pairs of papers of the ACL Anthology Network, does one cite the other (Radev et al., 2013)"
    wanted = "new_aan_pairs.{train,eval,test}.tsv of Long Range Arena in tsv_data/"
    paths = tuple(
        f"{folder}/new_aan_pairs.train.tsv" for folder in (".", "tsv_data", "lra_release/lra_release/tsv_data")
    )

    @property
    def labels(self) -> tuple[str, ...]:
        return ("no citation", "citation")

    def read(self) -> Splits:
        path, files = self.prepare(), {"train": "train", "validation": "eval", "test": "test"}
        return {
            split: some(path.with_name(f"new_aan_pairs.{suffix}.tsv"), getattr(self.data, split), self.data, self.seed)
            for split, suffix in files.items()
        }


def some(path: Path, count: int, data: SequenceData, seed: int) -> Sequences:
    """Return pairs of a file at random; it is read line by line, as it may be larger than the memory.

    Args:
        path: The file.
        count: How many pairs.
        data: Lengths.
        seed: Seed of the choice.

    Raises:
        CorpusError: The file holds fewer, or a line of another form.
    """
    with path.open("rb") as file:
        lines = sum(1 for _ in file)
    if lines < count:
        raise CorpusError(f"expected {count} pairs in {path} but it has {lines}")
    chosen = {*np.random.default_rng(seed).permutation(lines)[:count].tolist()}
    with path.open("rb") as file:
        rows = [parse(line, data.length[1]) for number, line in enumerate(file) if number in chosen]
    return Sequences((tuple(row[0] for row in rows), tuple(row[1] for row in rows)), labels(row[2] for row in rows))


def parse(line: bytes, longest: int) -> tuple[Tokens, Tokens, int]:
    """Return both texts of a line as tokens, and its label.

    Raises:
        CorpusError: The line has another form.
    """
    fields = line.rstrip(b"\n").split(b"\t")
    if len(fields) != 5:
        raise CorpusError(f"expected label, two names and two texts in a line but got {len(fields)} fields")
    return spell(fields[3], longest), spell(fields[4], longest), int(float(fields[0]))
