r"""What acts on every number by itself, on its neighbours, or on their mean.

Activations by name, dropout and standardisation; a mean of features over the domain; convolutions that know the
boundary of every axis, and a U-Net of such ones, which sees local features of several sizes, such as the jumps of a
material.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from training.messages import lookup
from training.nn.grids import CONVOLUTION, FIELDS, Field, expect, graphing

Activation = Literal["silu", "relu", "gelu", "none"]

ACTIVATION: dict[str, type[nn.Module]] = {"silu": nn.SiLU, "relu": nn.ReLU, "gelu": nn.GELU, "none": nn.Identity}


def build_activation(name: str) -> nn.Module:
    """Return a new activation layer.

    Raises:
        UnknownNameError: There is no such activation; the message lists the known names.

    Example:
        >>> build_activation("silu")
        SiLU()
    """
    return lookup(ACTIVATION, name, "kind of activation")()


DRAWN = 2**16  # values of the 16 random bits of an entry


class Dropout(nn.Dropout):
    r"""Set entries to 0 with probability :math:`p` in training and scale the others by :math:`1/(1-p)`.

    Torch's dropout draws one random number per entry. This one draws 64 random bits for four entries, which saves a
    sixth of a training step at the published rates. The probability is rounded to a multiple of 1/65536. In evaluation
    the layer is the identity.

    Example:
        >>> Dropout(0.5).eval()(torch.ones(3))
        tensor([1., 1., 1.])
    """

    def forward(self, x: Tensor) -> Tensor:
        dropped = round(self.p * DRAWN)
        if not self.training or not dropped:
            return x
        bits = torch.empty((x.numel() + 3) // 4, dtype=torch.int64, device=x.device).random_(-(2**63), None)
        drawn = bits.view(torch.int16)[: x.numel()].view(x.shape)
        kept = drawn >= dropped - DRAWN // 2 if dropped < DRAWN else torch.zeros_like(x, dtype=torch.bool)
        return torch.where(kept, x * (DRAWN / max(1, DRAWN - dropped)), 0.0)


#: Keeps a point that never varies, such as one on a wall, from a division by zero.
EPSILON = 1e-5


class Normaliser(nn.Module):
    r"""Standardise fields by the mean and the standard deviation of the training fields.

    .. math::
        z = (x - \mu) / \sigma

    The statistics are buffers, which are saved with the weights and exported with the graph: one pair of numbers for
    the whole field, one per channel, or one per grid point of a fixed grid.

    Args:
        grid: The shape of the statistics of one sample; `()` for one pair of numbers. The statistics are averaged over
            axes of length 1.
        relative: Add `EPSILON` times the standard deviation of the whole set to each deviation. Otherwise add `EPSILON`
            in physical units, as the reference project does.

    Example:
        >>> normaliser = Normaliser()
        >>> normaliser.fit(torch.tensor([[1.0, 3.0]]))
        >>> normaliser(torch.tensor([[1.0, 3.0]])).round(decimals=3)
        tensor([[-1.,  1.]])
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, grid: tuple[int, ...] = (), *, relative: bool = True) -> None:
        super().__init__()
        self.relative = relative
        self.register_buffer("mean", torch.zeros(grid))
        self.register_buffer("deviation", torch.ones(grid))

    @torch.no_grad()
    def fit(self, fields: Field) -> None:
        """Set mean and deviation to those of the samples `[sample, *grid]`, in physical units.

        What never varies has the deviation 1, so that its standardised values are 0.

        Raises:
            ValueError: There are no samples, or they are on another grid than the statistics.
        """
        grid = self.mean.shape or (1,) * (fields.ndim - 1)
        found = tuple(fields.shape)
        if (
            not fields.numel()
            or len(found) != 1 + len(grid)
            or any(side not in {1, points} for side, points in zip(grid, found[1:], strict=True))
        ):
            raise ValueError(
                f"Normaliser: expected samples [sample, *grid] for statistics {tuple(grid)} but got {found}"
            )
        fields = fields.double()
        averaged = (0, *(axis for axis, side in enumerate(grid, start=1) if side == 1))
        deviation, mean = torch.std_mean(fields, dim=averaged, correction=0, keepdim=True)
        self.mean.copy_(mean.reshape(self.mean.shape))
        floor = EPSILON * (fields.std(correction=0) if self.relative else 1)
        deviation = deviation + floor
        self.deviation.copy_(torch.where(deviation > 0, deviation, 1).reshape(self.mean.shape))

    def forward(self, x: Field) -> Field:
        return (x - self.mean) / self.deviation

    def inverse(self, z: Field) -> Field:
        r"""Return the field in physical units, :math:`x = \sigma z + \mu`."""
        return z * self.deviation + self.mean


# Means over the domain


class Pooling(nn.Module):
    r"""Map features `[batch, channel, *grid]` to numbers `[batch, number]` by their mean over the domain.

    .. math::
        y = W_2\,\sigma\Bigl(W_1 \frac{\sum_i w_i\,\sigma(W x_i)}{\sum_i w_i}\Bigr)

    The features are learned, so that the mean is that of a square, or of what lies near a wall: an energy, a drag. A
    mean depends on the resolution only by the error of its quadrature.

    With `domain` the weights differ from sample to sample, and the share of the grid that they cover is a feature: an
    integral grows with its domain.

    Example:
        >>> Pooling(4, 2)(torch.rand(3, 4, 6, 5), torch.ones(6, 5)).shape
        torch.Size([3, 2])
    """

    def __init__(self, channels: int, numbers: int, *, domain: bool = False) -> None:
        super().__init__()
        self.domain, width = domain, 2 * channels
        self.lift = nn.Sequential(nn.Linear(channels, width), nn.SiLU())
        self.head = nn.Sequential(nn.Linear(width + domain, width), nn.SiLU(), nn.Linear(width, numbers))

    def forward(self, x: Tensor, weights: Tensor) -> Tensor:
        """Pool by weights `[*grid]`, or `[batch, *grid]` of a domain."""
        features = self.lift(x.flatten(2).transpose(1, 2))  # [batch, point, feature]
        share = weights.flatten(1)[:, :, None] if self.domain else weights.flatten()[None, :, None]
        covered = share.sum(dim=1)
        mean = (features * share).sum(dim=1) / covered
        if self.domain:
            mean = torch.cat([mean, covered / share.shape[1]], dim=1)
        found: Tensor = self.head(mean)
        return found


def quadrature(sides: Sequence[int], halved: Sequence[bool]) -> Tensor:
    """Return the weights `[*grid]` of points of equal cells; `halved` per axis whether the outermost ones are at ends.

    Example:
        >>> quadrature([3, 2], [True, False])
        tensor([[0.5000, 0.5000],
                [1.0000, 1.0000],
                [0.5000, 0.5000]])
    """
    found = torch.ones(*sides)
    for axis, (side, at_ends) in enumerate(zip(sides, halved, strict=True)):
        along = torch.ones(side)
        if at_ends:
            along[[0, -1]] = 0.5
        found = found * along.reshape([side if other == axis else 1 for other in range(len(sides))])
    return found


# Stencils


LEVELS = 3
"""Levels of the U-Net, each half as fine as the one before."""
COARSEST = 2 ** (LEVELS - 1)
"""What the points of every axis have to be a multiple of."""
TRANSPOSED = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}


def expect_odd(kernel: int) -> None:
    """Require a stencil with as many points on either side: another one changes the grid.

    Raises:
        ValueError: It has an even number of points, or none.
    """
    if kernel < 1 or not kernel % 2:
        raise ValueError(f"expected a stencil of an odd number of points but got {kernel}")


class BoundaryConv(nn.Module):
    """Convolve over one to three axes and keep the size: padded around the circle, or by zeros at ends.

    Args:
        inputs: Channels in.
        outputs: Channels out.
        periodic: Whether the ends meet, per axis.
        kernel: Odd width of the stencil.
        groups: As in torch's convolutions; `inputs` for a stencil per channel.

    Raises:
        ValueError: `kernel` is even.

    Example:
        >>> BoundaryConv(2, 3, [True, False])(torch.zeros(1, 2, 8, 9)).shape
        torch.Size([1, 3, 8, 9])
    """

    def __init__(self, inputs: int, outputs: int, periodic: Sequence[bool], kernel: int = 3, groups: int = 1) -> None:
        super().__init__()
        expect_odd(kernel)
        self.periodic, self.width = tuple(periodic), kernel // 2
        self.convolution = CONVOLUTION[len(self.periodic)](inputs, outputs, kernel, groups=groups)

    def forward(self, x: Tensor) -> Tensor:
        width = self.width
        for axis, closed in enumerate(self.periodic, start=2):
            if closed:
                end = x.shape[axis]
                x = torch.cat([x.narrow(axis, end - width, width), x, x.narrow(axis, 0, width)], dim=axis)
            else:
                x = functional.pad(x, [0, 0] * (x.ndim - 1 - axis) + [width, width])
        return self.convolution(x)


class UNet(nn.Module):
    """Convolutions on three levels, each half as fine as the one before, with residuals and sums of the levels.

    Args:
        dimensions: Axes of the grid, of which each has a multiple of `COARSEST` points.
        inputs: Channels in.
        width: Channels out, and on the finest level; twice as many on each coarser one.
        blocks: Pairs of convolutions per level.
        convolution: Returns a convolution of three points per axis that keeps the grid, of channels in and out; by
            default one with zeros beyond the ends.

    Example:
        >>> UNet(2, 3, 4, blocks=1)(torch.zeros(1, 3, 8, 12)).shape
        torch.Size([1, 4, 8, 12])
    """

    def __init__(
        self,
        dimensions: int,
        inputs: int,
        width: int,
        blocks: int,
        convolution: Callable[[int, int], nn.Module] | None = None,
    ) -> None:
        super().__init__()
        self.inputs, self.dimensions = inputs, dimensions
        plain = CONVOLUTION[dimensions]
        wide = convolution or (lambda before, after: plain(before, after, 3, padding=1))
        widths = [width * 2**level for level in range(LEVELS)]
        self.first = wide(inputs, width)
        self.down = nn.ModuleList(plain(fine, coarse, 2, 2) for fine, coarse in pairwise(widths))
        self.up = nn.ModuleList(TRANSPOSED[dimensions](coarse, fine, 2, 2) for fine, coarse in pairwise(widths))
        self.before, self.after = (
            nn.ModuleList(nn.Sequential(*(Residual(wide, each) for _ in range(blocks))) for each in widths[:levels])
            for levels in (LEVELS, LEVELS - 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        expect(x, FIELDS, self.inputs, self, dimensions=self.dimensions)
        sides = tuple(x.shape[2:])
        if not graphing() and any(side % COARSEST for side in sides):
            raise ValueError(f"UNet: expected a multiple of {COARSEST} points on every axis but got {sides}")
        x, levels = self.first(x), []
        for block, down in zip(self.before[:-1], self.down, strict=True):
            levels.append(block(x))
            x = down(levels[-1])
        x = self.before[-1](x)
        for block, up, level in zip(reversed(self.after), reversed(self.up), reversed(levels), strict=True):
            x = block(level + up(x))
        return x


class Residual(nn.Module):
    """Add two convolutions of a field to it."""

    def __init__(self, convolution: Callable[[int, int], nn.Module], width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.SiLU(), convolution(width, width), nn.SiLU(), convolution(width, width))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)


# Tokens


class TokenStencil(nn.Module):
    """Convolve every channel over a grid of tokens `[batch, token, channel]`, with each axis' own boundary."""

    def __init__(self, grid: Sequence[int], channels: int, periodic: Sequence[bool], kernel: int) -> None:
        super().__init__()
        self.grid = tuple(grid)
        self.convolution = BoundaryConv(channels, channels, periodic, kernel, channels)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.convolution(tokens.transpose(1, 2).unflatten(2, self.grid)).flatten(2).transpose(1, 2)


def filled(x: Tensor, multiple: int, sides: Sequence[int], periodic: Sequence[bool]) -> Tensor:
    """Extend every axis of `[batch, channel, *grid]` to a multiple of some points, around the circle or by zeros."""
    for axis, (side, closed) in enumerate(zip(sides, periodic, strict=True), start=2):
        missing = -side % multiple
        more = x.narrow(axis, 0, missing)
        x = torch.cat([x, more if closed else torch.zeros_like(more)], dim=axis) if missing else x
    return x


def cropped(x: Tensor, sides: Sequence[int]) -> Tensor:
    """Take away what `filled` has added."""
    for axis, side in enumerate(sides, start=2):
        x = x.narrow(axis, 0, side)
    return x


def unpatch(tokens: Tensor, sides: Sequence[int], patch: int) -> Tensor:
    """Lay out tokens `[batch, token, channel * patch**axes]` as `[batch, channel, *grid]`."""
    axes = len(sides)
    x = tokens.transpose(1, 2).unflatten(2, tuple(sides)).unflatten(1, (-1, *(patch,) * axes))
    order = [0, 1, *(index for axis in range(axes) for index in (2 + axes + axis, 2 + axis))]
    x = x.permute(order)
    return x.reshape(x.shape[0], x.shape[1], *(side * patch for side in sides))
