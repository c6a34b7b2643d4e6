"""From a problem file to the recipe of a run: its data checked and prepared, its sizes and epochs chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from training import checkpoint
from training.data.own_samples import OwnSamples, prepare
from training.data.trajectory_samples import TrajectorySamples
from training.files import read_toml
from training.fit.own.preset import PRESETS, recipe
from training.fit.own.workload import generate
from training.fit.record.folder import RunFolder
from training.fit.trajectories import preset as trajectories
from training.problems.problem_file import read_problem_file
from training.problems.registry import TRAJECTORIES
from training.recipes.kinds import BaseRecipe
from training.recipes.own import OwnRecipe
from training.recipes.recipe import RecipeError, faults, find, parse, put, read
from training.recipes.trajectory import TrajectoryRecipe

RECIPES: TypeAdapter[OwnRecipe] = TypeAdapter(TrajectoryRecipe | OwnRecipe)


def is_problem_file(path: Path) -> bool:
    """Return whether a file is a problem file and not a recipe: a TOML document that names outputs."""
    return path.suffix == ".toml" and path.is_file() and "outputs" in read_toml(path)


@dataclass(frozen=True)
class OwnRun:
    """A run on the data of a problem file.

    Attributes:
        file: The problem file.
        preset: A name of `PRESETS`.
        overrides: Changes `a.b=c` of the recipe.
        data: Folder of the prepared samples.
    """

    file: Path
    preset: str
    overrides: Sequence[str]
    data: Path

    def __post_init__(self) -> None:
        if self.preset not in PRESETS:
            raise RecipeError(f"expected a preset among {', '.join(PRESETS)} but got {self.preset!r}")

    @property
    def name(self) -> str:
        """The run's name, also of its folder under `runs/`."""
        return f"{read_problem_file(self.file).name}-{self.preset}"

    def samples(self) -> OwnSamples:
        """Check and prepare the data; see `recipe` for the errors."""
        return samples(self.file, self.data)

    def recipe(self) -> OwnRecipe:
        """Check and prepare the data, and write the recipe of the preset for them.

        Raises:
            ProblemFileError: The problem file cannot be used.
            ReadError: A data file cannot be read.
            DataError: The data do not fit the problem file.
            RecipeError: A change does not fit.
        """
        return changed(self.chosen(self.samples()), self.overrides)

    def chosen(self, samples: OwnSamples) -> OwnRecipe:
        """Return the preset's recipe for prepared samples."""
        return chosen(samples, self.preset)

    def resumed(self, run: RunFolder) -> OwnRecipe:
        """Return the recipe of the run in a folder on the same samples, whose epochs were chosen once, or a new one.

        Errors are those of `recipe`.
        """
        prepared, found = self.samples(), begun(run)
        wanted = (prepared.problem, prepared.path.name, self.preset)
        if found is None or (found.problem, found.samples, found.preset) != wanted:
            return self.recipe()
        return changed(found, self.overrides)


@dataclass(frozen=True)
class GeneratedRun(OwnRun):
    """A run on generated trajectories: `file` has their problem's name."""

    @property
    def name(self) -> str:
        """The run's name, also of its folder under `runs/`."""
        return f"{self.file}-{self.preset}"

    def samples(self) -> OwnSamples:
        """Generate and prepare the data, unless that was done before."""
        generated = TRAJECTORIES[str(self.file)]
        return TrajectorySamples(generate(generated, self.data), generated.file)

    def chosen(self, samples: OwnSamples) -> OwnRecipe:
        if not isinstance(samples, TrajectorySamples):
            raise TypeError(f"{self.name}: expected trajectories")
        return trajectories.recipe(samples, self.preset, TRAJECTORIES[str(self.file)].adapt)


def begin(
    name: str, preset: str, overrides: Sequence[str], out: Path | None, data: Path, *, resume: bool
) -> tuple[BaseRecipe, Path]:
    """Return the recipe of a run and its folder; see `training.commands.fit` for the arguments."""
    own = own_run(name, preset, overrides, data)
    if own is None:
        recipe: BaseRecipe = read(find(name), [*overrides])
        return recipe, out or Path("runs") / recipe.name
    to = out or Path("runs") / own.name
    return own.resumed(RunFolder(to)) if resume else own.recipe(), to


def own_run(name: str, preset: str, overrides: Sequence[str], data: Path) -> OwnRun | None:
    """Return the run that a name means: on a problem file's data, or on generated trajectories; else None.

    Args:
        name: A problem file, or MODEL-PRESET of generated trajectories.
        preset: For a problem file.
        overrides: Changes `a.b=c` of the recipe.
        data: Folder of the samples.

    Raises:
        RecipeError: There is no such preset.
    """
    if is_problem_file(Path(name)):
        return OwnRun(Path(name), preset, overrides, data)
    model, _, size = name.rpartition("-")
    return GeneratedRun(Path(model), size, overrides, data) if model in TRAJECTORIES else None


def chosen(samples: OwnSamples, preset: str) -> OwnRecipe:
    """Write the recipe of a preset for prepared samples or trajectories."""
    if isinstance(samples, TrajectorySamples):
        return trajectories.recipe(samples, preset)
    return recipe(samples, preset)


def samples(path: Path, data: Path) -> OwnSamples:
    """Check and prepare the data of a problem file; see `OwnRun.recipe` for the errors."""
    problem = read_problem_file(path)
    kind = OwnSamples if problem.time is None else TrajectorySamples
    return kind(prepare(problem, path.parent, data), problem)


def changed(made: OwnRecipe, overrides: Sequence[str]) -> OwnRecipe:
    """Apply changes to a recipe.

    Raises:
        RecipeError: A key or a value does not fit.
    """
    document = made.model_dump(mode="json")
    for override in overrides:
        put(document, *parse(override))
    try:
        return type(made).model_validate(document)
    except ValidationError as error:
        raise RecipeError(f"{made.name}: {faults(error)}") from error


def begun(run: RunFolder) -> OwnRecipe | None:
    """Return the recipe of an interrupted or finished run; None where there is none, or one of another kind."""
    if run.recipe.is_file():
        try:
            return RECIPES.validate_json(run.recipe.read_text())
        except ValidationError:
            return None
    if not (run.path / checkpoint.CONFIG).is_file():
        return None
    found = checkpoint.read_config(run.path).recipe
    return found if isinstance(found, OwnRecipe) else None
