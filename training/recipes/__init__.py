"""Recipes: which problem, which samples, which operator, how to train; a TOML file each, found by name or path."""

from __future__ import annotations

import os
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from schema.parts import validated
from training.files import parse, put, read_toml
from training.problems.problem import PROBLEMS
from training.recipe import KINDS, AddedRecipe, Recipe, RecipeError, added_kind


def folders() -> list[Path]:
    """Return the folders that are searched for recipes, MODEL/PRESET.toml in each: ours, and those of other packages.

    A package adds its own by an entry point of the group `petrov.recipes`, which names a package that holds the files.
    """
    added = sorted(entry_points(group="petrov.recipes"))
    return [Path(__file__).parent, *(Path(folder) for entry in added for folder in entry.load().__path__)]


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


def read(path: Path, overrides: list[str] | None = None) -> Recipe | AddedRecipe:
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


def validate(document: dict[str, Any], source: str) -> Recipe | AddedRecipe:
    """Turn a document into a recipe of fields, or of the added kind that it names.

    Raises:
        RecipeError: Keys or values are wrong; the message starts with `source` and names them.
    """
    kind = str(document.get("kind", "fields"))
    expected: type[Recipe | AddedRecipe] = Recipe if KINDS.get(kind) is Recipe else added_kind(kind).recipe
    return validated(expected, document, source, RecipeError)
