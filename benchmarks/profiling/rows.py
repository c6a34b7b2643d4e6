"""The settings that all rows of a profile share, and the row itself."""

from __future__ import annotations

import statistics
from typing import Literal

from pydantic import BaseModel, ConfigDict, PositiveFloat, PositiveInt

Clock = Literal["wall", "processor"]
FROZEN = ConfigDict(frozen=True, extra="forbid")


class Settings(BaseModel):
    """The settings of all rows; None where every subject has its own default."""

    model_config = FROZEN

    types: tuple[str, ...] | None = None
    lengths: tuple[PositiveInt, ...] | None = None
    batch: PositiveInt | None = None
    device: str = "cpu"
    repeats: PositiveInt = 5
    clock: Clock = "wall"
    dropout: float | None = None  # of the attention
    limit_gb: PositiveFloat = 8.0
    channels: PositiveInt = 96
    heads: PositiveInt = 4
    layers: PositiveInt = 10


class Row(BaseModel):
    """One form of a subject at one length; a skipped one has a reason instead of figures."""

    model_config = FROZEN

    subject: str
    form: str
    batch: int
    length: int  # points per axis
    points: int  # of a sample
    forward_seconds: tuple[float, ...] = ()  # one per repetition; the loss is part of it
    backward_seconds: tuple[float, ...] = ()
    peak_bytes: int = 0  # of the whole step
    skipped: str | None = None

    @property
    def forward(self) -> float:
        """The median of the forward passes, in seconds."""
        return statistics.median(self.forward_seconds)

    @property
    def backward(self) -> float:
        """The median of the backward passes, in seconds."""
        return statistics.median(self.backward_seconds)
