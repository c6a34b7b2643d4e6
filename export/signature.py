"""Names, types, axes and limits of a model: a view of its problem, from which everything else is derived.

The axes of the ONNX graph, Triton's config and the card's inputs, outputs, grid and vocabulary are read off a
`Signature`. A product of a model's Jacobian has the signature of the model with more tensors, whose names have a point,
which no tensor of a model has: `cotangents.solution`, `gradients.coefficient`, `tangents.coefficient`. They are the
names in Triton, over the Open Inference Protocol and in safetensors files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from pydantic import Field, field_validator

from export.layout import COORDINATES, FRAME, GRID
from schema.problem import Frames, Frozen, GridLimits, Parameter, Quantity, SequenceDescription

if TYPE_CHECKING:
    from torch import nn

    from schema.problem import Description
    from training.checkpoint import Checkpoint

#: Fields in one Triton batch. Beyond it a processor gains nothing, and 64 fields of 421 x 421 are 45 MB each way.
BATCH = 64
#: Sequences in one. Attention with softmax may hold all pairs of tokens: 256 MB per head for 16 sequences of 2000.
SEQUENCES = 16
#: Most frames of a rollout's product, whose states are kept or whose tangents are carried.
PRODUCT_FRAMES = 16

Kind = Literal["vjp", "jvp"]
#: The products: vector-Jacobian and Jacobian-vector.
KINDS: tuple[Kind, ...] = ("vjp", "jvp")

#: One of `QUALITY`, or `error_estimate.NAME` of one of several outputs that is a number per sample.
Quality = str
#: What a graph may report about its outputs, in the order in which it returns them behind the declared outputs.
QUALITY: dict[str, str] = {
    "error_bound": "guaranteed relative energy-norm distance to the discrete solution on the given grid",
    "solve_bound": "guaranteed relative energy-norm distance to the solution of the model's own, corrected equation",
    "misfit": "relative L2 distance between the input and the forward solution of the output",
    "error_estimate": "calibrated relative L2 error: at most 10 % of inputs of the training distribution exceed it",
    "novelty": "share of calibration inputs that are at least as unusual as the input",
}

INTERVAL = "half-width, in units of {}, of an interval around it that holds the truth of 90 % of inputs"

#: Limits of quality outputs in a card, and the attributes of a network that set them.
LIMITS = {"solve_bound": "solve_limit", "novelty": "novelty_limit"}


def quality_of(network: nn.Module) -> tuple[Quality, ...]:
    """Return the names of the quality outputs of a network; networks of sequences have none."""
    return getattr(network, "quality", ())


class TensorSpec(Quantity):
    """One tensor on the wire: a quantity with its type and its axes."""

    name: str  # those of products have a point
    dtype: str = "FP32"  # Triton's name of its type
    # The batch, the components of a vector field (`component`), and the grid's axes; on points the components are last.
    axes: tuple[str, ...]
    shape: tuple[int | None, ...]  # points per axis, None where any number is accepted

    @classmethod
    def of(
        cls,
        quantity: Quantity,
        axes: tuple[str, ...],
        points: tuple[int, ...] | None = None,
        time: dict[str, int | None] | None = None,
    ) -> Self:
        """Describe a quantity on any grid, or on that of `points`; `time` is the axis of a trajectory and its size."""
        vector = {"component": len(quantity.components)} if quantity.components else {}
        axes = () if quantity.scalar else axes
        grid = dict(zip(axes, points or (None,) * len(axes), strict=True))
        order = (grid, vector) if quantity.component_axis == "last" else (vector, grid)
        sizes = {"batch": None, **(time or {}), **order[0], **order[1]}
        return cls(
            axes=tuple(sizes),
            shape=tuple(sizes.values()),
            **quantity.model_dump(exclude={"component_axis"}),
        )


class ParameterSpec(Parameter):
    """A number per sample, or one per component or frame: on the wire FP32 `[batch]`, or `[batch, component]`.

    That of frames is `[batch, frame]`.

    It may be left out where it has a default.
    """

    name: str  # as that of a tensor
    dtype: str = "FP32"
    axes: tuple[str, ...] = ("batch",)
    shape: tuple[int | None, ...] = (None,)

    @classmethod
    def of(cls, parameter: Parameter) -> Self:
        """Describe a parameter of a problem."""
        last: dict[str, int | None] = {"component": len(parameter.components)} if parameter.components else {}
        sizes = {"batch": None, **({FRAME: None} if parameter.per_frame else last)}
        return cls(axes=tuple(sizes), shape=tuple(sizes.values()), **parameter.model_dump())


Spec = TypeVar("Spec", TensorSpec, ParameterSpec)


class GridSpec(GridLimits):
    """The accepted grids of the inputs: points per axis, and where they lie. A sequence's points are tokens.

    `lengths` and `boundaries` describe the axes of fields, in the order of `axes`; a sequence has none.
    """

    axes: tuple[str, ...]
    points: str
    lengths: tuple[float, ...] = ()
    boundaries: tuple[str, ...] = ()
    # What was guessed of the axes of a user's data, such as `row.length`.
    guessed: tuple[str, ...] = Field(default=(), exclude_if=lambda guessed: not guessed)


class VocabularySpec(Frozen):
    """How a text becomes tokens, and scores a label.

    `pattern` matches the words of a text, with white space between them; where it is none, the tokens are the text's
    bytes in UTF-8, byte b as token b + 1.
    """

    words: tuple[str, ...]
    padding: int = 0
    pattern: str | None
    labels: tuple[str, ...]
    answer: Literal["sequence", "token"]


class Signature(Frozen):
    """Inputs, parameters, outputs and limits of a model."""

    inputs: tuple[TensorSpec, ...]  # fields, or the tokens of a sequence
    # Numbers per sample, which follow the inputs among the graph's arguments.
    parameters: tuple[ParameterSpec, ...] = ()
    outputs: tuple[TensorSpec, ...]  # fields, or the scores of labels
    # Quality outputs, `[batch, 1]` each, which follow the outputs among the graph's results; `[batch, frame]` where
    # inputs have a value per frame.
    quality: tuple[Quality, ...] = ()
    solve_bound: float | None = None  # the largest number of that name of an output that is sent as it is
    novelty: float | None = None  # the least number of that name of an input whose output is sent as it is
    grid: GridSpec  # the accepted grids
    batch: int = BATCH  # samples in one Triton batch
    vocabulary: VocabularySpec | None = None  # how a text becomes tokens, for models of sequences
    frames: Frames | None = None  # the time axis, for models of trajectories; their last argument counts the frames
    # The input that is 1 inside the domain and 0 outside, where other inputs are not read and outputs are 0.
    mask: str | None = None

    @field_validator("quality")
    @classmethod
    def _check_order(cls, quality: tuple[Quality, ...]) -> tuple[Quality, ...]:
        """Require each quality output once, in the order of `QUALITY`."""
        order = [name.partition(".")[0] for name in quality]
        if order != [name for name in QUALITY for _ in range(order.count(name))] or len({*quality}) < len(quality):
            raise ValueError(f"expected quality outputs in the order {', '.join(QUALITY)} but got {', '.join(quality)}")
        return quality

    @classmethod
    def of(cls, problem: Description | SequenceDescription, quality: tuple[Quality, ...] = ()) -> Self:
        """Derive the signature of the models of a problem, with their quality outputs; see `Operator.quality`."""
        if isinstance(problem, SequenceDescription):
            return cls._of_sequences(problem)
        axes, frames = problem.axis_names, problem.frames
        history: dict[str, int | None] = {"history": frames.history} if frames and frames.history > 1 else {}
        states = frames.states if frames else ()
        following: dict[str, int | None] = {FRAME: None} if frames else {}
        times = {one.name: following for one in problem.inputs if one.per_frame} | dict.fromkeys(states, history)
        return cls(
            inputs=tuple(TensorSpec.of(quantity, axes, time=times.get(quantity.name)) for quantity in problem.inputs),
            parameters=tuple(map(ParameterSpec.of, problem.parameters)),
            outputs=tuple(
                TensorSpec.of(quantity, axes, problem.output_grid, following) for quantity in problem.outputs
            ),
            quality=quality,
            grid=GridSpec(
                axes=axes,
                points=problem.points,
                lengths=tuple(axis.length for axis in problem.axes),
                boundaries=tuple(axis.boundary for axis in problem.axes),
                guessed=tuple(f"{axis.name}.{entry}" for axis in problem.axes for entry in axis.guessed),
                **problem.grid.model_dump(),
            ),
            frames=frames,
            mask=problem.mask,
        )

    @classmethod
    def of_checkpoint(cls, checkpoint: Checkpoint) -> Self:
        """Derive the signature of a trained model: that of its problem, with the quality outputs of its network."""
        return cls.of(checkpoint.description).reporting(checkpoint.deployed)

    def reporting(self, network: nn.Module) -> Self:
        """Return the signature with the quality outputs of a network."""
        limits = {name: getattr(network, limit, None) for name, limit in LIMITS.items()}
        return self.model_copy(update={"quality": quality_of(network), **limits})

    @property
    def scattered(self) -> bool:
        """Whether samples have points of their own: the first input has their coordinates, a parameter counts them."""
        return bool(self.inputs) and self.inputs[0].name == COORDINATES

    @property
    def asked(self) -> bool:
        """Whether a last argument says the grid of the outputs by its shape, since no input is on it."""
        own = [each for each in self.inputs if "." not in each.name]  # without cotangents
        return not any({*self.grid.axes} & {*each.axes} for each in own)

    def output_of(self, quality: str) -> TensorSpec | None:
        """Return the output that is a number, whose interval a quality output is; None of another quality output."""
        base, _, name = quality.partition(".")
        if base != "error_estimate":
            return None
        lone = self.outputs[0] if len(self.outputs) == 1 and self.outputs[0].scalar else None
        return next((one for one in self.outputs if one.name == name), None) if name else lone

    @property
    def limits(self) -> dict[str, float]:
        """What a card says of its limits."""
        known = {name: getattr(self, name) for name in LIMITS}
        return {"batch": self.batch, **{name: limit for name, limit in known.items() if limit is not None}}

    @classmethod
    def _of_sequences(cls, problem: SequenceDescription) -> Self:
        """Derive the signature of a model of sequences, whose grid is the one axis of its tokens.

        All sequences of a request are padded to one length. The scores are those of a sequence or of each token.
        """
        by_token: dict[str, int | None] = {"token": None} if problem.answer == "token" else {}
        scores = {"batch": None, **by_token, "label": len(problem.labels)}
        return cls(
            inputs=tuple(
                TensorSpec(
                    name=name,
                    dtype="INT32",
                    axes=("batch", "token"),
                    shape=(None, None),
                    meaning="words by number, padded with 0",
                )
                for name in problem.inputs
            ),
            outputs=(
                TensorSpec(
                    name=problem.output,
                    axes=tuple(scores),
                    shape=tuple(scores.values()),
                    meaning="unnormalised log-probabilities",
                ),
            ),
            grid=GridSpec(axes=("token",), points="words in the order of the text", **problem.length.model_dump()),
            batch=SEQUENCES,
            vocabulary=VocabularySpec(
                words=problem.vocabulary, pattern=problem.pattern, labels=problem.labels, answer=problem.answer
            ),
        )

    @property
    def arguments(self) -> tuple[TensorSpec | ParameterSpec, ...]:
        """The tensors that a request sends, in the order of the graph's arguments.

        The shape `[batch, frame]` of the last one of a trajectory model says how many frames are wanted.
        """
        counted = TensorSpec(
            name=FRAME,
            dtype="INT32",
            axes=("batch", FRAME),
            shape=(None, None),
            meaning="as many frames as it has columns",
        )
        wanted = TensorSpec(
            name=GRID,
            dtype="INT32",
            axes=("batch", *self.grid.axes),
            shape=(None,) * (1 + len(self.grid.axes)),
            meaning="its shape is the grid of the outputs",
        )
        last = (counted,) if self.frames else (wanted,) if self.asked else ()
        return (*self.inputs, *self.parameters, *last)

    @property
    def argument_names(self) -> tuple[str, ...]:
        return tuple(tensor.name for tensor in self.arguments)

    @property
    def results(self) -> tuple[TensorSpec, ...]:
        """All tensors that the graph returns, in its order: the outputs, then the quality outputs `[batch, 1]`.

        Intervals of numbers are `[batch, component]`. Where inputs have a value per frame of a trajectory, so do all:
        `[batch, frame]`.
        """
        return (*self.outputs, *map(self._result, self.quality))

    def _result(self, quality: str) -> TensorSpec:
        """Describe a quality output."""
        output = self.output_of(quality)
        last: dict[str, int | None] = {FRAME: None} if self.forced else {"value": 1}
        if output is None:
            return _beside_samples(quality, QUALITY[quality], last)
        found = _beside_samples(quality, INTERVAL.format(output.name), _last(output))
        return found.model_copy(update={"units": output.units, "components": output.components})

    @property
    def forced(self) -> tuple[str, ...]:
        """The names of the arguments that have a value per frame of a trajectory."""
        arguments: tuple[TensorSpec | ParameterSpec, ...] = (*self.inputs, *self.parameters)
        return tuple(one.name for one in arguments if FRAME in one.axes)

    def step(self) -> Self:
        """Return the signature of one step of a rollout, which sees one frame of every argument; states alone follow.

        Its results are the next states, and no quality outputs.
        """
        arguments: dict[str, Any] = {
            "inputs": tuple(map(_of_one_frame, self.inputs)),
            "parameters": tuple(map(_of_one_frame, self.parameters)),
        }
        states = {spec.name: spec for spec in self.inputs}
        names = self.frames.states if self.frames else ()
        following = tuple(states[name].model_copy(update={"name": f"next_{name}"}) for name in names)
        return self.model_copy(update={**arguments, "outputs": following, "frames": None, "quality": ()})

    @property
    def result_names(self) -> tuple[str, ...]:
        return tuple(tensor.name for tensor in self.results)

    def product(self, kind: Kind) -> Self:
        """Return the signature of a product of the model's Jacobian.

        A vector-Jacobian product takes a cotangent per output, which is 0 where it is left out of several, and returns
        a gradient per input and parameter. A Jacobian-vector product takes a tangent per input and parameter, 0 where
        it is left out, and returns one per output. Quality outputs are not differentiated and not returned.
        """
        if kind == "vjp":
            default = 0.0 if len(self.outputs) > 1 else None
            cotangents = (_beside("cotangents", spec, default) for spec in self.outputs)
            fields = (_beside("gradients", spec) for spec in self.inputs)
            numbers = (
                _beside_samples(f"gradients.{one.name}", f"gradient of {one.name}", _last(one)).model_copy(
                    update={"components": one.components}
                )
                for one in self.parameters
            )
            more: dict[str, Any] = {
                "inputs": (*self.inputs, *cotangents),
                "outputs": (*self.outputs, *fields, *numbers),
            }
        else:
            directions = (
                ParameterSpec(
                    name=f"tangents.{one.name}",
                    meaning=f"tangent of {one.name}",
                    default=0.0,
                    components=one.components,
                    axes=one.axes,
                    shape=one.shape,
                )
                for one in self.parameters
            )
            more = {
                "inputs": (*self.inputs, *(_beside("tangents", spec, 0.0) for spec in self.inputs)),
                "parameters": (*self.parameters, *directions),
                "outputs": (*self.outputs, *(_beside("tangents", spec) for spec in self.outputs)),
            }
        if self.frames is not None:
            fewer = {name: min(PRODUCT_FRAMES, getattr(self.frames, name)) for name in ("trained", "maximum")}
            more["frames"] = self.frames.model_copy(update=fewer)
        return self.model_copy(update={"quality": (), **dict.fromkeys(LIMITS), **more})


def _beside(role: str, spec: TensorSpec, default: float | None = None) -> TensorSpec:
    """Describe a vector that has the shape of a tensor of the model."""
    meaning = f"{role.removesuffix('s')} of {spec.name}"
    update = {"name": f"{role}.{spec.name}", "meaning": meaning, "units": "1", "positive": False, "default": default}
    update["per_frame"] = None
    return spec.model_copy(update=update)


def _beside_samples(name: str, meaning: str, last: dict[str, int | None]) -> TensorSpec:
    """Describe a number per sample that a graph returns, or one per frame or component; `last` is its last axis."""
    return TensorSpec(name=name, axes=("batch", *last), shape=(None, *last.values()), meaning=meaning)


def _last(spec: TensorSpec | ParameterSpec) -> dict[str, int | None]:
    """Return the last axis of what is like numbers, of which there is one at least."""
    return dict(zip(spec.axes[1:], spec.shape[1:], strict=True)) or {"value": 1}


def _of_one_frame(spec: Spec) -> Spec:
    """Describe one frame of an argument that has a value for each of them; others stay as they are."""
    kept = [index for index, axis in enumerate(spec.axes) if axis != FRAME]
    axes, shape = (tuple(each[index] for index in kept) for each in (spec.axes, spec.shape))
    return spec.model_copy(update={"axes": axes, "shape": shape})
