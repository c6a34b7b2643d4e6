"""Long rollouts as consecutive calls of some frames each, so that they share a model fairly with short requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from serving.catalogue.card import FRAME
from serving.inference.shape_queue import RUN_BYTES

if TYPE_CHECKING:
    from serving.catalogue.card import Card, Frames
    from serving.inference.producer import Batches, Outputs, Solver

PIECE = 8  # most frames of one call: a waiting request of another shape is delayed by no more steps


class Rollouts:
    """Predicts; a rollout goes on from the last frames of the call before.

    Args:
        solver: Computes the frames of one call, and everything else at once.
    """

    def __init__(self, solver: Solver) -> None:
        self._solver = solver

    async def predict(self, card: Card, inputs: Batches, deadline: float, request_id: str) -> Outputs:
        """Return outputs `[B, ...]` by name; see `Solver`. Of trajectories, quality outputs are `[B, frame]`.

        A product of a rollout is one call, because its backward pass needs all frames.
        """
        if card.frames is None or card.product is not None:
            return await self._solver.predict(card, inputs, deadline, request_id)
        rollout = Rollout(card, card.frames, inputs)
        pieces: list[Outputs] = []
        while rollout.left:
            pieces.append(await self.proceed(rollout, deadline, request_id))
        return {name: np.concatenate([piece[name] for piece in pieces], axis=1) for name in pieces[0]}

    async def proceed(self, rollout: Rollout, deadline: float, request_id: str) -> Outputs:
        """Return the next frames `[B, frame, (component), *grid]` of a rollout, and its quality outputs `[B, frame]`.

        What the model reports about the state that the call starts from holds for all frames of the call.
        """
        inputs = rollout.next_inputs()
        found = await self._solver.predict(rollout.card, inputs, deadline, request_id)
        rollout.follow(found)
        shape = inputs[FRAME].shape
        return found | {name: np.broadcast_to(found[name], shape) for name in rollout.card.quality}


class Rollout:
    """How far a rollout has come.

    Args:
        card: The model's card.
        frames: Its time axis.
        inputs: What it starts from; the shape of `frame` says how many frames are wanted.

    Attributes:
        card: The model's card.
        left: Frames that are still to be computed.
    """

    def __init__(self, card: Card, frames: Frames, inputs: Batches) -> None:
        self.card = card
        self._frames = frames
        self._inputs = inputs
        self.left = inputs[FRAME].shape[1]
        size = max(inputs[name].nbytes // frames.history for name in frames.states)
        self._most = min(PIECE, max(1, RUN_BYTES // size))

    def next_inputs(self) -> Batches:
        """Return the inputs of the next call."""
        return {**self._inputs, FRAME: self._inputs[FRAME][:, : min(self.left, self._most)]}

    def follow(self, outputs: Batches) -> None:
        """Go on from the last frames of these outputs `[B, frame, ...]`."""
        self.left -= outputs[self.card.outputs[0].name].shape[1]
        self._inputs = {**self._inputs, **following(self.card, self._frames, self._inputs, outputs)}


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
