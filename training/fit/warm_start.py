"""A training that starts from the weights of an earlier model of the user's, `data.finetune` in the problem file.

The earlier model has learned other samples of the same fields: another range of a parameter, other materials, another
grid. Its network is taken as it is, with its means and deviations, so that at first it predicts what it did. The
training that follows has a lower learning rate. Where there is a race, it is a candidate beside those that start from
random weights; see `training.fit.search`.
"""

from __future__ import annotations

from pathlib import Path

from schema.problem import Description, Parameter, Quantity
from training import checkpoint
from training.files import digest
from training.problems.problem_file import ProblemFile
from training.recipe import Recipe, RecipeError, Start

RATE = 1e-3  # the highest learning rate; 2e-3 and 5e-4 are as good as one another in `benchmarks.transfer`
FOLDERS = (Path("runs"), Path("checkpoints"))  # where a name is looked for, beside the folder of the problem file


def located(name: str, folder: Path) -> Path:
    """Return the checkpoint folder that a problem file in `folder` means.

    Raises:
        RecipeError: There is none.
    """
    tried = [each / name for each in (folder, *FOLDERS)]
    for path in tried:
        if (path / checkpoint.CONFIG).is_file():
            return path
    raise RecipeError(
        f"data.finetune: expected the folder of a trained model, or its name in runs or checkpoints, but got {name!r}: "
        f"there is no {checkpoint.CONFIG} in {', '.join(map(str, tried))}"
    )


def start_of(problem: ProblemFile, folder: Path, described: Description) -> Start | None:
    """Return the earlier model that a problem file in `folder` names for new samples, None where it names none.

    Raises:
        CheckpointError: The earlier model cannot be read.
        RecipeError: There is none, or it has other fields, parameters or boundaries.
    """
    if problem.data.finetune is None:
        return None
    path = located(problem.data.finetune, folder)
    config = checkpoint.read_config(path)
    if config.recipe.problem_file is None or not isinstance(config.problem, Description):
        raise RecipeError(f"data.finetune: expected a model of a problem file in {path} but found {config.recipe.name}")
    expected, found = facts(config.problem), facts(described)
    for what in expected | found:
        if expected.get(what) != found.get(what):
            raise RecipeError(
                f"data.finetune: {what}: expected {expected.get(what, 'none')}, as the model in {path} has, "
                f"but found {found.get(what, 'none')}"
            )
    return Start(folder=str(path), digest=digest(path), operator=config.recipe.operator)


def started(recipe: Recipe, start: Start) -> Recipe:
    """Return a recipe with the network of an earlier model, a lower learning rate, and no coarse samples."""
    fit = recipe.fit.model_copy(update={"learning_rate": RATE})
    return recipe.model_copy(update={"operator": start.operator, "start": start, "coarse": None, "fit": fit})


def facts(problem: Description) -> dict[str, str]:
    """Return what two problems have to share for one network to learn both, by the names of problem files."""
    parts = {"inputs": problem.inputs, "parameters": problem.parameters, "outputs": problem.outputs}
    found = {part: ", ".join(each.name for each in tensors) or "none" for part, tensors in parts.items()}
    for part, fields in (("inputs", problem.inputs), ("outputs", problem.outputs)):
        for one in fields:
            kind = ("positive" if one.positive else "of any sign") + (", a scalar" if one.scalar else "")
            kind += f", {integral}" if (integral := one.integral) else ""
            found[f"{part}.{one.name}"] = f"{shared(one)}, {kind}"
    for number in problem.parameters:
        sign = "a positive minimum" if (number.minimum or 0) > 0 else "no positive minimum"  # else it has no logarithm
        found[f"parameters.{number.name}"] = f"{shared(number)}, {sign}"
    for axis in problem.axes:
        found[f"axes.{axis.name}"] = f"boundary {axis.boundary!r}, points {axis.points!r}"
    found["axes"] = ", ".join(axis.name for axis in problem.axes)
    if problem.frames is not None:
        found["time"] = f"step {problem.frames.step:g}, history {problem.frames.history}"
    return found


def shared(one: Quantity | Parameter) -> str:
    """Return what two fields, or two numbers, have to share: units, components, and the frame that a step sees."""
    frame = f", per_frame {one.per_frame!r}" if one.per_frame else ""
    return f"units {one.units!r}, components {', '.join(one.components) or 'none'}{frame}"
