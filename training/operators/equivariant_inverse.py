r"""The inverse Darcy operator for materials of any scale, which sees interfaces below the spacing of the working grid.

.. code-block:: text

    solution [B, H, W]
      -> divided by a scale of its own
      -> standardised pressure, and its slopes and curvatures averaged over narrow widths [B, D, F, F]
      -> one patch per block -> add those averaged over wide widths: tokens [B, T*T, C] -> L encoder layers
      -> convolution -> logit of each block
      -> those features and the kinks of the pressure on its own grid -> convolutions -> logit of each working point
      -> share of the more permeable material at each working point -> means over the blocks
      -> times the scale at which the pressure of this permeability is nearest to the input
    coefficient [B, T, T]

The path through the blocks is that of `darcy_inverse`, whose weights it can start from.

Where two materials meet, the flux a u' is continuous and u' is not. A second difference across the interface has a part
for either neighbour of it, and their ratio is the position of the interface between two points. So the convolutions on
the working grid see below its spacing. Inside a material -1/Laplace(u) is its permeability.

The scale makes the map equivariant: the permeability of c u is that of u divided by c. It is first estimated from the
pressure's shape, to about a hundredth. The output takes the one of least squares: with the pressure p of the predicted
permeability, which finite volumes on the working grid give, the least distance of u and c p is at

.. math::
    c = \frac{\langle p, u \rangle}{\langle p, p \rangle}, \qquad m = \frac{\|u - c p\|}{\|u\|},

where m is the misfit: how far the output is from explaining the input. A point of both materials has an effective
permeability between the harmonic and the arithmetic mean, for which their geometric mean stands.

The deviation of the noise may be given. Tokens and working points then get its logarithm, relative to the spread of the
training pressures; else the network infers the noise from the pressure's roughness alone. Training gives it in a half
of the samples.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from physics.numerics.grid import WALL
from training.losses.relative import relative_l2
from training.nn.coordinates import indices
from training.nn.elliptic import certified_gradients as gradients
from training.nn.elliptic import fast_diagonalisation
from training.nn.measured.curvature import FEATURES, Axis
from training.nn.measured.kinks import KINKS, kinks
from training.nn.measured.pressure_scale import PressureScale
from training.nn.resampling.interpolation import sample
from training.nn.shapes import Blocks, Features, Plane
from training.operators.darcy_inverse import STEPS, DarcyInverseConfig, DarcyInverseOperator, bounded
from training.operators.operator import OperatorKind

FINE = 0.3
"""Weight of the error on the working grid in the loss."""

SMALLEST = 1e-30
"""The size of a pressure of 0."""

SMOOTHEST = 1e-3
"""The least mean size of the curvatures, relative to that of the training fields."""

CORRECTED = 4.0
"""The most by which the least squares change the first estimate of the scale."""

JITTER = 0.015
"""Standard deviation of the logarithm by which training misses the scale of a pressure, as the estimate does."""


QUIET = 1e-3
"""Noise below this share of the spread of the training pressures makes little difference."""

GIVEN = 0.5
"""Share of the training samples whose noise is given."""

UNKNOWN = -1.0
"""The deviation of a noise that is not given."""

Noise = Float[Tensor, " batch"]


class EquivariantInverseConfig(DarcyInverseConfig):
    """Sizes of an equivariant inverse operator."""

    kind: Literal["equivariant-inverse"] = "equivariant-inverse"  # type: ignore[assignment]  # a kind of its own
    detail: int = 24  # features of a working point


class EquivariantInverseOperator(DarcyInverseOperator):
    """See the diagram of the module. The config fixes every size.

    Example:
        >>> config = EquivariantInverseConfig(working=29, tokens=8, patch=16, channels=16, layers=1)
        >>> operator, pressure = EquivariantInverseOperator(config).eval(), torch.rand(2, 40, 30)
        >>> torch.allclose(operator(pressure / 2), 2 * operator(pressure), rtol=1e-4)
        True
    """

    config: EquivariantInverseConfig
    optional = True

    def __init__(self, config: EquivariantInverseConfig) -> None:
        super().__init__(config)
        self.scale = PressureScale(config.tokens)
        self.detail = Detail(FEATURES * len(config.narrow) + 2 + KINKS, config)
        self.head = nn.Sequential(*list(self.head)[:-1])  # the logit of each block
        self.told = nn.Linear(2, config.channels + config.detail, bias=False)
        nn.init.zeros_(self.told.weight)

    @torch.no_grad()
    def fit_normalisers(self, solutions: Plane, coefficients: Blocks) -> None:
        """Set the statistics to those of the training fields, and fit the estimate of the scale to them."""
        super().fit_normalisers(solutions, coefficients)
        self.scale.fit(solutions)

    def forward(self, solution: Plane, noise: Noise | None = None) -> Blocks:
        return self.with_quality(solution, *([] if noise is None else [noise]))[0]

    def with_quality(self, *fields: Plane | Noise) -> tuple[Blocks, Float[Tensor, "batch 1"]]:
        """Return the block means, and the misfit of their pressure.

        Args:
            fields: The measured pressure `[batch, row, column]`, and the deviation of its noise `[batch]` in the same
                units, if it is given; negative where it is not known.

        Returns:
            The block means `[batch, block, block]`, and the relative L2 distance between the measured pressure and that
            of the output `[batch, 1]`.
        """
        # In double precision: differences of the pressure amplify the rounding of its division by a scale.
        measured, *noise = (each.double() for each in fields)
        first = self.scale(measured)
        solution, noise = measured / first, [each / first[:, 0, 0] for each in noise]
        shares = self.shares(solution, *noise)
        explained = sample(self.pressure(shares), *indices(solution.shape[1:], solution.device)).double()
        # Of the measured pressure itself: the first estimate of the scale would cancel in it, to rounding only.
        overlap, size = ((each * explained).mean(dim=(1, 2), keepdim=True) for each in (measured, explained))
        second = torch.minimum(torch.maximum(overlap / size, first / CORRECTED), first * CORRECTED)
        distance = torch.linalg.vector_norm((second / first) * explained - solution, dim=(1, 2))
        misfit = distance / torch.linalg.vector_norm(solution, dim=(1, 2)).clamp(min=SMALLEST)
        coefficient = self.means(self.blocks(shares)) / second
        return coefficient.to(fields[0].dtype), misfit[:, None].to(fields[0].dtype)

    def canonical(self, *fields: Tensor) -> tuple[Tensor, ...]:
        """Return the pressure divided by its scale: as if its materials were the trained ones."""
        solution = fields[0].double()
        return ((solution / self.scale(solution)).to(fields[0].dtype),)

    def own_loss(self, *fields: Plane | Noise) -> Float[Tensor, ""]:
        """Return the loss of training samples, whose scale is 1.

        Args:
            fields: The measured pressure, the permeability on the working grid, and the deviation of the noise, if
                there is any.

        Returns:
            The relative L2 error of the block means, plus a part of that on the working grid.
        """
        solution, coefficient, *noise = fields
        missed = torch.exp(JITTER * torch.randn_like(solution[:, :1, :1]))
        known = [torch.where(torch.rand_like(each) < GIVEN, each * missed[:, 0, 0], UNKNOWN) for each in noise]
        shares, truth = self.shares(solution * missed, *known), (coefficient - self.low) / (self.high - self.low)
        pairs = (shares, truth), (self.blocks(shares), self.blocks(truth))
        fine, coarse = (relative_l2(self.means(one), self.means(other)).mean() for one, other in pairs)
        return coarse + FINE * fine

    def blocks(self, points: Plane) -> Blocks:
        """Return the means over the blocks of values on the working grid."""
        total, count = (self.padded(each[:, None]) for each in (points, torch.ones_like(points[:1])))
        sides = (self.config.tokens, self.config.block)
        total, count = (each[:, 0].unflatten(2, sides).unflatten(1, sides).sum(dim=(2, 4)) for each in (total, count))
        return total / count

    def padded(self, x: Features, halo: int = 0) -> Features:
        """Return fields on the working grid with zeros around them, which fill the outermost blocks and their halo."""
        before = self.overhang // 2
        return functional.pad(x, [before + halo, self.overhang - before + halo] * 2)

    def pressure(self, shares: Plane) -> Plane:
        """Return the pressure on the working grid to the shares of the more permeable material there."""
        harmonic = 1 / ((1 - shares) / self.low + shares / self.high)
        scale = torch.sqrt(self.low * self.high)
        effective = torch.sqrt(self.means(shares) * harmonic) / scale
        axis = fast_diagonalisation.axis(torch.arange(self.config.working, device=shares.device), WALL, shares.dtype)
        volumes = gradients.Volumes.of(axis, axis)
        each = torch.ones_like(shares[:, :1, :1])
        bounds = gradients.Range(each * self.low / scale, each * self.high / scale)
        load = volumes.areas.expand_as(effective)
        return gradients.solve(volumes, gradients.means(effective), load, bounds, STEPS).solution / scale

    def shares(self, solution: Plane, noise: Noise | None = None) -> Float[Tensor, "batch point_row point_column"]:
        """Return the share of the more permeable material at each point of the working grid, in (0, 1)."""
        pressure, narrow, wide = self.measure(solution)
        narrow, wide = narrow / self.narrow_sizes, wide / self.wide_sizes
        bends = narrow[:, FEATURES - 1 : FEATURES].abs().mean(dim=(2, 3), keepdim=True)
        roughness = torch.log(bends.clamp(min=SMOOTHEST))
        fine = bounded(torch.cat([self.input_normaliser(pressure)[:, None], narrow], dim=1))
        coarse = torch.cat([bounded(wide), roughness.expand_as(wide[:, :1])], dim=1)
        local = self.detail(torch.cat([fine, bounded(self.kinks(solution)), roughness.expand_as(fine[:, :1])], dim=1))
        tokens = None
        if noise is not None:
            tokens, points = self.known(noise).split([self.config.channels, self.config.detail], dim=1)
            local = local + points
        latent = self.encode(fine, coarse, self.padded(local), tokens)
        return torch.sigmoid(self.detail.decode(local, latent, self.head(latent), self.cropped))

    def known(self, noise: Noise) -> Features:
        """Return what tokens and working points get for a noise; nothing where it is not known."""
        spread = self.input_normaliser.deviation.square().mean().sqrt()
        noise = noise.to(spread.dtype)
        given = (noise >= 0).to(noise.dtype)
        level = torch.log(noise.clamp(min=0) / spread + QUIET)
        return self.told(torch.stack([given, given * level], dim=1))[:, :, None, None]

    def cropped(self, x: Features) -> Features:
        """Return fields without what `padded` adds to them."""
        before, side = self.overhang // 2, self.config.working
        return x[:, :, before : before + side, before : before + side]

    def kinks(self, solution: Plane) -> Features:
        """Return the kinks of the pressure on its own grid, averaged on the working grid."""
        working = torch.arange(self.config.working, device=solution.device)
        counted = indices(solution.shape[1:], solution.device)
        axes = [Axis(each, working, WALL, solution.dtype) for each in counted]
        return kinks(solution, axes, self.low, self.high, self.low.dtype)

    def encode(self, fine: Features, coarse: Features, local: Features, known: Features | None = None) -> Features:
        """Return features of the blocks, for standardised features, those of the padded working grid and the noise."""
        patches = self.patch(self.padded(fine, self.config.halo))
        blocks = self.join(torch.cat([patches, coarse], dim=1)) + self.detail.pool(local)
        if known is not None:
            blocks = blocks + known
        tokens = blocks.flatten(2).transpose(1, 2)
        for layer in self.encoder:
            tokens = layer(tokens, self.positions.to(tokens.dtype))
        return tokens.transpose(1, 2).unflatten(2, blocks.shape[2:])


class Detail(nn.Module):
    """Convolutions on the working grid, before and after the encoder.

    Those that lead to other layers start small, so they change little about a network that was trained without them.

    Args:
        inputs: The number of channels in.
        config: The sizes.
    """

    def __init__(self, inputs: int, config: EquivariantInverseConfig) -> None:
        super().__init__()
        width, block = config.detail, config.block
        self.first, self.second, self.third = (
            nn.Conv2d(channels, width, 3, padding=1) for channels in (inputs, width, width)
        )
        self.pool = nn.Conv2d(width, config.channels, block, stride=block)
        self.unpool = nn.ConvTranspose2d(config.channels, width, block, stride=block)
        self.last = nn.Conv2d(width, 1, 3, padding=1)
        self.block = block
        for layer in (self.pool, self.last):
            nn.init.normal_(layer.weight, std=1e-3)
            nn.init.zeros_(cast("Tensor", layer.bias))

    def forward(self, fine: Features) -> Features:
        """Return features of the working points, for those that were measured."""
        return functional.silu(self.second(functional.silu(self.first(fine))))

    def decode(
        self, local: Features, latent: Features, blocks: Features, cropped: Callable[[Features], Features]
    ) -> Plane:
        """Return the logit of each working point.

        Args:
            local: Features of the working points.
            latent: Features of the blocks.
            blocks: The logit of each block.
            cropped: Removes the part of the outermost blocks that lies outside the working grid.
        """
        x = functional.silu(self.third(local) + cropped(self.unpool(latent)))
        each = blocks[:, :, :, None, :, None].expand(-1, -1, -1, self.block, -1, self.block)
        return (self.last(x) + cropped(each.flatten(4, 5).flatten(2, 3)))[:, 0]


OPERATOR = OperatorKind("equivariant-inverse", EquivariantInverseConfig, EquivariantInverseOperator)
