"""Run the queued calls of one version of a model, a bounded number of runs at one time.

A run that fails is repeated call by call, so that only the call at fault fails. A cancelled call leaves the queue at
once, and a run whose calls are all cancelled is cancelled, too.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from serving.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from serving.inference.backend import Outputs
    from serving.inference.shape_queue import Call, ShapeQueue


class Executor:
    """A queue and its runs in flight.

    Args:
        queue: The waiting calls.
        run: Runs calls of one shape and returns their outputs in order.
        capacity: How many runs may be in flight now.
    """

    def __init__(
        self,
        queue: ShapeQueue,
        run: Callable[[Sequence[Call]], Awaitable[Sequence[Outputs]]],
        capacity: Callable[[], int],
    ) -> None:
        self._queue = queue
        self._run = run
        self._capacity = capacity
        self._runs: dict[asyncio.Task[None], Sequence[Call]] = {}

    def add(self, call: Call) -> None:
        """Queue a call, and start it if there is capacity.

        Raises:
            Problem: overloaded: The queue is full.
        """
        self._queue.add(call)
        self._start()

    def remove(self, call: Call) -> None:
        """Remove a call, whether it waits, runs or is done."""
        self._queue.remove(call)
        call.outputs.cancel()
        for task, calls in self._runs.items():
            if call in calls and all(other.outputs.done() for other in calls):
                task.cancel()

    def _start(self) -> None:
        while self._queue.waiting and len(self._runs) < self._capacity():
            calls = [call for call in self._queue.take() if not call.started.cancelled()]
            if calls:
                self._start_run(calls)

    def _start_run(self, calls: Sequence[Call]) -> None:
        for call in calls:
            call.started.set_result(call is calls[0])
        task = asyncio.create_task(self._execute(calls), context=calls[0].context)
        self._runs[task] = calls
        task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[None]) -> None:
        del self._runs[task]
        self._start()

    async def _execute(self, calls: Sequence[Call]) -> None:
        try:
            outputs = await self._run(calls)
        except Exception as error:  # noqa: BLE001 - the callers raise it
            if isinstance(error, Problem) and error.kind == "model-failed" and len(calls) > 1:
                for call in calls:
                    await self._execute([call])
                return
            for call in _pending(calls):
                call.outputs.set_exception(error)
        else:
            for call, result in zip(calls, outputs, strict=True):
                if not call.outputs.done():
                    call.outputs.set_result(result)


def _pending(calls: Sequence[Call]) -> list[Call]:
    return [call for call in calls if not call.outputs.done()]
