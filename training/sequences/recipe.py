"""Recipes of sequence models: which samples, which network, how to train; read by `training.recipes.recipe`."""

from __future__ import annotations

from typing import Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from training.sequences.networks.build import NetworkConfig
from training.sequences.problem import SEQUENCES

FROZEN = ConfigDict(frozen=True, extra="forbid")


class SequenceData(BaseModel):
    """Which samples to train on.

    Expressions have more than `length[0]` and fewer than `length[1]` tokens, as published; texts are cut to `length[1]`
    bytes, and left out if they have fewer than `length[0]`. `corpus` is one of the problem's; by default the first that
    is found, the published one before its stand-in.
    """

    model_config = FROZEN

    train: PositiveInt
    validation: PositiveInt
    test: PositiveInt
    length: tuple[NonNegativeInt, PositiveInt]
    corpus: str | None = None
    seed: int | None = None  # of the samples alone; the recipe's by default


class SequenceFit(BaseModel):
    """How to train: AdamW on the cross-entropy, with gradient clipping, for epochs of so many batches each.

    The rate rises to `learning_rate` over `warmup` batches; then it falls to 0 by a cosine, or as the reciprocal square
    root of the number of batches, as published.
    """

    model_config = FROZEN

    epochs: PositiveInt
    steps: PositiveInt  # batches of an epoch
    batch: PositiveInt
    learning_rate: PositiveFloat
    schedule: Literal["cosine", "reciprocal-sqrt"] = "cosine"
    warmup: PositiveInt = 100
    weight_decay: NonNegativeFloat = 0.01
    beta2: PositiveFloat = 0.98
    clip: PositiveFloat = 1.0
    orthogonality: NonNegativeFloat = 0.0  # weight of the penalty on kernels' matrices that may leave orthogonality
    keep: Literal["last", "best"] = "last"  # the last epoch's weights, or those of the best on the validation set


class SequenceRecipe(BaseModel):
    """Everything that decides a training run on sequences; saved inside the checkpoint as it was used."""

    model_config = FROZEN

    model: str
    preset: str
    problem: str
    seed: int = 1127802
    data: SequenceData
    operator: NetworkConfig
    fit: SequenceFit

    @model_validator(mode="after")
    def fit_together(self) -> SequenceRecipe:
        """Refuse a network with other inputs than the problem's."""
        problem = SEQUENCES.get(self.problem)
        if problem is None:
            raise ValueError(f"expected a problem among {', '.join(SEQUENCES)} but got {self.problem!r}")
        if len(problem.inputs) != self.operator.inputs:
            raise ValueError(
                f"expected a network for {problem.inputs} of {problem.name} but got a {self.operator.kind}"
            )
        if self.data.length[1] > (most := min(self.operator.length, problem.length.maximum)):
            raise ValueError(f"expected data.length up to {most} tokens but got {self.data.length[1]}")
        return self

    @property
    def name(self) -> str:
        """The run's name, also of its folder under `runs/`."""
        return f"{self.model}-{self.preset}"
