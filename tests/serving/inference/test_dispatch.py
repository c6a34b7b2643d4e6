"""Turns between shapes, and what becomes of calls that fail, vanish or are too many."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.inference import shape_queue as turns
from serving.inference.dispatch import join, split
from serving.inference.executor import Line
from serving.inference.shape_queue import RUN_BYTES, Call, Turns
from serving.problem_details import ModelFailed, Overloaded
from serving.triton.retry_budget import RetryBudget

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

BATCH = 8


def call(points: int = 4, count: int = 1, value: float = 1.0) -> Call:
    return Call({"a": np.full((count, points, points), value, np.float32)}, deadline=0.0, request_id="")


class Model:
    """What a line asks: it doubles, once it may, and fails where a value is negative."""

    def __init__(self) -> None:
        self.runs: list[list[int]] = []
        self.may = asyncio.Event()
        self.cancelled = 0

    async def __call__(self, calls: Sequence[Call]) -> list[dict[str, NDArray[Any]]]:
        self.runs.append([each.inputs["a"].shape[1] for each in calls])
        try:
            await self.may.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if any((each.inputs["a"] < 0).any() for each in calls):
            raise ModelFailed("it was negative")
        return [{"b": 2 * each.inputs["a"]} for each in calls]


def line_of(model: Model, room: int = 1) -> Line:
    return Line(Turns("m", BATCH), model, lambda: room)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_nothing_waits_while_there_is_room() -> None:
    model = Model()
    line = line_of(model, room=2)
    calls = [call(4), call(4), call(4), call(5), call(4)]
    for each in calls:
        line.add(each)
    await settle()
    assert model.runs == [[4], [4]]
    assert [each.turn.done() for each in calls] == [True, True, False, False, False]
    model.may.set()
    assert all([(await each.answer)["b"][0, 0, 0] == 2 for each in calls])
    assert model.runs == [[4], [4], [4, 4], [5]]  # what waited with the third went along


async def test_a_shape_that_is_asked_for_without_pause_keeps_no_other_waiting() -> None:
    model = Model()
    line = line_of(model)
    rare = call(5)
    for each in [*(call(4) for _ in range(3 * BATCH)), rare, *(call(4) for _ in range(3 * BATCH))]:
        line.add(each)
    model.may.set()
    await rare.answer
    assert model.runs == [[4], [4] * BATCH, [5]]


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, BATCH)), max_size=40))
def test_every_call_has_its_turn_in_order_and_no_run_is_larger_than_a_batch(sizes: list[tuple[int, int]]) -> None:
    async def check() -> None:
        waiting = Turns("m", BATCH)
        calls = [call(points, count) for points, count in sizes]
        for each in calls:
            waiting.add(each)
        taken: list[Call] = []
        while waiting.waiting:
            run = waiting.take()
            assert len({each.shape for each in run}) == 1
            assert sum(each.count for each in run) <= BATCH
            taken += run
        for points in range(1, 5):
            given, kept = ([each for each in order if each.inputs["a"].shape[1] == points] for order in (calls, taken))
            assert given == kept

    asyncio.run(check())


async def test_a_run_holds_so_many_bytes() -> None:
    waiting, points = Turns("m", 10_000), 256
    per_run = RUN_BYTES // (points * points * 4)
    for _ in range(per_run + 1):
        waiting.add(call(points))
    assert [len(waiting.take()), len(waiting.take())] == [per_run, 1]


async def test_dtypes_are_not_mixed() -> None:
    waiting = Turns("m", BATCH)
    waiting.add(call())
    waiting.add(Call({"a": np.ones((1, 4, 4), np.int32)}, 0.0, ""))
    assert [len(waiting.take()), len(waiting.take())] == [1, 1]


async def test_beyond_the_limit_calls_are_sent_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "MOST", 2)
    model = Model()
    line = line_of(model)
    for _ in range(3):
        line.add(call())
    with pytest.raises(Overloaded, match='2 calls of "m" wait, as many as may') as caught:
        line.add(call())
    assert int(caught.value.headers["Retry-After"]) >= 1


async def test_who_leaves_is_forgotten_at_once() -> None:
    model = Model()
    line = line_of(model)
    first, second, third = call(), call(), call()
    for each in (first, second, third):
        line.add(each)
    line.remove(second)
    await settle()
    line.remove(first)  # nobody is left in its run
    await settle()
    model.may.set()
    await third.answer
    assert (model.runs, model.cancelled) == ([[4], [4]], 1)


async def test_who_stays_is_answered_though_others_of_the_run_leave() -> None:
    model = Model()
    line = line_of(model)
    first, second, third = call(), call(), call()
    for each in (first, second, third):
        line.add(each)
    model.may.set()
    await first.answer
    model.may.clear()
    await settle()
    line.remove(second)
    model.may.set()
    assert (await third.answer)["b"].shape == (1, 4, 4)
    assert (model.runs, model.cancelled) == ([[4], [4, 4]], 0)


async def test_a_failure_is_of_the_call_that_causes_it() -> None:
    model = Model()
    line = line_of(model)
    calls = [call(), call(), call(value=-1.0), call()]
    for each in calls:
        line.add(each)
    model.may.set()
    answers = await asyncio.gather(*(each.answer for each in calls), return_exceptions=True)
    assert [isinstance(answer, ModelFailed) for answer in answers] == [False, False, True, False]


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6))
def test_what_is_joined_is_split(counts: list[int]) -> None:
    pieces = [{"a": np.random.default_rng(count).random((count, 3))} for count in counts]
    for piece, again in zip(pieces, split(join(pieces), counts), strict=True):
        np.testing.assert_array_equal(piece["a"], again["a"])


def test_retries_are_earned_and_spent() -> None:
    budget = RetryBudget(0.5, 2)
    assert [budget.spend() for _ in range(3)] == [True, True, False]
    budget.earn()
    assert not budget.spend()
    budget.earn()
    assert [budget.spend(), budget.spend()] == [True, False]
