r"""The error measures of fields.

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
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from torch import Tensor

from training.metrics.measure import ErrorMeasure, Grid, relative

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
