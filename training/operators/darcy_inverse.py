r"""The operator for the inverse Darcy problem: from a measured pressure on any grid to block means of the permeability.

.. code-block:: text

    solution [B, H, W]
      -> standardised pressure, and its slopes and curvatures averaged over narrow widths [B, D, F, F]
      -> one patch per block -> add those averaged over wide widths: tokens [B, T*T, C] -> L encoder layers
      -> convolution -> share of the more permeable material
    coefficient [B, T, T]

The tokens are the blocks of the output. The config fixes all sizes. Only the differences and their averages depend on
the grid of the input. The mean size of the finest curvatures measures the noise; every block gets it as a feature.

The misfit is how far the output is from explaining the input: the pressure of the predicted permeability is computed by
finite volumes on the working grid and compared with the measured one at its own points. A block of both materials has
an effective permeability between the harmonic and the arithmetic mean, for which their geometric mean stands:

.. math::
    m = \frac{\|u(\hat a) - u\|}{\|u\|}
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from pydantic import model_validator
from torch import Tensor, nn
from torch.nn import functional

from physics.numerics.grid import WALL
from training.nn.coordinates import indices, square_positions
from training.nn.elliptic import certified_gradients as gradients
from training.nn.elliptic import fast_diagonalisation
from training.nn.encoder import EncoderConfig, LocalMixing, encoder_stack
from training.nn.measured.curvature import FEATURES, Axis, derivatives
from training.nn.normaliser import Normaliser
from training.nn.resampling.interpolation import resample, sample
from training.nn.shapes import Blocks, Features, Plane
from training.operators.operator import Operator, OperatorKind

STEPS = 7
"""Conjugate gradient iterations for the misfit, after which they change it by less than a twentieth."""


class DarcyInverseConfig(EncoderConfig):
    """Sizes of an inverse Darcy operator."""

    kind: Literal["darcy-inverse"] = "darcy-inverse"
    working: int = 141  # side of the working grid, F
    tokens: int = 36  # side of the output, T
    narrow: tuple[float, ...] = (1.0, 2.0)  # widths of the averages on the working grid, in its steps
    wide: tuple[float, ...] = (4.0, 8.0, 16.0)  # widths of those on the output's grid
    halo: int = 2  # working points of a patch beyond its block on each side
    patch: int = 256  # hidden features of a patch
    channels: int = 64  # features of a token, C
    heads: int = 4
    layers: int = 6
    feedforward: int = 128
    local: int = 3  # stencil of the depthwise convolution beside the attention; 0: no convolution

    @model_validator(mode="after")
    def blocks_fit(self) -> DarcyInverseConfig:
        """Refuse blocks outside the working grid.

        Raises:
            ValueError: The last block lies outside.
        """
        if (self.tokens - 1) * self.block >= self.working:
            raise ValueError(
                f"expected tokens such that {self.tokens} blocks of {self.block} points cover working = {self.working}"
            )
        return self

    @property
    def block(self) -> int:
        """The number of working points along one side of a block."""
        return -(-self.working // self.tokens)


class DarcyInverseOperator(Operator):
    """See the diagram of the module. The config fixes every size.

    Example:
        >>> operator = DarcyInverseOperator(DarcyInverseConfig(working=29, tokens=8, patch=16, channels=16, layers=1))
        >>> operator(torch.rand(2, 40, 30)).shape
        torch.Size([2, 8, 8])
    """

    config: DarcyInverseConfig
    quality = ("misfit",)

    positions: Tensor
    narrow_sizes: Tensor
    wide_sizes: Tensor
    low: Tensor
    high: Tensor

    def __init__(self, config: DarcyInverseConfig) -> None:
        super().__init__()
        self.config = config
        narrow, wide = (FEATURES * len(widths) for widths in (config.narrow, config.wide))
        self.input_normaliser = Normaliser((config.working, config.working))
        self.register_buffer("narrow_sizes", torch.ones(narrow, 1, 1))
        self.register_buffer("wide_sizes", torch.ones(wide, 1, 1))
        self.register_buffer("low", torch.ones(()))
        self.register_buffer("high", torch.full((), 2.0))
        self.register_buffer("positions", square_positions(config.tokens), persistent=False)
        kernel = config.block + 2 * config.halo
        self.patch = nn.Sequential(nn.Conv2d(narrow + 1, config.patch, kernel, stride=config.block), nn.SiLU())
        self.join = nn.Conv2d(config.patch + wide + 1, config.channels, 1)
        self.encoder = encoder_stack(
            config,
            coordinates=2,
            local=lambda: LocalMixing(config.channels, (config.tokens, config.tokens), config.local),
        )
        self.head = nn.Sequential(
            nn.Conv2d(config.channels, config.channels, 3, padding=1),
            nn.SiLU(),
            nn.Conv2d(config.channels, 1, 1),
            nn.Sigmoid(),
        )

    @torch.no_grad()
    def fit_normalisers(self, solutions: Plane, coefficients: Blocks) -> None:
        """Set the statistics to those of the training fields: sizes of the features, and bounds of the output."""
        measured = [self.measure(part) for part in solutions.split(16)]
        self.input_normaliser.fit(torch.cat([pressure for pressure, _, _ in measured]))
        for sizes, position in ((self.narrow_sizes, 1), (self.wide_sizes, 2)):
            parts = [part[position].abs().mean(dim=(2, 3)) for part in measured]
            sizes.copy_(torch.cat(parts).mean(dim=0)[:, None, None])
        self.low.copy_(coefficients.min())
        self.high.copy_(coefficients.max())

    def forward(self, solution: Plane) -> Blocks:
        return self.means(self.shares(solution))

    def with_quality(self, *fields: Plane) -> tuple[Blocks, Float[Tensor, "batch 1"]]:
        """Return the block means, and the misfit of their pressure.

        Args:
            fields: The measured pressure `[batch, row, column]`.

        Returns:
            The block means `[batch, block, block]`, and the relative L2 distance between the measured pressure and that
            of the block means `[batch, 1]`.
        """
        [solution] = fields
        shares = self.shares(solution)
        explained = sample(self.pressure(shares), *indices(solution.shape[1:], solution.device))
        distance, size = (torch.linalg.vector_norm(each, dim=(1, 2)) for each in (explained - solution, solution))
        return self.means(shares), (distance / size.clamp(min=torch.finfo(size.dtype).tiny))[:, None]

    def means(self, shares: Blocks) -> Blocks:
        """Return the block means of the permeability."""
        return self.low + (self.high - self.low) * shares

    def pressure(self, shares: Blocks) -> Plane:
        """Return the pressure on the working grid to the shares of the more permeable material."""
        harmonic = 1 / ((1 - shares) / self.low + shares / self.high)
        scale = torch.sqrt(self.low * self.high)
        index = torch.arange(self.config.working, device=shares.device)
        block = (index + self.overhang // 2) // self.config.block
        effective = (torch.sqrt(self.means(shares) * harmonic) / scale).index_select(1, block).index_select(2, block)
        axis = fast_diagonalisation.axis(index, WALL, shares.dtype)
        volumes = gradients.Volumes.of(axis, axis)
        each = torch.ones_like(shares[:, :1, :1])
        bounds = gradients.Range(each * self.low / scale, each * self.high / scale)
        load = volumes.areas.expand_as(effective)
        return gradients.solve(volumes, gradients.means(effective), load, bounds, STEPS).solution / scale

    def shares(self, solution: Plane) -> Blocks:
        """Return the share of the more permeable material in each block."""
        pressure, narrow, wide = self.measure(solution)
        narrow, wide = narrow / self.narrow_sizes, wide / self.wide_sizes
        bends = narrow[:, FEATURES - 1 : FEATURES].abs().mean(dim=(2, 3), keepdim=True)
        roughness = torch.log(bends.clamp(min=torch.finfo(bends.dtype).tiny))
        fine = bounded(torch.cat([self.input_normaliser(pressure)[:, None], narrow], dim=1))
        coarse = torch.cat([bounded(wide), roughness.expand_as(wide[:, :1])], dim=1)
        return self.solve(fine, coarse)

    @property
    def overhang(self) -> int:
        """The number of points by which the blocks exceed the working grid."""
        return self.config.block * self.config.tokens - self.config.working

    def measure(self, solution: Plane) -> tuple[Features, Features, Features]:
        """Return pressure and narrow derivatives on the working grid, and wide ones on the output's grid."""
        config, device = self.config, solution.device
        axes = indices(solution.shape[1:], device)
        working, output = indices((config.working, config.tokens), device)
        fine, coarse = ([Axis(axis, target, WALL, solution.dtype) for axis in axes] for target in (working, output))
        # One step of the output's grid is `block` steps of the working grid.
        wide = tuple(width / config.block for width in config.wide)
        dtype = self.low.dtype
        return (
            resample(solution.to(dtype), working, working),
            derivatives(solution, fine, config.narrow, dtype),
            derivatives(solution, coarse, wide, dtype),
        )

    def solve(self, fine: Features, coarse: Features) -> Blocks:
        """Return the share of the more permeable material in each block, in (0, 1), for standardised features."""
        config = self.config
        ends = [self.overhang // 2 + config.halo, self.overhang - self.overhang // 2 + config.halo]
        blocks = self.join(torch.cat([self.patch(functional.pad(fine, ends * 2)), coarse], dim=1))
        tokens = blocks.flatten(2).transpose(1, 2)
        for layer in self.encoder:
            tokens = layer(tokens, self.positions.to(tokens.dtype))
        return self.head(tokens.transpose(1, 2).unflatten(2, blocks.shape[2:]))[:, 0]


def bounded(x: Features) -> Features:
    """Return x / (1 + |x|/4), which is close to x for usual values and bounds those of kinks and noise."""
    return x / (1 + x.abs() / 4)


OPERATOR = OperatorKind("darcy-inverse", DarcyInverseConfig, DarcyInverseOperator)
