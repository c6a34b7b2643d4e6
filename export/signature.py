"""Names, types, axes and limits of a model: a view of its problem, from which everything else is derived.

The axes of the ONNX graph, Triton's config and the card's inputs, outputs, grid and vocabulary are read off a
`Signature`. A product of a model's Jacobian has the signature of the model with more tensors, whose names have a point,
which no tensor of a model has: `cotangents.solution`, `gradients.coefficient`, `tangents.coefficient`. They are the
names in Triton, over the Open Inference Protocol and in safetensors files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, TypeVar

from schema.card import (
    COMPONENT,
    FRAME,
    GRID,
    HISTORY,
    QUALITY,
    Interface,
    Kind,
    Limits,
    Parameter,
    Tensor,
    Vocabulary,
)
from schema.parts import FieldFacts, NumberFacts
from schema.problem import Grid, SequenceDescription

if TYPE_CHECKING:
    from torch import nn

    from schema.parts import Quantity
    from schema.problem import Description
    from training.checkpoint import Checkpoint

#: Fields in one Triton batch. Beyond it a processor gains nothing, and 64 fields of 421 x 421 are 45 MB each way.
BATCH = 64
#: Sequences in one. Attention with softmax may hold all pairs of tokens: 256 MB per head for 16 sequences of 2000.
SEQUENCES = 16
#: Most frames of a rollout's product, whose states are kept or whose tangents are carried.
PRODUCT_FRAMES = 16

INTERVAL = "half-width, in units of {}, of an interval around it that holds the truth of 90 % of inputs"

#: Limits of quality outputs in a card, and the attributes of a network that set them.
LIMITS = {"solve_bound": "solve_limit", "novelty": "novelty_limit"}


def quality_of(network: nn.Module) -> tuple[str, ...]:
    """Return the names of the quality outputs of a network; networks of sequences have none."""
    return getattr(network, "quality", ())


def tensor(
    quantity: Quantity,
    axes: tuple[str, ...],
    points: tuple[int, ...] | None = None,
    time: dict[str, int | None] | None = None,
) -> Tensor:
    """Describe a quantity on the wire, on any grid or that of `points`; `time` is a trajectory's axis and its size."""
    vector = {COMPONENT: len(quantity.components)} if quantity.components else {}
    axes = () if quantity.scalar else axes
    grid = dict(zip(axes, points or (None,) * len(axes), strict=True))
    order = (grid, vector) if quantity.component_axis == "last" else (vector, grid)
    sizes = {"batch": None, **(time or {}), **order[0], **order[1]}
    said = quantity.model_dump(include={*FieldFacts.model_fields})
    return Tensor(axes=tuple(sizes), shape=tuple(sizes.values()), **said)


def number(found: NumberFacts) -> Parameter:
    """Describe a parameter of a problem on the wire."""
    last: dict[str, int | None] = {COMPONENT: len(found.components)} if found.components else {}
    sizes = {"batch": None, **({FRAME: None} if found.per_frame else last)}
    said = found.model_dump(include={*NumberFacts.model_fields})
    return Parameter(axes=tuple(sizes), shape=tuple(sizes.values()), **said)


#: A tensor of either kind.
Spec = TypeVar("Spec", Tensor, Parameter)


class Signature(Interface):
    """Inputs, parameters, outputs and limits of a model: what its graph takes and returns, in this order."""

    limits: Limits = Limits(batch=BATCH)

    @classmethod
    def of(cls, problem: Description | SequenceDescription, quality: tuple[str, ...] = ()) -> Self:
        """Derive the signature of the models of a problem, with their quality outputs; see `Operator.quality`."""
        if isinstance(problem, SequenceDescription):
            return cls._of_sequences(problem)
        axes, frames = problem.axis_names, problem.frames
        history: dict[str, int | None] = {HISTORY: frames.history} if frames and frames.history > 1 else {}
        states = frames.states if frames else ()
        following: dict[str, int | None] = {FRAME: None} if frames else {}
        times = {one.name: following for one in problem.inputs if one.per_frame} | dict.fromkeys(states, history)
        return cls(
            inputs=tuple(tensor(quantity, axes, time=times.get(quantity.name)) for quantity in problem.inputs),
            parameters=tuple(number(each) for each in problem.parameters),
            outputs=tuple(tensor(quantity, axes, problem.output_grid, following) for quantity in problem.outputs),
            quality=quality,
            grid=Grid(
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
        found = {name: getattr(network, limit, None) for name, limit in LIMITS.items()}
        limits = Limits(batch=self.limits.batch, **{name: limit for name, limit in found.items() if limit is not None})
        return self.model_copy(update={"quality": quality_of(network), "limits": limits})

    @classmethod
    def _of_sequences(cls, problem: SequenceDescription) -> Self:
        """Derive the signature of a model of sequences, whose grid is the one axis of its tokens.

        All sequences of a request are padded to one length. The scores are those of a sequence or of each token.
        """
        by_token: dict[str, int | None] = {"token": None} if problem.answer == "token" else {}
        scores = {"batch": None, **by_token, "label": len(problem.labels)}
        return cls(
            inputs=tuple(
                Tensor(
                    name=name,
                    dtype="INT32",
                    axes=("batch", "token"),
                    shape=(None, None),
                    meaning="words by number, padded with 0",
                )
                for name in problem.inputs
            ),
            outputs=(
                Tensor(
                    name=problem.output,
                    axes=tuple(scores),
                    shape=tuple(scores.values()),
                    meaning="unnormalised log-probabilities",
                ),
            ),
            grid=Grid(axes=("token",), points="words in the order of the text", **problem.length.model_dump()),
            limits=Limits(batch=SEQUENCES),
            vocabulary=Vocabulary(
                words=problem.vocabulary, pattern=problem.pattern, labels=problem.labels, answer=problem.answer
            ),
        )

    @property
    def arguments(self) -> tuple[Tensor | Parameter, ...]:
        """The tensors that a request sends, in the order of the graph's arguments.

        The shape `[batch, frame]` of the last one of a trajectory model says how many frames are wanted.
        """
        counted = Tensor(
            name=FRAME,
            dtype="INT32",
            axes=("batch", FRAME),
            shape=(None, None),
            meaning="as many frames as it has columns",
        )
        wanted = Tensor(
            name=GRID,
            dtype="INT32",
            axes=("batch", *self.grid.axes),
            shape=(None,) * (1 + len(self.grid.axes)),
            meaning="its shape is the grid of the outputs",
        )
        last = (counted,) if self.frames else (wanted,) if self.takes_grid else ()
        return (*self.inputs, *self.parameters, *last)

    @property
    def argument_names(self) -> tuple[str, ...]:
        return tuple(tensor.name for tensor in self.arguments)

    @property
    def results(self) -> tuple[Tensor, ...]:
        """All tensors that the graph returns, in its order: the outputs, then the quality outputs `[batch, 1]`.

        Intervals of numbers are `[batch, component]`. Where inputs have a value per frame of a trajectory, so do all:
        `[batch, frame]`.
        """
        return (*self.outputs, *map(self._result, self.quality))

    def _result(self, quality: str) -> Tensor:
        """Describe a quality output."""
        output = self.interval_of(quality)
        last: dict[str, int | None] = {FRAME: None} if self.forced else {"value": 1}
        if output is None:
            return _beside_samples(quality, QUALITY[quality], last)
        found = _beside_samples(quality, INTERVAL.format(output.name), _last(output))
        return found.model_copy(update={"units": output.units, "components": output.components})

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
                Parameter(
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
        return self.model_copy(update={"quality": (), "limits": Limits(batch=self.limits.batch), **more})


def _beside(role: str, spec: Tensor, default: float | None = None) -> Tensor:
    """Describe a vector that has the shape of a tensor of the model."""
    meaning = f"{role.removesuffix('s')} of {spec.name}"
    update = {"name": f"{role}.{spec.name}", "meaning": meaning, "units": "1", "positive": False, "default": default}
    update["per_frame"] = None
    return spec.model_copy(update=update)


def _beside_samples(name: str, meaning: str, last: dict[str, int | None]) -> Tensor:
    """Describe a number per sample that a graph returns, or one per frame or component; `last` is its last axis."""
    return Tensor(name=name, axes=("batch", *last), shape=(None, *last.values()), meaning=meaning)


def _last(spec: Tensor | Parameter) -> dict[str, int | None]:
    """Return the last axis of what is like numbers, of which there is one at least."""
    return dict(zip(spec.axes[1:], spec.sizes[1:], strict=True)) or {"value": 1}


def _of_one_frame(spec: Spec) -> Spec:
    """Describe one frame of an argument that has a value for each of them; others stay as they are."""
    kept = [index for index, axis in enumerate(spec.axes) if axis != FRAME]
    axes, shape = (tuple(each[index] for index in kept) for each in (spec.axes, spec.sizes))
    return spec.model_copy(update={"axes": axes, "shape": shape})
