"""Document matching by bytes: whether two texts belong together."""

from __future__ import annotations

from training.sequences.corpora.citations import Citations
from training.sequences.corpora.speeches import Speeches
from training.sequences.sequence_description import BYTES, LengthLimits, SequenceDescription
from training.sequences.sequence_problem import SequenceProblem

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
