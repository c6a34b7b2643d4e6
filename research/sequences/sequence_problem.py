"""A sequence problem: its description and its corpora, one object with one file per problem."""

from __future__ import annotations

from dataclasses import dataclass

from research.sequences.corpora.corpus import Corpus
from training.problems.sequence_description import SequenceDescription
from training.registry import Registry


@dataclass(frozen=True)
class SequenceProblem:
    """A sequence problem.

    Attributes:
        description: The data part, which checkpoints and cards carry.
        corpora: Sources of its samples, in the order in which they are looked for.
    """

    description: SequenceDescription
    corpora: tuple[type[Corpus], ...]

    @property
    def name(self) -> str:
        """The name in recipes, checkpoints and cards."""
        return self.description.name


SEQUENCES = Registry(
    noun="sequence problem",
    kind=SequenceProblem,
    package="research.sequences.problems",
    attribute="PROBLEM",
    group="petrov.sequence_problems",
)
