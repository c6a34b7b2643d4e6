"""ListOps: the published rules, another evaluator's values, and samples that depend on the seed alone."""

from __future__ import annotations

import statistics
from collections import Counter
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from research.sequences.corpus import CorpusError, SequenceData
from research.sequences.problems.listops import DESCRIPTION as LISTOPS
from research.sequences.problems.listops import (
    SHARD,
    Expression,
    GeneratedExpressions,
    PublishedExpressions,
    draw,
    expressions,
    parse,
    value,
)

#: As the published generator writes them, with their values by hand.
PUBLISHED = [
    ("7", 7),
    ("( ( ( [MAX 2 ) 9 ) ] )", 9),
    ("( ( ( ( [MED 1 ) 2 ) 9 ) ] )", 2),
    ("( ( ( ( ( [MED 3 ) 8 ) 0 ) 6 ) ] )", 4),
    ("( ( ( ( [SM 7 ) 8 ) 9 ) ] )", 4),
    ("( ( ( ( ( [MAX 2 ) 9 ) ( ( ( [MIN 4 ) 7 ) ] ) ) 0 ) ] )", 9),
    ("( ( ( [MIN ( ( ( [SM 5 ) 6 ) ] ) ) ( ( ( [MED 4 ) 9 ) ] ) ) ] )", 1),
]


def texts(expression: Expression) -> list[str]:
    return [LISTOPS.vocabulary[number] for number in expression]


def recursive(text: list[str]) -> int:
    """Evaluate by descent; removes the tokens of one expression from the list."""
    token = text.pop(0)
    if token.isdecimal():
        return int(token)
    arguments = []
    while text[0] != "]":
        arguments.append(recursive(text))
    text.pop(0)
    return {
        "[MIN": min(arguments),
        "[MAX": max(arguments),
        "[MED": int(np.median(arguments)),
        "[SM": int(np.sum(arguments) % 10),
    }[token]


def lists(expression: Expression) -> list[tuple[str, int, int]]:
    """Return operator, depth and number of arguments of every list."""
    found, stack = [], [["", 0]]
    for text in texts(expression):
        if text == "]":
            operator, arguments = stack.pop()
            found.append((operator, len(stack), arguments))
        else:
            stack[-1][1] += 1
            if text in {"[MIN", "[MAX", "[MED", "[SM"}:
                stack.append([text, 0])
    return found


@pytest.mark.parametrize(("text", "expected"), PUBLISHED)
def test_published_samples_have_their_values(text: str, expected: int) -> None:
    assert value(parse(text, LISTOPS)) == expected


def test_there_are_fifteen_tokens_and_padding() -> None:
    assert len(LISTOPS.vocabulary) == 16
    assert LISTOPS.labels == tuple("0123456789")


@given(seed=st.integers(0, 2**32))
@settings(max_examples=40, deadline=None)
def test_two_evaluators_agree(seed: int) -> None:
    expression = draw(Random(seed), 5, 200)  # noqa: S311 -- reproducible, not secret
    rest = texts(expression)
    assert value(expression) == recursive(rest)
    assert rest == []


@pytest.mark.parametrize(("low", "high"), [(2, 32), (100, 300), (500, 2000)])
def test_lengths_keep_to_the_limits_and_depths_to_ten(low: int, high: int) -> None:
    rng = Random(1)  # noqa: S311 -- reproducible, not secret
    for _ in range(5):
        expression = draw(rng, low, high)
        found = lists(expression)
        assert low < len(expression) < high
        assert len(expression) == sum(token.isdecimal() for token in texts(expression)) + 2 * len(found)
        assert max(depth for _, depth, _ in found) <= 9  # so that digits lie at depth 10 at most
        assert {arguments for _, _, arguments in found} <= set(range(2, 11))


def test_nodes_are_drawn_by_the_published_probabilities() -> None:
    """Of expressions of any length, every node below the root: a list with probability 1/4."""
    rng, counts, operators, arguments = Random(2), Counter[bool](), Counter[str](), []  # noqa: S311 -- reproducible, not secret
    for _ in range(1500):
        for operator, depth, number in lists(draw(rng, 0, 100_000)):
            operators[operator] += 1
            arguments.append(number)
            counts[depth == 1] += 1
    assert counts[True] == pytest.approx(375, abs=4 * (1500 * 0.25 * 0.75) ** 0.5)
    shares = np.array([*operators.values()]) / operators.total()
    np.testing.assert_allclose(shares, 0.25, atol=0.03)
    assert statistics.mean(arguments) == pytest.approx(6, abs=0.2)


def test_a_digit_is_as_probable_as_any() -> None:
    rng = Random(3)  # noqa: S311 -- reproducible, not secret
    digits = Counter(token for _ in range(30) for token in texts(draw(rng, 100, 300)) if token.isdecimal())
    np.testing.assert_allclose(np.array([*digits.values()]) / digits.total(), 0.1, atol=0.02)


@pytest.mark.parametrize("text", ["[MAX 2 9", "1 2", "[MAX ]", "2 ]", "]", ""])
def test_an_incomplete_expression_has_no_value(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        value(LISTOPS.encode(text))


def test_a_text_with_other_tokens_is_refused_with_their_position() -> None:
    with pytest.raises(ValueError, match=r"at character 7 but got 'x'"):
        LISTOPS.encode("[MAX 2 x ]")


SMALL = SequenceData(train=SHARD + 30, validation=40, test=30, length=(2, 24))


def generated(folder: Path, seed: int = 5) -> GeneratedExpressions:
    return GeneratedExpressions(LISTOPS, SMALL, seed, folder, progress=False)


def test_no_expression_is_drawn_twice_and_labels_are_values(tmp_path: Path) -> None:
    splits = generated(tmp_path).read()
    assert {split: len(samples) for split, samples in splits.items()} == {"train": 230, "validation": 40, "test": 30}
    all_ = [tokens.tobytes() for samples in splits.values() for tokens in samples.inputs[0]]
    assert len(set(all_)) == len(all_)
    for tokens, label in zip(splits["test"].inputs[0], splits["test"].labels, strict=True):
        assert label == value(tokens)


def test_an_interrupted_file_is_completed_to_the_same_samples(tmp_path: Path) -> None:
    whole, broken = generated(tmp_path / "one"), generated(tmp_path / "two")
    (broken.prepare() / "train-00001.npz").unlink()
    (broken.prepare() / "train-00000.npz").unlink()
    expected, found = whole.read(), broken.read()
    for split, samples in expected.items():
        assert all(np.array_equal(*pair) for pair in zip(samples.inputs[0], found[split].inputs[0], strict=True))


@pytest.mark.parametrize(
    ("length", "possible"), [((0, 4), 10), ((1, 4), 0), ((3, 5), 400), ((8, 9), 0), ((4, 7), 44_000)]
)
def test_more_expressions_than_there_are_are_refused(length: tuple[int, int], possible: int, tmp_path: Path) -> None:
    data = SequenceData(train=possible + 1, validation=1, test=1, length=length)
    with pytest.raises(CorpusError, match=f"but there are {possible}$"):
        GeneratedExpressions(LISTOPS, data, 0, tmp_path, progress=False).prepare()
    few = SequenceData(train=8, validation=1, test=1, length=(0, 4))
    assert len(GeneratedExpressions(LISTOPS, few, 0, tmp_path, progress=False).read()["train"]) == 8


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04"])
def test_a_damaged_file_of_an_earlier_run_is_named(content: bytes, tmp_path: Path) -> None:
    (generated(tmp_path).prepare() / "validation-00000.npz").write_bytes(content)
    with pytest.raises(
        CorpusError, match=r"validation-00000.npz: .* it is damaged \(.*\); remove it to draw them again"
    ):
        generated(tmp_path).read()


def test_another_seed_gives_other_expressions(tmp_path: Path) -> None:
    one, other = (generated(tmp_path, seed).read()["test"].inputs[0] for seed in (5, 6))
    assert len({tokens.tobytes() for tokens in one} & {tokens.tobytes() for tokens in other}) < 10


def test_published_files_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATA_PATH", str(tmp_path))
    (tmp_path / "listops").mkdir()
    for name in ("train", "val", "test"):
        lines = ["Source\tTarget", *(f"{text}\t{number}" for text, number in PUBLISHED)]
        (tmp_path / "listops" / f"basic_{name}.tsv").write_text("\n".join(lines) + "\n")
    data = SequenceData(train=4, validation=2, test=2, length=(4, 100))
    splits = PublishedExpressions(LISTOPS, data, 0, tmp_path / "none").read()
    assert [int(label) for label in splits["train"].labels] == [2, 4, 4, 9]
    with pytest.raises(CorpusError, match="expected 9 expressions of 5 to 99 tokens"):
        PublishedExpressions(LISTOPS, data.model_copy(update={"train": 9}), 0, tmp_path).read()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("( ( [MAX 2 ) 9 ) ]\t12", "line 2: expected an expression in Source and its value, 0 to 9"),
        ("( ( [MAX 2 ) 9 ) ]", "line 2: expected an expression in Source and its value"),
        ("( ( [MUL 2 ) 9 ) ]\t8", r"line 2: expected tokens such as .* but got '\[MUL'"),
        ("( ( [MAX 2 ) 9 ) ]\t3", "line 2: expected the expression's value 9 in Target but got 3"),
        ("( ( [MAX 2 ) 9 )\t9", "line 2: expected one whole expression but got 1 open lists"),
        ('"( ( [MAX 2 ) 9 ) ]\t9', "line 2: expected tokens such as .* but got '\"'"),
    ],
)
def test_published_lines_of_another_form_are_refused(line: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "listops").mkdir()
    (tmp_path / "listops" / "basic_train.tsv").write_text(f"Source\tTarget\n{line}\n")
    data = SequenceData(train=1, validation=1, test=1, length=(0, 100))
    with pytest.raises(CorpusError, match=message):
        PublishedExpressions(LISTOPS, data, 0, tmp_path).read()


def test_expressions_are_counted_by_their_length() -> None:
    assert [expressions(length) for length in range(1, 7)] == [10, 0, 0, 400, 4000, 40_000]
    assert expressions(7) == 4 * 10**5 + 4 * 2 * 10 * 400  # a list of five digits, or of a digit and a list
