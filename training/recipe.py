"""Recipes: everything that decides a training run, and is kept in its checkpoint.

A recipe is of a `kind`, which decides the class of its document: `fields` for an operator between fields, from a TOML
file for a built-in problem, from a preset for a user's data; `closed-form` where nothing is trained; and those that
packages add by entry points of the group `petrov.kinds`, whose packages are imported only then. An unknown key is an
error.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Annotated, Any, Literal, TypeVar

import torch
from pydantic import (
    AliasChoices,
    BeforeValidator,
    Discriminator,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    SerializeAsAny,
    Tag,
    ValidationError,
    model_validator,
)
from torch import nn

from schema.faults import PartError
from schema.parts import Frozen, validated
from schema.problem import Description, Schema, SequenceDescription
from training.data.generate import DataConfig, MeasuredSamples
from training.files import parse, put
from training.losses import LOSSES
from training.messages import UserError, lookup
from training.operators import OperatorConfig
from training.optimisation import FLOAT32, Precision, build_optimiser
from training.problems.problem import PROBLEMS
from training.problems.problem_file import ProblemFile

R = TypeVar("R", bound="BaseRecipe")


#: What trainings on the data of problem files have where a document of an earlier release says nothing.
OF_PROBLEM_FILES: dict[str, Any] = {
    "learning_rate": 2e-3,
    "warmup": 0.15,
    "cycle_momentum": True,
    "keep": "best",
    "h1": 0.0,
}


def unless_none() -> Any:
    """Declare a key that a document leaves out where there is nothing."""
    return Field(default=None, exclude_if=lambda value: value is None)


def as_levels(value: Any) -> Any:
    """Read one number as the only level of noise, and 0 as none."""
    return ((value,) if value else ()) if isinstance(value, int | float) else value


Levels = Annotated[tuple[NonNegativeFloat, ...], BeforeValidator(as_levels)]

#: The name of a built-in problem, or a problem file; errors of a file do not name the other possibility.
NameOrFile = Annotated[
    Annotated[str, Tag("Name")] | Annotated[ProblemFile, Tag("File")],
    Discriminator(lambda value: "Name" if isinstance(value, str) else "File"),
]


class RecipeError(UserError):
    """A recipe cannot be read: the message names the file, the key and what was expected there."""


class BaseRecipe(Frozen):
    """What every recipe says: a model's name and preset, a problem, a network, and the formats of its export."""

    kind: str
    model: str
    preset: str
    problem: Any
    operator: Any
    formats: tuple[Literal["onnx", "torchscript"], ...] = ("onnx",)
    #: Of the network's products while it is trained, and on a GPU while it is served.
    precision: Precision = Field(default=FLOAT32, exclude_if=lambda precision: precision == FLOAT32)

    @property
    def name(self) -> str:
        """The run's name, also of its folder under `runs/`."""
        return f"{self.model}-{self.preset}"

    @property
    def problem_file(self) -> ProblemFile | None:
        """The problem file whose data are learned; None where the problem is a built-in one."""
        return self.problem if isinstance(self.problem, ProblemFile) else None

    @model_validator(mode="after")
    def require_onnx(self) -> BaseRecipe:
        """Require ONNX, the format that every server reads, and that is differentiated."""
        if "onnx" not in self.formats:
            raise ValueError(f"expected onnx among the formats but got {', '.join(self.formats)}")
        return self


class Fit(Frozen):
    """How to train on fields: one cycle of an optimiser's rate, with gradient clipping.

    With `seconds` the schedule follows the processor time that has been used, and the training ends with it: after
    `least` steps at least, and after `epochs` at most. An epoch is one pass over the samples, or `least` steps of it,
    or more passes where there are many validation samples. `unroll` and `through` are of trajectories alone.
    """

    epochs: PositiveInt  # passes over the training samples
    seconds: PositiveFloat | None = None
    least: PositiveInt = 1
    batch: PositiveInt
    learning_rate: PositiveFloat  # the highest rate
    weight_decay: NonNegativeFloat = 1e-4
    warmup: float = Field(default=0.2, ge=0, lt=1)  # share of the steps during which the rate rises
    div_factor: PositiveFloat = 25.0  # the rate begins at learning_rate / div_factor
    final_div_factor: PositiveFloat = 1e4  # and ends at a final_div_factor-th of where it began
    cycle_momentum: bool = False  # beta1, or Muon's momentum, falls from 0.95 to 0.85 while the rate rises
    optimiser: Literal["adamw", "muon"] = "adamw"  # AdamW without decay is Adam; Muon is `training.optimisation`
    clip: PositiveFloat = 1.0  # largest norm of a gradient
    average: NonNegativeFloat = 0.0  # decay per step of the exponential mean of the weights that is kept; 0: no mean
    keep: Literal["last", "best"] = "last"  # the last epoch's weights, or those of the least validation error
    loss: str = "relative"  # a name of `training.losses.LOSSES`
    h1: float = 0.1  # of the relative loss: the weight of the differences of neighbours
    gamma: NonNegativeFloat = 0.1  # of the weighted loss, the published one
    # Draw an exact symmetry of the problem for every sample; or also one of these, which lowered the validation error.
    symmetries: bool | tuple[str, ...] = True
    # Levels of noise to draw from for every sample: of a built-in problem's inputs in their deviation at each point, or
    # of the states that a rollout starts from in that of the state. A user's steady fields have none.
    noise: Levels = ()
    share: float = Field(default=1.0, gt=0, le=1)  # of the training samples; a smaller share is part of a larger one
    unroll: tuple[PositiveInt, ...] = (1,)  # steps of a training rollout, each for an equal share of the training
    # Points of every sample that a training step sees, drawn at random; all of them by default.
    points: PositiveInt | None = Field(default=None, exclude_if=lambda points: points is None)
    through: bool = True  # whether gradients flow through all steps of a rollout, or only through its last one
    # The share of the budget that the turns of others in a race have taken; `raced` in older recipes.
    race_budget: float = Field(default=0.0, ge=0, lt=1, validation_alias=AliasChoices("race_budget", "raced"))

    @model_validator(mode="after")
    def require_known_loss(self) -> Fit:
        """Require a loss of ours or of an installed package."""
        LOSSES[self.loss]
        return self

    @property
    def gradients(self) -> bool:
        """Whether the loss compares with stored gradients."""
        return LOSSES[self.loss].gradients(self)

    @property
    def levels(self) -> tuple[float, ...]:
        """Levels of noise to measure at: no noise, and the trained levels."""
        return tuple(sorted({0.0, *self.noise}))

    def drawn_symmetries(self, exact: tuple[str, ...]) -> tuple[str, ...]:
        """Return the symmetries that are drawn for samples of a problem that has some exact ones."""
        if isinstance(self.symmetries, bool):
            return exact if self.symmetries else ()
        return (*exact, *self.symmetries)

    def steps_of(self, share: float) -> int:
        """Return the steps of a training rollout when a share of the training is done."""
        return self.unroll[min(len(self.unroll) - 1, int(len(self.unroll) * share))]

    def build_optimiser(self, network: nn.Module, steps: int) -> tuple[torch.optim.Optimizer, Any]:
        """Return the optimiser, and the schedule of its rate."""
        return build_optimiser(network, self, steps)


class Start(Frozen):
    """An earlier model whose weights a training starts from; see `training.fit.search`."""

    folder: str  # of its checkpoint
    digest: str  # the SHA-256 of its weights, config and calibration
    operator: OperatorConfig  # its network


class Coarse(Frozen):
    """Samples on a coarser grid that a training begins with."""

    samples: str  # name of the prepared samples in the data folder
    batch: PositiveInt  # of them
    share: float = Field(default=0.75, gt=0, lt=1)  # of the training that they have; then the rate is low


class Candidate(Frozen):
    """A network in the race at the start of a training; see `training.fit.search`."""

    name: str  # in words, for card and report
    # Keys of the operator's config; `step.key` of trajectories.
    operator: dict[str, int | str | tuple[bool, ...]] = Field(default_factory=dict)
    start: Start | None = None  # the earlier model that it starts from, instead of such keys
    fine: bool = False  # whether it is trained without the coarse samples, where there are any
    handicap: PositiveFloat = 1.0  # by which its errors are multiplied before they are compared

    @property
    def overrides(self) -> list[str]:
        """The changes of a recipe."""
        return [f"operator.{key}={json.dumps(value)}" for key, value in self.operator.items()]


class Recipe(BaseRecipe):
    """A training of an operator between fields, on the samples of a problem.

    A built-in problem has a name, and `data` says which samples of it are drawn. A problem file stands in the recipe as
    it is, with the name of its prepared samples; `training.fit.presets` writes such a recipe.
    """

    kind: Literal["fields"] = "fields"
    problem: NameOrFile
    seed: NonNegativeInt = 1127802
    data: DataConfig | None = unless_none()
    samples: str | None = unless_none()  # name of the sample file in the data folder; see `training.data.dataset`
    operator: OperatorConfig
    fit: Fit
    race: tuple[Candidate, ...] = ()  # the networks that are compared first; none once one has won
    start: Start | None = unless_none()  # the earlier model that the first weights are of; None for random ones
    coarse: Coarse | None = unless_none()  # the coarse samples that the training begins with; None for none

    @property
    def problem_schema(self) -> Schema:
        """What is mapped to what."""
        return self.problem if isinstance(self.problem, ProblemFile) else PROBLEMS[self.problem].description

    @property
    def file(self) -> ProblemFile:
        """The problem file; a RecipeError where the problem is a built-in one."""
        if not isinstance(self.problem, ProblemFile):
            raise RecipeError(f"{self.name}: expected a problem file but found the built-in problem {self.problem}")
        return self.problem

    @property
    def drawn(self) -> DataConfig:
        """Which samples of a built-in problem are drawn; a RecipeError where the data are those of a problem file."""
        if self.data is None:
            raise RecipeError(f"{self.name}: expected a built-in problem but found a problem file")
        return self.data

    @model_validator(mode="before")
    @classmethod
    def read_earlier(cls, document: Any) -> Any:
        """Read what earlier releases wrote of problem files, whose trainings had a kind and defaults of their own."""
        match document:
            case {"problem": {**problem}, "fit": {**fit}} if document.get("kind", "own") == "own":
                return {**document, "kind": "fields", "problem": problem, "fit": OF_PROBLEM_FILES | fit}
        return document

    @model_validator(mode="after")
    def require_samples(self) -> Recipe:
        """Require the samples that the problem has, and of a built-in one the rule of its axes in the operator."""
        if isinstance(self.problem, str) and PROBLEMS[self.problem].trajectories is not None:
            raise ValueError(f"problem: expected one of fields but {self.problem!r} is one of trajectories")
        drawn = self.problem_file is None
        for key, value, wanted in (("data", self.data, drawn), ("samples", self.samples, not drawn)):
            if (value is not None) != wanted:
                raise ValueError(f"{key}: expected it of {'built-in problems' if key == 'data' else 'problem files'}")
        points, axes = getattr(self.operator, "points", None), {axis.points for axis in self.problem_schema.axes}
        finest = self.problem_schema.grid.maximum if isinstance(self.problem_schema, Description) else 0
        if drawn and isinstance(points, str) and axes != {points}:
            raise ValueError(f"operator.points is {points!r} but those of {self.problem!r} are {', '.join(axes)}")
        mesh = getattr(self.operator, "mesh", finest)
        if drawn and points == "strided" and mesh < finest:  # corrections would leave the range of the coefficient
            raise ValueError(f"operator.mesh is {mesh} but grids of {self.problem!r} have up to {finest} points a side")
        return self

    @model_validator(mode="after")
    def refuse_impossible_losses(self) -> Recipe:
        """Refuse a loss that is not defined for the problem's axes, or needs gradients that there are not."""
        problem, fit = self.problem_schema, self.fit
        if len(problem.axes) > LOSSES[fit.loss].axes or (fit.gradients and self.problem_file is not None):
            raise ValueError(f"the {fit.loss} loss is not for data with the axes {problem.axis_names}")
        if fit.gradients and fit.symmetries:
            raise ValueError("symmetries move fields, not the gradients that the weighted loss needs: use one or none")
        if fit.gradients and isinstance(problem, Description) and problem.output_grid is not None:
            raise ValueError(f"outputs of {problem.name} have no gradient on its output grid: set fit.gamma = 0")
        return self

    @model_validator(mode="after")
    def refuse_idle_settings(self) -> Recipe:
        """Refuse settings that nothing would follow: those of rollouts, and noise of a user's steady fields."""
        fit, file = self.fit, self.problem_file
        if file is not None and file.time is not None:
            return self
        if fit.unroll != (1,) or not fit.through:
            raise ValueError("fit.unroll and fit.through: expected them of trajectories alone")
        if any(fit.noise) and file is not None:
            raise ValueError(
                "fit.noise: expected it of trajectories and built-in problems alone; add noise to the inputs in the "
                "data files"
            )
        return self


class ClosedFormRecipe(BaseRecipe):
    """An operator that nothing is trained for: it is measured, exported and served as the others."""

    kind: Literal["closed-form"] = "closed-form"
    preset: Literal["exact"] = "exact"
    problem: str
    data: MeasuredSamples
    operator: OperatorConfig


class AddedRecipe(BaseRecipe):
    """A recipe of a kind that an entry point adds: `kind` is the entry point's name."""

    seed: int = 1127802
    data: Any
    fit: Any


@dataclass(frozen=True)
class Kind:
    """Models that label sequences in a way of their own, as an entry point of the group `petrov.kinds` adds them."""

    recipe: type[AddedRecipe]  # the class of their recipes
    # Return the network of a recipe's `operator` for a problem, with fresh weights.
    build: Callable[[Any, SequenceDescription], nn.Module]
    # Return the `training.fit.workload.Workload` of a recipe, a folder of samples and `progress`.
    workload: Callable[..., Any]


#: The classes of recipes by kind; `own` was that of a user's data in earlier releases.
KINDS: dict[str, type[BaseRecipe]] = {"fields": Recipe, "own": Recipe, "closed-form": ClosedFormRecipe}


def added_kind(name: str) -> Kind:
    """Return the kind of recipes that an installed package adds under a name.

    Raises:
        UnknownNameError: There is none.
        TypeError: The entry point names something else.
    """
    found = {entry.name: entry for entry in entry_points(group="petrov.kinds")}
    kind = lookup(found, name, "kind of recipe").load()
    if not isinstance(kind, Kind):
        raise TypeError(f"entry point {name!r} of petrov.kinds: expected a Kind but found {type(kind).__name__}")
    return kind


def from_document(document: Any) -> BaseRecipe:
    """Return the recipe that a document describes, one without a `kind`, as earlier releases wrote it, included.

    Raises:
        UnknownNameError: No package adds the kind.
        ValueError: It is no table, or keys or values are wrong; the message names them.
    """
    if isinstance(document, BaseRecipe):
        return document
    if not isinstance(document, Mapping):
        raise ValueError(f"expected a table but found {type(document).__name__}")  # noqa: TRY004 -- for pydantic
    kind = str(document.get("kind", "fields" if "fit" in document else "closed-form"))
    expected = KINDS[kind] if kind in KINDS else added_kind(kind).recipe
    try:
        return expected.model_validate(document)
    except ValidationError as error:
        raise PartError(error) from error


#: A recipe of any kind, as a field of a pydantic model.
AnyRecipe = Annotated[SerializeAsAny[BaseRecipe], BeforeValidator(from_document)]


def changed(recipe: R, overrides: Iterable[str]) -> R:
    """Apply changes `a.b=c` to a recipe.

    Raises:
        RecipeError: A key or a value does not fit.
    """
    document = recipe.model_dump(mode="json")
    for override in overrides:
        put(document, *parse(override))
    return validated(type(recipe), document, recipe.name, RecipeError)
