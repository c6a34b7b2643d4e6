r"""What an error measure is, where the values lie that it compares, and the measures of fields.

With e = p - u, norms that are means over the points (by their weights where they have any) and over the components:

.. math::
    e_{L2} = \frac{\|e\|}{\|u\|}, \quad
    e_{H1} = \frac{\|\nabla e\|}{\|\nabla u\|}, \quad
    e_{max} = \frac{\max |e|}{\max |u|}, \quad
    e_{var} = \frac{\|e\|}{\|u - \bar u\|}, \quad
    e_{E} = \frac{\|\sqrt{E_p} - \sqrt{E_u}\|}{\|\sqrt{E_u}\|}.

The gradient of e_H1 (the seminorm: without e itself) is that of differences of neighbours over their distance; on a
periodic axis the last point is a neighbour of the first, elsewhere walls are left out; in a domain both have to be
inside. On scattered points it is fitted to each point's nearest neighbours, `gradients`. u-bar is the mean in space per
component. E(k) is the energy of the waves whose number rounds to k, so e_E is at most e_L2: it sees amplitudes and no
phases.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, overload, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import cKDTree
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


NEIGHBOURS = {1: 3, 2: 8, 3: 14}  # of a scattered point by dimension: enough for a gradient beside a boundary, too


def norm(x: Tensor) -> Tensor:
    """Return the Euclidean norm of each sample."""
    return x.flatten(1).norm(dim=1)


def unit(x: Tensor) -> Tensor:
    """Return a power of two near the largest value of each sample, `[batch, 1, ...]`.

    Squares of 1e20 overflow in single precision, and those of 1e-21 are 0. Division by a power of two does not round.

    Example:
        >>> unit(torch.tensor([[3e20, -5e20], [0.0, 3.0]])).log2()
        tensor([[69.],
                [ 2.]])
    """
    mantissa, exponent = torch.frexp(x.detach().abs().flatten(1).amax(1))
    found = torch.ldexp(torch.ones_like(mantissa), exponent.clamp(-126, 126))  # of normal numbers
    return found.reshape(-1, *(1,) * (x.ndim - 1))


def root(squares: Tensor) -> Tensor:
    """Return the square root, with the derivative 0 at 0; NaN stays NaN."""
    some = squares != 0
    return torch.where(some, squares, 1).sqrt() * some


def scaled(prediction: Tensor, truth: Tensor, grid: Grid) -> tuple[Tensor, Tensor]:
    """Return both fields inside the domain, divided by `unit` of the truth there."""
    prediction, truth = (grid.cleared(each) for each in (prediction, truth))
    one = unit(truth)
    return prediction / one, truth / one


def weighed(values: Tensor, weights: Tensor | None) -> Tensor:
    """Return a field `[batch, point, (component)]` times the root of what its points count, or as it is."""
    return values if weights is None else values * weights.sqrt().reshape(*weights.shape, *(1,) * (values.ndim - 2))


def relative_l2(prediction: Tensor, truth: Tensor, grid: Grid | None = None) -> Tensor:
    """Return e_L2 of each sample; infinite or NaN where the truth is zero.

    Example:
        >>> relative_l2(torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 0.0]]))
        tensor([2.])
    """
    if grid is not None:
        prediction, truth = (weighed(grid.cleared(each), grid.weights) for each in (prediction, truth))
    one = unit(truth)
    return norm((prediction - truth) / one) / norm(truth / one)


def relative_h1(prediction: Tensor, truth: Tensor, grid: Grid) -> Tensor:
    """Return e_H1 of each sample, the error of the gradient.

    Example:
        >>> relative_h1(torch.tensor([[0.0, 3.0, 6.0]]), torch.tensor([[0.0, 1.0, 2.0]]), Grid.unit((3,)))
        tensor([2.])
    """
    prediction, truth = scaled(prediction, truth, grid)
    u = grid.by_component(truth)
    scale = slope(u.abs(), grid, torch.add) if not grid.scattered else norm(u)
    return relative(slope(grid.by_component(prediction - truth), grid), slope(u, grid), scale)


def slope(field: Tensor, grid: Grid, change: Any = torch.sub) -> Tensor:
    """Return the norm `[batch]` of the gradient of a field `[batch, component, *grid]`.

    `change` combines the values of two neighbours; with their sum instead of their difference the result is the scale
    of what the differences are rounded to.
    """
    if grid.scattered:
        return points_slope(field, grid)
    squares = torch.zeros_like(field[:, 0].flatten(1)[:, 0])
    for axis, (spacing, periodic) in enumerate(zip(grid.spacings, grid.periodic, strict=True), start=2):
        if field.shape[axis] == 1:
            continue
        square = (change(*neighbours(field, axis, periodic=periodic)) / spacing).square()
        if grid.inside is None:
            squares = squares + square.flatten(1).mean(dim=1)
        else:
            first, second = neighbours(grid.inside[:, None].to(field.dtype), axis, periodic=periodic)
            faces = (first * second).expand_as(square)
            squares = squares + (square * faces).flatten(1).sum(dim=1) / faces.flatten(1).sum(dim=1).clamp_min(1)
    return root(squares)


def neighbours(field: Tensor, axis: int, *, periodic: bool) -> tuple[Tensor, Tensor]:
    """Return the following and the preceding value of every pair of neighbours along an axis."""
    if periodic:
        return field.roll(-1, axis), field
    return field.narrow(axis, 1, field.shape[axis] - 1), field.narrow(axis, 0, field.shape[axis] - 1)


def points_slope(field: Tensor, grid: Grid) -> Tensor:
    """Return the norm of the gradient on scattered points `[batch, component, point]`, each by its share."""
    assert grid.coordinates is not None  # noqa: S101 -- the measure does not apply without
    shares, found = grid.shares(field).expand(len(field), 1, -1), []
    frames = len(field) // len(grid.coordinates)
    for number, points in enumerate(grid.coordinates):
        rows = slice(number * frames, (number + 1) * frames)
        values, share = field[rows], shares[rows, 0]
        valid = share[0] > 0
        index, weight = gradients(points[valid].double().cpu().numpy())
        inner = values[:, :, valid]
        around = inner[:, :, torch.from_numpy(index).to(field.device)]  # [frame, component, point, neighbour]
        gradient = torch.einsum("fcpn,pnd->fcpd", around - inner[..., None], torch.from_numpy(weight).to(values))
        found.append((gradient.square().sum(dim=(1, 3)) * share[:, valid]).sum(dim=1))
    return root(torch.cat(found))


def gradients(points: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return gradients on scattered points as weighted differences: exact for linear fields, of first order else.

    The gradient at a point is that of the plane through its value which is nearest to the values of its neighbours, in
    least squares, each divided by its distance.

    Args:
        points: Coordinates `[point, dimension]`.

    Returns:
        Numbers of the neighbours `[point, neighbour]`, and the weights `[point, neighbour, dimension]` of the
        differences to them. Points that coincide have none, and neither has a single point.
    """
    count = max(0, min(NEIGHBOURS[points.shape[1]], len(points) - 1))
    if not count:
        return np.zeros((len(points), 0), np.int64), np.zeros((len(points), 0, points.shape[1]))
    distance, index = cKDTree(points).query(points, [*range(2, count + 2)])
    apart = points[index] - points[:, None]
    inverse = np.divide(1, distance, out=np.zeros_like(distance), where=distance > 0)
    weight = np.linalg.pinv(apart * inverse[..., None], rcond=1e-6) * inverse[:, None]  # [point, dimension, neighbour]
    return np.asarray(index, np.int64), np.ascontiguousarray(weight.swapaxes(1, 2))


def relative_maximum(prediction: Tensor, truth: Tensor, grid: Grid) -> Tensor:
    """Return e_max of each sample.

    Example:
        >>> relative_maximum(torch.tensor([[1.0, 3.0]]), torch.tensor([[1.0, 4.0]]), Grid.unit((2,)))
        tensor([0.2500])
    """
    prediction, truth = scaled(prediction, truth, grid)
    error, size = (each.flatten(1).abs().amax(dim=1) for each in (prediction - truth, truth))
    return relative(error, size, size)


def vrmse(prediction: Tensor, truth: Tensor, grid: Grid) -> Tensor:
    """Return e_var of each sample: a prediction of the mean has the error 1.

    Example:
        >>> vrmse(torch.tensor([[3.0, 3.0]]), torch.tensor([[4.0, 2.0]]), Grid.unit((2,)))
        tensor([1.])
    """
    prediction, truth = scaled(prediction, truth, grid)
    u = grid.by_component(truth)
    share = grid.shares(u)
    mean = (u * share).sum(dim=tuple(range(2, u.ndim)), keepdim=True)
    error, size, scale = (
        root((each.square() * share).flatten(1).sum(dim=1))
        for each in (grid.by_component(prediction - truth), u - mean, u)
    )
    return relative(error, size, scale)


def correlation(prediction: Tensor, truth: Tensor, grid: Grid) -> Tensor:
    """Return the correlation in space of prediction and truth of each sample.

    It is 0 where the prediction alone is constant, and NaN where the truth is: no prediction has any with it.
    """
    fields = [grid.cleared(each) for each in (prediction, truth)]
    p, u = (grid.by_component(each / unit(each)) for each in fields)
    share = grid.shares(u)
    over = tuple(range(2, u.ndim))
    first, second = ((each - (each * share).sum(dim=over, keepdim=True)) * share.sqrt() for each in (p, u))
    rounding = 4 * torch.finfo(u.dtype).eps
    sizes = [(norm(each), rounding * norm(whole * share.sqrt())) for each, whole in ((first, p), (second, u))]
    flat, constant = (size <= least for size, least in sizes)
    found = torch.where(flat, 0, (first * second).flatten(1).sum(dim=1) / (sizes[0][0] * sizes[1][0]))
    return torch.where(constant, torch.nan, found)


def relative_spectrum(prediction: Tensor, truth: Tensor, grid: Grid) -> Tensor:
    """Return e_E of each sample."""
    fields = scaled(prediction, truth, grid)
    p, u = (spectrum(grid.by_component(each), grid.axes).sqrt() for each in fields)
    return relative((p - u).norm(dim=1), u.norm(dim=1), u.norm(dim=1))


def spectrum(fields: Tensor, axes: int) -> Tensor:
    """Return the energy by wave number, summed over spheres of equal integer radius: `[sample, wave number]`.

    Args:
        fields: Values `[sample, ..., *grid]`; all axes between sample and grid are summed over.
        axes: The number of axes of the grid.
    """
    sides = fields.shape[fields.ndim - axes :]
    over = tuple(range(fields.ndim - axes, fields.ndim))
    energy = (torch.fft.fftn(fields, dim=over) / math.prod(sides)).abs().square()
    numbers = torch.meshgrid(*(torch.fft.fftfreq(side, 1 / side) for side in sides), indexing="ij")
    radius = sum((each.square() for each in numbers), torch.zeros(())).sqrt().round().long().flatten()
    whole = energy.reshape(len(fields), -1, radius.numel()).sum(dim=1)
    return whole.new_zeros(len(fields), int(radius.max()) + 1).index_add(1, radius.to(whole.device), whole)


def on_waves(grid: Grid) -> bool:
    """Return whether a grid has a spectrum: it is periodic, and without a mask."""
    return not grid.scattered and grid.inside is None and bool(grid.periodic) and all(grid.periodic)


METRIC = (
    ErrorMeasure("relative_l2", "relative L2 error", relative_l2),
    ErrorMeasure(
        "relative_h1",
        "relative H1 error, of the gradient",
        relative_h1,
        lambda grid: not grid.scattered or grid.coordinates is not None,
    ),
    ErrorMeasure("relative_maximum", "largest error over the largest value", relative_maximum),
    ErrorMeasure("vrmse", "error over the deviation from the mean", vrmse),
    ErrorMeasure("relative_spectrum", "relative error of wave amplitudes", relative_spectrum, on_waves),
    ErrorMeasure("correlation", "correlation with the truth", correlation, lambda grid: grid.frames, lost=0.0),
)
