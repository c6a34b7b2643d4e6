"""How recipes of sequences join the others: the entry point `sequences` of the group `petrov.kinds`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from research.sequences.networks.build import build
from research.sequences.sequence_recipe import SequenceRecipe
from training.recipes.kinds import Kind

if TYPE_CHECKING:
    from research.sequences.training import SequenceWorkload


def workload(recipe: SequenceRecipe, data: Path, *, progress: bool = True) -> SequenceWorkload:
    """Return what trains a recipe; an export of its checkpoint imports no training."""
    from research.sequences.training import SequenceWorkload  # noqa: PLC0415 -- see above

    return SequenceWorkload(recipe, data, progress=progress)


SEQUENCES = Kind(SequenceRecipe, build, workload)
