"""What an error measure is, and where the values lie that it compares."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, overload, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Fields = NDArray[np.floating[Any]]


@runtime_checkable
class SpacedAxis(Protocol):
    """What a grid is made from: an axis of a problem, as `schema.parts.Axis` is one."""

    @property
    def boundary(self) -> str:
        """What lies at its ends; `periodic` where they meet."""

    def spacing(self, points: int) -> float:
        """Return the distance between neighbours of so many points."""


@dataclass(frozen=True)
class Grid:
    """Where the values of fields lie, and what else an error measure may need beside prediction and truth.

    Fields are `[batch, (component), *grid]`, on points of their own `[batch, point, (component)]`.

    Example:
        >>> Grid.unit((5, 9)).spacings
        (0.25, 0.125)
    """

    spacings: tuple[float, ...] = ()  # distance between neighbours along every axis; none for scattered points
    periodic: tuple[bool, ...] = ()  # whether the last point of an axis is a neighbour of the first
    scattered: bool = False  # every sample has points of its own
    # Coordinates of scattered points `[sample, point, dimension]`, which all frames of a sample share, one after
    # another in the batch. Without them there are no gradients.
    coordinates: Tensor | None = None
    weights: Tensor | None = None  # what every scattered point counts in norms `[batch, point]`; None: all alike
    inside: Tensor | None = None  # 1 in the domain `[batch, *grid]`, 0 outside and at padding; None: all inside
    inputs: Mapping[str, Tensor] = field(default_factory=dict)  # of the samples, by name
    # The input a of the energy norm, by its name, and the distance from the outermost points to the wall, in sides.
    energy_weight: str | None = None
    wall: float = 0.0
    frames: bool = False  # the samples are frames of trajectories

    @classmethod
    def unit(cls, sides: Sequence[int]) -> Grid:
        """Return the grid of the unit cube with points at both ends of every axis."""
        return cls(tuple(1 / max(1, side - 1) for side in sides), (False,) * len(sides))

    @classmethod
    def of(cls, axes: Sequence[SpacedAxis], sides: Sequence[int]) -> Grid:
        """Return the grid of the axes of a problem with so many points on each."""
        spacings = (axis.spacing(side) for axis, side in zip(axes, sides, strict=True))
        return cls(tuple(spacings), tuple(axis.boundary == "periodic" for axis in axes))

    @property
    def axes(self) -> int:
        """The number of axes that points are counted along."""
        return 1 if self.scattered else len(self.spacings)

    def by_component(self, values: Tensor) -> Tensor:
        """Return a field as `[batch, component, *grid]`."""
        if self.scattered and values.ndim == 3:
            return values.mT
        return values.flatten(1, values.ndim - 1 - self.axes) if values.ndim > 1 + self.axes else values[:, None]

    def cleared(self, values: Tensor) -> Tensor:
        """Return a field with 0 outside the domain and at padding, whatever it holds there."""
        if self.inside is None:
            return values
        inside, further = self.inside != 0, (1,) * (values.ndim - self.inside.ndim)  # for the components
        count, *sides = inside.shape
        inside = inside.reshape(count, *((*sides, *further) if self.scattered else (*further, *sides)))
        return values.where(inside, values.new_zeros(()))

    def expect(self, values: Tensor | Fields) -> None:
        """Require the axes of the grid of a field, and a mask and weights of its points.

        Raises:
            ValueError: The field has fewer axes, or a mask or weights are of other points or samples.
        """
        if not self.axes:
            return
        found = tuple(values.shape)
        if len(found) < 1 + self.axes:
            raise ValueError(f"expected fields [batch, (component), *grid] on {self.axes} axes but got {found}")
        points = found[1:2] if self.scattered else found[len(found) - self.axes :]
        for name, each in (("inside", self.inside), ("weights", self.weights)):
            if each is not None and tuple(each.shape) not in {(1, *points), (found[0], *points)}:
                raise ValueError(f"expected {name} of shape {(found[0], *points)} but got {tuple(each.shape)}")

    def shares(self, values: Tensor) -> Tensor:
        """Return what every point of `[batch, component, *grid]` counts in means: `[batch or 1, 1, *grid]`, sum 1."""
        share = torch.ones_like(values[:1, :1])
        for factor in (self.inside, self.weights):
            share = share if factor is None else share * factor[:, None].to(values.dtype)
        return share / share.flatten(1).sum(dim=1).reshape(-1, *(1,) * (share.ndim - 1))

    def on_cpu(self) -> Grid:
        """Return the grid with its tensors in the memory of the processor."""
        parts = {name: getattr(self, name) for name in ("coordinates", "weights", "inside")}
        moved: dict[str, Any] = {name: one.cpu() for name, one in parts.items() if one is not None}
        return replace(self, **moved, inputs={name: one.cpu() for name, one in self.inputs.items()})

    def repeated(self, frames: int) -> Grid:
        """Return the grid of every one of so many frames, one after another, of each sample.

        Coordinates stay those of the samples, so that what follows from them alone is computed once for all frames.
        """
        inputs = {name: each.repeat_interleave(frames, dim=0) for name, each in self.inputs.items()}
        parts = {name: getattr(self, name) for name in ("weights", "inside")}
        known: dict[str, Any] = {
            name: each.repeat_interleave(frames, dim=0) for name, each in parts.items() if each is not None
        }
        return replace(self, inputs=inputs, frames=True, **known)


@dataclass(frozen=True)
class ErrorMeasure:
    """An error measure: a function of tensors that is used on tensors and arrays.

    Example:
        >>> import numpy as np
        >>> def compute(prediction, truth, grid):
        ...     return (prediction - truth).abs().flatten(1).mean(dim=1)
        >>> measure = ErrorMeasure("mean_error", "mean of the absolute error", compute)
        >>> measure(np.array([[1.0, 2.0]]), np.array([[1.0, 0.0]]))
        array([1.])
    """

    name: str  # its key in logs, cards and reports
    meaning: str  # in a few words, for cards and reports
    # Returns errors `[batch]` of predictions and truth, fields as `Grid` has them, and their grid. NaN where a truth
    # has no such error, such as a relative one of a field that is constant.
    compute: Callable[[Tensor, Tensor, Grid], Tensor]
    applies: Callable[[Grid], bool] = lambda grid: True  # noqa: ARG005 -- whether it is defined on a grid
    lost: float = 1e3  # what counts for a rollout that overflows

    @overload
    def __call__(self, prediction: Tensor, truth: Tensor, grid: Grid | None = None) -> Tensor: ...

    @overload
    def __call__(self, prediction: Fields, truth: Fields, grid: Grid | None = None) -> NDArray[np.float64]: ...

    def __call__(self, prediction: Any, truth: Any, grid: Grid | None = None) -> Any:
        """Return the errors `[batch]`: of tensors in their precision, at least single, of arrays as an array in double.

        Args:
            prediction: A field `[batch, (component), *grid]`, on scattered points `[batch, point, (component)]`.
            truth: The true field, in the same units.
            grid: Where the values lie; by default on all axes but the first, `Grid.unit`.

        Raises:
            ValueError: The shapes differ, values are complex, one is a tensor and the other an array, tensors are not
                of floats, the grid is another one, or the function returns something else than a number per sample.
        """
        if prediction.shape != truth.shape:
            raise ValueError(f"expected fields of one shape but got {(*prediction.shape,)} and {(*truth.shape,)}")
        both = (prediction, truth)
        tensors = [each for each in both if isinstance(each, Tensor)]
        if len(tensors) == 1 or not all(
            each.is_floating_point() if tensors else each.dtype.kind in "fiub" for each in both
        ):
            kinds = " and ".join(f"{type(each).__name__} of {each.dtype}" for each in both)
            raise ValueError(
                f"{self.name}: expected two tensors of floats or two arrays of real numbers but got {kinds}"
            )
        grid = Grid.unit(truth.shape[1:]) if grid is None else grid
        grid.expect(truth)
        if isinstance(truth, Tensor):  # sums over a grid in half precision overflow, or lose most of their digits
            found, wanted = (each.float() if each.element_size() < 4 else each for each in both)
            return self.checked(self.compute(found, wanted, grid), truth)
        found, wanted = (torch.from_numpy(np.asarray(each, dtype=np.float64)) for each in (prediction, truth))
        return self.checked(self.compute(found, wanted, grid), wanted).numpy()

    def checked(self, errors: Tensor, truth: Tensor) -> Tensor:
        """Require a number per sample."""
        if errors.shape != truth.shape[:1]:
            raise ValueError(f"{self.name}: expected errors of shape {(len(truth),)} but got {(*errors.shape,)}")
        return errors


def relative(error: Tensor, size: Tensor, scale: Tensor) -> Tensor:
    """Divide errors by sizes of the truth `[batch]`; NaN where a size is zero up to the rounding of what it is made of.

    `scale` is the norm of those values: the deviation of a constant field is its rounding.
    """
    return torch.where(size > 4 * torch.finfo(size.dtype).eps * scale, error / size, torch.nan)


def measured(
    measures: Mapping[str, ErrorMeasure], predictions: Sequence[Tensor], truths: Sequence[Tensor], grid: Grid
) -> dict[str, Tensor]:
    """Compute every measure that is defined on a grid: by name the mean over the outputs, `[batch]`."""
    pairs = [*zip(predictions, truths, strict=True)]
    return {
        name: torch.stack([measure(*pair, grid) for pair in pairs]).nanmean(dim=0)
        for name, measure in measures.items()
        if measure.applies(grid)
    }
