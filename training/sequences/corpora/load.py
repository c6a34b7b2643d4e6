"""Takes a recipe, gives its samples: from the published corpus where the user has it, else from its stand-in."""

from __future__ import annotations

from pathlib import Path

from training.sequences.corpora.citations import Citations
from training.sequences.corpora.corpus import Corpus, CorpusError, Splits
from training.sequences.corpora.expressions import GeneratedExpressions, PublishedExpressions
from training.sequences.corpora.letters import LetterSets
from training.sequences.corpora.named_entities import UnerEnglish, Wnut17
from training.sequences.corpora.reviews import Imdb, MovieReviews
from training.sequences.corpora.speeches import Speeches
from training.sequences.problem import SEQUENCES, LengthLimits, SequenceProblem
from training.sequences.recipe import SequenceRecipe

#: Each problem's corpora, in the order in which they are looked for; published expressions are asked for by name.
CORPORA: dict[str, tuple[type[Corpus], ...]] = {
    "listops": (GeneratedExpressions, PublishedExpressions),
    "text": (Imdb, MovieReviews),
    "matching": (Citations, Speeches),
    "memoriser": (LetterSets, Wnut17, UnerEnglish),
}


def choose(recipe: SequenceRecipe, folder: Path, *, progress: bool = True) -> Corpus:
    """Give the corpus that a recipe names, else the first that is there.

    Raises:
        CorpusError: there is none; the message says what is wanted where.
    """
    seed = recipe.seed if recipe.data.seed is None else recipe.data.seed
    known = {kind.name: kind(recipe.data, seed, folder, progress=progress) for kind in CORPORA[recipe.problem]}
    if (name := recipe.data.corpus) is not None:
        if name not in known:
            raise CorpusError(f"expected data.corpus to be one of {', '.join(known)} but got {name!r}")
        return known[name]
    if found := next((corpus for corpus in known.values() if corpus.there), None):
        return found
    wanted = "; or ".join(corpus.wanted for corpus in known.values())
    raise CorpusError(f"no corpus for {recipe.problem} in {folder} or where DATA_PATH points: expected {wanted}")


def prepare(recipe: SequenceRecipe, folder: Path) -> Path:
    """Give where a recipe's samples are, made or fetched first if need be.

    Raises:
        CorpusError: they cannot be.
    """
    return choose(recipe, folder).prepare()


def load(recipe: SequenceRecipe, folder: Path, *, progress: bool = True) -> tuple[SequenceProblem, Splits]:
    """Give a recipe's samples, and its problem in the words and limits of their corpus.

    Raises:
        CorpusError: there is no corpus, or it holds too little.
    """
    corpus = choose(recipe, folder, progress=progress)
    return narrowed(recipe, corpus), corpus.read()


WORD = r"\S+"  # matches the words of a corpus that brings its own


def narrowed(recipe: SequenceRecipe, corpus: Corpus) -> SequenceProblem:
    """Say which lengths a network takes, what its answers mean, and what it learns from."""
    problem, longest = SEQUENCES[recipe.problem], recipe.data.length[1]
    declared = tuple(length for length in problem.length.declared if length < longest)
    limits = LengthLimits(minimum=problem.length.minimum, maximum=longest, declared=(*declared, longest))
    own = corpus.vocabulary()
    spelling = {} if own is None else {"vocabulary": own, "pattern": WORD}
    words = {"labels": corpus.labels, "distribution": corpus.description()}
    return problem.model_copy(update={"length": limits, **words, **spelling})
