"""ListOps: the value of a nested expression over digits."""

from __future__ import annotations

from research.sequences.corpora.expressions import GeneratedExpressions, PublishedExpressions
from research.sequences.corpora.grammar import VOCABULARY
from research.sequences.sequence_problem import SequenceProblem
from training.problems.sequence_description import LengthLimits, SequenceDescription

DESCRIPTION = SequenceDescription(
    name="listops",
    title="ListOps: the value of a nested expression",
    task=(
        "evaluate lists of digits and lists: [MIN and [MAX give the least and the greatest, [MED the median rounded "
        "down, [SM the sum modulo 10; ] closes a list, as in [MAX 2 9 [MIN 4 7 ] 0 ] which is 9"
    ),
    vocabulary=VOCABULARY,
    pattern=r"\[(?:MIN|MAX|MED|SM)|\]|[0-9]",
    labels=(*"0123456789",),
    length=LengthLimits(minimum=1, maximum=2000, declared=(500, 1000, 2000)),
    distribution=(
        "random trees of depth up to 10 with 2 to 10 arguments a list, each a list with probability 1/4 (Long Range "
        "Arena's generator)"
    ),
)

PROBLEM = SequenceProblem(DESCRIPTION, corpora=(GeneratedExpressions, PublishedExpressions))
