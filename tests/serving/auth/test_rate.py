"""The rate of a key, on a clock of the test's own."""

from __future__ import annotations

import math
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from serving.errors import Problem
from serving.limits import Caller
from tests.refusals import refused


class Clocked:
    """A caller on a clock: `take` says whether samples are admitted, `wait` in how many whole seconds."""

    def __init__(self, rate: float, burst: int) -> None:
        self.now = 0.0
        self.caller = Caller("alice", (rate, burst), clock=lambda: self.now)

    def take(self, count: int) -> bool:
        return self._refused(lambda: self.caller.spend(count)) == 0

    def wait(self, count: int = 1) -> int:
        if count == 1:
            return self._refused(self.caller.check)
        return self._refused(lambda: self.caller.spend(count))

    @staticmethod
    def _refused(call: Callable[[], None]) -> int:
        try:
            call()
        except Problem as problem:
            return int(problem.headers["Retry-After"])
        return 0


def test_a_burst_and_then_the_rate() -> None:
    key = Clocked(1.0, 20)
    assert key.take(20)
    assert key.wait(5) == 5
    key.now = 4.5
    assert key.wait(5) == 1
    key.now = 5.0
    assert key.take(5)


def test_a_pause_saves_no_more_than_a_burst() -> None:
    key = Clocked(0.1, 20)
    key.now = 1000.0
    assert key.take(20)
    assert key.wait() == 10


def test_a_batch_beyond_the_burst_waits_for_a_full_bucket_and_pays_afterwards() -> None:
    key = Clocked(10.0, 20)
    assert key.take(1)
    assert key.wait(100) == 1
    key.now = 0.1
    assert key.take(100)
    assert key.wait() == math.ceil(8.1)


def test_a_batch_whose_debt_is_longer_than_a_minute_is_too_large() -> None:
    key = Clocked(10.0, 20)
    with refused("body-too-large", match='the key "alice", which admits 620 in a minute'):
        key.caller.spend(621)
    assert key.take(620)


def test_asking_costs_nothing() -> None:
    key = Clocked(0.1, 1)
    assert [key.wait() for _ in range(3)] == [0] * 3
    key.take(1)
    key.now = 5.0
    assert [key.take(1) for _ in range(3)] == [False] * 3
    assert key.wait() == 5


@given(st.lists(st.tuples(st.integers(1, 300), st.floats(0, 5)), max_size=60))
def test_the_rate_holds_over_any_time(requests: list[tuple[int, float]]) -> None:
    rate, burst, taken, excess = 7.0, 50, 0, 0
    key = Clocked(rate, burst)
    for count, pause in requests:
        key.now += pause
        if key.take(count):
            taken, excess = taken + count, max(0, count - burst)
        assert taken <= burst + rate * key.now + excess + 1e-6


@given(st.integers(1, 300), st.integers(1, 300))
def test_what_waits_as_long_as_it_was_told_is_taken(first: int, second: int) -> None:
    key = Clocked(7.0, 50)
    assert key.take(first)
    key.now = float(key.wait(second))
    assert key.now == 0 or key.take(second)


def test_what_a_request_turned_out_to_cost_is_a_debt_of_a_minute_at_most() -> None:
    key = Clocked(10.0, 20)
    assert key.take(5)
    key.caller.owe(35)
    assert key.wait() == math.ceil(2.1)
    key.caller.owe(10_000)
    key.now += 57.9
    assert key.wait(1) == math.ceil(0.2)
