"""Run a batch of any size on Triton: in calls of at most one batch of the model, and the outputs in order.

Triton queues calls, merges those of one shape (`dynamic_batching` in `config.pbtxt`, which the export writes) and
refuses what exceeds its queue. A request has one call more in flight than the model has instances, so that it keeps
all of them busy and another request waits for few of its calls.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import numpy as np

from serving import checks
from serving.errors import Problem
from serving.triton import RUN_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from serving.catalogue.card import Card
    from serving.catalogue.catalogue import Catalogue
    from serving.observe import Metrics
    from serving.triton import Batch, Outputs, Triton

logger = logging.getLogger(__name__)


class Dispatcher:
    """Runs models.

    Args:
        triton: Where they run.
        catalogue: Loads those that are loaded on demand, and learns what has disappeared.
        metrics: Records calls, their times and their samples.
    """

    def __init__(self, triton: Triton, catalogue: Catalogue, metrics: Metrics) -> None:
        self._triton, self._catalogue, self._metrics = triton, catalogue, metrics

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
            Problem: Of Triton, see `Triton.infer`; the request's other calls are cancelled.
        """
        async with self._catalogue.loaded(card, deadline):
            pieces = list(cut(inputs, samples_per_call(inputs, card.limits.batch)))
            if len(pieces) == 1:
                return await self._run(card, inputs, deadline, request_id)
            outputs: dict[int, Outputs] = {}
            numbered = iter(enumerate(pieces))

            async def work() -> None:
                for number, piece in numbered:
                    outputs[number] = await self._run(card, piece, deadline, request_id)

            try:
                async with asyncio.TaskGroup() as group:
                    for _ in range(1 + await self._triton.instances(card.model, card.version)):
                        group.create_task(work())
            except BaseExceptionGroup as errors:
                raise errors.exceptions[0] from None
            return {name: np.concatenate([outputs[each][name] for each in range(len(pieces))]) for name in outputs[0]}

    async def _run(self, card: Card, inputs: Batch, deadline: float, request_id: str) -> Outputs:
        """Run one call, and report what has disappeared where it cannot be run."""
        grid, metrics = checks.grid_label(card.grid_of(inputs), card), self._metrics
        seconds = max(deadline - asyncio.get_running_loop().time(), 0.001)
        try:
            with metrics.phase(card.model, grid, "triton"), metrics.triton(card.model):
                outputs = await self._triton.infer(
                    card.model, card.version, inputs, seconds=seconds, request_id=request_id
                )
        except Problem as problem:
            if problem.kind == "triton-unavailable":
                self._catalogue.lost()
                raise
            if problem.kind == "model-not-ready":
                self._catalogue.withdraw(card)
            notes = "\n".join(getattr(problem, "__notes__", ()))
            logger.warning("%s version %d: %s %s", card.model, card.version, problem.detail, notes)
            raise
        count = len(inputs[card.names[0]])
        metrics.batch_fields.labels(card.model).observe(count)
        metrics.fields.labels(card.model, grid).inc(count)
        return outputs


def samples_per_call(inputs: Batch, batch: int) -> int:
    """Return how many samples one call takes: at most a batch of the model, and `RUN_BYTES`."""
    size = sum(array[:1].nbytes for array in inputs.values())
    return max(1, min(batch, RUN_BYTES // size))


def cut(inputs: Batch, size: int) -> Iterator[Outputs]:
    """Yield consecutive pieces of at most `size` samples, as views."""
    [count] = {len(array) for array in inputs.values()}
    for start in range(0, count, size):
        yield {name: array[start : start + size] for name, array in inputs.items()}
