"""Stream the frames of long rollouts: each is sent once it is computed, and one call of the model is computed ahead.

A rollout is bounded in its frames and in their bytes. The memory that it takes is that of two calls of the model,
whatever its length: no further call begins before the frames of the one before the last have been taken.
"""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

import numpy as np

from serving.errors import Problem
from serving.inference.policy import ANY, Case
from serving.inference.prediction import Predictor, check, encode, offload, or_successor
from serving.inference.producer import Run
from serving.inference.rollout import Rollout
from serving.quality import split

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from numpy.typing import NDArray

    from serving.catalogue.card import Card, Frames
    from serving.inference.policy import Policy
    from serving.inference.prediction import Exchange, Payer, Successor
    from serving.inference.producer import ModelInput, Outputs, Producer
    from serving.inference.rollout import Rollouts
    from serving.inference.shadow import Shadow
    from serving.observability.metrics import Metrics
    from serving.quality import Quality

Result = TypeVar("Result")


class Frame(NamedTuple, Generic[Result]):
    """One frame of trajectories.

    Attributes:
        number: Its number, from 1.
        last: Whether it is the last one.
        written: What the exchange wrote.
    """

    number: int
    last: bool
    written: Result


@dataclass
class Piece:
    """The frames of one call of the model.

    Attributes:
        outputs: `[B, frame, ...]` by name.
        quality: What is known about them, `[B, frame]`.
    """

    outputs: Outputs
    quality: Quality

    @property
    def count(self) -> int:
        """Number of frames."""
        return int(next(iter(self.outputs.values())).shape[1])


class Progress:
    """A rollout of one request.

    Args:
        run: What has to be done.
        inputs: What it starts from.
        rollout: How far it has come.

    Attributes:
        number: Number of the last frame that was taken.
        outside: `[B]`, whether each trajectory has been outside.
        failed: `[B]`, whether each has had a state that is not finite.
    """

    def __init__(self, run: Run, inputs: ModelInput, rollout: Rollout) -> None:
        self.run, self.inputs, self.rollout = run, inputs, rollout
        self.computed = self.number = run.policy.span.after
        self.outside: NDArray[np.bool_] = np.zeros(inputs.count, np.bool_)
        self.failed: NDArray[np.bool_] = np.zeros(inputs.count, np.bool_)

    def piece(self, results: Outputs) -> Piece:
        """Return the results of a call, with what is known about the frames.

        Raises:
            Problem: outside-training: A trajectory is outside, and is not to go on.
        """
        outputs, quality = split(results, self.run.card.quality, trajectories=True)
        piece = Piece(outputs, quality)
        piece.quality = quality.estimated(self.run.card.estimates(piece.count, self.computed))
        self.computed += piece.count
        self.run.policy.unmet(Case(self.run.card, solver=False, single=self.inputs.single), piece.quality)
        return piece


class StreamPredictor(Predictor):
    """Predicts, also frame by frame.

    Args:
        producer: Computes the outputs.
        rollouts: Computes frames.
        shadow: Verifies some outputs afterwards.
        metrics: Records phases and quality.
        max_bytes: The largest size of one input as float32.
        seconds: The longest time that one prediction, or one call of a rollout, may take.
        max_rollout_bytes: The largest size of all frames of a rollout as float32.

    Attributes:
        until: When the service ends rollouts, on the event loop's clock.
    """

    def __init__(
        self,
        producer: Producer,
        rollouts: Rollouts,
        shadow: Shadow,
        metrics: Metrics,
        max_bytes: int,
        seconds: float,
        max_rollout_bytes: int,
    ) -> None:
        super().__init__(producer, shadow, metrics, max_bytes, seconds)
        self._rollouts = rollouts
        self._max_rollout_bytes = max_rollout_bytes
        self.until = math.inf

    async def stream(
        self,
        card: Card,
        exchange: Exchange[Result],
        request_id: str,
        caller: Payer,
        policy: Policy = ANY,
        successor: Successor | None = None,
    ) -> AsyncGenerator[Frame[Result]]:
        """Yield the frames of trajectories in order.

        The caller closes the generator, which cancels the call in flight. A call of the model has the time of one
        prediction.

        Args:
            card: Of the version to run.
            exchange: The request; it writes each frame.
            request_id: For Triton's log.
            caller: Pays for the samples once the request is parsed, whether it succeeds or not.
            policy: What the caller wants where an output may not be accurate enough.
            successor: As for `predict`; a version that goes after the first frames ends the rollout.

        Raises:
            Problem: One of its kinds; the frames that have been yielded are right, and the others do not follow.
        """

        async def begin(run: Run) -> tuple[Progress, Piece]:
            progress = await self._begin(run, exchange, caller)
            return progress, progress.piece(await self._rollouts.proceed(progress.rollout, run.deadline, request_id))

        async with self._limited(card, self._seconds) as deadline:
            progress, piece = await or_successor(Run(card, deadline, request_id, policy), successor, begin)
        self._metrics.quality(card.model, piece.quality.frame(0, progress.outside))
        upcoming: asyncio.Task[Piece] | None = None
        try:
            while True:
                left = progress.rollout.left
                upcoming = asyncio.create_task(self._proceed(progress)) if left else None
                for index in range(piece.count):
                    written = await self._written(progress, piece, index, exchange)
                    yield Frame(progress.number, last=upcoming is None and index == piece.count - 1, written=written)
                if upcoming is None:
                    return
                piece = await upcoming
        finally:
            if upcoming is not None:
                upcoming.cancel()
                with suppress(asyncio.CancelledError, Problem):
                    await upcoming

    async def _begin(self, run: Run, exchange: Exchange[Result], caller: Payer) -> Progress:
        frames = streamable(run)
        self._producer.check(run)
        inputs = await self._parse(run, exchange, self._max_rollout_bytes)
        caller.spend(inputs.count)
        return Progress(run, inputs, Rollout(run.card, frames, inputs.arrays))

    async def _proceed(self, progress: Progress) -> Piece:
        """Return the frames of the next call of the model.

        Raises:
            Problem: unavailable: The service is shutting down.
        """
        run = progress.run
        if asyncio.get_running_loop().time() > self.until:
            raise Problem(
                "unavailable", f"the service is shutting down; {progress.computed} frames are computed", retry_after=1
            )
        async with self._limited(run.card, self._seconds) as deadline:
            return progress.piece(await self._rollouts.proceed(progress.rollout, deadline, run.request_id))

    async def _written(self, progress: Progress, piece: Piece, index: int, exchange: Exchange[Result]) -> Result:
        """Return the next frame as the exchange writes it.

        Raises:
            Problem: non-finite-output: The frame of a sample is not finite.
        """
        run, single = progress.run, progress.inputs.single
        outputs = {name: array[:, index].copy() for name, array in piece.outputs.items()}
        for array in outputs.values():
            array[progress.failed] = np.nan  # whatever follows from such a state
        quality = piece.quality.frame(index, progress.outside)
        if quality.outside is not None:
            if progress.number > run.policy.span.after:  # those of the first frame have been counted
                self._metrics.outside.labels(run.card.model).inc(int((quality.outside & ~progress.outside).sum()))
            progress.outside = quality.outside
        size = sum(array.nbytes for array in outputs.values())
        try:
            outputs, quality = await offload(size, check, run, outputs, quality, single)
        except Problem as error:
            if error.status == 502:
                self._metrics.model_failures.labels(run.card.model, run.card.version, error.kind).inc()
            raise
        if quality.failed is not None:
            progress.failed = quality.failed
        progress.number += 1
        self._metrics.frames.labels(run.card.model).inc(progress.inputs.count)
        return await offload(size, encode, run.card, exchange, outputs, quality, single)


def streamable(run: Run) -> Frames:
    """Return the time axis of a model, if a network's trajectories are requested.

    Raises:
        Problem: invalid-parameter: The model computes no trajectories, or classical solutions are requested.
    """
    if run.card.frames is None:
        raise Problem("invalid-parameter", f'"{run.card.model}" computes no trajectories: use predict')
    if run.policy.tolerance is not None or run.policy.outside == "solve":
        raise Problem("invalid-parameter", "tolerance and outside=solve replace whole trajectories: use predict")
    return run.card.frames
