"""Rollouts in pieces of some frames: each request starts from the last frames of the one before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from petrov_client._exceptions import InvalidInput
from petrov_client._quality import Options

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from petrov_client._arrays import Fields, PredictionInput
    from petrov_client._models import FramesInfo, ModelInfo

PIECE = 64
"""Frames of one request: progress is seen after each, and a caller who stops asks for no more."""

NO_PROGRESS = False
"""The progress within one piece, which is shown frame by frame instead."""

Frames = dict[str, Any]


@dataclass
class Rollout:
    """A rollout of some frames, of which some have been computed.

    Args:
        checked: What it starts from.
        frames: How many frames are wanted; None for as many as a training trajectory has.

    Raises:
        InvalidInput: The model computes no trajectories, or the number is not positive or above the model's limit.
    """

    checked: PredictionInput
    frames: int | None = None

    def __post_init__(self) -> None:
        self.time = time_axis(self.checked.info)
        self.total = self.time.trained if self.frames is None else self.frames
        if self.total < 1:
            raise InvalidInput(f"expected at least one frame but got {self.total}")
        self.inputs: Frames = {each.tensor.name: each.array for each in self.checked.inputs}
        self.inputs |= self.checked.numbers

    @property
    def axis(self) -> int:
        """The axis of the frames in an output."""
        return 0 if self.checked.single else 1

    def pieces(self) -> Iterator[Options]:
        """Yield what each request asks for."""
        for start in range(0, self.total, PIECE):
            yield Options(frames=min(PIECE, self.total - start))

    def follow(self, outputs: Mapping[str, Fields]) -> None:
        """Start from the last frames of outputs `[(batch), frame, (component), *grid]` from now on."""
        for name, tensor in zip(self.time.states, self.checked.info.outputs, strict=True):
            made = np.asarray(outputs[tensor.name])
            if self.time.history == 1:
                self.inputs[name] = np.take(made, -1, axis=self.axis)
            else:
                joined = np.concatenate([np.asarray(self.inputs[name]), made], axis=self.axis)
                self.inputs[name] = np.take(joined, np.arange(-self.time.history, 0), axis=self.axis)

    def joined(self, parts: list[Mapping[str, Fields]]) -> Any:
        """Return consecutive pieces as one: an array, or a dictionary of several outputs."""
        whole = {name: np.concatenate([part[name] for part in parts], axis=self.axis) for name in parts[0]}
        return unwrapped(whole)


def time_axis(info: ModelInfo) -> FramesInfo:
    """Return the time axis of a model of trajectories.

    Raises:
        InvalidInput: It is none.
    """
    if info.frames is None:
        raise InvalidInput(f'"{info.name}" computes no trajectories: use predict')
    return info.frames


def by_name(outputs: Any, info: ModelInfo) -> dict[str, Fields]:
    """Return the outputs of `predict` by name, also a single one."""
    return outputs if isinstance(outputs, dict) else {info.outputs[0].name: outputs}


def unwrapped(outputs: dict[str, Fields]) -> Any:
    """Return outputs as the caller receives them."""
    return next(iter(outputs.values())) if len(outputs) == 1 else outputs
