"""Recipes of operators that nothing is trained for: they are measured, exported and served as the others."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, PositiveInt

from training.operators import OperatorConfig
from training.recipes.kinds import FROZEN, BaseRecipe


class MeasuredSamples(BaseModel):
    """The samples that a closed form is measured on.

    Attributes:
        mesh: Points per axis of the reference solutions.
        test: How many samples.
        grids: Points per axis of the inputs.
        seed: Of the first sample; each of the others has the next one.
    """

    model_config = FROZEN

    mesh: PositiveInt
    test: PositiveInt
    grids: tuple[PositiveInt, ...]
    seed: int


class ClosedFormRecipe(BaseRecipe):
    """Everything that decides the checkpoint of a closed form.

    Attributes:
        model: The model's name.
        preset: `exact`.
        problem: The problem's name.
        data: What it is measured on.
        operator: The operator.
        formats: That it is exported in.
    """

    preset: Literal["exact"] = "exact"
    problem: str
    data: MeasuredSamples
    operator: OperatorConfig
    formats: tuple[Literal["onnx"], ...] = ("onnx",)
