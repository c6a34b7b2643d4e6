r"""The operators for the inverse Darcy problem: a measured pressure on any grid to block means of the permeability.

`DarcyInverseOperator` knows two materials:

.. code-block:: text

    solution [B, H, W]
      -> standardised pressure, and its slopes and curvatures averaged over narrow widths [B, D, F, F]
      -> one patch per block -> add those averaged over wide widths: tokens [B, T*T, C] -> L encoder layers
      -> convolution -> share of the more permeable material
    coefficient [B, T, T]

The tokens are the blocks of the output. The config fixes all sizes. Only the differences and their averages depend on
the grid of the input. The mean size of the finest curvatures measures the noise; every block gets it as a feature.

The misfit is how far the output is from explaining the input: the pressure of the predicted permeability is computed by
finite volumes on the working grid and compared with the measured one at its own points. A point or a block of both
materials has an effective permeability between the harmonic and the arithmetic mean, for which their geometric mean
stands:

.. math::
    m = \frac{\|u(\hat a) - u\|}{\|u\|}

`EquivariantInverseOperator` serves materials of any scale, and sees interfaces below the spacing of the working grid:

.. code-block:: text

    solution [B, H, W]
      -> divided by a scale of its own
      -> as above -> logit of each block
      -> those features and the kinks of the pressure on its own grid -> convolutions -> logit of each working point
      -> share of the more permeable material at each working point -> means over the blocks
      -> times the scale at which the pressure of this permeability is nearest to the input
    coefficient [B, T, T]

Where two materials meet, the flux a u' is continuous and u' is not. A second difference across the interface has a part
for either neighbour of it, and their ratio is the position of the interface between two points. So the convolutions on
the working grid see below its spacing. Inside a material -1/Laplace(u) is its permeability.

The scale makes the map equivariant: the permeability of c u is that of u divided by c. It is first estimated from the
pressure's shape, to about a hundredth. The output takes the one of least squares: with the pressure p of the predicted
permeability, which finite volumes on the working grid give, the least distance of u and c p is at

.. math::
    c = \frac{\langle p, u \rangle}{\langle p, p \rangle}, \qquad m = \frac{\|u - c p\|}{\|u\|},

where m is the misfit.

The deviation of the noise may be passed. Tokens and working points then get its logarithm, relative to the spread of
the training pressures; else the network infers the noise from the pressure's roughness alone. Training passes it in a
half of the samples.
"""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from pydantic import model_validator
from torch import Tensor, nn
from torch.nn import functional

from physics.numerics.grid import WALL
from training.metrics.fields import relative_l2
from training.nn.elliptic import certified_gradients as gradients
from training.nn.elliptic import fast_diagonalisation
from training.nn.encoder import EncoderConfig, LocalMixing, encoder_stack
from training.nn.grids import Blocks, Features, Plane, indices, resample, sample, square_positions
from training.nn.measured import FEATURES, KINKS, AxisDifferences, Detail, PressureScale, derivatives, kinks
from training.nn.pointwise import Normaliser
from training.operators.operator import Operator, OperatorKind

STEPS = 7
"""Conjugate gradient iterations for the misfit, after which they change it by less than a twentieth."""

FINE = 0.3
"""Weight of the error on the working grid in the loss."""

SMALLEST = 1e-30
"""The size of a pressure of 0."""

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
    """See the first diagram of the module. The config fixes every size.

    Example:
        >>> operator = DarcyInverseOperator(DarcyInverseConfig(working=29, tokens=8, patch=16, channels=16, layers=1))
        >>> operator(torch.rand(2, 40, 30)).shape
        torch.Size([2, 8, 8])
    """

    config: DarcyInverseConfig
    quality = ("misfit",)
    smoothest: float = torch.finfo(torch.float32).tiny  # least mean size of the curvatures, relative to the training's

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
        """Return the block means of a measured pressure, and the misfit `[batch, 1]` of the pressure of these means."""
        [solution] = fields
        shares = self.shares(solution)
        block = (torch.arange(self.config.working, device=shares.device) + self.overhang // 2) // self.config.block
        pressure = self.pressure(shares.index_select(1, block).index_select(2, block))
        explained = sample(pressure, *indices(solution.shape[1:], solution.device))
        distance, size = (torch.linalg.vector_norm(each, dim=(1, 2)) for each in (explained - solution, solution))
        return self.means(shares), (distance / size.clamp(min=torch.finfo(size.dtype).tiny))[:, None]

    def means(self, shares: Tensor) -> Tensor:
        """Return the permeability of a share of the more permeable material."""
        return self.low + (self.high - self.low) * shares

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

    def shares(self, solution: Plane) -> Blocks:
        """Return the share of the more permeable material in each block, in (0, 1)."""
        fine, coarse, _ = self.features(solution)
        return self.head(self.encode(self.embed(fine, coarse)))[:, 0]

    def features(self, solution: Plane) -> tuple[Features, Features, Features]:
        """Return standardised features on the working grid and on the output's, and the logarithm of the roughness."""
        pressure, narrow, wide = self.measure(solution)
        narrow, wide = narrow / self.narrow_sizes, wide / self.wide_sizes
        bends = narrow[:, FEATURES - 1 : FEATURES].abs().mean(dim=(2, 3), keepdim=True)
        roughness = torch.log(bends.clamp(min=self.smoothest))
        fine = bounded(torch.cat([self.input_normaliser(pressure)[:, None], narrow], dim=1))
        return fine, torch.cat([bounded(wide), roughness.expand_as(wide[:, :1])], dim=1), roughness

    @property
    def overhang(self) -> int:
        """The number of points by which the blocks exceed the working grid."""
        return self.config.block * self.config.tokens - self.config.working

    def padded(self, x: Features, halo: int = 0) -> Features:
        """Return fields on the working grid with zeros around them, which fill the outermost blocks and their halo."""
        before = self.overhang // 2
        return functional.pad(x, [before + halo, self.overhang - before + halo] * 2)

    def measure(self, solution: Plane) -> tuple[Features, Features, Features]:
        """Return pressure and narrow derivatives on the working grid, and wide ones on the output's grid."""
        config, device = self.config, solution.device
        axes = indices(solution.shape[1:], device)
        working, output = indices((config.working, config.tokens), device)
        fine, coarse = (
            [AxisDifferences(axis, target, WALL, solution.dtype) for axis in axes] for target in (working, output)
        )
        # One step of the output's grid is `block` steps of the working grid.
        wide = tuple(width / config.block for width in config.wide)
        dtype = self.low.dtype
        return (
            resample(solution.to(dtype), working, working),
            derivatives(solution, fine, config.narrow, dtype),
            derivatives(solution, coarse, wide, dtype),
        )

    def embed(self, fine: Features, coarse: Features) -> Features:
        """Return features `[B, C, T, T]` of the blocks: those of a patch each, and those on the output's grid."""
        return self.join(torch.cat([self.patch(self.padded(fine, self.config.halo)), coarse], dim=1))

    def encode(self, blocks: Features) -> Features:
        """Mix the blocks `[B, C, T, T]` as tokens."""
        tokens = blocks.flatten(2).transpose(1, 2)
        for layer in self.encoder:
            tokens = layer(tokens, self.positions.to(tokens.dtype))
        return tokens.transpose(1, 2).unflatten(2, blocks.shape[2:])


def bounded(x: Features) -> Features:
    """Return x / (1 + |x|/4), which is close to x for usual values and bounds those of kinks and noise."""
    return x / (1 + x.abs() / 4)


class EquivariantInverseConfig(DarcyInverseConfig):
    """Sizes of an equivariant inverse operator."""

    kind: Literal["equivariant-inverse"] = "equivariant-inverse"  # type: ignore[assignment]  # a kind of its own
    detail: int = 24  # features of a working point


class EquivariantInverseOperator(DarcyInverseOperator):
    """See the second diagram of the module. The config fixes every size.

    Example:
        >>> config = EquivariantInverseConfig(working=29, tokens=8, patch=16, channels=16, layers=1)
        >>> operator, pressure = EquivariantInverseOperator(config).eval(), torch.rand(2, 40, 30)
        >>> torch.allclose(operator(pressure / 2), 2 * operator(pressure), rtol=1e-4)
        True
    """

    config: EquivariantInverseConfig
    optional = True
    smoothest = 1e-3

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
        """Return block means, and the misfit of their pressure; a noise that is not known is negative."""
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

    def shares(self, solution: Plane, noise: Noise | None = None) -> Float[Tensor, "batch point_row point_column"]:
        """Return the share of the more permeable material at each point of the working grid, in (0, 1)."""
        fine, coarse, roughness = self.features(solution)
        working = torch.arange(self.config.working, device=solution.device)
        sides = indices(solution.shape[1:], solution.device)
        axes = [AxisDifferences(each, working, WALL, solution.dtype) for each in sides]
        bends = kinks(solution, axes, self.low, self.high, self.low.dtype)
        local = self.detail(torch.cat([fine, bounded(bends), roughness.expand_as(fine[:, :1])], dim=1))
        tokens = None
        if noise is not None:
            tokens, points = self.known(noise).split([self.config.channels, self.config.detail], dim=1)
            local = local + points
        padded = self.padded(local)
        blocks = self.embed(fine, coarse) + self.detail.pool(padded)
        latent = self.encode(blocks if tokens is None else blocks + tokens)
        return torch.sigmoid(self.detail.decode(local, latent, self.head(latent), self.overhang // 2))

    def known(self, noise: Noise) -> Features:
        """Return what tokens and working points get for a noise; nothing where it is not known."""
        spread = self.input_normaliser.deviation.square().mean().sqrt()
        noise = noise.to(spread.dtype)
        given = (noise >= 0).to(noise.dtype)
        level = torch.log(noise.clamp(min=0) / spread + QUIET)
        return self.told(torch.stack([given, given * level], dim=1))[:, :, None, None]


OPERATOR = (
    OperatorKind("darcy-inverse", DarcyInverseConfig, DarcyInverseOperator),
    OperatorKind("equivariant-inverse", EquivariantInverseConfig, EquivariantInverseOperator),
)
