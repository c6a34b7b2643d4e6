"""Calls of one version of a model in, at most so many runs at one time out, each call's answer back to it.

A run that fails is made again call by call, so that one call's fault is not the others'. A call that is cancelled
leaves the queue at once, and a run in which nobody is left is cancelled with it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from serving.problem_details import ModelFailed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from numpy.typing import NDArray

    from serving.inference.shape_queue import Call, Turns


class Line:
    """A queue and what is being done of it.

    Args:
        turns: The queue.
        ask: Makes a run: the answers to calls of one shape, in their order.
        room: How many runs may be in flight now.
    """

    def __init__(
        self,
        turns: Turns,
        ask: Callable[[Sequence[Call]], Awaitable[Sequence[dict[str, NDArray[Any]]]]],
        room: Callable[[], int],
    ) -> None:
        self._turns = turns
        self._ask = ask
        self._room = room
        self._runs: dict[asyncio.Task[None], Sequence[Call]] = {}

    def add(self, call: Call) -> None:
        """Queue a call, and start it if there is room.

        Raises:
            Overloaded: The queue is full.
        """
        self._turns.add(call)
        self._start()

    def remove(self, call: Call) -> None:
        """Forget a call, wherever it is."""
        self._turns.remove(call)
        call.answer.cancel()
        for task, calls in self._runs.items():
            if call in calls and all(other.answer.done() for other in calls):
                task.cancel()

    def _start(self) -> None:
        while self._turns.waiting and len(self._runs) < self._room():
            calls = [call for call in self._turns.take() if not call.turn.cancelled()]
            if not calls:
                continue
            for call in calls:
                call.turn.set_result(call is calls[0])
            task = asyncio.create_task(self._run(calls), context=calls[0].context)
            self._runs[task] = calls
            task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[None]) -> None:
        del self._runs[task]
        self._start()

    async def _run(self, calls: Sequence[Call]) -> None:
        try:
            answers = await self._ask(calls)
        except Exception as error:  # noqa: BLE001 - it is the callers', who raise it
            if isinstance(error, ModelFailed) and len(calls) > 1:
                for call in calls:
                    await self._run([call])
                return
            for call in calls:
                if not call.answer.done():
                    call.answer.set_exception(error)
        else:
            for call, answer in zip(calls, answers, strict=True):
                if not call.answer.done():
                    call.answer.set_result(answer)
