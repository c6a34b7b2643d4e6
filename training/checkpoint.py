"""Checkpoints are data: a folder is loaded as a ready operator, and an operator is saved to a folder. No pickle.

.. code-block:: text

    weights.safetensors    parameters and normalisers, float32
    config.json            the recipe, the problem's description, and the software that trained it
    card.json              what was measured: training, errors by grid, the classical solver beside them
    calibration.safetensors  what is known about the errors, if it was calibrated; see `training.calibration`
    examples.safetensors   a few test samples with their truth; see `training.examples`
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    SerializeAsAny,
    Tag,
    ValidationError,
    model_validator,
)
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from training import calibration
from training import digest as contents
from training.calibration import CalibratedOperator, Calibration
from training.digest import digest
from training.files import replacing, write_json
from training.operators import Operator, build
from training.operators.certified_operator import certified
from training.problems.description import Description
from training.problems.problem import Problem
from training.problems.registry import with_code
from training.problems.sequence_description import SequenceDescription
from training.recipes.closed_form import ClosedFormRecipe
from training.recipes.kinds import AddedRecipe, BaseRecipe, kind_of
from training.recipes.own import OwnRecipe
from training.recipes.recipe import Recipe, faults
from training.recipes.trajectory import TrajectoryRecipe
from training.software import Software, current
from training.user_error import UserError

WEIGHTS, CONFIG, CARD = contents.WEIGHTS, contents.CONFIG, "card.json"
EXAMPLES = "examples.safetensors"


class CheckpointError(UserError):
    """A folder is no checkpoint: the message names the file, what was expected and what was found."""


def kind_of_recipe(document: Any) -> str:
    """Return which recipe a document is, so that a mistake in it is one of that kind alone."""
    if not isinstance(document, dict):
        return "AddedRecipe" if isinstance(document, AddedRecipe) else type(document).__name__
    if "kind" in document:
        return "AddedRecipe"
    if isinstance(document.get("problem"), dict):
        fit = document.get("fit")
        return "TrajectoryRecipe" if isinstance(fit, dict) and "unroll" in fit else "OwnRecipe"
    return "Recipe" if "fit" in document else "ClosedFormRecipe"


def added_recipe(document: Any) -> Any:
    """Return the recipe of the kind that a document names."""
    if not isinstance(document, dict):
        return document
    kind = kind_of(str(document["kind"]))
    try:
        return kind.recipe.model_validate(document)
    except ValidationError as error:
        raise ValueError(faults(error)) from error


def kind_of_problem(document: Any) -> str:
    """Return which description a document is."""
    if not isinstance(document, dict):
        return type(document).__name__
    return "SequenceDescription" if "vocabulary" in document else "Description"


class Config(BaseModel):
    """What `config.json` holds. `software` is absent in checkpoints of earlier releases."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    recipe: Annotated[
        Annotated[Recipe, Tag("Recipe")]
        | Annotated[OwnRecipe, Tag("OwnRecipe")]
        | Annotated[TrajectoryRecipe, Tag("TrajectoryRecipe")]
        | Annotated[ClosedFormRecipe, Tag("ClosedFormRecipe")]
        | Annotated[SerializeAsAny[AddedRecipe], BeforeValidator(added_recipe), Tag("AddedRecipe")],
        Discriminator(kind_of_recipe),
    ]
    problem: Annotated[
        Annotated[Description, Tag("Description")] | Annotated[SequenceDescription, Tag("SequenceDescription")],
        Discriminator(kind_of_problem),
    ]
    software: Software | None = None

    @model_validator(mode="before")
    @classmethod
    def name_the_kind(cls, document: Any) -> Any:
        """Name the kind of recipes of sequences, which those of earlier releases do not."""
        match document:
            case {"recipe": {**recipe}, "problem": {"vocabulary": _}} if "kind" not in recipe:
                return document | {"recipe": {"kind": "sequences", **recipe}}
        return document


@dataclass(frozen=True)
class Checkpoint:
    """A trained network in evaluation mode, and all that is known about it.

    Attributes:
        operator: Maps float32 fields `[batch, *grid]` in physical units to others, or tokens `[batch, length]` to
            logits where `problem` is one of sequences.
        recipe: How it was trained.
        problem: What it was trained for.
        card: What was measured.
        digest: The SHA-256 of weights, config and calibration.
        examples: The file of test samples with their truth, if there is one.
        calibration: What is known about the network's errors, if it was calibrated.
    """

    operator: nn.Module
    recipe: BaseRecipe
    problem: Problem | SequenceDescription
    card: dict[str, Any]
    digest: str
    examples: Path | None = None
    calibration: Calibration | None = None

    @property
    def formats(self) -> tuple[str, ...]:
        """The formats that the network is exported in."""
        return self.recipe.formats

    @property
    def deployed(self) -> nn.Module:
        """The network that is exported, with a bound on its errors if the equation gives one, and its calibration."""
        return self._deployed(self.operator) if isinstance(self.operator, Operator) else self.operator

    @property
    def refined(self) -> Operator | None:
        """The network that is exported beside it, with more iterations, for small tolerances; None for none."""
        operator = self.operator.refined() if isinstance(self.operator, Operator) else None
        return None if operator is None else self._deployed(operator)

    def _deployed(self, operator: Operator) -> Operator:
        if not isinstance(self.problem, Problem):
            return operator
        operator = certified(operator, self.problem.certificate)
        return operator if self.calibration is None else CalibratedOperator(operator, self.calibration).eval()

    @property
    def description(self) -> Description | SequenceDescription:
        """The data part of the problem."""
        return describe(self.problem)


@dataclass(frozen=True)
class OperatorCheckpoint(Checkpoint):
    """A checkpoint of an operator between fields."""

    operator: Operator
    recipe: Recipe
    problem: Problem


@dataclass(frozen=True)
class OwnCheckpoint(Checkpoint):
    """A checkpoint of a general operator that was trained on a user's data."""

    operator: Operator
    recipe: OwnRecipe
    problem: Problem


@dataclass(frozen=True)
class ClosedFormCheckpoint(Checkpoint):
    """A checkpoint of an operator that nothing was trained for."""

    operator: Operator
    recipe: ClosedFormRecipe
    problem: Problem


@dataclass(frozen=True)
class SequenceCheckpoint(Checkpoint):
    """A checkpoint of a network that labels sequences."""

    recipe: AddedRecipe
    problem: SequenceDescription


def save(
    folder: Path, operator: nn.Module, recipe: BaseRecipe, problem: Problem | SequenceDescription, card: dict[str, Any]
) -> None:
    """Write a checkpoint; a reader of the folder sees the old or the new state of every file, never half of one.

    Args:
        folder: Where; it is made if it is missing.
        operator: The network.
        recipe: How it was trained.
        problem: What it was trained for.
        card: What was measured.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / calibration.FILE).unlink(missing_ok=True)  # of other weights
    state = {name: tensor.detach().cpu().contiguous() for name, tensor in operator.state_dict().items()}
    with replacing(folder / WEIGHTS) as aside:
        save_file(state, aside)
    config = Config.model_validate(
        {"recipe": recipe, "problem": describe_for(operator, problem), "software": current()}
    )
    write_json(folder / CONFIG, config.model_dump(mode="json"))
    write_json(folder / CARD, card)


def write_recipe(folder: Path, recipe: BaseRecipe) -> None:
    """Replace the recipe in a checkpoint's config, as when its card is measured on another number of test fields.

    Raises:
        CheckpointError: As `load`.
    """
    config = read_config(folder).model_copy(update={"recipe": recipe})
    write_json(folder / CONFIG, config.model_dump(mode="json"))


def describe(problem: Problem | SequenceDescription) -> Description | SequenceDescription:
    """Return the data part of a problem."""
    return problem.description if isinstance(problem, Problem) else problem


def describe_for(operator: nn.Module, problem: Problem | SequenceDescription) -> Description | SequenceDescription:
    """Return the data part of a problem, with the optional inputs that the operator takes."""
    if isinstance(problem, Problem) and isinstance(operator, Operator):
        return problem.description_for(operator.optional)
    return describe(problem)


def load(
    folder: Path, *, calibrated: bool = True
) -> OperatorCheckpoint | OwnCheckpoint | ClosedFormCheckpoint | SequenceCheckpoint:
    """Rebuild the network of a checkpoint folder.

    Args:
        folder: The folder.
        calibrated: Whether its calibration is read, too, if there is one.

    Raises:
        CheckpointError: A file is missing or unreadable, or the weights do not fit the config.
        CalibrationError: The calibration is damaged, or of another version.
    """
    config = read_config(folder)
    recipe, problem = config.recipe, config.problem
    stored = stored_examples(folder)
    if isinstance(recipe, AddedRecipe) and isinstance(problem, SequenceDescription):
        network = kind_of(recipe.kind).build(recipe.operator, problem)
        restore(network, folder / WEIGHTS)
        return SequenceCheckpoint(network.eval(), recipe, problem, read_json(folder / CARD), digest(folder), stored)
    if isinstance(recipe, (Recipe, OwnRecipe, ClosedFormRecipe)) and isinstance(problem, Description):
        operator = build(recipe.operator)
        restore(operator, folder / WEIGHTS)
        card, found = read_json(folder / CARD), calibration.load(folder) if calibrated else None
        return of_fields(recipe, operator.eval(), with_code(problem), card, digest(folder), stored, found)
    raise CheckpointError(f"{folder / CONFIG}: expected a recipe for {problem.name} but found one for {recipe.problem}")


def of_fields(
    recipe: Recipe | OwnRecipe | ClosedFormRecipe,
    operator: Operator,
    problem: Problem,
    card: dict[str, Any],
    digest: str,
    examples: Path | None,
    calibration: Calibration | None,
) -> OperatorCheckpoint | OwnCheckpoint | ClosedFormCheckpoint:
    """Return the checkpoint of an operator, of the class that its recipe decides; see `Checkpoint`."""
    if isinstance(recipe, OwnRecipe):
        return OwnCheckpoint(operator, recipe, problem, card, digest, examples, calibration)
    if isinstance(recipe, ClosedFormRecipe):
        return ClosedFormCheckpoint(operator, recipe, problem, card, digest, examples, calibration)
    return OperatorCheckpoint(operator, recipe, problem, card, digest, examples, calibration)


def load_operator(folder: Path) -> OperatorCheckpoint:
    """Rebuild an operator between fields.

    Raises:
        CheckpointError: As `load`, or the checkpoint is one of sequences.
    """
    found = load(folder)
    if not isinstance(found, OperatorCheckpoint):
        raise CheckpointError(f"{folder}: expected a checkpoint of fields but found one of {found.problem.name}")
    return found


def restore(operator: nn.Module, path: Path, *, partly: bool = False) -> None:
    """Load weights into an operator of the same shape.

    Args:
        operator: The operator.
        path: The file.
        partly: Keep the operator's own tensors where the file has none, as for layers that a network did not have yet.

    Raises:
        CheckpointError: The file is missing or damaged, names differ or a tensor has another shape.
    """
    state, expected = read_weights(path), operator.state_dict()
    if partly and expected.keys() & state.keys():
        state = expected | state
    if missing := sorted(expected.keys() ^ state.keys()):
        raise CheckpointError(f"{path}: tensors that only the file or only the config has: {', '.join(missing)}")
    for name, tensor in state.items():
        if tensor.shape != expected[name].shape:
            raise CheckpointError(
                f"{path}: expected {tuple(expected[name].shape)} for {name!r} but found {tuple(tensor.shape)}"
            )
    operator.load_state_dict(state)


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a file.

    Raises:
        CheckpointError: It is missing, damaged or cut off.
    """
    if not path.is_file():
        raise CheckpointError(f"expected a file {path} but there is none")
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path}: expected a safetensors file but it is damaged or cut off: {error}") from error


def stored_examples(folder: Path) -> Path | None:
    """Return the file of test samples, None where there is none.

    Raises:
        CheckpointError: It is damaged or cut off.
    """
    path = folder / EXAMPLES
    if not path.is_file():
        return None
    read_weights(path)
    return path


def read_config(folder: Path) -> Config:
    """Read `config.json`.

    Raises:
        CheckpointError: It is missing or wrong.
    """
    try:
        return Config.model_validate(read_json(folder / CONFIG))
    except ValidationError as error:
        raise CheckpointError(f"{folder / CONFIG}: {faults(error)}") from error
    except ValueError as error:
        raise CheckpointError(f"{folder / CONFIG}: {error}") from error


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        CheckpointError: There is no such file, or it holds something else.
    """
    if not path.is_file():
        raise CheckpointError(f"expected a file {path} but there is none")
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError, OSError) as error:
        raise CheckpointError(f"{path}: {error}") from error
    if not isinstance(document, dict):
        raise CheckpointError(f"{path}: expected a JSON object but found {type(document).__name__}")
    return document
