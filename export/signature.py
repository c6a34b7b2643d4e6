"""Takes a problem, gives names, types, axes and limits of its models: the one description all else derives from.

The axes of the ONNX graph, Triton's config and the card's inputs, outputs and grid are all read off a `Signature`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    from training.problems import Problem, Quantity

#: Fields in one Triton batch. Beyond it a processor gains nothing, and 64 fields of 421 x 421 are 45 MB each way.
BATCH = 64


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


class GridSpec(BaseModel):
    """Which grids of the question are accepted: points per axis, and where they lie."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    axes: tuple[str, ...]
    minimum: int
    maximum: int
    declared: tuple[int, ...]
    points: str


class Signature(BaseModel):
    """What goes in, what comes out, and within which limits."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    input: TensorSpec
    output: TensorSpec
    grid: GridSpec
    batch: int = BATCH

    @classmethod
    def of(cls, problem: Problem) -> Self:
        """Derive the signature of a model that answers `problem`."""
        return cls(
            input=TensorSpec.of(problem.input, problem.axes),
            output=TensorSpec.of(problem.output, problem.axes, problem.answer),
            grid=GridSpec(axes=problem.axes, points=problem.points, **problem.grid.model_dump()),
        )

    @property
    def names(self) -> tuple[str, str]:
        """The tensors' names, which every version of a model must share."""
        return self.input.name, self.output.name
