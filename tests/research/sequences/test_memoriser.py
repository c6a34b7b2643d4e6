"""The memoriser memorises labels that it cannot memorise with hardmax."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from research.sequences.networks import Memoriser, MemoriserConfig

#: Eight sets of three of five tokens: with hardmax a token sees at most one other at a time, so contexts merge.
SEQUENCES = 1 + torch.tensor(list(itertools.combinations(range(5), 3)))[:8]
VOCABULARY = 6


def remembered(labels: Tensor, *, hard: bool, steps: int = 300) -> float:
    """Train until every label is right, and return the share of right labels."""
    network = Memoriser(MemoriserConfig(hidden=128, hard=hard), VOCABULARY, 2)
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-2)
    right = torch.zeros(())
    for _ in range(steps):
        optimiser.zero_grad()
        scores = network(SEQUENCES)
        right = (scores.argmax(dim=-1) == labels).float().mean()
        if right == 1:
            break
        functional.cross_entropy(scores.flatten(0, 1), labels.flatten()).backward()
        optimiser.step()
    return right.item()


@pytest.mark.parametrize("seed", [0, 1])
def test_rank_one_softmax_memorises_where_hardmax_fails(seed: int) -> None:
    torch.manual_seed(seed)
    labels = torch.randint(2, SEQUENCES.shape)
    assert remembered(labels, hard=False) == 1
    assert remembered(labels, hard=True) < 0.95


@pytest.mark.parametrize("hard", [False, True])
def test_order_and_padding_change_nothing(hard: bool) -> None:
    network, order = Memoriser(MemoriserConfig(hard=hard), VOCABULARY, 4), torch.tensor([2, 0, 1])
    scores = network(SEQUENCES)
    torch.testing.assert_close(network(SEQUENCES[:, order]), scores[:, order])
    torch.testing.assert_close(network(functional.pad(SEQUENCES, (0, 4)))[:, :3], scores)
