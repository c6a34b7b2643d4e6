"""Dispatch batches of any size to Triton as runs of one shape, and return the outputs in order.

Calls wait here, where they can be counted, timed and cancelled, and not in Triton's queue. Only as many runs are in
flight as keep every instance of the model busy (`BackendPool.capacity`): nothing waits while a server is idle, and
waiting calls of one shape run together, as one batch.

Batches are formed here because Triton merges only neighbours of one shape in its queue: with two alternating shapes its
mean batch fell from 6.9 to 1.04. Separate requests for Triton to merge would leave the batch to chance, since an idle
instance starts with the first of them alone, and would cost a message each; one message holds a whole run.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import numpy as np

from serving import checks
from serving.errors import Problem
from serving.inference.executor import Executor
from serving.inference.shape_queue import RUN_BYTES, Call, ShapeQueue
from serving.predict import offload

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from serving.catalogue.card import Card
    from serving.inference.backend import Availability, BackendPool, Batch, Outputs
    from serving.observability.metrics import Metrics

logger = logging.getLogger(__name__)
PIECES = 8  # of one request that wait or run at one time: a large request shares the queue with small ones


class Dispatcher:
    """Sends batches to Triton.

    Args:
        servers: The servers.
        availability: Learns when the servers or a version disappear.
        metrics: Records calls, their times and their samples.
    """

    def __init__(self, servers: BackendPool, availability: Availability, metrics: Metrics) -> None:
        self._servers = servers
        self._availability = availability
        self._metrics = metrics
        self._executors: WeakValueDictionary[tuple[str, int], Executor] = WeakValueDictionary()

    async def predict(self, card: Card, inputs: Batch, deadline: float, request_id: str) -> Outputs:
        """Return the model's outputs for a batch of any size.

        Args:
            card: Of the version to run.
            inputs: Batches `[B, ...]` by name.
            deadline: On the clock of the event loop; the caller waits until then, and cancels what is not done.
            request_id: For Triton's log.

        Returns:
            Batches `[B, ...]` by name, in the order of the inputs.

        Raises:
            Problem: One of its kinds; the request's other calls are cancelled.
        """
        pieces = list(cut(inputs, samples_per_call(inputs, card.limits.batch)))
        if len(pieces) == 1:
            return await self._call(card, Call(inputs, deadline, request_id))
        outputs: dict[int, Outputs] = {}
        numbered = iter(enumerate(pieces))

        async def work() -> None:
            for number, piece in numbered:
                outputs[number] = await self._call(card, Call(piece, deadline, request_id))

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(PIECES):
                    group.create_task(work())
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return join([outputs[number] for number in range(len(pieces))])

    async def _call(self, card: Card, call: Call) -> Outputs:
        """Queue one call and wait for its outputs; a cancelled call is removed."""
        grid, executor = _grid(card, call), self._executor(card)
        executor.add(call)
        try:
            with self._metrics.phase(card.model, grid, "queue"):
                first = await call.started
            if first:
                return await call.outputs  # the run is timed and traced as this call's
            with self._metrics.phase(card.model, grid, "triton"):
                return await call.outputs
        finally:
            executor.remove(call)

    def _executor(self, card: Card) -> Executor:
        """Return the executor of a version, which lives as long as it has calls."""
        key = card.model, card.version
        queue, capacity = ShapeQueue(card.model, card.limits.batch), partial(self._servers.capacity, *key)
        return self._executors.setdefault(key, Executor(queue, partial(self._run, card), capacity))

    async def _run(self, card: Card, calls: Sequence[Call]) -> list[Outputs]:
        """Run calls of one shape as one batch; return their outputs in order.

        Raises:
            Problem: One of its kinds.
        """
        inputs = await offload(sum(call.bytes for call in calls), join, [call.inputs for call in calls])
        seconds = max(call.deadline for call in calls) - asyncio.get_running_loop().time()
        grid, count = _grid(card, calls[0]), sum(call.count for call in calls)
        with self._metrics.phase(card.model, grid, "triton"), self._metrics.triton(card.model):
            outputs = await self._infer(card, inputs, max(seconds, 0.001), calls[0].request_id)
        self._metrics.batch_fields.labels(card.model).observe(count)
        self._metrics.fields.labels(card.model, grid).inc(count)
        return split(outputs, [call.count for call in calls])

    async def _infer(self, card: Card, inputs: Batch, seconds: float, request_id: str) -> Outputs:
        """Run the model, and report what has disappeared where it cannot be run."""
        try:
            return await self._servers.infer(card.model, card.version, inputs, seconds=seconds, request_id=request_id)
        except Problem as problem:
            if problem.kind == "triton-unavailable":
                if not self._servers.responds:
                    self._availability.lost()
                raise
            if problem.kind == "model-not-ready":
                self._availability.withdraw(card)
            notes = "\n".join(getattr(problem, "__notes__", ()))
            logger.warning("%s version %d: %s %s", card.model, card.version, problem.detail, notes)
            raise


def samples_per_call(inputs: Batch, batch: int) -> int:
    """Return how many samples one call takes: at most a batch of the model, and `RUN_BYTES`."""
    size = sum(array[:1].nbytes for array in inputs.values())
    return max(1, min(batch, RUN_BYTES // size))


def cut(inputs: Batch, size: int) -> Iterator[Outputs]:
    """Yield consecutive pieces of at most `size` samples, as views."""
    [count] = {len(array) for array in inputs.values()}
    for start in range(0, count, size):
        yield {name: array[start : start + size] for name, array in inputs.items()}


def join(pieces: Sequence[Batch]) -> Outputs:
    """Concatenate pieces; a single one is not copied."""
    if len(pieces) == 1:
        return dict(pieces[0])
    return {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}


def split(outputs: Outputs, counts: Sequence[int]) -> list[Outputs]:
    """Split batches into consecutive pieces of so many samples each, as views: the inverse of `join`."""
    if len(counts) == 1:
        return [outputs]
    ends = np.cumsum(counts)[:-1]
    parts = {name: np.split(array, ends) for name, array in outputs.items()}
    return [{name: part[index] for name, part in parts.items()} for index in range(len(counts))]


def _grid(card: Card, call: Call) -> str:
    return checks.grid_label(card.grid_of(call.inputs), card)
