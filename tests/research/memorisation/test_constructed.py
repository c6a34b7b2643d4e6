"""The constructed memoriser: every label is right in exact arithmetic, with no more parameters than the bound."""

from __future__ import annotations

import itertools
from dataclasses import replace
from decimal import Decimal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from export.graphs.deployable import shape_checks_off
from research.memorisation.constructed import RepeatedContextError, bound, construct, drawn


@given(
    count=st.integers(1, 8),
    seed=st.integers(0, 2**31),
    words=st.integers(5, 8),
    length=st.integers(1, 3),
    channels=st.integers(3, 6),  # words of one or two features can be so close that thousands of digits are needed
)
@settings(max_examples=8, deadline=None)
def test_every_label_is_right(count: int, seed: int, words: int, length: int, channels: int) -> None:
    sequences, labels = drawn(min(count, words), seed, words, length, channels)
    if len(sequences.flatten(0, 1).unique(dim=0)) < 2:
        return  # the theorem is for two words or more
    built = construct(sequences, labels, torch.Generator().manual_seed(seed))
    assert [built.labels(sequence) for sequence in sequences] == labels
    assert built.parameters <= bound(*sequences.shape)


@pytest.mark.parametrize("scale", [1e-20, 1e3, 1e30])
def test_the_scale_of_the_words_decides_nothing(scale: float) -> None:
    sequences, labels = drawn(2, seed=5)
    built = construct(scale * sequences, labels, torch.Generator().manual_seed(5))
    assert [built.labels(scale * sequence) for sequence in sequences] == labels
    with pytest.raises(RepeatedContextError):
        construct(scale * torch.cat([sequences, sequences.flip(1)]), [[0, 0, 0], [0, 0, 0], [1, 1, 1], [1, 1, 1]])


def test_sequences_that_need_too_many_digits_are_refused() -> None:
    with pytest.raises(ValueError, match=r"need up to 10000 digits but these need \d{6}"):
        construct(*drawn(32, seed=0, words=64), torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([[0, 1, 2]], r"expected 3 labels for each of 2 sequences but got \[3\]"),
        ([[0, 1, 2], [0, 1]], r"but got \[3, 2\]"),
        ([[0, 1, 2], [0, 1, 0.5]], r"expected integers as labels but got 0\.5"),
    ],
)
def test_other_labels_are_refused(labels: list[list[int]], message: str) -> None:
    with shape_checks_off(), pytest.raises(ValueError, match=message):
        construct(drawn(2, seed=3)[0], labels)


def test_more_sets_than_there_are_are_refused() -> None:
    with pytest.raises(ValueError, match="expected at most 4 sets of 3 of 4 words but got 5"):
        drawn(5, seed=0, words=4)


def test_it_is_equivariant_under_permutations() -> None:
    sequences, labels = drawn(6, seed=1)
    built = construct(sequences, labels, torch.Generator().manual_seed(1))
    for order in itertools.permutations(range(3)):
        assert built.labels(sequences[2, list(order)]) == [labels[2][index] for index in order]


def test_it_does_not_survive_the_rounding_of_floats() -> None:
    sequences, labels = drawn(32, seed=0)
    built = construct(sequences, labels, torch.Generator().manual_seed(0))
    rounded = replace(built, digits=17)
    assert [rounded.labels(sequence) for sequence in sequences] != labels


def test_numbers_of_different_tokens_are_apart() -> None:
    """By half the smallest distance of two projections at least, since a context moves a number by a quarter of it."""
    sequences, labels = drawn(12, seed=2)
    built = construct(sequences, labels, torch.Generator().manual_seed(2))
    v = torch.tensor([float(each) for each in built.direction], dtype=torch.float64)
    y = (sequences.flatten(0, 1).unique(dim=0) @ v).sort().values
    assert float(built.scale) * y.abs().max() <= y.diff().min() / 4


def test_two_labels_of_one_token_in_one_context_are_refused() -> None:
    sequences, _ = drawn(1, seed=3)
    twice = torch.cat([sequences, sequences.flip(1)])
    with pytest.raises(RepeatedContextError, match="one label of a token in one context but got"):
        construct(twice, [[0, 0, 0], [1, 1, 1]])


def test_labels_between_two_numbers_are_no_integers_and_outputs_elsewhere_are() -> None:
    sequences, labels = drawn(4, seed=4)
    built = construct(sequences, labels, torch.Generator().manual_seed(4))
    step = built.steps[0]
    middle = built.label(step.start + step.width / 2)
    assert middle == built.first + Decimal(step.change) / 2
    assert built.label(step.start) == built.first
