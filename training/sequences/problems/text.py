"""Text classification by bytes: whether a film review is favourable."""

from __future__ import annotations

from training.sequences.corpora.reviews import Imdb, MovieReviews
from training.sequences.sequence_description import BYTES, LengthLimits, SequenceDescription
from training.sequences.sequence_problem import SequenceProblem

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
