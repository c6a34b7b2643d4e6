"""Recipes: takes a TOML file and `a.b=c` overrides, gives one frozen `Recipe`, of fields or of sequences.

An unknown key is an error that names its place.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    model_validator,
)

from training.operators import OperatorConfig
from training.problems.problem import PROBLEMS
from training.sequences.problem import SEQUENCES
from training.sequences.recipe import SequenceRecipe

RECIPES = Path(__file__).parent
FROZEN = ConfigDict(frozen=True, extra="forbid")


class RecipeError(ValueError):
    """A recipe cannot be read: the message names the file, the key and what was expected there."""


class DataConfig(BaseModel):
    """Which samples to train on.

    `mesh` is the number of cells (points) per axis that the equation is solved on; `grids` are the points per axis of
    the strided fields the network is trained on, one grid a batch, in turn at random.
    """

    model_config = FROZEN

    mesh: PositiveInt
    train: PositiveInt
    validation: NonNegativeInt  # samples for every decision, such as which epoch to keep
    test: PositiveInt  # samples that are read once, for the card
    grids: tuple[PositiveInt, ...]
    seed: int | None = None  # of the samples alone; the recipe's by default


class FitConfig(BaseModel):
    """How to train: AdamW (Adam where `weight_decay` is 0) under a one-cycle schedule with gradient clipping.

    The loss is `relative`, relative L2 + h1 * relative H1, or `weighted`, the published one, with the finest mesh's
    gradients and a mesh width of 1/n for n points an axis; see `training.losses`.
    """

    model_config = FROZEN

    epochs: PositiveInt
    batch: PositiveInt
    learning_rate: PositiveFloat
    weight_decay: float = 1e-4
    warmup: float = 0.2  # share of the steps during which the rate rises
    div_factor: PositiveFloat = 25.0  # the rate begins at learning_rate / div_factor
    final_div_factor: PositiveFloat = 1e4  # and ends at a final_div_factor-th of where it began
    cycle_momentum: bool = False  # Adam's beta1 falls from 0.95 to 0.85 while the rate rises, and rises while it falls
    clip: PositiveFloat = 1.0
    average: NonNegativeFloat = 0.0  # keep the exponential mean of the weights, this being its decay a step; 0: none
    loss: Literal["relative", "weighted"] = "relative"
    h1: float = 0.1  # of the relative loss
    gamma: NonNegativeFloat = 0.1  # of the weighted loss
    keep: Literal["last", "best"] = "last"  # the last epoch's weights, or those of the least error on the test set
    symmetries: bool = True  # draw a random exact symmetry of the problem for every sample
    noise: tuple[NonNegativeFloat, ...] = ()  # levels to draw from for every sample, relative to the inputs' deviation

    @property
    def levels(self) -> tuple[float, ...]:
        """Levels of noise to measure at: none, and those that are trained."""
        return tuple(sorted({0.0, *self.noise}))

    @property
    def gradients(self) -> bool:
        """Whether the loss compares with gradients that the samples bring along."""
        return self.loss == "weighted" and self.gamma > 0

    @model_validator(mode="after")
    def keep_gradients_true(self) -> FitConfig:
        """Refuse to move samples whose gradients would stay behind."""
        if self.gradients and self.symmetries:
            raise ValueError("symmetries move fields, not the gradients that the weighted loss needs: use one or none")
        return self


class Recipe(BaseModel):
    """Everything that decides a training run; saved inside the checkpoint as it was used."""

    model_config = FROZEN

    model: str
    preset: str
    problem: str
    seed: int = 1127802
    data: DataConfig
    operator: OperatorConfig
    fit: FitConfig

    @model_validator(mode="after")
    def refuse_what_has_no_loss(self) -> Recipe:
        """Let only those problems have a weighted loss for which one is published."""
        problem = PROBLEMS.get(self.problem)
        if problem is None:
            raise ValueError(f"expected a problem among {', '.join(PROBLEMS)} but got {self.problem!r}")
        if self.fit.loss == "weighted" and len(problem.axes) > 2:
            raise ValueError(f"the weighted loss is for lines and planes but {problem.name} has axes {problem.axes}")
        if self.fit.gradients and problem.answer is not None:
            raise ValueError(f"the {problem.output.name} of {problem.name} has no gradient: set fit.gamma = 0")
        return self

    @property
    def name(self) -> str:
        """The run's name, also of its folder under `runs/`."""
        return f"{self.model}-{self.preset}"


AnyRecipe = Recipe | SequenceRecipe


def find(recipe: str) -> Path:
    """Give the file of a recipe named by path or by name, such as `darcy-quick`.

    Raises:
        RecipeError: there is none; the message lists those there are.
    """
    for path in (Path(recipe), RECIPES / f"{recipe.replace('-', '/')}.toml"):
        if path.is_file():
            return path
    known = ", ".join(sorted(f"{path.parent.name}-{path.stem}" for path in RECIPES.glob("*/*.toml")))
    raise RecipeError(f"no recipe {recipe!r}: expected a TOML file or one of {known}")


def read(path: Path, overrides: list[str] | None = None) -> AnyRecipe:
    """Read a recipe, apply `a.b=c` overrides (values in TOML syntax) and the environment's SEED.

    Raises:
        RecipeError: the file, a key or a value is wrong.
    """
    try:
        document = tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as error:
        raise RecipeError(f"{path}: {error}") from error
    if seed := os.environ.get("SEED"):
        document["seed"] = parse(f"seed={seed}")[1]
    for override in overrides or []:
        put(document, *parse(override))
    return validate(document, place=str(path))


def read_fields(path: Path, overrides: list[str] | None = None) -> Recipe:
    """Read a recipe, which has to be one of fields.

    Raises:
        RecipeError: as `read`, or it is one of sequences.
    """
    recipe = read(path, overrides)
    if isinstance(recipe, SequenceRecipe):
        raise RecipeError(f"{path}: expected a problem among {', '.join(PROBLEMS)} but found {recipe.problem!r}")
    return recipe


def validate(document: dict[str, Any], place: str) -> AnyRecipe:
    """Turn a document into the recipe of its problem, or say which key is wrong and why."""
    kind = SequenceRecipe if document.get("problem") in SEQUENCES else Recipe
    try:
        return kind.model_validate(document)
    except ValidationError as error:
        lines = [
            f"{'.'.join(map(str, fault['loc']))}: {fault['msg']} (found {fault['input']!r})" for fault in error.errors()
        ]
        raise RecipeError(f"{place}: " + "; ".join(lines)) from error


def parse(override: str) -> tuple[str, Any]:
    """Split `a.b=c`; a value that is no TOML is taken as text, so names need no quotes."""
    key, found, value = override.partition("=")
    if not found:
        raise RecipeError(f"expected an override a.b=c but got {override!r}")
    try:
        return key, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key, value


def put(document: dict[str, Any], key: str, value: Any) -> None:
    """Set a nested key in place; the sections must exist, the last name is checked by the recipe's schema."""
    *sections, name = key.split(".")
    for section in sections:
        if not isinstance(document.get(section), dict):
            raise RecipeError(f"no section {section!r} for the override {key}={value!r}")
        document = document[section]
    document[name] = value
