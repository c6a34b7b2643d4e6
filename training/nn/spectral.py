r"""Truncated Fourier series as matrix products: resampling of periodic fields, and layers that act on waves.

Only the lowest modes are kept, so no FFT is needed. With the bases

.. math::
    C_{jk} = \cos(2\pi jk/n), \qquad S_{jk} = \sin(2\pi jk/n), \qquad 0 \le j < n,\ 0 \le k < M,

the coefficients of :math:`x` are :math:`(C - iS)^T x/n`. The product :math:`jk` is reduced modulo :math:`n` in integers
before the cast to float, because the angles would lose digits otherwise. The inverse transform keeps the real part. So
the imaginary parts of the zero mode and of a Nyquist mode have no effect, and a Nyquist mode counts once.

An axis whose ends do not meet is transformed with twice its length as period. This costs no padded points: the sums run
over the points that are there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from training.nn.grids import CONVOLUTION, FEATURES, FIELDS, AxisRule, Channels, Features, expect, indices
from training.nn.pointwise import Activation, Dropout, build_activation

Basis = Float[Tensor, "point mode"]
Waves = Int[Tensor, " mode"]
Points = Int[Tensor, " point"]
Gate = Literal["silu", "sigmoid"]


def waves(points: Points, modes: Waves, n: Int[Tensor, " 1"], dtype: torch.dtype) -> tuple[Basis, Basis]:
    """Return cos and sin of 2 pi j k / n, each `[point, mode]`, for the points j and the wave numbers k.

    Angles are in single precision at least: those of half precision are off by a hundredth.
    """
    if dtype in {torch.bfloat16, torch.float16}:
        cos, sin = waves(points, modes, n, torch.float32)
        return cos.to(dtype), sin.to(dtype)
    angle = turn(dtype) * (torch.remainder(points[:, None] * modes, n).to(dtype) / n.to(dtype))
    return torch.cos(angle), torch.sin(angle)


def turn(dtype: torch.dtype) -> float | Tensor:
    """Return 2 pi. The exporter rounds Python's numbers to float32, also where they multiply float64."""
    return torch.tensor(2 * math.pi, dtype=dtype) if dtype == torch.float64 else 2 * math.pi


def hermitian(points: Points, modes: Waves, dtype: torch.dtype) -> Float[Tensor, " mode"]:
    """Return how often the whole spectrum holds each mode of the half spectrum: zero and Nyquist once, others twice."""
    return torch.where((modes > 0) & (2 * modes <= points[-1:]), 2, 1).to(dtype)


def band_limited(
    x: Float[Tensor, "batch channel ..."], sides: Sequence[Tensor], rules: Sequence[AxisRule], numbers: Sequence[int]
) -> Tensor:
    """Carry fields on periodic axes to another grid by their Fourier series, which keeps what both grids resolve.

    Args:
        x: Fields `[batch, channel, *source]`.
        sides: Per axis the indices 0..n-1 of the target's points; only their number matters.
        rules: Per axis where the points of both grids lie.
        numbers: Per axis how many wave numbers are kept at most, from 0.

    Returns:
        Fields `[batch, channel, *target]`.

    Example:
        >>> x = torch.cos(2 * torch.pi * torch.arange(4) / 4)[None, None]
        >>> band_limited(x, [torch.arange(8)], [AxisRule("left", periodic=True)], [3])[0, 0, :2].round(decimals=4)
        tensor([1.0000, 0.7071])
    """
    for axis, (target, rule, count) in enumerate(zip(sides, rules, numbers, strict=True), start=2):
        source = torch.arange(x.shape[axis], device=x.device)
        wave = torch.arange(count, device=source.device)
        resolved = (2 * wave <= source[-1:] + 1) & (2 * wave <= target[-1:] + 1)
        weight = hermitian(source, wave, x.dtype) * resolved.to(x.dtype) / (source[-1:] + 1).to(x.dtype)
        shift = 1 if rule.points == "cells" else 0  # locations in half intervals, so that centres are whole numbers
        (cos, sin), (far_cos, far_sin) = (
            waves(2 * points + shift, wave, 2 * (points[-1:] + 1), x.dtype) for points in (source, target)
        )
        weights = (far_cos * weight) @ cos.T + (far_sin * weight) @ sin.T
        x = torch.matmul(x.movedim(axis, -1), weights.T).movedim(-1, axis)
    return x


class AxisTransform(NamedTuple):
    """The transform along one axis: its basis, and the weight of each mode in the inverse (0 drops the mode)."""

    cos: Basis
    sin: Basis
    weight: Float[Tensor, " mode"]


def transforms(
    points: Sequence[Tensor], modes: Sequence[int], dtype: torch.dtype, lengths: Sequence[int] | None = None
) -> list[AxisTransform]:
    """Return the transforms of a grid: wave numbers 0..M-1 of the last axis, -M..M-1 of the others.

    Modes that the grid does not resolve weigh 0, and of equal aliases at most one has a weight.

    Args:
        points: The indices 0..n-1 of each axis.
        modes: M of each axis.
        dtype: The dtype of the bases.
        lengths: The period of each axis in lengths of it, 1 by default; beyond the axis the field is zero.
    """
    found = []
    for axis, (index, count, length) in enumerate(zip(points, modes, lengths or [1] * len(points), strict=True)):
        if axis == len(points) - 1:
            wave, n = torch.arange(count, device=index.device), (index[-1:] + 1) * length
            weight = hermitian(n - 1, wave, dtype) * (2 * wave <= n).to(dtype) / n.to(dtype)
        else:
            wave, n = torch.arange(-count, count, device=index.device), (index[-1:] + 1) * length
            held = torch.clamp(torch.div(n, 2, rounding_mode="floor") + 1, max=count)
            weight = ((wave >= -held) & (wave < n - held)).to(dtype) / n.to(dtype)
        found.append(AxisTransform(*waves(index, wave, n, dtype), weight))
    return found


# Every transform is `linear` on the last axis, which is one large matrix product; a broadcast product would loop over
# batch and channels. So each axis is moved to the end before it is transformed, which reverses the order of the axes.
# Real and imaginary part are concatenated, because a complex product would be four real ones and two sums.


def transform(x: Channels, axes: Sequence[AxisTransform]) -> tuple[Tensor, Tensor]:
    """Transform `[..., *points]` to real and imaginary part `[..., last mode, ..., first mode]`, last axis first."""
    *others, last = axes
    real, imaginary = functional.linear(x, torch.cat([last.cos, -last.sin], dim=-1).T).chunk(2, dim=-1)
    for position, axis in enumerate(reversed(others), start=2):
        real, imaginary = (part.movedim(-1, position) for part in (real, imaginary))
        real, imaginary = complex_linear(real, imaginary, axis.cos.T, -axis.sin.T)
    return real, imaginary


def inverse(real: Tensor, imaginary: Tensor, axes: Sequence[AxisTransform]) -> Features:
    """Transform `[..., last mode, ..., first mode]` back to `[..., *points]`, and keep the real part."""
    scaled = [(axis.cos * axis.weight, axis.sin * axis.weight) for axis in axes]
    *others, (last_cos, last_sin) = scaled
    for position, (cos, sin) in zip(range(len(axes), 1, -1), others, strict=True):
        real, imaginary = (part.movedim(position, -1) for part in complex_linear(real, imaginary, cos, sin))
    return functional.linear(torch.cat([real, imaginary], dim=-1), torch.cat([last_cos, -last_sin], dim=-1))


def complex_linear(real: Tensor, imaginary: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Multiply the complex last axis by the complex matrix cos + i sin `[out, in]`, in one real product."""
    matrix = torch.cat([torch.cat([cos, -sin], dim=-1), torch.cat([sin, cos], dim=-1)], dim=-2)
    product, half = functional.linear(torch.cat([real, imaginary], dim=-1), matrix), cos.shape[0]
    return product[..., :half], product[..., half:]  # `chunk` would freeze an exported grid


class SpectralConv(nn.Module):
    r"""Multiply the lowest Fourier modes of features by learned complex matrices and add a pointwise linear map.

    .. math::
        y = \mathrm{act}(F^{-1}(W\,F x) + A x + b)

    The last axis keeps the wave numbers 0..M-1 and every other axis -M..M-1; the first term drops the others. An axis
    of n points resolves at most :math:`\lfloor n/2\rfloor + 1` modes. On a coarser grid the layer uses the modes that
    the grid resolves. Where 2M > n, the positive and the negative wave numbers of an axis overlap and the negative ones
    are used, as in the reference project.

    Args:
        inputs: The number of channels in.
        outputs: The number of channels out.
        modes: The number of wave numbers per axis, M.
        dimensions: The number of axes, 1 to 3.
        activation: The activation of the sum.
        dropout: The dropout rate before the transform. The pointwise map has none. It is 0 in evaluation.
        deviation: The standard deviation of the initial spectral weights; None is 1 / sqrt(inputs * outputs).

    Raises:
        ValueError: `modes` is less than 1, or `dimensions` is not 1, 2 or 3.

    References:
        | Fourier Neural Operator for Parametric Partial Differential Equations (Li et al., ICLR 2021)
        | https://arxiv.org/abs/2010.08895
        | Choose a Transformer: Fourier or Galerkin (Cao, NeurIPS 2021), appendix C
        | https://arxiv.org/abs/2105.14995

    Example:
        >>> layer = SpectralConv(3, 8, modes=5, dimensions=2)
        >>> layer(torch.randn(4, 3, 16, 12)).shape
        torch.Size([4, 8, 16, 12])
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        modes: int,
        dimensions: int,
        *,
        activation: Activation = "silu",
        dropout: float = 0.0,
        deviation: float | None = None,
    ) -> None:
        super().__init__()
        if modes < 1 or dimensions not in CONVOLUTION:
            raise ValueError(f"expected at least 1 mode and 1 to 3 axes but got {modes} modes and {dimensions} axes")
        self.modes, self.inputs, self.dimensions = modes, inputs, dimensions
        scale = (inputs * outputs) ** -0.5 if deviation is None else deviation
        # One complex matrix per mode, real and imaginary part last. The modes of the last axis vary slowest.
        self.weight = nn.Parameter(scale * torch.randn(modes * (2 * modes) ** (dimensions - 1), inputs, outputs, 2))
        self.residual = CONVOLUTION[dimensions](inputs, outputs, 1)
        self.dropout = Dropout(dropout)
        self.activation = build_activation(activation)

    def forward(self, x: Channels) -> Features:
        expect(x, FIELDS, self.inputs, self, dimensions=self.dimensions)
        return self.activation(self.global_part(self.dropout(x)) + self.residual(x))

    def global_part(self, x: Channels) -> Features:
        """Multiply the lowest modes by the matrices."""
        axes = transforms(indices(x.shape[2:], x.device), [self.modes] * (x.ndim - 2), x.dtype)
        real, imaginary = transform(x, axes)
        shape = real.shape[2:]
        real, imaginary = (part.flatten(2).permute(2, 0, 1) for part in (real, imaginary))
        # One real product of twice the width replaces the four products of a complex one; a graph holds its matrix.
        a, b = self.weight.unbind(-1)
        matrix = torch.cat([torch.cat([a, b], dim=-1), torch.cat([-b, a], dim=-1)], dim=-2)
        real, imaginary = (torch.cat([real, imaginary], dim=-1) @ matrix).chunk(2, dim=-1)
        real, imaginary = (part.permute(1, 2, 0).unflatten(2, shape) for part in (real, imaginary))
        return inverse(real, imaginary, axes)


class OnOneGrid(nn.Module):
    """A layer whose transforms are those of one grid: buffers that no checkpoint holds.

    They are computed once, and anew where the layer changes its precision or its device. So those of a layer that was
    made on the device `meta` are there once its weights are, and `double` makes them as exact as its numbers.
    """

    def keep_transforms(self, modes: int, periodic: Sequence[bool], sides: Sequence[int]) -> None:
        """Compute the transforms; the period of an axis with ends is twice its length."""
        self.sides, self.kept_modes = tuple(sides), modes
        self.lengths = [1 if closed else 2 for closed in periodic]
        self.compute_transforms(torch.get_default_dtype(), None)

    def compute_transforms(self, dtype: torch.dtype, device: torch.device | None) -> None:
        """Compute the transforms in a precision and on a device."""
        axes = transforms(indices(self.sides, device), [self.kept_modes] * len(self.sides), dtype, self.lengths)
        for number, axis in enumerate(axes):
            for name, basis in axis._asdict().items():
                self.register_buffer(f"{name}{number}", basis, persistent=False)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> OnOneGrid:
        before = self.get_buffer("cos0")
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]  # of torch
        after = self.get_buffer("cos0")
        if (before.dtype, before.device) != (after.dtype, after.device) and not after.is_meta:
            self.compute_transforms(after.dtype, after.device)
        return self

    def multiply(self, x: Tensor, matrices: Float[Tensor, "mode _ _"]) -> Tensor:
        """Multiply the lowest modes of `[batch, channel, *grid]` by complex matrices, both parts side by side.

        A real matrix of twice the size, as in `SpectralConv`, would take three times as long in training.
        """
        known = self.get_buffer("cos0")
        if known.is_meta and not x.is_meta:  # of weights that were assigned; torch would read anything
            self.compute_transforms(known.dtype, x.device)
        names, dimensions = AxisTransform._fields, x.ndim - 2
        axes = [AxisTransform(*(getattr(self, f"{name}{axis}") for name in names)) for axis in range(dimensions)]
        real, imaginary = transform(x, axes)
        batch, shape, outputs = real.shape[0], real.shape[2:], matrices.shape[-1] // 2
        both = torch.cat([part.flatten(2).permute(2, 0, 1) for part in (real, imaginary)], dim=1) @ matrices
        of_real, of_imaginary = both[:, :batch], both[:, batch:]
        real = of_real[..., :outputs] - of_imaginary[..., outputs:]
        imaginary = of_real[..., outputs:] + of_imaginary[..., :outputs]
        real, imaginary = (part.permute(1, 2, 0).unflatten(2, shape) for part in (real, imaginary))
        return inverse(real, imaginary, axes)


class BoundarySpectralConv(OnOneGrid, SpectralConv):
    """A `SpectralConv` on one grid that knows each axis' boundary.

    Args:
        inputs: Channels in.
        outputs: Channels out.
        modes: Wave numbers kept on each axis, counted in the axis' transform.
        periodic: Whether the ends meet, per axis.
        sides: Points per axis; the bases are computed once.

    Example:
        >>> BoundarySpectralConv(2, 3, 4, [True, False], (8, 9))(torch.zeros(1, 2, 8, 9)).shape
        torch.Size([1, 3, 8, 9])
    """

    def __init__(self, inputs: int, outputs: int, modes: int, periodic: Sequence[bool], sides: Sequence[int]) -> None:
        super().__init__(inputs, outputs, modes, len(periodic))
        self.keep_transforms(modes, periodic, sides)

    def global_part(self, x: Channels) -> Features:
        expect(x, FIELDS, self.inputs, self, grid=self.sides)
        return self.multiply(x, torch.cat(self.weight.unbind(-1), dim=-1))


def matrices(channels: int, modes: int, axes: int) -> nn.Parameter:
    """Draw a complex matrix per mode, real and imaginary part side by side: `[mode, channel, 2 channel]`."""
    return nn.Parameter(torch.randn(modes * (2 * modes) ** (axes - 1), channels, 2 * channels) / channels)


class GatedSpectralLayer(OnOneGrid):
    r"""Mix features over the grid by their lowest modes, then multiply pairs of channels.

    .. math::
        y = F^{-1}(W\,F x) + A x, \qquad x \leftarrow x + C\,\bigl(\mathrm{silu}(B_1 y) \odot B_2 y\bigr)

    It is for smooth fields whose equations multiply them with themselves. The transform moves and derives, as the
    linear part of an equation does; the product of channels is what its nonlinear terms, such as :math:`u\,u_x`, are
    made of. Products of products may overflow while a network learns; the bounded gate "sigmoid" lets a layer's output
    grow in proportion to its input. The channels are the last axis, so that every pointwise map is one matrix product.

    Args:
        channels: Features.
        modes: Wave numbers kept on each axis.
        periodic: Whether the ends meet, per axis; the period of an axis with ends is twice its length.
        sides: Points per axis; the bases are computed once.
        gate: The function of the first channel of a pair.

    Example:
        >>> GatedSpectralLayer(4, 3, [True, False], (8, 9))(torch.zeros(2, 8, 9, 4)).shape
        torch.Size([2, 8, 9, 4])
    """

    def __init__(
        self, channels: int, modes: int, periodic: Sequence[bool], sides: Sequence[int], gate: Gate = "silu"
    ) -> None:
        super().__init__()
        gates: dict[Gate, Callable[[Tensor], Tensor]] = {"silu": functional.silu, "sigmoid": torch.sigmoid}
        self.gate = gates[gate]
        self.keep_transforms(modes, periodic, sides)
        self.weight = matrices(channels, modes, len(sides))
        self.pointwise = nn.Linear(channels, channels)
        self.branches = nn.Linear(channels, 2 * channels)
        self.join = nn.Linear(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        """Return features `[batch, *grid, channel]` of the same shape."""
        expect(x, FEATURES, self.pointwise.in_features, self, grid=self.sides)
        mixed = self.multiply(x.movedim(-1, 1), self.weight).movedim(1, -1)
        first, second = self.branches(mixed + self.pointwise(x)).chunk(2, dim=-1)
        return x + self.join(self.gate(first) * second)


class LinearSpectralLayer(OnOneGrid):
    r"""Mix features over the grid by their lowest modes, between two products with features of a medium.

    .. math::
        y = a(m) \odot x, \qquad x \leftarrow x + C\,\bigl(b(m) \odot B\,(F^{-1}(W\,F y) + A y)\bigr)

    It is for equations that are linear in some of their inputs, as :math:`-\nabla\cdot(k\nabla T) = f` in f: there k
    multiplies between two derivatives. The maps a and b of the medium's features m have constant terms, those of x have
    none, so the result is linear in x.

    Args:
        channels: Features, and those of the medium.
        modes: Wave numbers kept on each axis.
        periodic: Whether the ends meet, per axis; the period of an axis with ends is twice its length.
        sides: Points per axis; the bases are computed once.

    Example:
        >>> layer = LinearSpectralLayer(4, 3, [True, False], (8, 9))
        >>> layer(torch.zeros(2, 8, 9, 4), torch.ones(2, 8, 9, 4)).abs().sum().item()
        0.0
    """

    def __init__(self, channels: int, modes: int, periodic: Sequence[bool], sides: Sequence[int]) -> None:
        super().__init__()
        self.keep_transforms(modes, periodic, sides)
        self.weight = matrices(channels, modes, len(sides))
        self.before, self.after = nn.Linear(channels, channels), nn.Linear(channels, channels)
        self.pointwise, self.branch, self.join = (nn.Linear(channels, channels, bias=False) for _ in range(3))

    def forward(self, x: Tensor, medium: Tensor) -> Tensor:
        """Return features `[batch, *grid, channel]` of the same shape, linear in `x`."""
        for each in (x, medium):
            expect(each, FEATURES, self.pointwise.in_features, self, grid=self.sides)
        y = self.before(medium) * x
        mixed = self.multiply(y.movedim(-1, 1), self.weight).movedim(1, -1)
        return x + self.join(self.after(medium) * self.branch(mixed + self.pointwise(y)))
