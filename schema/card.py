"""The card of a model, `card.json` of a version folder: what it takes and returns, and how far it can be trusted.

Export writes a `Card`, the gateway reads it, and the client has a copy of these classes that is made from them
(`python -m schema`). What was measured, `Measured`, is also the card of a checkpoint. An unknown key is an error: it is
a misspelling, or of a later release.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from schema.parts import FieldFacts, Frozen, NumberFacts
from schema.problem import Frames, Grid

#: Axes before those of the grid: the frames of a trajectory, given frames of a state, components of a vector field.
FRAME, HISTORY, COMPONENT = "frame", "history", "component"
#: The input and the parameter of samples that have points of their own: where these are, and how many.
COORDINATES, COUNTS = "coordinates", "counts"
#: Inputs of theirs that follow from the cells of a mesh, unless it has fields of these names.
BOUNDARY, DISTANCE, AREA, NORMAL = "boundary", "distance", "area", "boundary_normal"
#: What a request may have in their place: the cells of its points.
CELLS = "cells"

#: The argument `[B, *grid]` of a model without an input on the grid: its shape is the grid of the outputs.
GRID = "grid"
Kind = Literal["vjp", "jvp"]
#: The products: vector-Jacobian and Jacobian-vector.
KINDS: tuple[Kind, ...] = ("vjp", "jvp")
#: The graph of the method without the network, with smaller error bounds.
REFINED: Literal["refined"] = "refined"

#: What a graph may report about its outputs, in the order in which it returns them behind the declared outputs.
QUALITY: dict[str, str] = {
    "error_bound": "guaranteed relative energy-norm distance to the discrete solution on the given grid",
    "solve_bound": "guaranteed relative energy-norm distance to the solution of the model's own, corrected equation",
    "misfit": "relative L2 distance between the input and the forward solution of the output",
    "error_estimate": "calibrated relative L2 error: at most 10 % of inputs of the training distribution exceed it",
    "novelty": "share of calibration inputs that are at least as unusual as the input",
}


class Tensor(FieldFacts):
    """One input or output of a model."""

    dtype: Literal["FP32", "INT32"] = Field(default="FP32", description="Triton's name of its type.")
    axes: tuple[str, ...] = Field(
        min_length=1,
        description="The batch, then `component` for a vector field, then the axes of the grid. On points `component` "
        "is last.",
    )
    shape: tuple[int | None, ...] | None = Field(
        default=None, description="Points per axis; null where the size is free, or null as a whole if all are free."
    )

    @property
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
        return self.vector[-1:] if self.axes[-1] == COMPONENT else ()

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

    @model_validator(mode="after")
    def check_sizes(self) -> Self:
        """Require a size per axis."""
        if len(self.sizes) != len(self.axes):
            raise ValueError(f"{self.name}: expected a size per axis {self.axes} but got {self.shape}")
        return self


class Parameter(NumberFacts):
    """A number per sample: `[batch]`, or one number for all samples of a request.

    With the axis `component` it is a number per component: `[batch, component]`, or `[component]` for all samples. With
    the axis `frame` it is one per frame: `[batch, frame]`, or `[frame]` or one number for all.
    """

    dtype: Literal["FP32"] = "FP32"
    axes: tuple[str, ...] = ("batch",)
    shape: tuple[int | None, ...] = Field(default=(None,), description="Its shape on the wire.")

    @property
    def sizes(self) -> tuple[int | None, ...]:
        return self.shape

    @model_validator(mode="before")
    @classmethod
    def size_axes(cls, values: Any) -> Any:
        """Leave the sizes of axes free where no shape is said, but of components."""
        if isinstance(values, Mapping) and "axes" in values and "shape" not in values:
            several = len(values.get("components", ())) or None
            return {**values, "shape": tuple(several if axis == COMPONENT else None for axis in values["axes"])}
        return values


class Vocabulary(Frozen):
    """How a text becomes tokens, and logits become a label."""

    words: tuple[str, ...] = Field(min_length=2, description="Symbols by token.", examples=[("<pad>", "[MAX", "7")])
    padding: Literal[0] = Field(default=0, description="The token that pads sequences at their end.")
    pattern: str | None = Field(
        description="Matches the symbols of a text, which white space separates; null where token b + 1 is the byte b "
        "of the text in UTF-8."
    )
    labels: tuple[str, ...] = Field(min_length=2, description="Label per class, the last axis of the output.")
    answer: Literal["sequence", "token"] = Field(description="What has a label.")


class Limits(Frozen):
    """What one call of the model may hold, and what is sent as it is."""

    batch: int = Field(ge=1, description="Samples in one Triton batch; a request may hold more.")
    solve_bound: float | None = Field(
        default=None, description="The largest `solve_bound` that is sent; an output with a larger one is continued."
    )
    novelty: float | None = Field(
        default=None,
        description="The least `novelty` of an input whose output is sent as it is; that of a less usual one is "
        "continued by the method that the model contains.",
    )


class Product(Frozen):
    """What the graph of a derivative computes beside the outputs of its model.

    Its inputs are the model's and the vectors, `cotangents.NAME` or `tangents.NAME`; its outputs the model's and
    `gradients.NAME` or `tangents.NAME`. A `refined` graph has the inputs and outputs of its model, and smaller error
    bounds.
    """

    of: str = Field(description="The model that is differentiated or refined, in the version of the same number.")
    kind: Kind | Literal["refined"]


class Identity(Frozen):
    """Which model a card is of."""

    model: str
    version: int
    format: str
    formats: tuple[str, ...] = Field(
        default=(),
        description="Formats of a model's checkpoint, of which this is one.",
        exclude_if=lambda formats: not formats,
    )
    precision: str | None = Field(
        default=None, description="What the graph computes in, unless float32.", exclude_if=lambda found: found is None
    )
    title: str
    problem: str
    equation: str | None = Field(default=None, description="The equation; a model of sequences has a task instead.")
    boundary: str | None = None
    task: str | None = Field(default=None, description="The task of a model of sequences, in one sentence.")


class Interface(Frozen):
    """What a request sends to a model and receives: quantities, axes and limits."""

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
    frames: Frames | None = Field(default=None, description="The time axis of a model of trajectories.")
    grid: Grid
    mask: str | None = Field(
        default=None,
        description="The input that is 1 inside the domain and 0 outside, where other inputs are not read and outputs "
        "are 0; null where fields are on the whole grid.",
        exclude_if=lambda mask: mask is None,
    )
    vocabulary: Vocabulary | None = Field(default=None, description="Of a model of sequences.")
    limits: Limits

    @property
    def scattered(self) -> bool:
        """Whether samples have points of their own, whose coordinates are the first input.

        Those of the points of a grid, as of one that follows a body, are a field on it, with the components first.
        """
        return bool(self.inputs) and self.inputs[0].name == COORDINATES and bool(self.inputs[0].trailing)

    @property
    def takes_grid(self) -> bool:
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

    @property
    def forced(self) -> tuple[str, ...]:
        """The names of the arguments that have a value per frame of a trajectory."""
        arguments: tuple[Tensor | Parameter, ...] = (*self.inputs, *self.parameters)
        return tuple(argument.name for argument in arguments if FRAME in argument.axes)

    @model_validator(mode="after")
    def check_quality(self) -> Self:
        """Require each quality output once, in the order of `QUALITY`."""
        order = [name.partition(".")[0] for name in self.quality]
        expected = [name for name in QUALITY for _ in range(order.count(name))]
        if order != expected or len({*self.quality}) < len(self.quality):
            raise ValueError(
                f"expected quality outputs in the order {', '.join(QUALITY)} but got {', '.join(self.quality)}"
            )
        return self


class Measured(Frozen):
    """What was measured of a trained network: how it was trained, and its errors beside those of a baseline."""

    training: dict[str, Any] = Field(default_factory=dict)
    errors: tuple[dict[str, Any], ...] = ()
    classical: tuple[dict[str, Any], ...] = ()
    accuracy: tuple[dict[str, Any], ...] = Field(
        default=(), description="Accuracy of a model of sequences, beside that of a guess."
    )
    measures: dict[str, str] | None = Field(
        default=None,
        description="What the keys of `errors` mean that are no common ones.",
        exclude_if=lambda measures: measures is None,
    )
    rollout: tuple[dict[str, Any], ...] = Field(
        default=(), description="What was measured of a model of trajectories, frame by frame."
    )
    correlation_time: float | None = Field(
        default=None,
        description="How long a trajectory stays correlated with the truth.",
        exclude_if=lambda time: time is None,
    )
    spectrum: dict[str, Any] | None = Field(
        default=None,
        description="The energy spectrum of trajectories and of the truth.",
        exclude_if=lambda spectrum: spectrum is None,
    )
    scalars: tuple[dict[str, Any], ...] = Field(
        default=(),
        description="What was measured of outputs that are numbers per sample, a row for each.",
        exclude_if=lambda scalars: not scalars,
    )
    calibration: dict[str, Any] | None = Field(
        default=None,
        description="What `error_estimate` and `novelty` rest on. `test` has a row per case (`grid`, and `noise`, "
        "`source` or `conditions` where there are any): the share of test samples whose error was below the estimate "
        "(`coverage`, with its standard error), of which 0.9 is the aim, and their number (`fields`; of a trajectory "
        "`trajectories`, and the worst `frame`). `guarantee` says what the number of calibration samples promises: a "
        "share of at least `coverage` over calibrations, and for one of them a share `between` two numbers with a "
        "`confidence`; validation samples that calibrate have also chosen weights, so that it may promise a little too "
        "much. An estimate is worth the coverage of the row with the nearest noise and grid, or of the worst row where "
        "the noise is not known; below 0.7 it is no promise.",
        exclude_if=lambda calibration: calibration is None,
    )

    @property
    def document(self) -> dict[str, Any]:
        """What `card.json` holds: what is said of this model, without what it has none of."""
        return self.model_dump(mode="json", exclude_unset=True)


class CheckpointCard(Measured):
    """The card of a checkpoint, `card.json` beside its weights; what has not been measured yet is left out."""

    checkpoint: dict[str, Any] = Field(default_factory=dict, description="The number of its parameters.")
    clock: dict[str, Any] | None = Field(default=None, description="What times were taken of, and on which processor.")
    race: dict[str, Any] | None = Field(default=None, description="The networks that were compared, and how it ended.")
    missing: tuple[str, ...] = Field(default=(), description="Keys of what the measurement will add.")

    def measured(self, figures: Mapping[str, Any]) -> Self:
        """Return the card with what was measured, by its keys; `missing` are those that are still to come."""
        missing = [key for key in self.missing if key not in figures]
        known = {key: value for key, value in self.document.items() if key != "missing"}
        return self.model_validate(known | dict(figures) | ({"missing": missing} if missing else {}))


class Card(Measured, Interface, Identity):
    """What a model maps to what, where it was trained and how well it does."""

    training: dict[str, Any]
    warnings: tuple[str, ...] = Field(default=(), description="What to know before trusting the model, in sentences.")
    checkpoint: dict[str, Any]
    product: Product | None = Field(default=None, description="Of a graph that belongs to another model.")
    differentiable: tuple[Kind, ...] = Field(default=(), description="The derivatives that are served.")

    @cached_property
    def known(self) -> tuple[str, ...]:
        """What responses say about outputs: the model's quality outputs, and the calibrated error of trajectories."""
        return (*self.quality, "error_estimate") if self.estimates else self.quality

    @cached_property
    def estimates(self) -> tuple[float, ...]:
        """The calibrated error of each frame that was measured, NaN where it is not known; empty where none is."""
        if self.frames is None or "error_estimate" in self.quality:
            return ()
        found = (row.get("error_estimate") for row in self.rollout)
        numbers = tuple(float(each) if isinstance(each, int | float) else math.nan for each in found)
        return numbers if any(map(math.isfinite, numbers)) else ()

    @cached_property
    def arguments(self) -> tuple[Tensor | Parameter, ...]:
        return (*self.inputs, *self.parameters)

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(argument.name for argument in self.arguments)

    @cached_property
    def result_names(self) -> tuple[str, ...]:
        return (*(tensor.name for tensor in self.outputs), *self.known)

    @cached_property
    def padded(self) -> bool:
        """Whether samples of fewer points are padded, and a parameter counts theirs."""
        return self.scattered and COUNTS in self.names

    @cached_property
    def optional(self) -> frozenset[str]:
        return frozenset(argument.name for argument in self.arguments if argument.default is not None)

    def grid_of(self, arrays: Mapping[str, Any]) -> tuple[int, ...]:
        """Return the points per axis of inputs `[batch, (component), *grid]` by name."""
        if GRID in arrays and self.takes_grid:
            return tuple(arrays[GRID].shape[1:])
        return self.inputs[0].grid_of(arrays[self.inputs[0].name].shape)

    @model_validator(mode="after")
    def check_axes(self) -> Self:
        """Require of every input the axes of the grid, behind those of frames and components."""
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
    def check_vocabulary(self) -> Self:
        """Require tokens where there is a vocabulary, and numbers elsewhere."""
        for tensor in self.inputs:
            if (tensor.dtype == "INT32") != (self.vocabulary is not None) or (
                self.vocabulary and len(tensor.axes) != 2
            ):
                raise ValueError(f"{tensor.name}: expected INT32 (batch, token) with a vocabulary, or FP32 without one")
        return self
