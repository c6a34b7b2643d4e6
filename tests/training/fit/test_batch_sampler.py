"""The order of samples and the random streams depend on seed and step alone, and differ between seeds."""

from __future__ import annotations

import numpy as np

from training.fit.workload import BatchSampler, Epoch, Stream, stream, torch_seed


def test_passes_follow_one_another_whatever_the_epochs() -> None:
    found = [rows for epoch in range(2) for _, rows in BatchSampler(10, batch=4, steps=5, seed=3).epoch(epoch)]
    order = np.concatenate(found).tolist()
    assert len(found) == 10
    assert all(sorted(order[start : start + 10]) == list(range(10)) for start in range(0, 40, 10))
    assert len({tuple(order[start : start + 10]) for start in range(0, 40, 10)}) == 4


def test_a_later_epoch_continues_the_steps_and_their_random_numbers() -> None:
    whole, parts = BatchSampler(8, batch=2, steps=6, seed=1), BatchSampler(8, batch=2, steps=3, seed=1)
    numbers = [
        [rng.random() for rng in Epoch(order, epoch, lambda _, rng: rng)]
        for order, epoch in ((whole, 0), (parts, 0), (parts, 1))
    ]
    assert numbers[0] == numbers[1] + numbers[2]
    assert len({*numbers[0]}) == 6


def test_seeds_and_steps_share_no_random_numbers() -> None:
    """As sums, seed 1 at step 1 and seed 2 at step 0 would be the same stream."""
    dropout = {torch_seed(seed, step) for seed in range(20) for step in range(20)}
    assert len(dropout) == 400
    assert all(0 <= seed < 2**63 for seed in dropout)
    drawn = [stream(5, purpose, 0).generate_state(1)[0] for purpose in Stream]
    assert drawn[0] != drawn[1]
