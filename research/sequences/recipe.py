"""Recipes of sequence models, and the samples that they name: the published corpus where there is one, or its stand-in.

They join the other recipes by the entry point `sequences` of the group `petrov.kinds`.
"""

from __future__ import annotations

import csv
import zlib
from pathlib import Path
from tarfile import TarError
from typing import Annotated, Any, Literal
from zipfile import BadZipFile

import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator
from torch import nn

from research.sequences.corpus import SEQUENCES, Corpus, CorpusError, SequenceData, Splits
from research.sequences.networks import NetworkConfig, build
from research.sequences.schedule import SCHEDULES
from schema.parts import Frozen
from schema.problem import SequenceDescription
from training.recipe import AddedRecipe, Kind


class SequenceFit(Frozen):
    """How to train: AdamW on the cross-entropy with gradient clipping.

    The rate rises to `learning_rate` over `warmup` batches; then it falls to 0 by a cosine, or as the reciprocal square
    root of the number of batches, as published.
    """

    epochs: PositiveInt
    steps: PositiveInt  # batches of an epoch
    batch: PositiveInt
    learning_rate: PositiveFloat
    schedule: Literal["cosine", "reciprocal-sqrt"] = "cosine"
    warmup: PositiveInt = 100
    weight_decay: NonNegativeFloat = 0.01
    beta2: Annotated[float, Field(gt=0, lt=1)] = 0.98
    clip: PositiveFloat = 1.0
    orthogonality: NonNegativeFloat = 1e-2  # weight of ||W^T W - I||^2 in the loss, for orthogonal kernels
    keep: Literal["last", "best"] = "last"  # the last epoch's weights, or those of the best on the validation set

    def build_optimiser(self, network: nn.Module, steps: int) -> tuple[torch.optim.Optimizer, Any]:
        """Return AdamW, and its schedule over a run of some steps."""
        optimiser = torch.optim.AdamW(
            network.parameters(), lr=self.learning_rate, betas=(0.9, self.beta2), weight_decay=self.weight_decay
        )
        share = SCHEDULES[self.schedule](self.warmup, steps)
        return optimiser, torch.optim.lr_scheduler.LambdaLR(optimiser, share)


class SequenceRecipe(AddedRecipe):
    """Everything that decides a training run on sequences; saved inside the checkpoint as it was used."""

    kind: Literal["sequences"] = "sequences"
    problem: str
    seed: int = 1127802
    data: SequenceData
    operator: NetworkConfig
    fit: SequenceFit

    @model_validator(mode="after")
    def expect_fitting_network(self) -> SequenceRecipe:
        """Require a known problem, and a network with its inputs and enough length."""
        problem = SEQUENCES[self.problem].description
        if len(problem.inputs) != self.operator.inputs:
            raise ValueError(
                f"expected a network for {problem.inputs} of {problem.name} but got a {self.operator.kind}"
            )
        if self.data.length[1] > (most := min(self.operator.length, problem.length.maximum)):
            raise ValueError(f"expected data.length up to {most} tokens but got {self.data.length[1]}")
        return self


#: What a missing or damaged file of a corpus raises.
DAMAGE = (
    FileNotFoundError,
    IsADirectoryError,
    PermissionError,
    UnicodeError,
    EOFError,
    BadZipFile,
    TarError,
    csv.Error,
    zlib.error,
)


def choose(recipe: SequenceRecipe, folder: Path, *, progress: bool = True) -> Corpus:
    """Return the corpus that a recipe names, else the first that is there.

    Raises:
        CorpusError: There is none; the message says what is expected where.
    """
    problem, seed = SEQUENCES[recipe.problem], recipe.seed if recipe.data.seed is None else recipe.data.seed
    made = (kind(problem.description, recipe.data, seed, folder, progress=progress) for kind in problem.corpora)
    known = {corpus.name: corpus for corpus in made}
    if (name := recipe.data.corpus) is not None:
        if name not in known:
            raise CorpusError(f"expected data.corpus to be one of {', '.join(known)} but got {name!r}")
        return known[name]
    if found := next((corpus for corpus in known.values() if corpus.there), None):
        return found
    wanted = "; or ".join(corpus.wanted for corpus in known.values())
    raise CorpusError(f"no corpus for {recipe.problem} in {folder} or where DATA_PATH points: expected {wanted}")


def load(recipe: SequenceRecipe, folder: Path, *, progress: bool = True) -> tuple[SequenceDescription, Splits]:
    """Return the problem of a recipe, as its corpus describes it, and the samples.

    Raises:
        CorpusError: There is no corpus, it is too small, or a file of it is missing or damaged.
    """
    corpus = choose(recipe, folder, progress=progress)
    try:
        return corpus.narrowed(), corpus.read()
    except DAMAGE as error:
        raise CorpusError(f"expected the {corpus.name} corpus, {corpus.wanted}, but: {error}") from error


def workload(recipe: SequenceRecipe, data: Path, *, progress: bool = True) -> Any:
    """Return what trains a recipe; an export of its checkpoint imports no training."""
    from research.sequences.training import SequenceWorkload  # noqa: PLC0415 -- see above

    return SequenceWorkload(recipe, data, progress=progress)


KIND = Kind(SequenceRecipe, build, workload)
