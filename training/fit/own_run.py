"""From a problem file to the recipe of a run: its data checked and prepared, its sizes and epochs chosen."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from training.data.own_samples import OwnSamples, prepare
from training.fit.folder import RunFolder
from training.fit.preset import PRESETS, recipe
from training.problems.own.problem_file import read_problem_file
from training.recipes.own import OwnRecipe
from training.recipes.recipe import RecipeError, parse, put


def is_problem_file(path: Path) -> bool:
    """Return whether a file is a problem file and not a recipe: a TOML document that names outputs."""
    try:
        return path.suffix == ".toml" and path.is_file() and "outputs" in tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError:
        return False


def own_recipe(path: Path, preset: str, overrides: Sequence[str], data: Path) -> OwnRecipe:
    """Check and prepare the data of a problem file, and write the recipe of a preset for them.

    Args:
        path: The problem file.
        preset: A name of `PRESETS`.
        overrides: Changes `a.b=c` of the recipe.
        data: Folder of the prepared samples.

    Raises:
        ProblemFileError: The problem file cannot be used.
        ReadError: A data file cannot be read.
        DataError: The data do not fit the problem file.
        RecipeError: There is no such preset, or a change does not fit.
    """
    if preset not in PRESETS:
        raise RecipeError(f"expected a preset among {', '.join(PRESETS)} but got {preset!r}")
    return changed(recipe(samples(path, data), preset), overrides)


def samples(path: Path, data: Path) -> OwnSamples:
    """Check and prepare the data of a problem file; see `own_recipe` for the errors."""
    problem = read_problem_file(path)
    return OwnSamples(prepare(problem, path.parent, data), problem)


def changed(made: OwnRecipe, overrides: Sequence[str]) -> OwnRecipe:
    """Apply changes to a recipe.

    Raises:
        RecipeError: A key or a value does not fit.
    """
    document = made.model_dump(mode="json")
    for override in overrides:
        put(document, *parse(override))
    try:
        return OwnRecipe.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise RecipeError(f"{made.name}: {key}: {first['msg']} (found {first['input']!r})") from error


def interrupted(run: RunFolder, wanted: OwnRecipe) -> OwnRecipe:
    """Return the recipe of an interrupted run on the same samples, whose epochs were chosen once; else `wanted`."""
    if not run.recipe.is_file():
        return wanted
    try:
        begun = OwnRecipe.model_validate_json(run.recipe.read_text())
    except ValidationError:
        return wanted
    same = (begun.problem, begun.samples, begun.preset) == (wanted.problem, wanted.samples, wanted.preset)
    return begun if same else wanted
