"""Recipes of sequence models: which samples, which network, how to train; `training.recipes` reads them."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator

from research.sequences.networks.build import NetworkConfig
from research.sequences.sequence_data import FROZEN, SequenceData
from research.sequences.sequence_problem import SEQUENCES
from training.recipes.kinds import AddedRecipe


class SequenceFit(BaseModel):
    """How to train: AdamW on the cross-entropy with gradient clipping.

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
    orthogonality: NonNegativeFloat = 1e-2  # weight of ||W^T W - I||^2 in the loss, for orthogonal kernels
    keep: Literal["last", "best"] = "last"  # the last epoch's weights, or those of the best on the validation set


class SequenceRecipe(AddedRecipe):
    """Everything that decides a training run on sequences; saved inside the checkpoint as it was used."""

    kind: Literal["sequences"] = "sequences"
    problem: str
    seed: int = 1127802
    data: SequenceData
    operator: NetworkConfig
    fit: SequenceFit

    @model_validator(mode="after")
    def expect_fitting_network(self) -> SequenceRecipe:
        """Require a known problem, and a network with its inputs and enough length."""
        problem = SEQUENCES[self.problem].description
        if len(problem.inputs) != self.operator.inputs:
            raise ValueError(
                f"expected a network for {problem.inputs} of {problem.name} but got a {self.operator.kind}"
            )
        if self.data.length[1] > (most := min(self.operator.length, problem.length.maximum)):
            raise ValueError(f"expected data.length up to {most} tokens but got {self.data.length[1]}")
        return self
