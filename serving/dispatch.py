"""A checked question of any number of fields in, Triton calls of at most the model's batch out, the answer in order.

This is where requests meet the model's capacity: calls wait their turn here, where they can be counted, timed and
given up, and not in Triton's queue.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import numpy as np

from serving import fields
from serving.problem_details import ModelNotReady, TritonUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from serving.catalogue import Catalogue
    from serving.inference import Inference
    from serving.metrics import Metrics
    from serving.schemas import Card

    Batch = Mapping[str, NDArray[np.float32]]

CALLS = 64  # in flight to one Triton: enough to fill its dynamic batches, few enough to be given up quickly


class Dispatcher:
    """Sends batches to Triton.

    Args:
        inference: The server.
        catalogue: Told when the server or a version goes away.
        metrics: Where calls, their times and their fields are recorded.
    """

    def __init__(self, inference: Inference, catalogue: Catalogue, metrics: Metrics) -> None:
        self._inference = inference
        self._catalogue = catalogue
        self._metrics = metrics
        self._turns = asyncio.Semaphore(CALLS)

    async def predict(
        self, card: Card, inputs: Batch, deadline: float, request_id: str
    ) -> dict[str, NDArray[np.float32]]:
        """The model's outputs for a batch of any size.

        Args:
            card: Of the version to ask.
            inputs: Batches `[B, ...]` by name.
            deadline: On the clock of the event loop.
            request_id: For Triton's log.

        Returns:
            Batches `[B, ...]` by name, in the order of the inputs.

        Raises:
            Failed: One of its kinds; the other calls of the question are cancelled.
        """
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(self._call(card, piece, deadline, request_id))
                    for piece in cut(inputs, card.limits.batch)
                ]
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        pieces = [task.result() for task in tasks]
        return pieces[0] if len(pieces) == 1 else join(pieces)

    async def _call(self, card: Card, piece: Batch, deadline: float, request_id: str) -> dict[str, NDArray[np.float32]]:
        first = piece[card.inputs[0].name]
        grid = fields.grid_label(first.shape[1:], card)
        clock = asyncio.get_running_loop()
        with self._metrics.phase(card.model, grid, "queue"):
            await self._turns.acquire()
        try:
            with self._metrics.phase(card.model, grid, "triton"), self._metrics.triton(card.model):
                outputs = await self._inference.infer(
                    card.model, card.version, piece, seconds=max(deadline - clock.time(), 0.001), request_id=request_id
                )
        except TritonUnavailable:
            self._catalogue.lost()
            raise
        except ModelNotReady:
            self._catalogue.withdraw(card)
            raise
        finally:
            self._turns.release()
        self._metrics.batch_fields.labels(card.model).observe(len(first))
        self._metrics.fields.labels(card.model, grid).inc(len(first))
        return outputs


def cut(inputs: Batch, size: int) -> Iterator[dict[str, NDArray[np.float32]]]:
    """Consecutive pieces of at most `size` fields, as views."""
    [count] = {len(array) for array in inputs.values()}
    for start in range(0, count, size):
        yield {name: array[start : start + size] for name, array in inputs.items()}


def join(pieces: list[dict[str, NDArray[np.float32]]]) -> dict[str, NDArray[np.float32]]:
    """The pieces one after another."""
    return {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}
