"""Recipes: takes a TOML file and `a.b=c` overrides, gives one frozen `Recipe`.

An unknown key is an error that names its place.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, PositiveFloat, PositiveInt, ValidationError

from training.operators import OperatorConfig

RECIPES = Path(__file__).parent / "recipes"
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
    test: PositiveInt
    grids: tuple[PositiveInt, ...]


class FitConfig(BaseModel):
    """How to train: AdamW under a one-cycle schedule with gradient clipping, loss = relative L2 + h1 * relative H1."""

    model_config = FROZEN

    epochs: PositiveInt
    batch: PositiveInt
    learning_rate: PositiveFloat
    weight_decay: float = 1e-4
    warmup: float = 0.2  # share of the steps during which the rate rises
    clip: PositiveFloat = 1.0
    h1: float = 0.1
    symmetries: bool = True  # draw a random exact symmetry of the problem for every sample


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

    @property
    def name(self) -> str:
        """The run's name, also of its folder under `runs/`."""
        return f"{self.model}-{self.preset}"


def find(recipe: str) -> Path:
    """Give the file of a recipe named by path or by name, such as `darcy-quick`.

    Raises:
        RecipeError: there is none; the message lists those there are.
    """
    for path in (Path(recipe), RECIPES / f"{recipe}.toml"):
        if path.is_file():
            return path
    known = ", ".join(sorted(path.stem for path in RECIPES.glob("*.toml")))
    raise RecipeError(f"no recipe {recipe!r}: expected a TOML file or one of {known}")


def read(path: Path, overrides: list[str] | None = None) -> Recipe:
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


def validate(document: dict[str, Any], place: str) -> Recipe:
    """Turn a document into a Recipe, or say which key is wrong and why."""
    try:
        return Recipe.model_validate(document)
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
