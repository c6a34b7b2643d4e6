"""Matching: pairs of texts of the published files, and of parts of speeches."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest

from research.sequences.corpus import CorpusError, SequenceData
from research.sequences.problems import matching
from research.sequences.problems.matching import DESCRIPTION as MATCHING
from research.sequences.problems.matching import Citations

SMALL = SequenceData(train=60, validation=20, test=20, length=(0, 64))


@pytest.mark.parametrize("label", [b"2.0", b"0.5", b"nan", b""])
def test_another_label_of_a_pair_is_refused(label: bytes) -> None:
    with pytest.raises(CorpusError, match=r"^here: expected the label 0 or 1"):
        matching.parse(label + b"\ta\tb\tone\tother\n", 10, "here")


def test_pairs_with_a_short_text_are_left_out_and_errors_name_the_line(tmp_path: Path) -> None:
    data = SequenceData(train=2, validation=2, test=2, length=(3, 5))
    for name in ("train", "eval", "test"):
        lines = ["0\ta\tb\tlong\t", "0\ta\tb\tab\tlong", "1\ta\tb\tfirst\tsecond", "1\ta\tb\tabc\tdef"]
        (tmp_path / f"new_aan_pairs.{name}.tsv").write_text("\n".join(lines))
    train = Citations(MATCHING, data, 1, tmp_path).read()["train"]
    assert [bytes((tokens - 1).astype(np.uint8)) for tokens in train.inputs[1]] == [b"secon", b"def"]
    with pytest.raises(CorpusError, match=r"expected 3 pairs of texts of 3 bytes or more in .*train.tsv but it has 2"):
        Citations(MATCHING, data.model_copy(update={"train": 3}), 1, tmp_path).read()
    (tmp_path / "new_aan_pairs.eval.tsv").write_text("1\ta\tb\tfirst\tsecond\n1\ta\tb\tfirst\n")
    with pytest.raises(
        CorpusError, match=r"eval.tsv, line 2: expected label, two names and two texts but got 4 fields"
    ):
        Citations(MATCHING, data, 1, tmp_path).read()


def made_up_speeches(count: int = 30, size: int = 400) -> list[bytes]:
    return [bytes([65 + k]) * size for k in range(count)]


def test_parts_come_from_one_speech_or_two_and_no_speech_is_in_two_splits() -> None:
    splits = matching.share(made_up_speeches(), SMALL, 3)
    spoken = {}
    for split, samples in splits.items():
        pairs = list(zip(*samples.inputs, samples.labels, strict=True))
        assert all((first[0] == second[0]) == bool(label) for first, second, label in pairs)
        assert all(len(first) == len(second) == 64 for first, second, _ in pairs)
        spoken[split] = {int(part[0]) for first, second, _ in pairs for part in (first, second)}
    assert not spoken["train"] & (spoken["test"] | spoken["validation"])
    assert not spoken["test"] & spoken["validation"]


def test_parts_of_a_speech_do_not_overlap() -> None:
    speech, rng = bytes(range(200)), np.random.default_rng(0)
    for _ in range(200):
        first, second = matching.parts(speech, 64, rng)
        assert not {*first.tolist()} & {*second.tolist()}


def test_speeches_are_read_from_their_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tarfile.open(tmp_path / matching.FILE, "w:gz") as archive:
        for year, speech in enumerate(made_up_speeches(), start=1790):
            for name, content in (("json", json.dumps({"text": speech.decode()}).encode()), ("txt", speech)):
                member = tarfile.TarInfo(f"package/data/{year}_a_speaker_n.{name}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    monkeypatch.setattr(matching, "DIGEST", hashlib.sha256((tmp_path / matching.FILE).read_bytes()).hexdigest())
    splits = matching.Speeches(MATCHING, SMALL, 3, tmp_path).read()
    assert {split: len(samples) for split, samples in splits.items()} == {"train": 60, "validation": 20, "test": 20}
    assert splits["train"].labels == matching.share(made_up_speeches(), SMALL, 3)["train"].labels


def test_a_package_that_was_changed_is_refused(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / matching.FILE, "w:gz") as archive:
        archive.addfile(tarfile.TarInfo("package/data/1790.json"), io.BytesIO())
    with pytest.raises(CorpusError, match="expected SHA-256"):
        matching.Speeches(MATCHING, SMALL, 1, tmp_path).prepare()
