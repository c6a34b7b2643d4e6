"""Where the prepared samples of a recipe are: those of a problem file, and trajectories that our solvers make."""

from __future__ import annotations

import warnings
from pathlib import Path

from training.data import generate
from training.data.dataset import SampleFile
from training.data.prepare import formerly, identity
from training.problems.problem import trajectories_of
from training.recipe import Recipe, RecipeError
from training.typed import typed


def prepared(recipe: Recipe, data: Path) -> Path:
    """Return the samples of a recipe, those of a generated problem made again where they are missing."""
    path = data / str(recipe.samples)
    return path if path.is_file() else made_again(recipe, data)


def coarse_samples(recipe: Recipe, data: Path) -> SampleFile | None:
    """Return the coarse samples that a training begins with; None where it has none."""
    if recipe.coarse is None or (problem := recipe.file.of_coarse) is None:
        return None
    path = data / recipe.coarse.samples
    if not path.is_file():
        path = read_anew(recipe, path.name, data) or path
    if not path.is_file():
        raise RecipeError(f"{recipe.name}: expected the coarse samples {path} but found none")
    return SampleFile(path, problem)


def made_again(recipe: Recipe, data: Path) -> Path:
    """Return samples that a problem's own sampler and seed make; their file may have another name than the recipe's."""
    problem, missing = recipe.file, f"{recipe.name}: expected the samples {data / str(recipe.samples)}"
    generated = trajectories_of(problem.name)
    if generated is None and (renewed := read_anew(recipe, str(recipe.samples), data)):
        return renewed
    if generated is None:
        found = ", ".join(sorted(path.name for path in data.glob(f"own-{problem.name}-*.h5"))) or "none of this problem"
        raise RecipeError(
            f"{missing} but found {found}. `{typed('check', 'PROBLEM.toml')}` prepares them from the files that "
            f"it was trained on ({', '.join(problem.data.files)}); other data have another name"
        )
    if (generated.file.seed, identity(generated.file)) != (problem.seed, identity(problem)):
        raise RecipeError(
            f"{missing} but found none, and `{problem.name}` is generated in another way now: "
            f"`{typed('fit', recipe.name)}` trains it anew"
        )
    return generate.trajectories(generated, data)


def read_anew(recipe: Recipe, name: str, data: Path) -> Path | None:
    """Return the samples of the data that a recipe names, where another version read them, and say so."""
    found = formerly(name, data)
    if found is not None:
        warnings.warn(
            f"{recipe.name}: {found} holds the data of {name} as they are read now: values that were read in another "
            "way before, such as packed integers or distances on meshes, are not those that it was trained on",
            stacklevel=2,
        )
    return found
