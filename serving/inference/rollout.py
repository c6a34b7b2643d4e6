"""Long rollouts as consecutive calls of some frames each, so that they share a model fairly with short requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from serving.catalogue.card import FRAME

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from serving.catalogue.card import Card, Frames
    from serving.inference.producer import Batches, Outputs, Solver

PIECE = 16  # frames of one call: the most that a waiting request of another shape is delayed by


class Limit(NamedTuple):
    """Until when the frames of a request are wanted, on the event loop's clock, and its name in Triton's log."""

    deadline: float
    request_id: str


class Rollouts:
    """Predicts; a rollout goes on from the last frames of the call before.

    Args:
        solver: Computes the frames of one call, and everything else at once.
    """

    def __init__(self, solver: Solver) -> None:
        self._solver = solver

    async def predict(self, card: Card, inputs: Batches, deadline: float, request_id: str) -> Outputs:
        """Return outputs `[B, ...]` by name; see `Solver`. Quality outputs are those of the first call."""
        if card.frames is None:
            return await self._solver.predict(card, inputs, deadline, request_id)
        pieces = [piece async for piece in self._pieces(card, card.frames, inputs, Limit(deadline, request_id))]
        names = [tensor.name for tensor in card.outputs]
        return {**pieces[0], **{name: np.concatenate([piece[name] for piece in pieces], axis=1) for name in names}}

    async def _pieces(self, card: Card, frames: Frames, inputs: Batches, limit: Limit) -> AsyncIterator[Outputs]:
        """Yield consecutive frames `[B, frame, (component), *grid]`."""
        wanted = inputs[FRAME].shape[1]
        while wanted:
            count = min(wanted, PIECE)
            piece = {**inputs, FRAME: inputs[FRAME][:, :count]}
            found = await self._solver.predict(card, piece, limit.deadline, limit.request_id)
            yield found
            wanted -= count
            inputs = {**inputs, **following(card, frames, inputs, found)}


def following(card: Card, frames: Frames, inputs: Batches, outputs: Batches) -> Outputs:
    """Return the states that the next call starts from.

    Args:
        card: The model's card.
        frames: Its time axis.
        inputs: What the last call started from.
        outputs: What it returned.
    """
    found = {}
    for name, output in zip(frames.states, card.outputs, strict=True):
        made = outputs[output.name]
        if frames.history == 1:
            found[name] = np.ascontiguousarray(made[:, -1])
        else:
            joined = np.concatenate([inputs[name], made], axis=1)
            found[name] = np.ascontiguousarray(joined[:, -frames.history :])
    return found
