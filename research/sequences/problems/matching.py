"""Document matching by bytes: whether two texts belong together."""

from __future__ import annotations

from research.sequences.corpora.citations import Citations
from research.sequences.corpora.speeches import Speeches
from research.sequences.sequence_problem import SequenceProblem
from training.problems.sequence_description import BYTES, LengthLimits, SequenceDescription

DESCRIPTION = SequenceDescription(
    name="matching",
    title="Document matching by bytes: do two texts belong together?",
    task="tell from the bytes of two texts whether they belong together",
    inputs=("first", "second"),
    vocabulary=BYTES,
    pattern=None,
    labels=("unrelated", "related"),
    length=LengthLimits(minimum=1, maximum=4000, declared=(1000, 2000, 4000)),
    distribution="documents in English",
)

PROBLEM = SequenceProblem(DESCRIPTION, corpora=(Citations, Speeches))
