"""A checked question of any number of fields in, runs of one shape out to Triton, the answer in order.

This is where requests meet the model's capacity: calls wait their turn here, where they can be counted, timed and
given up, and not in Triton's queue. Only as many runs are in flight as keep every instance of the model busy
(`TritonPool.room`); so nothing waits while a server is idle, and what waits while it is not goes along with the next
call of its shape, as one batch.

Batches are put together here because Triton merges only neighbours of one shape in its queue: with two shapes in turn
its mean batch fell from 6.9 to 1.04. Sending runs of separate requests for Triton to merge would leave the batch to
chance (an idle instance starts with the first of them alone), and costs a message for each of them; one message holds
a whole run. `python -m benchmarks mixed-grids` has the figures.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from serving.inference import checks as fields
from serving.inference.executor import Line
from serving.inference.prediction import aside
from serving.inference.shape_queue import RUN_BYTES, Call, Turns
from serving.problem_details import ModelNotReady, TritonUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from serving.catalogue.catalogue import Catalogue
    from serving.inference.backend import Batch
    from serving.observability.metrics import Metrics
    from serving.schemas import Card
    from serving.triton.pool import TritonPool


Outputs = dict[str, NDArray[Any]]
PIECES = 8  # of one question that wait or run at one time: a large one shares the queue with small ones


class Dispatcher:
    """Sends batches to Triton.

    Args:
        tritons: The servers.
        catalogue: Told when the servers or a version go away.
        metrics: Where calls, their times and their fields are recorded.
    """

    def __init__(self, tritons: TritonPool, catalogue: Catalogue, metrics: Metrics) -> None:
        self._tritons = tritons
        self._catalogue = catalogue
        self._metrics = metrics
        self._lines: WeakValueDictionary[tuple[str, int], Line] = WeakValueDictionary()

    async def predict(self, card: Card, inputs: Batch, deadline: float, request_id: str) -> Outputs:
        """The model's outputs for a batch of any size.

        Args:
            card: Of the version to ask.
            inputs: Batches `[B, ...]` by name.
            deadline: On the clock of the event loop; until then the caller waits, and cancels what is not done.
            request_id: For Triton's log.

        Returns:
            Batches `[B, ...]` by name, in the order of the inputs.

        Raises:
            Failed: One of its kinds; the other calls of the question are cancelled.
        """
        pieces = list(cut(inputs, affordable(inputs, card.limits.batch)))
        if len(pieces) == 1:
            return await self._call(card, Call(inputs, deadline, request_id))
        numbered, answers = iter(enumerate(pieces)), dict[int, Outputs]()

        async def work() -> None:
            for number, piece in numbered:
                answers[number] = await self._call(card, Call(piece, deadline, request_id))

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(PIECES):
                    group.create_task(work())
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return join([answers[number] for number in range(len(pieces))])

    async def _call(self, card: Card, call: Call) -> Outputs:
        """One call's way through the queue; whoever cancels it leaves no trace there."""
        grid, line = _grid(card, call), self._line(card)
        line.add(call)
        try:
            with self._metrics.phase(card.model, grid, "queue"):
                first = await call.turn
            if first:
                return await call.answer  # the run is timed and traced as this call's
            with self._metrics.phase(card.model, grid, "triton"):
                return await call.answer
        finally:
            line.remove(call)

    def _line(self, card: Card) -> Line:
        """Where calls of a version wait, as long as there are some."""
        release = card.model, card.version
        turns, room = Turns(card.model, card.limits.batch), partial(self._tritons.room, *release)
        return self._lines.setdefault(release, Line(turns, partial(self._ask, card), room))

    async def _ask(self, card: Card, calls: Sequence[Call]) -> list[Outputs]:
        """One run: the answers to calls of one shape, in their order.

        Raises:
            Failed: One of its kinds.
        """
        inputs = await aside(sum(call.bytes for call in calls), join, [call.inputs for call in calls])
        seconds = max(call.deadline for call in calls) - asyncio.get_running_loop().time()
        grid, count = _grid(card, calls[0]), sum(call.count for call in calls)
        try:
            with self._metrics.phase(card.model, grid, "triton"), self._metrics.triton(card.model):
                outputs = await self._tritons.infer(
                    card.model, card.version, inputs, seconds=max(seconds, 0.001), request_id=calls[0].request_id
                )
        except TritonUnavailable:
            if not self._tritons.answers:
                self._catalogue.lost()
            raise
        except ModelNotReady:
            self._catalogue.withdraw(card)
            raise
        self._metrics.batch_fields.labels(card.model).observe(count)
        self._metrics.fields.labels(card.model, grid).inc(count)
        return split(outputs, [call.count for call in calls])


def affordable(inputs: Batch, batch: int) -> int:
    """Fields of one call: at most a batch, and what a run may hold."""
    size = sum(array[:1].nbytes for array in inputs.values())
    return max(1, min(batch, RUN_BYTES // size))


def cut(inputs: Batch, size: int) -> Iterator[dict[str, NDArray[Any]]]:
    """Consecutive pieces of at most `size` fields, as views."""
    [count] = {len(array) for array in inputs.values()}
    for start in range(0, count, size):
        yield {name: array[start : start + size] for name, array in inputs.items()}


def join(pieces: Sequence[Batch]) -> Outputs:
    """The pieces one after another; one alone as it is."""
    if len(pieces) == 1:
        return dict(pieces[0])
    return {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}


def split(outputs: Outputs, counts: Sequence[int]) -> list[Outputs]:
    """Consecutive pieces of so many fields each, as views: what `join` has joined."""
    if len(counts) == 1:
        return [outputs]
    ends = np.cumsum(counts)[:-1]
    parts = {name: np.split(array, ends) for name, array in outputs.items()}
    return [{name: part[index] for name, part in parts.items()} for index in range(len(counts))]


def _grid(card: Card, call: Call) -> str:
    return fields.grid_label(call.inputs[card.inputs[0].name].shape[1:], card)
