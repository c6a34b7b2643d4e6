"""The samples of a recipe: from the published corpus where the user has it, else from its stand-in."""

from __future__ import annotations

from pathlib import Path

from research.sequences.corpora.corpus import Corpus, CorpusError, Splits
from research.sequences.sequence_problem import SEQUENCES
from research.sequences.sequence_recipe import SequenceRecipe
from training.problems.sequence_description import SequenceDescription


def choose(recipe: SequenceRecipe, folder: Path, *, progress: bool = True) -> Corpus:
    """Return the corpus that a recipe names, else the first that is there.

    Args:
        recipe: The recipe.
        folder: Where corpora are made, fetched or looked for.
        progress: Show a bar where that takes long.

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

    Args:
        recipe: The recipe.
        folder: Where corpora are made, fetched or looked for.
        progress: Show a bar where that takes long.

    Raises:
        CorpusError: There is no corpus, or it is too small.
    """
    corpus = choose(recipe, folder, progress=progress)
    return corpus.narrowed(), corpus.read()
