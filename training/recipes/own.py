"""Recipes of problems from a user's file: written by a preset from the data, and kept in the checkpoint."""

from __future__ import annotations

from typing import Literal

from pydantic import (
    BaseModel,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    field_validator,
)

from training.operators import OperatorConfig
from training.problems.own.problem_file import ProblemFile
from training.recipes.kinds import FROZEN, BaseRecipe


class OwnFit(BaseModel):
    """How to train: AdamW under a one-cycle schedule on the relative L2 error, averaged over the outputs.

    Attributes:
        epochs: Passes over the training samples.
        batch: Samples of a batch.
        learning_rate: The highest rate.
        weight_decay: Of AdamW.
        clip: Largest norm of a gradient.
        average: Decay per step of the exponential mean of the weights that is kept; 0 for none.
        keep: The last epoch's weights, or those of the least validation error.
        share: Of the training samples that are used, drawn by the seed; a smaller share is part of a larger one.
    """

    model_config = FROZEN

    epochs: PositiveInt
    batch: PositiveInt
    learning_rate: PositiveFloat = 2e-3
    weight_decay: NonNegativeFloat = 1e-4
    clip: PositiveFloat = 1.0
    average: NonNegativeFloat = 0.0
    keep: Literal["last", "best"] = "best"
    share: float = Field(default=1.0, gt=0, le=1)


class OwnRecipe(BaseRecipe):
    """Everything that decides a training run on a user's data.

    Attributes:
        model: The problem file's name.
        preset: `tiny`, `quick` or `laptop`.
        problem: The problem file.
        samples: Name of the prepared samples in the data folder; see `training.data.own_samples`.
        seed: Of weights and orders.
        operator: The network.
        fit: How to train.
        formats: That the network is exported in.
    """

    problem: ProblemFile
    samples: str
    seed: NonNegativeInt = 1127802
    operator: OperatorConfig
    fit: OwnFit

    @field_validator("formats")
    @classmethod
    def _check_formats(cls, formats: tuple[str, ...]) -> tuple[str, ...]:
        """Require the format that is served by default and differentiated."""
        if "onnx" not in formats:
            raise ValueError(f"expected onnx among the formats but got {', '.join(formats)}")
        return formats
