"""A queue of calls of one model that serves shapes in turn and runs waiting calls of one shape together.

A run holds at most one batch of the model and `RUN_BYTES`, so that a shape with a steady stream of calls, or with large
ones, delays every other shape by one run at most.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from serving.errors import Problem

if TYPE_CHECKING:
    from serving.inference.backend import Batch, Outputs

    Shape = tuple[tuple[str, str, tuple[int, ...]], ...]

MAX_WAITING = 256  # calls of one model
RUN_BYTES = 8 * 2**20  # of a run of several calls: larger runs are no faster and delay other shapes


@dataclass(eq=False)
class Call:
    """Samples of one shape that wait for their outputs.

    Attributes:
        inputs: Batches `[B, ...]` by name.
        deadline: On the clock of the event loop.
        request_id: Of the request that it belongs to.
        started: Done when the call leaves the queue: whether it is the first of its run.
        outputs: Done at the end, with batches `[B, ...]` by name.
        context: Of the request, for the trace of a run's first call.
    """

    inputs: Batch
    deadline: float
    request_id: str
    started: asyncio.Future[bool] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    outputs: asyncio.Future[Outputs] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    context: Context = field(default_factory=copy_context)

    @property
    def count(self) -> int:
        """Number of samples."""
        return len(next(iter(self.inputs.values())))

    @property
    def bytes(self) -> int:
        """Size of the inputs."""
        return sum(array.nbytes for array in self.inputs.values())

    @property
    def shape(self) -> Shape:
        """What two calls must share to run together: names, types and shapes of a sample."""
        return tuple((name, array.dtype.str, array.shape[1:]) for name, array in self.inputs.items())


class ShapeQueue:
    """The waiting calls of one version of a model.

    Args:
        model: Its name, for messages.
        batch: Samples in one batch of it.

    Attributes:
        waiting: How many calls wait.
    """

    def __init__(self, model: str, batch: int) -> None:
        self._model = model
        self._batch = batch
        self._calls: dict[Shape, deque[Call]] = {}  # in the order in which the shapes are served
        self.waiting = 0

    def add(self, call: Call) -> None:
        """Queue a call behind those of its shape; a new shape is served after all others.

        Raises:
            Problem: overloaded: `MAX_WAITING` calls wait.
        """
        if self.waiting >= MAX_WAITING:
            raise Problem("overloaded", f'{self.waiting} calls of "{self._model}" wait, the maximum')
        self._calls.setdefault(call.shape, deque()).append(call)
        self.waiting += 1

    def remove(self, call: Call) -> None:
        """Remove a call, if it still waits."""
        calls = self._calls.get(call.shape)
        if calls is not None and call in calls:
            calls.remove(call)
            self.waiting -= 1
            if not calls:
                del self._calls[call.shape]

    def take(self) -> list[Call]:
        """Return the next run: calls of the next shape in order of arrival, as many as fit."""
        shape = next(iter(self._calls))
        calls = self._calls.pop(shape)
        run = self._fill(calls)
        if calls:
            self._calls[shape] = calls  # behind the other shapes
        self.waiting -= len(run)
        return run

    def _fill(self, calls: deque[Call]) -> list[Call]:
        run = [calls.popleft()]
        count, size = run[0].count, run[0].bytes
        while calls and count + calls[0].count <= self._batch and size + calls[0].bytes <= RUN_BYTES:
            count, size = count + calls[0].count, size + calls[0].bytes
            run.append(calls.popleft())
        return run
