"""Names, types, axes and limits of a model, derived from its problem; everything else is derived from a signature.

The axes of the ONNX graph, Triton's config and the card's inputs, outputs, grid and vocabulary are read off a
`Signature`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Self

from pydantic import BaseModel, ConfigDict, field_validator

from export.layout import FRAME
from training.problems.description import Frames
from training.problems.sequence_description import SequenceDescription

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import nn

    from training.checkpoint import Checkpoint
    from training.problems.description import Description, Parameter, Quantity

#: Fields in one Triton batch. Beyond it a processor gains nothing, and 64 fields of 421 x 421 are 45 MB each way.
BATCH = 64
#: Sequences in one. Attention with softmax may hold all pairs of tokens: 256 MB per head for 16 sequences of 2000.
SEQUENCES = 16

Quality = Literal["error_bound", "correction", "misfit", "error_estimate", "novelty"]
#: What a graph may report about its outputs, in the order in which it returns them behind the declared outputs.
QUALITY: dict[Quality, str] = {
    "error_bound": "guaranteed relative energy-norm distance to the discrete solution on the given grid",
    "correction": "guaranteed relative energy-norm distance to the discrete solution without the network's corrections",
    "misfit": "relative L2 distance between the input and the forward solution of the output",
    "error_estimate": "calibrated relative L2 error: at most 10 % of inputs of the training distribution exceed it",
    "novelty": "share of calibration inputs that are at least as unusual as the input",
}


def quality_of(network: nn.Module) -> tuple[Quality, ...]:
    """Return the names of the quality outputs of a network; networks of sequences have none."""
    return getattr(network, "quality", ())


class TensorSpec(BaseModel):
    """One tensor on the wire.

    Attributes:
        name: Its name.
        dtype: Triton's name of its type.
        axes: The batch, the components of a vector field (`component`), and the grid's axes.
        shape: Points per axis, None where any number is accepted.
        meaning: The quantity in words.
        units: Its units.
        positive: Whether every value is above zero.
        components: Names of the components of a vector field.
        default: The value everywhere of an input that a request leaves out; None where it must be sent.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    dtype: str
    axes: tuple[str, ...]
    shape: tuple[int | None, ...]
    components: tuple[str, ...] = ()
    meaning: str
    units: str
    positive: bool
    default: float | None = None

    @classmethod
    def of(
        cls,
        quantity: Quantity,
        axes: tuple[str, ...],
        points: tuple[int, ...] | None = None,
        time: Mapping[str, int | None] | None = None,
    ) -> Self:
        """Describe a physical quantity on a grid.

        Args:
            quantity: The quantity. The components of a vector field come before the grid's axes.
            axes: Names of the grid's axes.
            points: Points per axis; None where any grid is accepted.
            time: The axis of a trajectory behind the batch, by its name, with its points; none by default.
        """
        vector, time = ("component",) if quantity.components else (), time or {}
        return cls(
            name=quantity.name,
            dtype="FP32",
            axes=("batch", *time, *vector, *axes),
            shape=(
                None,
                *time.values(),
                *(len(quantity.components) for _ in vector),
                *(points or (None,) * len(axes)),
            ),
            components=quantity.components,
            meaning=quantity.meaning,
            units=quantity.units,
            positive=quantity.positive,
            default=quantity.default,
        )

    @classmethod
    def quality(cls, name: Quality) -> Self:
        """Describe a quality output: one number per sample, on the wire FP32 `[batch, 1]`."""
        return cls(
            name=name,
            dtype="FP32",
            axes=("batch", "value"),
            shape=(None, 1),
            meaning=QUALITY[name],
            units="1",
            positive=False,
        )

    @classmethod
    def frame(cls) -> Self:
        """Describe the argument whose shape `[batch, frame]` says how many frames are wanted; its values are unused."""
        return cls(
            name=FRAME,
            dtype="INT32",
            axes=("batch", FRAME),
            shape=(None, None),
            meaning="as many frames as it has columns",
            units="1",
            positive=False,
        )

    @classmethod
    def tokens(cls, name: str) -> Self:
        """Describe a sequence's tokens by number; all sequences of a request are padded to one length."""
        return cls(
            name=name,
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


class ParameterSpec(BaseModel):
    """A number per sample: on the wire FP32 `[batch]`. It may be left out where it has a default."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    dtype: str = "FP32"
    axes: tuple[str, ...] = ("batch",)
    shape: tuple[int | None, ...] = (None,)
    meaning: str
    units: str
    default: float | None
    minimum: float | None
    maximum: float | None

    @classmethod
    def of(cls, parameter: Parameter) -> Self:
        """Describe a parameter of a problem."""
        return cls(**parameter.model_dump())


class GridSpec(BaseModel):
    """The accepted grids of the inputs: points per axis, and where they lie. A sequence's points are tokens.

    `lengths` and `boundaries` describe the axes of fields, in the order of `axes`; a sequence has none.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    axes: tuple[str, ...]
    minimum: int
    maximum: int
    declared: tuple[int, ...]
    unequal: tuple[tuple[int, ...], ...] = ()
    points: str
    lengths: tuple[float, ...] = ()
    boundaries: tuple[str, ...] = ()

    @classmethod
    def of(cls, problem: Description) -> Self:
        """Describe a problem's grids."""
        limits = problem.grid
        return cls(
            axes=problem.axis_names,
            minimum=limits.minimum,
            maximum=limits.maximum,
            declared=limits.declared,
            unequal=limits.unequal,
            points=problem.points,
            lengths=tuple(axis.length for axis in problem.axes),
            boundaries=tuple(axis.boundary for axis in problem.axes),
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
    """Inputs, parameters, outputs and limits of a model.

    Attributes:
        inputs: Fields, or the tokens of a sequence.
        parameters: Numbers per sample, which follow the inputs among the graph's arguments.
        outputs: Fields, or the scores of labels.
        quality: Quality outputs, `[batch, 1]` each, which follow the outputs among the graph's results.
        grid: The accepted grids.
        batch: Samples in one Triton batch.
        vocabulary: How a text becomes tokens, for models of sequences.
        frames: The time axis, for models of trajectories; their last argument counts the frames.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    inputs: tuple[TensorSpec, ...]
    parameters: tuple[ParameterSpec, ...] = ()
    outputs: tuple[TensorSpec, ...]
    quality: tuple[Quality, ...] = ()
    grid: GridSpec
    batch: int = BATCH
    vocabulary: VocabularySpec | None = None
    frames: Frames | None = None

    @field_validator("quality")
    @classmethod
    def _check_order(cls, quality: tuple[Quality, ...]) -> tuple[Quality, ...]:
        """Require each quality output once, in the order of `QUALITY`."""
        if list(quality) != [name for name in QUALITY if name in quality]:
            raise ValueError(f"expected quality outputs in the order {', '.join(QUALITY)} but got {', '.join(quality)}")
        return quality

    @classmethod
    def of(cls, problem: Description | SequenceDescription, quality: tuple[Quality, ...] = ()) -> Self:
        """Derive the signature of the models of a problem.

        Args:
            problem: The problem.
            quality: The quality outputs of the model; see `training.operators.Operator.quality`.
        """
        if isinstance(problem, SequenceDescription):
            return cls.of_sequences(problem)
        axes, frames = problem.axis_names, problem.frames
        several = frames is not None and frames.history > 1
        history = {name: {"history": frames.history} for name in frames.states} if frames and several else {}
        following = {FRAME: None} if frames else {}
        return cls(
            inputs=tuple(TensorSpec.of(quantity, axes, time=history.get(quantity.name)) for quantity in problem.inputs),
            parameters=tuple(ParameterSpec.of(parameter) for parameter in problem.parameters),
            outputs=tuple(
                TensorSpec.of(quantity, axes, problem.output_grid, following) for quantity in problem.outputs
            ),
            quality=quality,
            grid=GridSpec.of(problem),
            frames=frames,
        )

    @classmethod
    def of_checkpoint(cls, checkpoint: Checkpoint) -> Self:
        """Derive the signature of a trained model: that of its problem, with the quality outputs of its network."""
        return cls.of(checkpoint.description, quality_of(checkpoint.deployed))

    @classmethod
    def of_sequences(cls, problem: SequenceDescription) -> Self:
        """Derive the signature of a model of sequences, whose grid is the one axis of its tokens."""
        return cls(
            inputs=tuple(map(TensorSpec.tokens, problem.inputs)),
            outputs=(TensorSpec.logits(problem),),
            grid=GridSpec(axes=("token",), points="words in the order of the text", **problem.length.model_dump()),
            batch=SEQUENCES,
            vocabulary=VocabularySpec(
                words=problem.vocabulary, pattern=problem.pattern, labels=problem.labels, answer=problem.answer
            ),
        )

    @property
    def arguments(self) -> tuple[TensorSpec | ParameterSpec, ...]:
        """The tensors that a request sends, in the order of the graph's arguments."""
        return (*self.inputs, *self.parameters, *((TensorSpec.frame(),) if self.frames else ()))

    @property
    def argument_names(self) -> tuple[str, ...]:
        """The names of the arguments."""
        return tuple(tensor.name for tensor in self.arguments)

    @property
    def results(self) -> tuple[TensorSpec, ...]:
        """All tensors that the graph returns, in its order: the outputs, then the quality outputs."""
        return (*self.outputs, *(TensorSpec.quality(name) for name in self.quality))

    @property
    def result_names(self) -> tuple[str, ...]:
        """The names of the results."""
        return tuple(tensor.name for tensor in self.results)
