r"""The inverse Darcy operator: takes a measured pressure on any grid, gives the permeability averaged over blocks.

.. code-block:: text

    solution [B, H, W]
      -> in standard units: the pressure, its slopes and curvatures averaged over narrow widths [B, D, F, F]
      -> one patch a block -> joined by those averaged over wide widths: tokens [B, T*T, C] -> L encoder layers
      -> convolution -> share of the more permeable material
    coefficient [B, T, T]

The tokens are the answer's blocks. All sizes are fixed by the recipe; only the differences and their averages see the
grid of the question. How noisy a measurement is shows in its finest curvatures, whose mean size every block is told.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import model_validator
from torch import Tensor, nn
from torch.nn import functional

from training.nn.curvature import FEATURES, Axis, derivatives
from training.nn.encoder import EncoderConfig, LocalMixing, encoder_stack, square_positions
from training.nn.normaliser import Normaliser
from training.nn.resampling import resample
from training.nn.shapes import Blocks, Carried, Plane
from training.operators.darcy import WALL


class DarcyInverseConfig(EncoderConfig):
    """Sizes of an inverse Darcy operator."""

    kind: Literal["darcy-inverse"] = "darcy-inverse"
    working: int = 141  # side of the working grid, F
    tokens: int = 36  # side of the answer, T
    narrow: tuple[float, ...] = (1.0, 2.0)  # widths of the averages on the working grid, in its steps
    wide: tuple[float, ...] = (4.0, 8.0, 16.0)  # and of those on the answer's grid
    halo: int = 2  # working points that a patch sees beyond its block on each side
    patch: int = 256  # hidden features of a patch
    channels: int = 64  # features of a token, C
    heads: int = 4
    layers: int = 6
    feedforward: int = 128
    local: int = 3  # stencil of the depthwise convolution beside the attention; 0 leaves it out

    @model_validator(mode="after")
    def blocks_fit(self) -> DarcyInverseConfig:
        """Refuse blocks that would lie outside the working grid."""
        if (self.tokens - 1) * self.block >= self.working:
            raise ValueError(f"cannot lay {self.tokens} blocks of {self.block} points over {self.working}")
        return self

    @property
    def block(self) -> int:
        """Working points along one side of a block."""
        return -(-self.working // self.tokens)


class DarcyInverseOperator(nn.Module):
    """See the module's picture; `config` fixes every size."""

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
        self.register_buffer("low", torch.zeros(()))
        self.register_buffer("high", torch.ones(()))
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
        """Take the statistics of the training fields: sizes of the features, and the answer's bounds."""
        measured = [self.measure(part) for part in solutions.split(16)]
        self.input_normaliser.fit(torch.cat([pressure for pressure, _, _ in measured]))
        for sizes, position in ((self.narrow_sizes, 1), (self.wide_sizes, 2)):
            parts = [part[position].abs().mean(dim=(2, 3)) for part in measured]
            sizes.copy_(torch.cat(parts).mean(dim=0)[:, None, None])
        self.low.copy_(coefficients.min())
        self.high.copy_(coefficients.max())

    def forward(self, solution: Plane) -> Blocks:
        pressure, narrow, wide = self.measure(solution)
        narrow, wide = narrow / self.narrow_sizes, wide / self.wide_sizes
        roughness = torch.log(narrow[:, FEATURES - 1 : FEATURES].abs().mean(dim=(2, 3), keepdim=True))
        fine = bounded(torch.cat([self.input_normaliser(pressure)[:, None], narrow], dim=1))
        coarse = torch.cat([bounded(wide), roughness.expand_as(wide[:, :1])], dim=1)
        return self.low + (self.high - self.low) * self.solve(fine, coarse)

    def measure(self, solution: Plane) -> tuple[Carried, Carried, Carried]:
        """Give, in physical units, pressure and narrow derivatives on the working grid, wide ones on the answer's."""
        config, device = self.config, solution.device
        index = [torch.arange(side, device=device) for side in solution.shape[1:]]
        working, answer = (torch.arange(side, device=device) for side in (config.working, config.tokens))
        fine, coarse = ([Axis(along, target, WALL, solution.dtype) for along in index] for target in (working, answer))
        # One step of the working grid is `block` times finer than one of the answer's.
        wide = tuple(width / config.block for width in config.wide)
        return (
            resample(solution, working, working),
            derivatives(solution, fine, config.narrow),
            derivatives(solution, coarse, wide),
        )

    def solve(self, fine: Carried, coarse: Carried) -> Blocks:
        """Give each block's share of the more permeable material, in (0, 1), of standardised features."""
        config = self.config
        overhang = config.block * config.tokens - config.working
        ends = [overhang // 2 + config.halo, overhang - overhang // 2 + config.halo]
        blocks = self.join(torch.cat([self.patch(functional.pad(fine, ends * 2)), coarse], dim=1))
        tokens = blocks.flatten(2).transpose(1, 2)
        for layer in self.encoder:
            tokens = layer(tokens, self.positions.to(tokens.dtype))
        return self.head(tokens.transpose(1, 2).unflatten(2, blocks.shape[2:]))[:, 0]


def bounded(x: Carried) -> Carried:
    """Give x / (1 + |x|/4), which hardly changes what is of ordinary size and tames the kinks and the noise."""
    return x / (1 + x.abs() / 4)
