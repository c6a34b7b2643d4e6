"""Recipes: a TOML file and `a.b=c` overrides become one frozen recipe, of fields or of the kind that it names.

An unknown key is an error that names the key.
"""

from __future__ import annotations

import os
import textwrap
import tomllib
from pathlib import Path
from typing import Any, Literal

from pydantic import (
    BaseModel,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    model_validator,
)

from training.files import read_toml
from training.operators import OperatorConfig
from training.problems.registry import PROBLEMS
from training.recipes.kinds import FROZEN, AddedRecipe, BaseRecipe, folders, kind_of
from training.user_error import UserError

MOST_FAULTS = 5


class RecipeError(UserError):
    """A recipe cannot be read: the message names the file, the key and what was expected there."""


class DataConfig(BaseModel):
    """Which samples to train on.

    `mesh` is the number of cells (points) per axis that the equation is solved on; `grids` are the points per axis of
    the strided fields the network is trained on, one grid per batch, drawn at random.
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
    gradients and a mesh width of 1/n for n points per axis; see `training.losses`.
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
    average: NonNegativeFloat = 0.0  # decay per step of the exponential mean of the weights that is kept; 0: no mean
    loss: Literal["relative", "weighted"] = "relative"
    h1: float = 0.1  # of the relative loss
    gamma: NonNegativeFloat = 0.1  # of the weighted loss
    keep: Literal["last", "best"] = "last"  # the last epoch's weights, or those of the least validation error
    symmetries: bool = True  # draw a random exact symmetry of the problem for every sample
    noise: tuple[NonNegativeFloat, ...] = ()  # levels to draw from for every sample, relative to the inputs' deviation

    @property
    def levels(self) -> tuple[float, ...]:
        """Levels of noise to measure at: no noise, and the trained levels."""
        return tuple(sorted({0.0, *self.noise}))

    @property
    def gradients(self) -> bool:
        """Whether the loss compares with stored gradients."""
        return self.loss == "weighted" and self.gamma > 0

    @model_validator(mode="after")
    def refuse_moved_gradients(self) -> FitConfig:
        """Refuse symmetries together with stored gradients, which they would not move."""
        if self.gradients and self.symmetries:
            raise ValueError("symmetries move fields, not the gradients that the weighted loss needs: use one or none")
        return self


class Recipe(BaseRecipe):
    """Everything that decides a training run; saved inside the checkpoint as it was used."""

    problem: str
    seed: int = 1127802
    data: DataConfig
    operator: OperatorConfig
    fit: FitConfig

    @model_validator(mode="after")
    def require_onnx(self) -> Recipe:
        """Require ONNX, the format that every server reads."""
        if "onnx" not in self.formats:
            raise ValueError(f"expected onnx among the formats but got {', '.join(self.formats)}")
        return self

    @model_validator(mode="after")
    def require_the_axes_points(self) -> Recipe:
        """Require that an operator with a point rule of its own has that of the problem's axes."""
        points = getattr(self.operator, "points", None)
        axes = {axis.points for axis in PROBLEMS[self.problem].description.axes}
        if isinstance(points, str) and axes != {points}:
            raise ValueError(f"operator.points is {points!r} but those of {self.problem!r} are {', '.join(axes)}")
        return self

    @model_validator(mode="after")
    def refuse_impossible_losses(self) -> Recipe:
        """Require a known problem, and the weighted loss only for problems for which one is published."""
        problem = PROBLEMS[self.problem].description
        if self.fit.loss == "weighted" and len(problem.axes) > 2:
            raise ValueError(
                f"the weighted loss is for lines and planes but {problem.name} has axes {problem.axis_names}"
            )
        if self.fit.gradients and problem.output_grid is not None:
            raise ValueError(f"outputs of {problem.name} have no gradient on its output grid: set fit.gamma = 0")
        return self


FileRecipe = Recipe | AddedRecipe


def find(recipe: str) -> Path:
    """Return the file of a recipe that is named by path or by name, such as `darcy-quick`.

    Raises:
        RecipeError: There is none; the message lists the known recipes.
    """
    searched = folders()
    for path in (Path(recipe), *(folder / f"{recipe.replace('-', '/')}.toml" for folder in searched)):
        if path.is_file():
            return path
    files = (path for folder in searched for path in folder.glob("*/*.toml"))
    known = ", ".join(sorted(f"{path.parent.name}-{path.stem}" for path in files))
    raise RecipeError(f"no recipe {recipe!r}: expected a TOML file or one of {known}")


def read(path: Path, overrides: list[str] | None = None) -> FileRecipe:
    """Read a recipe, apply `a.b=c` overrides (values in TOML syntax) and the environment's SEED.

    Raises:
        RecipeError: The file, a key or a value is wrong.
    """
    document = read_toml(path)
    if seed := os.environ.get("SEED"):
        document["seed"] = parse(f"seed={seed}")[1]
    for override in overrides or []:
        put(document, *parse(override))
    return validate(document, source=str(path))


def read_fields(path: Path, overrides: list[str] | None = None) -> Recipe:
    """Read a recipe for fields.

    Raises:
        RecipeError: As `read`, or the recipe is of another kind.
    """
    recipe = read(path, overrides)
    if not isinstance(recipe, Recipe):
        raise RecipeError(f"{path}: expected a problem among {', '.join(PROBLEMS)} but found {recipe.problem!r}")
    return recipe


def validate(document: dict[str, Any], source: str) -> FileRecipe:
    """Turn a document into a recipe of fields, or of the kind that it names.

    Raises:
        RecipeError: Keys or values are wrong; the message starts with `source` and names them.
    """
    expected = kind_of(str(document["kind"])).recipe if "kind" in document else Recipe
    try:
        return expected.model_validate(document)
    except ValidationError as error:
        raise RecipeError(f"{source}: {faults(error)}") from error


def faults(error: ValidationError) -> str:
    """Say in one line which keys of a document are wrong, and what was found there."""
    found = [
        f"{'.'.join(str(part) for part in fault['loc'] if not str(part)[:1].isupper())}: {fault['msg']} "
        f"(found {textwrap.shorten(repr(fault['input']), 60)})"  # a union's loc holds the name of the class, too
        for fault in error.errors()
    ]
    return "; ".join(found[:MOST_FAULTS]) + (
        f"; and {len(found) - MOST_FAULTS} more" if len(found) > MOST_FAULTS else ""
    )


def parse(override: str) -> tuple[str, Any]:
    """Split `a.b=c`. A value that is no TOML is taken as text, so names need no quotes.

    Raises:
        RecipeError: There is no `=`.
    """
    key, found, value = override.partition("=")
    if not found:
        raise RecipeError(f"expected an override a.b=c but got {override!r}")
    try:
        return key, tomllib.loads(f"value = {value}")["value"]
    except (ValueError, RecursionError):
        return key, value


def put(document: dict[str, Any], key: str, value: Any) -> None:
    """Set a nested key of a document. The recipe's schema checks the last name.

    Args:
        document: Is changed.
        key: Sections and name, joined by dots.
        value: The value.

    Raises:
        RecipeError: A section does not exist.
    """
    *sections, name = key.split(".")
    for section in sections:
        if not isinstance(document.get(section), dict):
            raise RecipeError(f"no section {section!r} for the override {key}={value!r}")
        document = document[section]
    document[name] = value
