"""The bucket of fields, on a clock of the test's own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.limits import Bucket


def test_a_burst_and_then_the_rate() -> None:
    bucket = Bucket(10.0, 20, now=0.0)
    assert bucket.take(20, 0.0) == 0.0
    assert bucket.take(5, 0.0) == pytest.approx(0.5)
    assert bucket.take(5, 0.4) == pytest.approx(0.1)
    assert bucket.take(5, 0.5) == 0.0


def test_a_pause_saves_no_more_than_a_burst() -> None:
    bucket = Bucket(10.0, 20, now=0.0)
    assert bucket.take(20, 1000.0) == 0.0
    assert bucket.wait(1, 1000.0) == pytest.approx(0.1)


def test_a_batch_beyond_the_burst_waits_for_a_full_bucket_and_pays_afterwards() -> None:
    bucket = Bucket(10.0, 20, now=0.0)
    assert bucket.take(1, 0.0) == 0.0
    assert bucket.take(100, 0.0) == pytest.approx(0.1)
    assert bucket.take(100, 0.1) == 0.0
    assert bucket.wait(1, 0.1) == pytest.approx(8.1)


def test_asking_costs_nothing() -> None:
    bucket = Bucket(1.0, 1, now=0.0)
    assert [bucket.wait(1, 0.0) for _ in range(3)] == [0.0] * 3
    bucket.take(1, 0.0)
    assert [bucket.take(1, 0.5) for _ in range(3)] == [0.5] * 3


@given(st.lists(st.tuples(st.integers(1, 300), st.floats(0, 5)), max_size=60))
def test_the_rate_holds_over_any_time(requests: list[tuple[int, float]]) -> None:
    rate, burst, now, taken, excess = 7.0, 50, 0.0, 0, 0
    bucket = Bucket(rate, burst, now)
    for count, pause in requests:
        now += pause
        if bucket.take(count, now) == 0.0:
            taken, excess = taken + count, max(0, count - burst)
        assert taken <= burst + rate * now + excess + 1e-6


@given(st.integers(1, 300), st.integers(1, 300))
def test_what_waits_as_long_as_it_was_told_is_taken(first: int, second: int) -> None:
    bucket = Bucket(7.0, 50, now=0.0)
    assert bucket.take(first, 0.0) == 0.0
    assert bucket.take(second, bucket.wait(second, 0.0) + 1e-6) == 0.0


def test_what_a_request_turned_out_to_cost_is_a_debt_of_a_minute_at_most() -> None:
    bucket = Bucket(10.0, 20, now=0.0)
    assert bucket.take(5, now=0.0) == 0
    bucket.owe(35)
    assert bucket.wait(1, now=0.0) == pytest.approx(2.1)
    bucket.owe(10_000)
    assert bucket.wait(20, now=0.0) == pytest.approx(60)
