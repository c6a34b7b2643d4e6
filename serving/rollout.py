"""Long trajectories as consecutive calls of some frames each, so that they share a model fairly with short requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from serving.catalogue.card import FRAME

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from numpy.typing import NDArray

    from serving.catalogue.card import Card, Frames

    Batches = Mapping[str, NDArray[np.float32]]
    Outputs = dict[str, NDArray[np.float32]]
    Infer = Callable[[Card, Batches, float, str], Awaitable[Outputs]]  # until a deadline, for the id of a request

RUN_BYTES = 8 * 2**20  # of one call: larger calls are no faster and delay other shapes
PIECE = 8  # most frames of one call: a waiting request of another shape is delayed by no more steps


async def infer(infer: Infer, card: Card, inputs: Batches, deadline: float, request_id: str) -> Outputs:
    """Return outputs `[B, ...]` by name; of trajectories, quality outputs are `[B, frame]`.

    A product of a trajectory is one call, because its backward pass needs all frames.
    """
    if card.frames is None or card.product is not None:
        return await infer(card, inputs, deadline, request_id)
    rollout = Rollout(card, card.frames, inputs)
    pieces: list[Outputs] = []
    while rollout.left:
        pieces.append(await rollout.proceed(infer, deadline, request_id))
    return {name: np.concatenate([piece[name] for piece in pieces], axis=1) for name in pieces[0]}


class Rollout:
    """How far a trajectory has been computed.

    Args:
        card: The model's card.
        frames: Its time axis.
        inputs: What it starts from; the shape of `frame` says how many frames are wanted.

    Attributes:
        left: Frames that are still to be computed.
    """

    def __init__(self, card: Card, frames: Frames, inputs: Batches) -> None:
        self._card, self._frames, self._inputs = card, frames, inputs
        self.left = int(inputs[FRAME].shape[1])
        size = max(inputs[name].nbytes // frames.history for name in frames.states)
        self._most = min(PIECE, max(1, RUN_BYTES // size))

    async def proceed(self, infer: Infer, deadline: float, request_id: str) -> Outputs:
        """Return the next frames `[B, frame, (component), *grid]`, and the quality outputs `[B, frame]`.

        What the model reports about the state that the call starts from holds for all frames of the call.
        """
        inputs = {**self._inputs, FRAME: self._inputs[FRAME][:, : min(self.left, self._most)]}
        found = await infer(self._card, inputs, deadline, request_id)
        shape = inputs[FRAME].shape
        self.left -= shape[1]
        self._inputs = {**self._inputs, **self._states(found)}
        return found | {name: np.broadcast_to(found[name], shape) for name in self._card.quality}

    def _states(self, outputs: Outputs) -> Outputs:
        """Return the states that the next call starts from: the last frames of these outputs `[B, frame, ...]`."""
        found, history = {}, self._frames.history
        for name, output in zip(self._frames.states, self._card.outputs, strict=True):
            made = outputs[output.name]
            if history == 1:
                found[name] = np.ascontiguousarray(made[:, -1])
            else:
                joined = np.concatenate([self._inputs[name], made], axis=1)
                found[name] = np.ascontiguousarray(joined[:, -history:])
        return found
