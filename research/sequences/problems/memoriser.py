"""Memoriser: labels of tokens that one layer of rank-1 attention has learned by heart."""

from __future__ import annotations

from string import ascii_lowercase

from research.sequences.corpora.letters import LetterSets
from research.sequences.corpora.named_entities import UnerEnglish, Wnut17
from research.sequences.sequence_problem import SequenceProblem
from training.problems.sequence_description import PADDING, LengthLimits, SequenceDescription

DESCRIPTION = SequenceDescription(
    name="memoriser",
    title="Memoriser: labels learned by heart by one layer of rank-1 attention",
    task="tell the label of every word of one of the sequences that were learned by heart; for others it means nothing",
    vocabulary=(PADDING, *ascii_lowercase),
    pattern=r"[a-z]",
    labels=("red", "green", "blue", "yellow"),
    answer="token",
    length=LengthLimits(minimum=1, maximum=128, declared=(8, 32, 128)),
    distribution="random sets of letters, and a random label for every letter of each",
)

PROBLEM = SequenceProblem(DESCRIPTION, corpora=(LetterSets, Wnut17, UnerEnglish))
