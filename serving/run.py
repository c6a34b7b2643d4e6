"""Run models: batches in calls of Triton, and trajectories in calls of a few frames.

Triton queues calls, merges those of one shape (`dynamic_batching` in `config.pbtxt`, which the export writes) and
refuses what exceeds its queue. A request has one call more in flight than the model has instances, so that it keeps
all of them busy and another request waits for few of its calls.
"""

from __future__ import annotations

import asyncio
import logging

import numpy as np
from numpy.typing import NDArray

from serving import checks
from serving.catalogue.card import FRAME, Card
from serving.catalogue.catalogue import Catalogue
from serving.errors import Problem
from serving.observe import Metrics
from serving.triton import RUN_BYTES, Batch, Outputs, Triton

logger = logging.getLogger(__name__)
PIECE = 8  # most frames of one call: a waiting request of another shape is delayed by no more steps


class Runner:
    """Runs models; `triton` runs one call, `catalogue` loads what a call needs, and learns which version has gone."""

    def __init__(self, triton: Triton, catalogue: Catalogue, metrics: Metrics) -> None:
        self._triton, self._catalogue, self._metrics = triton, catalogue, metrics

    async def infer(self, card: Card, inputs: Batch, deadline: float, request_id: str) -> Outputs:
        """Return outputs `[B, ...]` for inputs `[B, ...]` by name, in calls of at most one batch of the model.

        The caller waits until the deadline, on the clock of the event loop, and cancels what is not done.
        """
        async with self._catalogue.loaded(card, deadline):
            count = len(inputs[card.names[0]])
            size = min(card.limits.batch, RUN_BYTES // sum(array[:1].nbytes for array in inputs.values())) or 1
            if count <= size:
                return await self._call(card, inputs, deadline, request_id)
            outputs: dict[int, Outputs] = {}
            starts = iter(range(0, count, size))

            async def work() -> None:
                for start in starts:
                    piece = {name: array[start : start + size] for name, array in inputs.items()}
                    outputs[start] = await self._call(card, piece, deadline, request_id)

            try:
                async with asyncio.TaskGroup() as group:
                    for _ in range(1 + await self._triton.instances(card.model, card.version)):
                        group.create_task(work())
            except BaseExceptionGroup as errors:
                raise errors.exceptions[0] from None
            return {name: np.concatenate([outputs[each][name] for each in sorted(outputs)]) for name in outputs[0]}

    async def _call(self, card: Card, inputs: Batch, deadline: float, request_id: str) -> Outputs:
        lead, metrics = inputs[card.names[0]], self._metrics
        sent = checks.padded(inputs, card) if card.scattered else inputs
        grid = checks.grid_label(card.inputs[0].grid_of(lead.shape), card)
        seconds = max(deadline - asyncio.get_running_loop().time(), 0.001)
        try:
            with metrics.phase(card.model, grid, "triton"):
                outputs = await self._triton.infer(
                    card.model, card.version, sent, seconds=seconds, request_id=request_id
                )
        except Problem as problem:
            if problem.kind == "triton-unavailable":
                raise  # it may be this call alone; the next look of the catalogue says whether Triton is lost
            if problem.kind == "model-not-ready":
                self._catalogue.withdraw(card)
            notes = "\n".join(getattr(problem, "__notes__", ()))
            logger.warning("%s version %d: %s %s", card.model, card.version, problem.detail, notes)
            raise
        if sent is not inputs:  # padding has no outputs
            on_points = {tensor.name for tensor in card.outputs if card.grid.axes[0] in tensor.axes}
            outputs = {name: each[:, : lead.shape[1]] if name in on_points else each for name, each in outputs.items()}
        metrics.batch_fields.labels(card.model).observe(len(lead))
        metrics.fields.labels(card.model, grid).inc(len(lead))
        return outputs


class Rollout:
    """How far a trajectory has been computed, by calls of at most `PIECE` frames.

    The shape of the input `frame` says how many frames are wanted, and `left` how many are still to be computed.
    """

    def __init__(self, card: Card, inputs: Batch) -> None:
        assert card.frames is not None  # noqa: S101  the caller has looked
        self._card, self._frames, self._inputs = card, card.frames, inputs
        self.left = int(inputs[FRAME].shape[1])
        size = max(inputs[name].nbytes // self._frames.history for name in self._frames.states)
        self._most = min(PIECE, max(1, RUN_BYTES // size))

    async def proceed(self, runner: Runner, deadline: float, request_id: str) -> Outputs:
        """Return the next frames `[B, frame, (component), *grid]`, and the quality outputs `[B, frame]`.

        What the model reports about the state that the call starts from holds for all frames of the call.
        """
        start = self.start
        found = await runner.infer(self._card, start, deadline, request_id)
        self.left -= start[FRAME].shape[1]
        self.follow(start, found)
        return found | {name: np.broadcast_to(found[name], start[FRAME].shape) for name in self._card.quality}

    async def finish(self, runner: Runner, deadline: float, request_id: str) -> Outputs:
        pieces = list[Outputs]()
        while self.left:
            pieces.append(await self.proceed(runner, deadline, request_id))
        return {name: np.concatenate([piece[name] for piece in pieces], axis=1) for name in pieces[0]}

    @property
    def start(self) -> dict[str, NDArray[np.float32]]:
        return {**self._inputs, FRAME: self._inputs[FRAME][:, : min(self.left, self._most)]}

    def follow(self, start: Batch, outputs: Outputs) -> None:
        """Let the next call start from the last frames of these outputs, whose call had the inputs `start`."""
        history = self._frames.history
        states: Outputs = {}
        for name, output in zip(self._frames.states, self._card.outputs, strict=True):
            made = outputs[output.name]
            joined = made if history == 1 else np.concatenate([start[name], made], axis=1)
            states[name] = np.ascontiguousarray(joined[:, -1] if history == 1 else joined[:, -history:])
        self._inputs = {**self._inputs, **states}
