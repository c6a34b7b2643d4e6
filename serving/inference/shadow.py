"""Measure the true errors of live predictions: solve a share of them classically, in the background.

It solves one sample of a request and one at a time, in a thread of the lowest priority. No response waits for it.
"""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING

import numpy as np

from serving.errors import Problem

if TYPE_CHECKING:
    from serving.catalogue.card import Card
    from serving.inference.producer import Batches, Fallback
    from serving.observability.metrics import Metrics
    from serving.quality import Quality

logger = logging.getLogger(__name__)


class Shadow:
    """Verifies a share of predictions.

    Args:
        classical: Solves in the background.
        metrics: Records the errors.
        share: The share of predictions, from 0 to 1.
    """

    def __init__(self, classical: Fallback, metrics: Metrics, share: float) -> None:
        self._classical = classical
        self._metrics = metrics
        self._share = share
        self._verifying: asyncio.Task[None] | None = None

    def offer(self, card: Card, inputs: Batches, outputs: Batches, quality: Quality) -> None:
        """Verify one sample of a prediction later, if the share, the load and the problem allow it.

        Args:
            card: The model's card.
            inputs: Batches by name.
            outputs: The model's outputs by name.
            quality: What computed them; classical solutions are not verified.
        """
        busy = self._verifying is not None and not self._verifying.done()
        if busy or random.random() >= self._share or not self._classical.solves(card):  # noqa: S311  a sample
            return
        index = random.randrange(len(quality.solved))  # noqa: S311  as above
        if not quality.solved[index]:
            name = card.outputs[0].name
            one = {each: array[index : index + 1].copy() for each, array in inputs.items()}
            self._verifying = asyncio.create_task(self._verify(card, one, outputs[name][index].astype(np.float64)))

    def close(self) -> None:
        """Drop what is being verified."""
        if self._verifying is not None:
            self._verifying.cancel()

    async def _verify(
        self, card: Card, inputs: Batches, output: np.ndarray[tuple[int, ...], np.dtype[np.float64]]
    ) -> None:
        try:
            solutions = await self._classical.verify(card, inputs)
        except Problem as problem:
            logger.debug("%s is not verified: %s", card.model, problem.detail)
            return
        solution = solutions[card.outputs[0].name][0].astype(np.float64)
        size = np.linalg.norm(solution)
        if size > 0:
            self._metrics.true_error.labels(card.model).observe(float(np.linalg.norm(output - solution) / size))
