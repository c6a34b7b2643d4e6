"""Families of inputs that are foreign to any training distribution, made from inputs of the distribution itself.

A card says which share of each family a calibrated model finds outside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn import functional

SMOOTHED_POINTS = 4  # per axis
INTERPOLATION = {1: "linear", 2: "bilinear", 3: "trilinear"}


def scaled(x: Tensor) -> Tensor:
    """Return ten times the field."""
    return 10 * x


def constant(x: Tensor) -> Tensor:
    """Return the field's mean everywhere."""
    return x.mean(tuple(range(1, x.ndim)), keepdim=True).expand_as(x)


def contrasted(x: Tensor) -> Tensor:
    """Return the field with three times the deviation from its mean, of the logarithm where it is positive."""
    if (x > 0).all():
        return contrasted(x.log()).exp()
    mean = constant(x)
    return mean + 3 * (x - mean)


def shuffled(x: Tensor) -> Tensor:
    """Return the field's values at other points, in an order that is drawn once."""
    order = torch.randperm(x[0].numel(), generator=torch.Generator().manual_seed(0))
    return x.flatten(1)[:, order].reshape(x.shape)


def smoothed(x: Tensor) -> Tensor:
    """Return the field interpolated linearly between a few of its points."""
    axes = x.ndim - 1
    coarse = functional.interpolate(x[:, None], [SMOOTHED_POINTS] * axes, mode=INTERPOLATION[axes], align_corners=True)
    return functional.interpolate(coarse, x.shape[1:], mode=INTERPOLATION[axes], align_corners=True)[:, 0]


def compressed(x: Tensor) -> Tensor:
    """Return the field at half its size, twice along every axis."""
    for axis in range(1, x.ndim):
        half = x.index_select(axis, torch.arange(0, x.shape[axis], 2))
        x = torch.cat([half, half], axis).narrow(axis, 0, x.shape[axis])
    return x


def spiked(x: Tensor) -> Tensor:
    """Return the field with a single point far above all others."""
    flat = x.flatten(1).clone()
    low, high = flat.amin(1), flat.amax(1)
    flat[:, flat.shape[1] // 3] = high + 3 * (high - low) + high.abs()
    return flat.reshape(x.shape)


#: Foreign families by name; each maps scalar fields `[sample, *grid]` to others.
FAMILIES: Mapping[str, Callable[[Tensor], Tensor]] = {
    family.__name__: family for family in (scaled, constant, contrasted, shuffled, smoothed, compressed, spiked)
}
