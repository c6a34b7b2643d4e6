"""Which samples of a sequence problem a recipe trains on."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, NonNegativeInt, PositiveInt

FROZEN = ConfigDict(frozen=True, extra="forbid")


class SequenceData(BaseModel):
    """Numbers and lengths of the samples.

    Expressions have more than `length[0]` and fewer than `length[1]` tokens, as published; texts are cut to `length[1]`
    bytes, and left out if they have fewer than `length[0]`. `corpus` is one of the problem's; by default the first that
    is found, the published one before its stand-in.
    """

    model_config = FROZEN

    train: PositiveInt
    validation: PositiveInt  # samples for every decision, such as which epoch to keep
    test: PositiveInt  # samples that are read once, for the card
    length: tuple[NonNegativeInt, PositiveInt]
    corpus: str | None = None
    seed: int | None = None  # of the samples alone; the recipe's by default
