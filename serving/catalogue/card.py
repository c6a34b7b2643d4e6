"""The model card as the gateway reads it, `card.json` of a version folder, and what the gateway says of its models."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from serving.document import COORDINATES, COUNTS, Document
from serving.errors import Problem

COMPONENT, HISTORY, FRAME = "component", "history", "frame"
#: The argument `[B, *grid]` of a model without an input on the grid: its shape is the grid of the outputs.
GRID = "grid"
#: A vector-Jacobian or a Jacobian-vector product.
Kind = Literal["vjp", "jvp"]
KINDS: tuple[Kind, ...] = ("vjp", "jvp")
#: Which value a step sees of what is known for every frame: that of the frame before it, or of the one it leads to.
PerFrame = Literal["start", "end"]
#: The graph of the method without the network, with smaller error bounds.
REFINED: Literal["refined"] = "refined"


class Part(BaseModel):
    """A part of a card; keys that the gateway does not use are passed on to the client as they are."""

    model_config = ConfigDict(frozen=True, extra="allow")


class Tensor(Part):
    """One input or output of a model."""

    name: str
    dtype: Literal["FP32", "INT32"]
    axes: tuple[str, ...] = Field(
        description="The batch, then `component` for a vector field, then the axes of the grid. On points `component` "
        "is last."
    )
    shape: tuple[int | None, ...] | None = Field(
        default=None, description="Points per axis; null where the size is free, or null as a whole if all are free."
    )
    components: tuple[str, ...] = Field(default=(), description="Names of the components of a vector field.")
    meaning: str = Field(examples=["permeability"])
    units: str
    positive: bool
    default: float | None = Field(
        default=None, description="The value everywhere of an input that a request leaves out; null: it must be sent."
    )
    per_frame: PerFrame | None = Field(
        default=None,
        description="Of an input with the axis `frame`, which is known in advance: value i is that of the frame which "
        "step i starts from (`start`), or which it leads to (`end`).",
        exclude_if=lambda frame: frame is None,
    )

    @cached_property
    def sizes(self) -> tuple[int | None, ...]:
        return self.shape or (None,) * len(self.axes)

    @cached_property
    def vector(self) -> tuple[int, ...]:
        """The numbers of given frames and of components, as a shape; empty for a scalar field of one frame."""
        return tuple(
            size or 0 for axis, size in zip(self.axes, self.sizes, strict=True) if axis in {HISTORY, COMPONENT}
        )

    @cached_property
    def leading(self) -> tuple[int | None, ...]:
        """The sizes of the axes before those of the grid: as `vector`, and None for any number of frames."""
        known = zip(self.axes, self.sizes, strict=True)
        return tuple(size for axis, size in known if axis in {FRAME, HISTORY, COMPONENT})[: -len(self.trailing) or None]

    @cached_property
    def trailing(self) -> tuple[int, ...]:
        """The number of components where they are behind the grid's axes, as on points; else empty."""
        return self.vector if self.axes[-1] == COMPONENT else ()

    def grid_of(self, shape: Sequence[Any]) -> tuple[Any, ...]:
        """Return the points per axis of the grid in the shape of a sample or a batch of this tensor."""
        end = len(shape) - len(self.trailing)
        return tuple(shape[end - (len(self.axes) - 1 - len(self.leading) - len(self.trailing)) : end])

    @cached_property
    def points(self) -> tuple[int, ...] | None:
        """Points per axis of the grid, or None unless the model fixes all of them."""
        sizes = self.grid_of(self.sizes[1:])
        fixed = tuple(points for points in sizes if points is not None)
        return fixed if len(fixed) == len(sizes) else None


class Parameter(Part):
    """A number per sample: `[batch]`, or one number for all samples of a request.

    With the axis `component` it is a number per component: `[batch, component]`, or `[component]` for all samples. With
    the axis `frame` it is one per frame: `[batch, frame]`, or `[frame]` or one number for all.
    """

    name: str
    dtype: Literal["FP32"] = "FP32"
    axes: tuple[str, ...] = ("batch",)
    components: tuple[str, ...] = Field(default=(), description="Names of the components, if there are several.")
    meaning: str
    units: str
    default: float | None = Field(
        default=None, description="Its value where a request leaves it out; null: it must be sent."
    )
    minimum: float | None = None
    maximum: float | None = None
    per_frame: PerFrame | None = Field(
        default=None, description="As of an input.", exclude_if=lambda frame: frame is None
    )

    @property
    def sizes(self) -> tuple[int | None, ...]:
        return tuple(len(self.components) if axis == COMPONENT else None for axis in self.axes)


class Grid(Part):
    """The grids that a model accepts: points per axis and their location. The points of a sequence are its tokens."""

    axes: tuple[str, ...]
    minimum: int
    maximum: int
    declared: tuple[int, ...] = Field(description="Points per axis of the grids that errors are published for.")
    unequal: tuple[tuple[int, ...], ...] = Field(
        default=(), description="Further such grids, with different points per axis."
    )
    points: str
    lengths: tuple[float, ...] = Field(default=(), description="Length of each axis in the problem's units.")
    boundaries: tuple[str, ...] = Field(default=(), description="Per axis: wall, periodic or open.")
    guessed: tuple[str, ...] = Field(
        default=(), description="What was guessed of the axes: `row.length`, `row.boundary`, `row.points`."
    )

    @model_validator(mode="after")
    def _check_sizes(self) -> Grid:
        sizes = (self.minimum, *self.declared, *(size for shape in self.unequal for size in shape))
        if self.minimum < 1 or not all(self.minimum <= size <= self.maximum for size in sizes):
            raise ValueError(
                f"expected 1 <= minimum <= declared <= maximum but got {self.minimum}, {sizes[1:]}, {self.maximum}"
            )
        if any(len(shape) != len(self.axes) for shape in self.unequal):
            raise ValueError(f"expected shapes of {len(self.axes)} axes but got {self.unequal}")
        return self

    @cached_property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        return (*((points,) * len(self.axes) for points in self.declared), *self.unequal)

    @cached_property
    def most_points(self) -> float:
        """Points of the largest of them; infinite where there is none."""
        return max(map(math.prod, self.shapes), default=math.inf)


class Frames(Part):
    """The time axis of a model of trajectories."""

    step: float = Field(description="Time between two frames.")
    history: int = Field(ge=1, description="Frames of every state that a prediction starts from.")
    states: tuple[str, ...] = Field(description="The inputs that are states, in the order of the outputs.")
    trained: int = Field(ge=1, description="Frames of a training trajectory that follow its history.")
    maximum: int = Field(ge=1, description="The most frames that a request may ask for.")


class Vocabulary(Part):
    """How a text becomes tokens, and logits become a label."""

    words: tuple[str, ...] = Field(min_length=2, description="Symbols by token.", examples=[("<pad>", "[MAX", "7")])
    padding: Literal[0] = Field(default=0, description="The token that pads sequences at their end.")
    pattern: str | None = Field(
        description="Matches the symbols of a text, which white space separates; null where token b + 1 is the byte b "
        "of the text in UTF-8."
    )
    labels: tuple[str, ...] = Field(min_length=2, description="Label per class, the last axis of the output.")
    answer: Literal["sequence", "token"] = Field(description="What has a label.")


class Product(Part):
    """What the graph of a derivative computes beside the outputs of its model.

    Its inputs are the model's and the vectors, `cotangents.NAME` or `tangents.NAME`; its outputs the model's and
    `gradients.NAME` or `tangents.NAME`. A `refined` graph has the inputs and outputs of its model, and smaller error
    bounds.
    """

    of: str = Field(description="The model that is differentiated or refined, in the version of the same number.")
    kind: Kind | Literal["refined"]


class Limits(Part):
    """What one call of the model may hold."""

    batch: int = Field(ge=1, description="Samples in one Triton batch; a request may hold more.")
    solve_bound: float | None = Field(
        default=None, description="The largest `solve_bound` that is sent; an output with a larger one is continued."
    )
    novelty: float | None = Field(
        default=None,
        description="The least `novelty` of an input whose output is sent as it is; that of a less usual one is "
        "continued by the method that the model contains.",
    )


class Card(Part):
    """What a model maps to what, where it was trained and how well it does."""

    model: str
    version: int
    format: str
    title: str
    problem: str
    equation: str | None = Field(default=None, description="The equation; a model of sequences has a task instead.")
    boundary: str | None = None
    task: str | None = Field(default=None, description="The task of a model of sequences, in one sentence.")
    inputs: tuple[Tensor, ...] = Field(
        default=(), description="The fields; without any, a request says the grid of the outputs: `grid`."
    )
    parameters: tuple[Parameter, ...] = ()
    outputs: tuple[Tensor, ...] = Field(min_length=1)
    quality: tuple[str, ...] = Field(
        default=(),
        description="What the model reports about its outputs, one number per sample: `[batch, 1]` each; and of an "
        "output that is a number per sample `error_estimate.NAME`, or `error_estimate` where it is the only output, "
        "the half-width of an interval around it that holds the truth of 90 % of inputs, in its units.",
    )
    grid: Grid
    mask: str | None = Field(
        default=None,
        description="The input that is 1 inside the domain and 0 outside, where other inputs are not read and outputs "
        "are 0; null where fields are on the whole grid.",
        exclude_if=lambda mask: mask is None,
    )
    frames: Frames | None = Field(default=None, description="Of a model of trajectories.")
    vocabulary: Vocabulary | None = Field(default=None, description="Of a model of sequences.")
    limits: Limits
    warnings: tuple[str, ...] = Field(default=(), description="What to know before trusting the model, in sentences.")
    training: dict[str, Any]
    errors: tuple[dict[str, Any], ...] = ()
    classical: tuple[dict[str, Any], ...] = ()
    accuracy: tuple[dict[str, Any], ...] = Field(
        default=(), description="Accuracy of a model of sequences, beside that of a guess."
    )
    rollout: tuple[dict[str, Any], ...] = Field(
        default=(), description="What was measured of a model of trajectories, frame by frame."
    )
    calibration: dict[str, Any] | None = Field(
        default=None,
        description="What `error_estimate` and `novelty` rest on. `test` has a row per case (`grid`, and `noise`, "
        "`source` or `conditions` where there are any): the share of test samples whose error was below the estimate "
        "(`coverage`, with its standard error), of which 0.9 is the aim, and their number (`fields`; of a trajectory "
        "`trajectories`, and the worst `frame`). An estimate is worth the coverage of the row with the nearest noise "
        "and grid, or of the worst row where the noise is not known; below 0.7 it is no promise.",
        exclude_if=lambda calibration: calibration is None,
    )
    checkpoint: dict[str, Any]
    product: Product | None = Field(default=None, description="Of a graph that belongs to another model.")
    differentiable: tuple[Kind, ...] = Field(default=(), description="The derivatives that are served.")

    @cached_property
    def known(self) -> tuple[str, ...]:
        """What responses say about outputs: the model's quality outputs, and the calibrated error of trajectories."""
        return self.quality if self._estimates is None else (*self.quality, "error_estimate")

    @cached_property
    def _estimates(self) -> NDArray[np.float32] | None:
        """The calibrated error of each frame that was measured, NaN where it is not known; None where none is."""
        found = [row.get("error_estimate") for row in self.rollout] if self.frames else []
        numbers = np.array([each if isinstance(each, int | float) else np.nan for each in found], np.float32)
        return numbers if np.isfinite(numbers).any() and "error_estimate" not in self.quality else None

    def estimates(self, count: int, after: int = 0) -> NDArray[np.float32] | None:
        """Return the calibrated errors of frames, NaN beyond those that were measured; None where none was."""
        if self._estimates is None:
            return None
        found = np.full(count, np.nan, np.float32)
        part = self._estimates[after : after + count]
        found[: len(part)] = part
        return found

    @cached_property
    def arguments(self) -> tuple[Tensor | Parameter, ...]:
        return (*self.inputs, *self.parameters)

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(argument.name for argument in self.arguments)

    @cached_property
    def forced(self) -> tuple[str, ...]:
        """The names of the arguments that have a value per frame."""
        return tuple(argument.name for argument in self.arguments if FRAME in argument.axes)

    @cached_property
    def result_names(self) -> tuple[str, ...]:
        return (*(tensor.name for tensor in self.outputs), *self.known)

    @cached_property
    def optional(self) -> frozenset[str]:
        return frozenset(argument.name for argument in self.arguments if argument.default is not None)

    def grid_of(self, arrays: Mapping[str, NDArray[Any]]) -> tuple[int, ...]:
        """Return the points per axis of inputs `[batch, (component), *grid]` by name."""
        if GRID in arrays and self.asked:
            return arrays[GRID].shape[1:]
        return self.inputs[0].grid_of(arrays[self.inputs[0].name].shape)

    @cached_property
    def asked(self) -> bool:
        """Whether no input of the model is on the grid, so that a request says the grid of the outputs."""
        own = [tensor for tensor in self.inputs if "." not in tensor.name]  # without cotangents
        return not any({*self.grid.axes} & {*tensor.axes} for tensor in own)

    def interval_of(self, quality: str) -> Tensor | None:
        """Return the output that is a number per sample whose interval a quality output says; None of another one."""
        base, _, name = quality.partition(".")
        found = {tensor.name: tensor for tensor in self.outputs if not {*self.grid.axes} & {*tensor.axes}}
        if base != "error_estimate" or (not name and len(self.outputs) > 1):
            return None
        return found.get(name or self.outputs[0].name)

    @cached_property
    def scattered(self) -> bool:
        """Whether samples have points of their own: the first input has their coordinates, a parameter counts them."""
        return bool(self.inputs) and self.inputs[0].name == COORDINATES and COUNTS in self.names

    def shapes(self, points: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
        """Return the shapes of one sample of every input, parameter and output, by name.

        The `points` are those per axis of the grid, and the frames of a trajectory.
        """
        found = {}
        for tensor in (*self.arguments, *self.outputs):
            axes = zip(tensor.axes[1:], tensor.sizes[1:], strict=True)
            sizes = [points.get(axis) if size is None else size for axis, size in axes]
            if None in sizes:
                detail = f"the shape of {tensor.name} is known only once it is computed"
                raise Problem("wrong-shape", detail, array=tensor.name)
            found[tensor.name] = tuple(size for size in sizes if size is not None)
        return found

    @model_validator(mode="after")
    def _check_axes(self) -> Card:
        for tensor in (*self.inputs, *self.outputs):
            if len(tensor.sizes) != len(tensor.axes):
                raise ValueError(f"{tensor.name}: expected a size per axis {tensor.axes} but got {tensor.shape}")
        for tensor in self.inputs:
            before = [axis for axis in (FRAME, HISTORY, COMPONENT) if axis in tensor.axes]
            expected = ("batch", *before, *self.grid.axes)
            if "." in tensor.name and not {*tensor.axes} & {*self.grid.axes}:
                continue  # the cotangent of a number
            if tensor.trailing:
                expected = ("batch", *before[:-1], *self.grid.axes, COMPONENT)
            if tensor.axes != expected:
                raise ValueError(f"{tensor.name}: expected the axes {expected} but got {tensor.axes}")
        return self

    @model_validator(mode="after")
    def _check_vocabulary(self) -> Card:
        for tensor in self.inputs:
            if (tensor.dtype == "INT32") != (self.vocabulary is not None) or (
                self.vocabulary and len(tensor.axes) != 2
            ):
                raise ValueError(f"{tensor.name}: expected INT32 (batch, token) with a vocabulary, or FP32 without one")
        return self


class ModelSummary(Document):
    """One model in the list of models."""

    name: str
    title: str
    problem: str
    version: int = Field(description="The version that is used when none is named: the newest that is ready.")
    versions: tuple[int, ...] = Field(description="All versions that are served now, ascending.")
    formats: tuple[str, ...] = Field(
        description="Formats of the served artefacts; `MODEL_FORMAT` names one that is not the first.",
        examples=[["onnx", "torchscript"]],
    )
    state: Literal["loaded", "on demand"] = Field(
        description="Whether it is loaded, or will be at its next use, which takes some seconds then."
    )
    warnings: tuple[str, ...] = Field(default=(), description="What to know before trusting the model, in sentences.")


class Model(Document):
    """`GET /v1/models/{model}`: card and export certificate of the newest version that is served."""

    name: str
    version: int
    versions: tuple[int, ...]
    card: Card
    certificate: dict[str, Any] | None


class Readiness(Document):
    """`GET /health/ready`: 200 when `ready`, else 503."""

    ready: bool
    reason: str | None = Field(default=None, description="Why the gateway is not ready, in one sentence.")
    missing: tuple[str, ...] = Field(default=(), description="Models of the repository that are not loaded and warm.")
