"""The published corpus for document matching: takes the user's AAN files, gives pairs of papers that cite or do not."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from training.sequences.corpora.corpus import Corpus, CorpusError, Splits, labels, spell
from training.sequences.recipe import SequenceData
from training.sequences.samples import Sequences, Tokens


class Citations(Corpus):
    """Pairs of papers as Long Range Arena has them: label, two names, two texts, separated by tabs."""

    name = "aan"
    about = "pairs of papers of the ACL Anthology Network, does one cite the other (Radev et al., 2013)"
    labels = ("no citation", "citation")
    wanted = "new_aan_pairs.{train,eval,test}.tsv of Long Range Arena in tsv_data/"
    paths = tuple(
        f"{folder}/new_aan_pairs.train.tsv" for folder in (".", "tsv_data", "lra_release/lra_release/tsv_data")
    )

    def read(self) -> Splits:
        path, files = self.prepare(), {"train": "train", "validation": "eval", "test": "test"}
        return {
            split: some(path.with_name(f"new_aan_pairs.{suffix}.tsv"), getattr(self.data, split), self.data, self.seed)
            for split, suffix in files.items()
        }


def some(path: Path, count: int, data: SequenceData, seed: int) -> Sequences:
    """Give pairs of a file at random; it is read line by line, for it may be larger than the memory."""
    with path.open("rb") as file:
        lines = sum(1 for _ in file)
    if lines < count:
        raise CorpusError(f"expected {count} pairs in {path} but it has {lines}")
    chosen = {*np.random.default_rng(seed).permutation(lines)[:count].tolist()}
    with path.open("rb") as file:
        rows = [parse(line, data.length[1]) for place, line in enumerate(file) if place in chosen]
    return Sequences((tuple(row[0] for row in rows), tuple(row[1] for row in rows)), labels(row[2] for row in rows))


def parse(line: bytes, longest: int) -> tuple[Tokens, Tokens, int]:
    """Give both texts of a line by bytes, and its label."""
    fields = line.rstrip(b"\n").split(b"\t")
    if len(fields) != 5:
        raise CorpusError(f"expected label, two names and two texts in a line but got {len(fields)} fields")
    return spell(fields[3], longest), spell(fields[4], longest), int(float(fields[0]))
