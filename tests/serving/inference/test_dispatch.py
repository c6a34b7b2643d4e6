"""Order of shapes and calls, and calls that fail, are cancelled or are too many."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.errors import Problem
from serving.inference import shape_queue
from serving.inference.dispatch import join, split
from serving.inference.executor import Executor
from serving.inference.shape_queue import RUN_BYTES, Call, ShapeQueue
from serving.triton.retry_budget import RetryBudget
from tests.refusals import refused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

BATCH = 8


def call(points: int = 4, count: int = 1, value: float = 1.0) -> Call:
    return Call({"a": np.full((count, points, points), value, np.float32)}, deadline=0.0, request_id="")


class Model:
    """A model that doubles its input once it is released, and fails where a value is negative."""

    def __init__(self) -> None:
        self.runs: list[list[int]] = []
        self.released = asyncio.Event()
        self.cancelled = 0

    async def __call__(self, calls: Sequence[Call]) -> list[dict[str, NDArray[Any]]]:
        self.runs.append([each.inputs["a"].shape[1] for each in calls])
        try:
            await self.released.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if any((each.inputs["a"] < 0).any() for each in calls):
            raise Problem("model-failed", "a value is negative")
        return [{"b": 2 * each.inputs["a"]} for each in calls]


def executor_of(model: Model, capacity: int = 1) -> Executor:
    return Executor(ShapeQueue("m", BATCH), model, lambda: capacity)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_nothing_waits_while_there_is_capacity() -> None:
    model = Model()
    executor = executor_of(model, capacity=2)
    calls = [call(4), call(4), call(4), call(5), call(4)]
    for each in calls:
        executor.add(each)
    await settle()
    assert model.runs == [[4], [4]]
    assert [each.started.done() for each in calls] == [True, True, False, False, False]
    model.released.set()
    assert all([(await each.outputs)["b"][0, 0, 0] == 2 for each in calls])
    assert model.runs == [[4], [4], [4, 4], [5]]  # the calls that waited with the third run with it


async def test_a_steady_stream_of_one_shape_delays_another_by_one_run() -> None:
    model = Model()
    executor = executor_of(model)
    rare = call(5)
    for each in [*(call(4) for _ in range(3 * BATCH)), rare, *(call(4) for _ in range(3 * BATCH))]:
        executor.add(each)
    model.released.set()
    await rare.outputs
    assert model.runs == [[4], [4] * BATCH, [5]]


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, BATCH)), max_size=40))
def test_calls_of_a_shape_run_in_order_and_no_run_is_larger_than_a_batch(sizes: list[tuple[int, int]]) -> None:
    async def check() -> None:
        waiting = ShapeQueue("m", BATCH)
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
            added, ran = ([each for each in order if each.inputs["a"].shape[1] == points] for order in (calls, taken))
            assert added == ran

    asyncio.run(check())


async def test_a_run_holds_a_bounded_number_of_bytes() -> None:
    waiting, points = ShapeQueue("m", 10_000), 256
    per_run = RUN_BYTES // (points * points * 4)
    for _ in range(per_run + 1):
        waiting.add(call(points))
    assert [len(waiting.take()), len(waiting.take())] == [per_run, 1]


async def test_dtypes_are_not_mixed() -> None:
    waiting = ShapeQueue("m", BATCH)
    waiting.add(call())
    waiting.add(Call({"a": np.ones((1, 4, 4), np.int32)}, 0.0, ""))
    assert [len(waiting.take()), len(waiting.take())] == [1, 1]


async def test_beyond_the_limit_calls_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shape_queue, "MAX_WAITING", 2)
    model = Model()
    executor = executor_of(model)
    for _ in range(3):
        executor.add(call())
    with refused("overloaded", match='2 calls of "m" wait, the maximum') as caught:
        executor.add(call())
    assert int(caught.value.headers["Retry-After"]) >= 1


async def test_a_cancelled_call_is_removed_at_once() -> None:
    model = Model()
    executor = executor_of(model)
    first, second, third = call(), call(), call()
    for each in (first, second, third):
        executor.add(each)
    executor.remove(second)
    await settle()
    executor.remove(first)  # the only call of its run
    await settle()
    model.released.set()
    await third.outputs
    assert (model.runs, model.cancelled) == ([[4], [4]], 1)


async def test_a_run_goes_on_while_one_of_its_calls_is_not_cancelled() -> None:
    model = Model()
    executor = executor_of(model)
    first, second, third = call(), call(), call()
    for each in (first, second, third):
        executor.add(each)
    model.released.set()
    await first.outputs
    model.released.clear()
    await settle()
    executor.remove(second)
    model.released.set()
    assert (await third.outputs)["b"].shape == (1, 4, 4)
    assert (model.runs, model.cancelled) == ([[4], [4, 4]], 0)


async def test_a_failure_concerns_the_call_that_causes_it() -> None:
    model = Model()
    executor = executor_of(model)
    calls = [call(), call(), call(value=-1.0), call()]
    for each in calls:
        executor.add(each)
    model.released.set()
    results = await asyncio.gather(*(each.outputs for each in calls), return_exceptions=True)
    assert [getattr(result, "kind", None) == "model-failed" for result in results] == [
        False,
        False,
        True,
        False,
    ]


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6))
def test_split_is_the_inverse_of_join(counts: list[int]) -> None:
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
