"""Calls of one model in, runs of one shape out: each shape has its turn, and what waits with it goes along.

A turn is at most one batch of the model and `RUN_BYTES`, so that a shape that is asked for without pause, or in large
pieces, keeps no other waiting for longer than one run of each.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from serving.problem_details import Overloaded

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from serving.inference.backend import Batch

    Shape = tuple[tuple[str, str, tuple[int, ...]], ...]

MOST = 256  # calls of one model that may wait
RUN_BYTES = 8 * 2**20  # of a run of several calls: larger runs are no faster and delay other shapes


@dataclass(eq=False)
class Call:
    """Fields of one shape that wait for an answer.

    Attributes:
        inputs: Batches `[B, ...]` by name.
        deadline: On the clock of the event loop.
        request_id: Of the request that it belongs to.
        turn: Done when the call leaves the queue: whether it is the first of its run.
        answer: Done at the end, with batches `[B, ...]` by name.
        context: Of the request, for the trace that the first of a run leaves.
    """

    inputs: Batch
    deadline: float
    request_id: str
    turn: asyncio.Future[bool] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    answer: asyncio.Future[dict[str, NDArray[Any]]] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    context: Context = field(default_factory=copy_context)

    @property
    def count(self) -> int:
        """Number of fields."""
        return len(next(iter(self.inputs.values())))

    @property
    def bytes(self) -> int:
        """Size of the inputs."""
        return sum(array.nbytes for array in self.inputs.values())

    @property
    def shape(self) -> Shape:
        """What two calls have to share to be answered by one run."""
        return tuple((name, array.dtype.str, array.shape[1:]) for name, array in self.inputs.items())


class Turns:
    """The calls of one version of a model that wait.

    Args:
        model: Its name, for messages.
        batch: Fields in one batch of it.

    Attributes:
        waiting: How many calls wait.
    """

    def __init__(self, model: str, batch: int) -> None:
        self._model = model
        self._batch = batch
        self._lanes: dict[Shape, deque[Call]] = {}  # in the order of their turns
        self.waiting = 0

    def add(self, call: Call) -> None:
        """Queue a call behind those of its shape; a shape that nobody waits for has its turn after all others.

        Raises:
            Overloaded: `MOST` calls wait.
        """
        if self.waiting >= MOST:
            raise Overloaded(f'{self.waiting} calls of "{self._model}" wait, as many as may')
        self._lanes.setdefault(call.shape, deque()).append(call)
        self.waiting += 1

    def remove(self, call: Call) -> None:
        """Forget a call, if it still waits."""
        lane = self._lanes.get(call.shape)
        if lane is not None and call in lane:
            lane.remove(call)
            self.waiting -= 1
            if not lane:
                del self._lanes[call.shape]

    def take(self) -> list[Call]:
        """The next run: the shape whose turn it is, first come, first served, as many as fit; then others' turn."""
        shape = next(iter(self._lanes))
        lane = self._lanes.pop(shape)
        run = [lane.popleft()]
        count, size = run[0].count, run[0].bytes
        while lane and count + lane[0].count <= self._batch and size + lane[0].bytes <= RUN_BYTES:
            count, size = count + lane[0].count, size + lane[0].bytes
            run.append(lane.popleft())
        if lane:
            self._lanes[shape] = lane
        self.waiting -= len(run)
        return run
