"""Checkpoints are data: a folder is loaded as a ready operator, and an operator is saved to a folder. No pickle.

.. code-block:: text

    weights.safetensors    parameters and normalisers, float32
    config.json            the recipe, the problem's description, and the software that trained it
    card.json              what was measured: training, errors by grid, the classical solver beside them
    calibration.safetensors  what is known about the errors, if it was calibrated; see `training.calibration`
    examples.safetensors   a few test samples with their truth, a tensor per name on the wire; sequences have int32
                           tokens, padded with 0, and int32 `labels`
"""

from __future__ import annotations

import json
import platform
import subprocess
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, model_validator
from safetensors import SafetensorError
from safetensors.numpy import save_file as save_arrays
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from schema.card import CheckpointCard
from schema.faults import PartError, faults
from schema.parts import validated
from schema.problem import Description, SequenceDescription
from training import calibration, files
from training.calibration import CalibratedOperator, Calibration
from training.files import digest, replacing, write_json
from training.messages import UserError
from training.operators import Operator, build
from training.operators.operator import certified
from training.problems.problem import Problem, with_code
from training.recipe import AddedRecipe, AnyRecipe, BaseRecipe, added_kind

WEIGHTS, CONFIG, CARD = files.WEIGHTS, files.CONFIG, "card.json"
EXAMPLES = "examples.safetensors"
MOST_EXAMPLES = 8
EXAMPLE_BYTES = 300_000  # the most that the tensors of the examples hold: released checkpoints are committed
PACKAGES = ("torch", "lightning", "numpy", "scipy", "h5py", "safetensors", "pydantic")


Tensors = Mapping[str, NDArray[Any]]
MOST_NAMES = 5  # of tensors, sizes or settings in an error
LONGEST = 40  # characters of a setting there


class CheckpointError(UserError):
    """A folder is no checkpoint: the message names the file, what was expected and what was found."""


def problem_from_document(document: Any) -> Any:
    """Return the description that a document is: of a problem of sequences if it has a vocabulary, else of fields.

    Raises:
        PartError: It is none.
    """
    if not isinstance(document, dict):
        return document
    kind = SequenceDescription if "vocabulary" in document else Description
    try:
        return kind.model_validate(document)
    except ValidationError as error:
        raise PartError(error) from error


class Software(BaseModel):
    """What a result can be traced back to."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    revision: str | None  # the commit of this repository; None where there is no git repository or no git
    modified: bool | None  # whether tracked files differed from that commit; None where the revision is unknown
    python: str  # the version of Python
    packages: dict[str, str]  # package versions by name


IDLE: tuple[Any, ...] = ([], [0.0], (), (0.0,), 0)  # levels of noise that change nothing


class Config(BaseModel):
    """What `config.json` holds. `software` is absent in checkpoints of earlier releases."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    recipe: AnyRecipe
    problem: Annotated[Description | SequenceDescription, BeforeValidator(problem_from_document)]
    software: Software | None = None

    @model_validator(mode="before")
    @classmethod
    def name_the_kind(cls, document: Any) -> Any:
        """Name the kind of recipes of sequences, which those of earlier releases do not."""
        match document:
            case {"recipe": {**recipe}, "problem": {"vocabulary": _}} if "kind" not in recipe:
                return document | {"recipe": {"kind": "sequences", **recipe}}
        return document

    @model_validator(mode="before")
    @classmethod
    def ignore_idle_noise(cls, document: Any) -> Any:
        """Read recipes of steady fields of files with a noise, which earlier releases accepted and did not follow."""
        match document:
            case {"recipe": {"problem": {**problem}, "fit": {"noise": noise, **fit}, **recipe}} if (
                noise not in IDLE and problem.get("time") is None
            ):
                warnings.warn(f"fit.noise = {noise} is ignored: a training on steady fields has none", stacklevel=2)
                return {**document, "recipe": {**recipe, "problem": problem, "fit": fit}}
        return document


@dataclass(frozen=True)
class Checkpoint:
    """A trained network in evaluation mode, and all that is known about it."""

    # Maps float32 fields `[batch, *grid]` in physical units to others, or tokens `[batch, length]` to logits where
    # `problem` is one of sequences.
    operator: Any
    recipe: Any  # how it was trained; of the class of its `kind`
    problem: Any  # what it was trained for: a `Problem`, or a `SequenceDescription`
    card: CheckpointCard  # what was measured
    digest: str  # the SHA-256 of weights, config and calibration
    examples: Path | None = None  # the file of test samples with their truth, if there is one
    calibration: Calibration | None = None  # what is known about the network's errors, if it was calibrated

    @property
    def formats(self) -> tuple[str, ...]:
        formats: tuple[str, ...] = self.recipe.formats
        return formats

    @property
    def deployed(self) -> nn.Module:
        """The network that is exported, with a bound on its errors if the equation gives one, and its calibration."""
        if not isinstance(self.operator, Operator) or not isinstance(self.problem, Problem):
            return self.operator
        operator = certified(self.operator, self.problem.certificate)
        return operator if self.calibration is None else CalibratedOperator(operator, self.calibration).eval()

    @property
    def refined(self) -> Operator | None:
        """The method that is exported beside it, with more iterations, for small tolerances; None for none.

        The calibration is that of the network's errors, so it says nothing of these.
        """
        return self.operator.refined() if isinstance(self.operator, Operator) else None

    @property
    def description(self) -> Description | SequenceDescription:
        return describe(self.problem)


def save(
    folder: Path, operator: nn.Module, recipe: BaseRecipe, problem: Problem | SequenceDescription, card: CheckpointCard
) -> None:
    """Write a checkpoint; a reader of the folder sees the old or the new state of every file, never half of one."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / calibration.FILE).unlink(missing_ok=True)  # of other weights
    state = {name: tensor.detach().cpu().contiguous() for name, tensor in operator.state_dict().items()}
    with replacing(folder / WEIGHTS) as aside:
        save_file(state, aside)
    described = describe(problem)
    if isinstance(problem, Problem) and isinstance(operator, Operator):  # with the optional inputs that it takes
        described = problem.description_for(operator.optional)
    config = Config.model_validate({"recipe": recipe, "problem": described, "software": current()})
    write_json(folder / CONFIG, config.model_dump(mode="json"))
    write_card(folder, card)


def write_recipe(folder: Path, recipe: BaseRecipe) -> None:
    """Replace the recipe in a checkpoint's config, as when its card is measured on another number of test fields."""
    config = read_config(folder).model_copy(update={"recipe": recipe})
    write_json(folder / CONFIG, config.model_dump(mode="json"))


def write_card(folder: Path, card: CheckpointCard) -> None:
    """Replace the card of a checkpoint."""
    write_json(folder / CARD, card.document)


def describe(problem: Problem | SequenceDescription) -> Description | SequenceDescription:
    """Return the data part of a problem."""
    return problem.description if isinstance(problem, Problem) else problem


def load(folder: Path, *, calibrated: bool = True) -> Checkpoint:
    """Rebuild the network of a checkpoint folder, with its calibration, if there is one and `calibrated` is set.

    Raises:
        CheckpointError: A file is missing or unreadable, or the weights do not fit the config.
        CalibrationError: The calibration is damaged, or of another version.
    """
    config = read_config(folder)
    recipe, problem, found = config.recipe, config.problem, None
    if isinstance(recipe, AddedRecipe) != isinstance(problem, SequenceDescription):
        raise CheckpointError(
            f"{folder / CONFIG}: expected a recipe for {problem.name} but found one for {recipe.problem}"
        )
    if isinstance(problem, SequenceDescription):
        network = added_kind(recipe.kind).build(recipe.operator, problem)
    else:
        network, found = build(recipe.operator), calibration.load(folder) if calibrated else None
    restore(network, folder / WEIGHTS)
    examples = folder / EXAMPLES if (folder / EXAMPLES).is_file() else None
    if examples is not None:
        read_weights(examples)  # which says whether the file is damaged
    return Checkpoint(
        operator=network.eval(),
        recipe=recipe,
        problem=with_code(problem) if isinstance(problem, Description) else problem,
        card=read_card(folder),
        digest=digest(folder),
        examples=examples,
        calibration=found,
    )


def load_operator(folder: Path) -> Checkpoint:
    """Rebuild an operator between fields.

    Raises:
        CheckpointError: As `load`, or the checkpoint is one of sequences.
    """
    found = load(folder)
    if not isinstance(found.operator, Operator):
        raise CheckpointError(f"{folder}: expected a checkpoint of fields but found one of {found.problem.name}")
    return found


def restore(operator: nn.Module, path: Path, *, partly: bool = False) -> None:
    """Load weights into an operator of the same shape.

    With `partly` it keeps its own tensors where the file has none, which a warning names, and does without those of the
    file that are fitted once a training is over, by the `FITTED` of a module.

    Raises:
        CheckpointError: The file is missing or damaged, names differ or a tensor has another shape.
    """
    state, expected, own = read_weights(path), operator.state_dict(), list[str]()
    if partly and expected.keys() & state.keys():
        own = [name for name in expected if name not in state and not fitted_later(operator, name)]
        state = expected | {
            name: each for name, each in state.items() if name in expected or not fitted_later(operator, name)
        }
    if missing := sorted(expected.keys() ^ state.keys()):
        raise CheckpointError(f"{path}: tensors that only the file or only the config has: {some(missing)}")
    for name, tensor in state.items():
        if tensor.shape != expected[name].shape:
            raise CheckpointError(
                f"{path}: expected {tuple(expected[name].shape)} for {name!r} but found {tuple(tensor.shape)}"
            )
    operator.load_state_dict(state)
    if own:
        warnings.warn(
            f"{path} has {len(expected) - len(own)} of the {len(expected)} tensors of the network; {len(own)} keep "
            f"their initial values: {some(own)}",
            stacklevel=2,
        )


def fitted_later(operator: nn.Module, name: str) -> bool:
    """Return whether a tensor is one that a module of an operator fits once a training is over."""
    home, _, leaf = name.rpartition(".")
    modules = dict(operator.named_modules())
    return home in modules and leaf in getattr(modules[home], "FITTED", ())


def some(names: Sequence[str]) -> str:
    """Return the first names of a list, and how many others there are."""
    more = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {more} others" if more > 0 else "")


def differences(found: BaseRecipe, wanted: BaseRecipe) -> str:
    """Return in which settings a recipe differs from another one, as sentences of errors name them."""
    theirs, ours = (settings(each.model_dump(mode="json")) for each in (found, wanted))
    keys = [key for key in theirs | ours if theirs.get(key) != ours.get(key)]
    return some([f"{key} {theirs.get(key, 'absent')} instead of {ours.get(key, 'absent')}" for key in keys])


def settings(document: Mapping[str, Any], lead: str = "") -> dict[str, str]:
    """Return the values of a document by their keys `section.name`, cut where they are long."""
    found: dict[str, str] = {}
    for key, value in document.items():
        if isinstance(value, dict):
            found |= settings(value, f"{lead}{key}.")
        else:
            text = json.dumps(value)
            found[lead + key] = text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
    return found


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a file.

    Raises:
        CheckpointError: There is none, or it is damaged.
    """
    if not path.is_file():
        raise CheckpointError(f"expected a file {path} but there is none")
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path}: expected a safetensors file but it is damaged or cut off: {error}") from error


def write_examples(folder: Path, tensors: Tensors) -> None:
    """Write the examples of a checkpoint, as many samples as fit into `EXAMPLE_BYTES`."""
    sample = sum(array[0].nbytes for array in tensors.values())
    count = max(1, min(MOST_EXAMPLES, EXAMPLE_BYTES // sample))
    with replacing(folder / EXAMPLES) as aside:
        save_arrays({name: np.ascontiguousarray(array[:count]) for name, array in tensors.items()}, aside)


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


def read_card(folder: Path) -> CheckpointCard:
    """Read `card.json`.

    Raises:
        CheckpointError: It is missing, or has a key that no card has.
    """
    document = read_json(folder / CARD)
    try:
        return validated(CheckpointCard, document, folder / CARD)
    except ValueError as error:
        raise CheckpointError(str(error)) from error


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        CheckpointError: There is none, or it holds something else.
    """
    if not path.is_file():
        raise CheckpointError(f"expected a file {path} but there is none")
    try:
        return files.read_json(path)
    except (ValueError, OSError) as error:
        raise CheckpointError(f"{path}: {error}") from error


def current() -> Software:
    """Return the software that runs now."""
    revision = git("rev-parse", "HEAD")
    changes = None if revision is None else git("status", "--porcelain", "--untracked-files=no")
    return Software(
        revision=revision,
        modified=None if changes is None else bool(changes),
        python=platform.python_version(),
        packages={name: version(name) for name in PACKAGES},
    )


def git(*arguments: str) -> str | None:
    """Return what git prints about this repository, or None where it fails."""
    try:
        done = subprocess.run(  # noqa: S603 -- fixed arguments
            ["git", "-C", str(Path(__file__).parents[1]), *arguments],  # noqa: S607 -- git is where the user has it
            check=True,
            capture_output=True,
            text=True,
            timeout=10,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
