"""Trajectories in calls of a few frames, each of which starts from the last frames of the one before it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from schema.card import FRAME, Card
from serving.errors import Problem
from serving.triton import RUN_BYTES, SPREAD_BYTES, Batch, Outputs, Run

Result = TypeVar("Result")
Infer = Callable[[Card, Batch, Run], Awaitable[Outputs]]  # `Predictor.infer`
PIECE = 8  # most frames of one call: a waiting request of another shape is delayed by no more steps


class Rollout:
    """How far a trajectory has been computed, by calls of at most `PIECE` frames.

    The shape of the input `frame` says how many frames are wanted, and `left` how many are still to be computed.
    """

    def __init__(self, card: Card, inputs: Batch) -> None:
        assert card.frames is not None  # noqa: S101  the caller has looked
        self._card, self._frames, self._inputs = card, card.frames, inputs
        self._wanted = self.left = int(inputs[FRAME].shape[1])
        states = max(inputs[name].nbytes // self._frames.history for name in self._frames.states)
        forcing = sum(inputs[name].nbytes for name in card.forced) // self._wanted
        self._most = min(PIECE, max(1, RUN_BYTES // max(states, forcing)))

    async def proceed(self, infer: Infer, run: Run) -> Outputs:
        """Return the next frames `[B, frame, (component), *grid]`, and the quality outputs `[B, frame]`.

        What the model reports about the state that the call starts from holds for all frames of the call.
        """
        start = self.start
        found = await infer(self._card, start, run)
        self.left -= start[FRAME].shape[1]
        await _apart(found.values(), self.follow, start, found)
        return found | {name: np.broadcast_to(found[name], start[FRAME].shape) for name in self._card.quality}

    async def finish(self, infer: Infer, run: Run) -> Outputs:
        pieces = list[Outputs]()
        while self.left:
            pieces.append(await self.proceed(infer, run))

        def joined() -> Outputs:
            return {name: np.concatenate([piece[name] for piece in pieces], axis=1) for name in pieces[0]}

        return await _apart([array for piece in pieces for array in piece.values()], joined)

    @property
    def start(self) -> dict[str, NDArray[np.float32]]:
        """The inputs of the next call: of what has a value per frame, those of its frames."""
        done = self._wanted - self.left
        own = slice(done, done + self._most)
        forced = (FRAME, *self._card.forced)
        return {**self._inputs, **{name: self._inputs[name][:, own] for name in forced}}

    def follow(self, start: Batch, outputs: Outputs) -> None:
        """Let the next call start from the last frames of these outputs, whose call had the inputs `start`."""
        history = self._frames.history
        states: Outputs = {}
        for name, output in zip(self._frames.states, self._card.outputs, strict=True):
            made = outputs[output.name]
            joined = made if history == 1 else np.concatenate([start[name], made], axis=1)
            states[name] = np.ascontiguousarray(joined[:, -1] if history == 1 else joined[:, -history:])
        self._inputs = {**self._inputs, **states}


async def _apart(arrays: Iterable[NDArray[Any]], function: Callable[..., Result], *args: Any) -> Result:
    """Call a function that copies arrays: large ones in a thread, so that the event loop serves others meanwhile."""
    large = sum(each.nbytes for each in arrays) > SPREAD_BYTES
    return await asyncio.to_thread(function, *args) if large else function(*args)


def sent_frames(arrays: Mapping[str, NDArray[Any]], card: Card, expected: int | None = None) -> int | None:
    """Return how many frames arrays have that a request sends, such as a forcing; None where none of them has any.

    They are single samples or batches `[B, frame, ...]`. All have as many frames, and those that are `expected`
    (`wrong-shape`).
    """
    found: dict[str, int] = {}
    for argument in card.arguments:
        array, rank = arrays.get(argument.name), len(argument.axes)
        if FRAME in argument.axes and array is not None and array.ndim in {rank - 1, rank}:
            found[argument.name] = array.shape[argument.axes.index(FRAME) - (array.ndim < rank)]
    lead = next(iter(found), None)
    for name, count in found.items():
        if lead is not None and count != found[lead]:
            raise Problem("wrong-shape", f"{name} has {count} frames and {lead} {found[lead]}", array=name)
        if expected not in {None, count}:
            raise Problem("wrong-shape", f"{name} has {count} frames; expected {expected}, as frames says", array=name)
    return None if lead is None else found[lead]


def frames_argument(arrays: Mapping[str, NDArray[Any]], count: int, card: Card, max_bytes: int) -> NDArray[np.int32]:
    """Return the argument `[B, frame]` whose shape says how many frames are wanted.

    The frames of all samples of one output take at most `max_bytes` (`invalid-parameter`).
    """
    samples, points = len(next(iter(arrays.values()))), math.prod(card.grid_of(arrays))
    most = max_bytes // (4 * samples * points * max(math.prod(tensor.vector) for tensor in card.outputs))
    if count > most:
        detail = f"frames: expected at most {most} of {samples} samples with {points} points but got {count}"
        raise Problem("invalid-parameter", detail)
    return np.broadcast_to(np.int32(0), (samples, count))
