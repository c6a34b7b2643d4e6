"""Takes a problem, gives names, types, axes and limits of its models: the one description all else derives from.

The axes of the ONNX graph, Triton's config and the card's inputs, outputs, grid and vocabulary are all read off a
`Signature`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Self

from pydantic import BaseModel, ConfigDict

from training.sequences.sequence_description import SequenceDescription

if TYPE_CHECKING:
    from training.problems.description import Description, Quantity

#: Fields in one Triton batch. Beyond it a processor gains nothing, and 64 fields of 421 x 421 are 45 MB each way.
BATCH = 64
#: Sequences in one. Attention with softmax may hold all pairs of tokens: 256 MB a head for 16 sequences of 2000.
SEQUENCES = 16


class SignatureError(ValueError):
    """A problem's models cannot be called as the service calls models: the message says why."""


class TensorSpec(BaseModel):
    """One tensor on the wire; `shape` gives the points per axis, none where any number will do."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    dtype: str
    axes: tuple[str, ...]
    shape: tuple[int | None, ...]
    meaning: str
    units: str
    positive: bool

    @classmethod
    def of(cls, quantity: Quantity, axes: tuple[str, ...], points: tuple[int, ...] | None = None) -> Self:
        """Describe a physical quantity sampled on the grid `axes`, on any or with `points` points per axis."""
        return cls(
            name=quantity.name,
            dtype="FP32",
            axes=("batch", *axes),
            shape=(None, *(points or (None,) * len(axes))),
            meaning=quantity.meaning,
            units=quantity.units,
            positive=quantity.positive,
        )

    @classmethod
    def tokens(cls, problem: SequenceDescription) -> Self:
        """Describe a sequence's tokens by number.

        Raises:
            SignatureError: the problem asks about more than one sequence.
        """
        if len(problem.inputs) != 1:
            raise SignatureError(f"expected a model of one sequence but {problem.name} takes {problem.inputs}")
        return cls(
            name=problem.inputs[0],
            dtype="INT32",
            axes=("batch", "token"),
            shape=(None, None),
            meaning="words by number, padded with 0",
            units="1",
            positive=False,
        )

    @classmethod
    def logits(cls, problem: SequenceDescription) -> Self:
        """Describe the scores of the labels, of a sequence or of each of its tokens."""
        by_token = problem.answer == "token"
        return cls(
            name=problem.output,
            dtype="FP32",
            axes=("batch", "token", "label") if by_token else ("batch", "label"),
            shape=(None, *((None,) if by_token else ()), len(problem.labels)),
            meaning="unnormalised log-probabilities",
            units="1",
            positive=False,
        )


class GridSpec(BaseModel):
    """Which grids of the question are accepted: points per axis, and where they lie. A sequence's points are tokens."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    axes: tuple[str, ...]
    minimum: int
    maximum: int
    declared: tuple[int, ...]
    points: str

    @classmethod
    def of(cls, problem: Description) -> Self:
        """Describe a problem's grids."""
        limits = problem.grid
        return cls(
            axes=problem.axis_names,
            minimum=limits.minimum,
            maximum=limits.maximum,
            declared=limits.declared,
            points=problem.points,
        )


class VocabularySpec(BaseModel):
    """How a text becomes tokens, and scores a label.

    `pattern` matches the words of a text, with white space between them; where it is none, the tokens are the text's
    bytes in UTF-8, byte b as token b + 1.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    words: tuple[str, ...]
    padding: int = 0
    pattern: str | None
    labels: tuple[str, ...]
    answer: Literal["sequence", "token"]


class Signature(BaseModel):
    """What goes in, what comes out, and within which limits."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    input: TensorSpec
    output: TensorSpec
    grid: GridSpec
    batch: int = BATCH
    vocabulary: VocabularySpec | None = None

    @classmethod
    def of(cls, problem: Description | SequenceDescription) -> Self:
        """Derive the signature of a model that answers `problem`.

        Raises:
            SignatureError: it asks about more than one sequence.
        """
        if isinstance(problem, SequenceDescription):
            return cls.of_sequences(problem)
        return cls(
            input=TensorSpec.of(problem.inputs[0], problem.axis_names),
            output=TensorSpec.of(problem.outputs[0], problem.axis_names, problem.output_grid),
            grid=GridSpec.of(problem),
        )

    @classmethod
    def of_sequences(cls, problem: SequenceDescription) -> Self:
        """Derive the signature of a model of sequences, whose grid is the one axis of its tokens."""
        return cls(
            input=TensorSpec.tokens(problem),
            output=TensorSpec.logits(problem),
            grid=GridSpec(axes=("token",), points="words in the order of the text", **problem.length.model_dump()),
            batch=SEQUENCES,
            vocabulary=VocabularySpec(
                words=problem.vocabulary, pattern=problem.pattern, labels=problem.labels, answer=problem.answer
            ),
        )

    @property
    def names(self) -> tuple[str, str]:
        """The tensors' names, which every version of a model must share."""
        return self.input.name, self.output.name
