"""Takes any recipe, does what its kind asks: samples for fields or for sequences, and a training run on them."""

from __future__ import annotations

from pathlib import Path

from training import data
from training.fit import fields
from training.recipes.recipe import AnyRecipe
from training.sequences import fit as sequences
from training.sequences.corpora import load as corpora
from training.sequences.recipe import SequenceRecipe


def prepare(recipe: AnyRecipe, folder: Path) -> Path:
    """Make, complete, find or fetch a recipe's samples, and give where they are.

    Raises:
        CorpusError: sequences cannot be had.
    """
    if isinstance(recipe, SequenceRecipe):
        return corpora.prepare(recipe, folder)
    return data.prepare(fields.request(recipe), folder)


def train(recipe: AnyRecipe, folder: Path, samples: Path, *, resume: bool = False, init: Path | None = None) -> Path:
    """Train a recipe and give its checkpoint's folder; see `training.fit.fields.fit`."""
    if isinstance(recipe, SequenceRecipe):
        return sequences.fit(recipe, folder, samples, resume=resume, init=init)
    return fields.fit(recipe, folder, samples, resume=resume, init=init)
