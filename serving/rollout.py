"""Trajectories frame by frame, as they are computed: the path of `serving.predict`, with one call computed ahead.

Memory holds two calls of the model, whatever the length: no further call begins before the frames of the one before the
last have been taken. Every call has the time limit of one prediction.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import replace
from typing import Any, Generic, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schema.card import FRAME
from serving.errors import Problem
from serving.frames import Rollout
from serving.inputs import SOLVER_COST, Exchange, Inputs, Prediction, Result, offload
from serving.predict import Predictor, respond
from serving.quality import Quality, split
from serving.triton import Outputs, Run


class Frame(NamedTuple, Generic[Result]):
    """One frame of trajectories: its number, from 1, whether it is the last one, and what the exchange wrote."""

    number: int
    last: bool
    written: Result


async def stream(
    predictor: Predictor, request: Prediction, exchange: Exchange[Result]
) -> AsyncGenerator[Frame[Result]]:
    """Yield the frames of trajectories; a `Problem` ends them, after the first frame, too."""
    async with predictor.limited(request.card, begun=request.begun) as limit:
        request = replace(request, limit=limit)
        try:
            trajectory = await _Trajectory.begin(predictor, request, exchange)
        except Problem as problem:
            request = await predictor.successor(request, problem)
            trajectory = await _Trajectory.begin(predictor, request, exchange)
        end = math.inf if exchange.seconds is None else request.deadline  # which is that of all frames then

    async def proceed() -> None:
        if asyncio.get_running_loop().time() > predictor.until:
            detail = f"the service is shutting down; {trajectory.computed} frames are computed"
            raise Problem("unavailable", detail)
        async with predictor.limited(trajectory.request.card, end) as limit:
            await trajectory.compute(replace(request.run, deadline=limit.when() or end, held=True))

    upcoming: asyncio.Task[None] | None = None
    with predictor.held(trajectory.request.card):
        try:
            while trajectory.rollout.left or trajectory.frames:
                upcoming = asyncio.create_task(proceed()) if trajectory.rollout.left else None
                frames, trajectory.frames = trajectory.frames, []
                for index, (outputs, quality) in enumerate(frames):
                    async with predictor.limited(trajectory.request.card, end):
                        written = await trajectory.written(outputs, quality, exchange)
                    yield Frame(trajectory.number, last=upcoming is None and index == len(frames) - 1, written=written)
                if upcoming is not None:
                    await upcoming
        finally:
            if upcoming is not None:
                upcoming.cancel()
                with suppress(asyncio.CancelledError, Problem):
                    await upcoming


class _Trajectory:
    """The trajectories of one request, with the frames that are computed and not sent yet."""

    def __init__(self, predictor: Predictor, request: Prediction, inputs: Inputs) -> None:
        self.predictor, self.request, self.inputs = predictor, request, inputs
        self.rollout = Rollout(request.card, inputs.arrays)
        self.frames: list[tuple[Outputs, Quality]] = []  # views of outputs `[B, ...]` by name, and their quality
        self.computed = request.policy.after  # number of the last of them
        self.number = request.policy.after  # of the last frame that was sent
        self.outside: NDArray[np.bool_] = np.zeros(inputs.samples, np.bool_)  # whether each has been outside
        self.failed: NDArray[np.bool_] = np.zeros(inputs.samples, np.bool_)  # or has had a state that is not finite

    @classmethod
    async def begin(cls, predictor: Predictor, request: Prediction, exchange: Exchange[Any]) -> _Trajectory:
        """Return the trajectories that a body asks for, with the frames of the first call."""
        card, policy = request.card, request.policy
        if card.frames is None:
            raise Problem("invalid-parameter", f'"{card.model}" computes no trajectories: use predict')
        if policy.tolerance is not None or policy.outside == "solve":
            raise Problem("invalid-parameter", "tolerance and outside=solve replace whole trajectories: use predict")
        limit = predictor.settings.max_rollout_bytes
        inputs = await predictor.reader.read(request, exchange, limit, streamed=True)
        trajectory = cls(predictor, request, inputs)
        await trajectory.compute(request.run)
        return trajectory

    async def compute(self, run: Run) -> None:
        """Compute the frames of one call; refuse to go on from a state outside, where the caller says so."""
        request, inputs, rollout, predictor = self.request, self.inputs, self.rollout, self.predictor
        card, start = request.card, rollout.start
        results = await rollout.proceed(predictor.infer, run)
        outputs, quality = split(results, card.quality, trajectories=True)
        count = int(start[FRAME].shape[1])
        quality = quality.estimated(card.estimates, count, self.computed)
        verdict = request.policy.judge(card, quality)
        request.policy.refuse_outside(card, quality, verdict, solver=False, single=inputs.single)
        unusual = verdict.out_of_distribution
        if unusual.any() and predictor.classical.knows(card):
            frames = int(inputs.arrays[FRAME].shape[1])
            request.caller.owe(math.ceil(int(unusual.sum()) * inputs.cost * SOLVER_COST * count / frames))
            here = inputs._replace(arrays=start)
            outputs, quality = await predictor.solved(request, here, unusual, (outputs, quality), unusual)
            rollout.follow(start, outputs)
        self.computed += count
        self.frames = [
            ({name: array[:, index] for name, array in outputs.items()}, quality.frame(index)) for index in range(count)
        ]

    async def written(self, outputs: Outputs, quality: Quality, exchange: Exchange[Result]) -> Result:
        """Return the next frame as the exchange writes it; what follows from a state that is not finite is NaN."""
        request, metrics, model = self.request, self.predictor.metrics, self.request.card.model
        quality = replace(quality, left=self.outside)
        if self.number == request.policy.after:
            metrics.quality(request.card, quality)
        elif quality.outside is not None:
            metrics.outside.labels(model).inc(int((quality.outside & ~self.outside).sum()))
        if quality.outside is not None:
            self.outside = quality.outside

        def write() -> tuple[Result, Quality]:
            found = {name: array.copy() for name, array in outputs.items()}
            for array in found.values():
                array[self.failed] = np.nan
            return respond(request, self.inputs, exchange, found, quality)

        written, quality = await offload(sum(array.nbytes for array in outputs.values()), write)
        if quality.failed is not None:
            self.failed = quality.failed
        self.number += 1
        metrics.frames.labels(model).inc(self.inputs.samples)
        return written
