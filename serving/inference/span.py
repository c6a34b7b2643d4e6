"""Which frames of a trajectory a caller wants."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from serving.errors import Problem

if TYPE_CHECKING:
    from serving.catalogue.card import Card


@dataclass(frozen=True)
class Span:
    """Consecutive frames.

    Attributes:
        frames: How many; None for as many as a training trajectory has.
        after: Frames of the trajectory that the caller has already, up to the state that is sent.
    """

    frames: int | None = None
    after: int = 0

    def asking(self, frames: int | None) -> Span:
        """Return the span with the number of frames that a body names, where the parameters name none."""
        return self if frames is None or self.frames is not None else replace(self, frames=frames)

    def count(self, card: Card) -> int | None:
        """Return the frames that a model of trajectories computes; None for any other model.

        Raises:
            Problem: invalid-parameter: More than the model's limit, or any for a model of single fields.
        """
        if card.frames is None:
            if self.frames is not None:
                raise Problem("invalid-parameter", f'frames: "{card.model}" computes no trajectories')
            return None
        found = card.frames.trained if self.frames is None else self.frames
        if found > card.frames.maximum:
            raise Problem("invalid-parameter", f"frames: expected at most {card.frames.maximum} but got {found}")
        return found
