"""Text classification by bytes: whether a film review is favourable."""

from __future__ import annotations

from research.sequences.corpora.reviews import Imdb, MovieReviews
from research.sequences.sequence_problem import SequenceProblem
from training.problems.sequence_description import BYTES, LengthLimits, SequenceDescription

DESCRIPTION = SequenceDescription(
    name="text",
    title="Text classification by bytes: is a film review favourable?",
    task="tell from the bytes of a film review whether its author liked the film",
    vocabulary=BYTES,
    pattern=None,
    labels=("negative", "positive"),
    length=LengthLimits(minimum=1, maximum=4000, declared=(1000, 2000, 4000)),
    distribution="film reviews in English",
)

PROBLEM = SequenceProblem(DESCRIPTION, corpora=(Imdb, MovieReviews))
