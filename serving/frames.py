"""Trajectories in calls of a few frames, each of which starts from the last frames of the one before it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import numpy as np
from numpy.typing import NDArray

from schema.card import FRAME, Card
from serving.triton import RUN_BYTES, Batch, Outputs, Run

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
        self.follow(start, found)
        return found | {name: np.broadcast_to(found[name], start[FRAME].shape) for name in self._card.quality}

    async def finish(self, infer: Infer, run: Run) -> Outputs:
        pieces = list[Outputs]()
        while self.left:
            pieces.append(await self.proceed(infer, run))
        return {name: np.concatenate([piece[name] for piece in pieces], axis=1) for name in pieces[0]}

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
