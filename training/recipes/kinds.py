"""What all recipes say, and the kinds of recipes that other packages add by entry points of the group `petrov.kinds`.

A recipe of such a kind names it, as in `kind = "sequences"`, and only then is its package imported.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict
from torch import nn

from training.problems.sequence_description import SequenceDescription
from training.registry import lookup

FROZEN = ConfigDict(frozen=True, extra="forbid")


class BaseRecipe(BaseModel):
    """What every recipe says: a model's name and preset, a problem and a network."""

    model_config = FROZEN

    model: str
    preset: str
    problem: Any
    operator: Any
    formats: tuple[Literal["onnx", "torchscript"], ...] = ("onnx",)  # that the network is exported in

    @property
    def name(self) -> str:
        """The run's name, also of its folder under `runs/`."""
        return f"{self.model}-{self.preset}"


class AddedRecipe(BaseRecipe):
    """A recipe of a kind that an entry point adds: `kind` is the entry point's name."""

    kind: str
    seed: int = 1127802
    data: Any
    fit: Any


@dataclass(frozen=True)
class Kind:
    """Models that label sequences in a way of their own, as an entry point of the group `petrov.kinds` adds them.

    Attributes:
        recipe: The class of their recipes.
        build: Return the network of a recipe's `operator` for a problem, with fresh weights.
        workload: Return the `training.fit.workload.Workload` of a recipe, a folder of samples and `progress`.
    """

    recipe: type[AddedRecipe]
    build: Callable[[Any, SequenceDescription], nn.Module]
    workload: Callable[..., Any]


def kind_of(name: str) -> Kind:
    """Return the kind of recipes of that name.

    Raises:
        UnknownNameError: No package adds it.
        TypeError: The entry point names something else.
    """
    found = {entry.name: entry for entry in entry_points(group="petrov.kinds")}
    kind = lookup(found, name, "kind of recipe").load()
    if not isinstance(kind, Kind):
        raise TypeError(f"entry point {name!r} of petrov.kinds: expected a Kind but found {type(kind).__name__}")
    return kind


def folders() -> list[Path]:
    """Return the folders that are searched for recipes, MODEL/PRESET.toml in each: ours, and those of other packages.

    A package adds its own by an entry point of the group `petrov.recipes`, which names a package that holds the files.
    """
    added = sorted(entry_points(group="petrov.recipes"))
    return [Path(__file__).parent, *(Path(folder) for entry in added for folder in entry.load().__path__)]
